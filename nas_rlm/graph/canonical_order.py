"""The canonical order of a graph's nodes: one that depends on the graph alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, combinations, pairwise

MOST_CHOICES = 64  # between values that nothing tells apart; beyond that, their order may follow the file's
Form = tuple[int, tuple[tuple[int, bool, tuple[int, ...], int], ...], tuple[int, ...]]


@lru_cache(maxsize=1 << 11)
def canonical_order(shape: Form, exact: tuple[int, ...]) -> list[tuple[int, tuple[int, ...] | None]] | None:
    """The canonical order of the nodes, each with the order of its operands where that is free.

    Values are coloured from the inputs up and from the outputs down, then visited depth first from the
    outputs; operands of commutative operators are visited, and kept, deepest first. Dead code is left out.

    Args:
        shape: of the graph: its inputs; for each node a hash of what it does, whether the order of its
            operands is free, these, and the number of values that it defines; the outputs.
        exact: hashes of the nodes' leaves, which decide between nodes that are alike otherwise.

    Returns:
        Positions of nodes; or None if the leaves must decide and are not given.
    """
    inputs, nodes, outputs = shape
    depth = [0] * inputs
    producer = [-1] * inputs
    for i, (_, _, values, outs) in enumerate(nodes):
        d = 1 + (depth[values[0]] if len(values) == 1 else max([depth[v] for v in values], default=0))
        depth += [d] * outs
        producer += [i] * outs
    operands: list[tuple[int, ...] | None] = [None] * len(nodes)
    colour: list[int] = []
    shaped: list[int] = []
    apart: list[int] = []
    for i, (_, commutes, values, _) in enumerate(nodes):
        if not commutes or len(values) < 2:
            continue
        if not colour and len({depth[v] for v in values}) < len(set(values)):
            colour = _colours(shape)
            shaped = _shaped(shape, exact, colour)
            apart = _told_apart(shape, exact, shaped) if exact else colour
        if colour:
            ranked = sorted([(-depth[v], colour[v], shaped[v], apart[v], v, k) for k, v in enumerate(values)])
            if not exact and any(a[1] == b[1] and a[4] != b[4] for a, b in pairwise(ranked)):
                return None
            chosen = tuple([r[5] for r in ranked])
        else:
            chosen = tuple(sorted(range(len(values)), key=lambda k: -depth[values[k]]))
        if chosen != tuple(range(len(chosen))):
            operands[i] = chosen

    placed: list[tuple[int, tuple[int, ...] | None]] = []
    done = [False] * len(nodes)
    for out in outputs:
        stack = [(producer[out], False)] if producer[out] >= 0 else []
        while stack:
            i, ready = stack.pop()
            if done[i]:
                continue
            order = operands[i]
            if ready:
                done[i] = True
                placed.append((i, order))
                continue
            stack.append((i, True))
            values = nodes[i][2]
            visited = values if order is None else [values[k] for k in order]
            makers = [producer[v] for v in reversed(visited)]
            stack.extend([(p, False) for p in makers if p >= 0 and not done[p]])
    return placed


@lru_cache(maxsize=4)  # the same once more where leaves must decide
def _colours(shape: Form) -> list[int]:
    """For each value, a hash of what it is computed from and of what is computed from it."""
    inputs, nodes, outputs = shape
    up = [_mix((1, i)) for i in range(inputs)]
    for label, commutes, values, outs in nodes:
        above = [label, *[up[v] for v in values]]
        h = _mix([label, *sorted(above[1:])] if commutes else above)
        up += [_mix((h, k)) for k in range(outs)]
    below: list[list[int]] = [[] for _ in up]
    for k, v in enumerate(outputs):
        below[v].append(_mix((2, k)))
    colour = [0] * len(up)
    made = len(up)
    for label, commutes, values, outs in reversed(nodes):
        made -= outs
        own = [label]
        for v in range(made, made + outs):
            colour[v] = _mix([up[v], *sorted(below[v])])
            own.append(colour[v])
        h = _mix(own)
        for k, v in enumerate(values):
            below[v].append(h if commutes else _mix((h, k)))
    for v in range(inputs):
        colour[v] = _mix([up[v], *sorted(below[v])])
    return colour


def _shaped(shape: Form, exact: tuple[int, ...], colour: list[int]) -> list[int]:
    """For each value, a hash that knows the leaves as well."""
    inputs, nodes, _ = shape
    shaped = list(colour)
    made = inputs
    for (_, commutes, values, outs), leaves in zip(nodes, exact, strict=False):
        above = [shaped[v] for v in values]
        h = _mix([leaves, *(sorted(above) if commutes else above)])
        for v in range(made, made + outs):
            shaped[v] = _mix((colour[v], h))
        made += outs
    return shaped


def _told_apart(shape: Form, exact: tuple[int, ...], colour: list[int]) -> list[int]:
    """For each value, a hash that differs where the order of operands is free and nothing else decides.

    Where alike values are each read once, one order of them is as good as another. Otherwise the choices
    hang together, so after each of them the values are coloured again.
    """
    inputs, nodes, outputs = shape
    many, readers = Counter(colour), Counter(v for _, _, values, _ in nodes for v in values)
    if all(n < 2 or many[colour[v]] < 2 for v, n in readers.items()):
        return colour
    firsts = list(accumulate((outs for *_, outs in nodes), initial=inputs))
    for _ in range(MOST_CHOICES):
        known = 0
        while len(set(colour)) > known:
            known = len(set(colour))
            labels = [
                _mix([leaves, label, *colour[first : first + outs]])
                for leaves, first, (label, _, _, outs) in zip(exact, firsts, nodes, strict=False)
            ]
            again = tuple([(label, *node[1:]) for label, node in zip(labels, nodes, strict=True)])
            colour = _colours.__wrapped__((inputs, again, outputs))
        alike = [
            (colour[a], a)
            for _, commutes, values, _ in nodes
            if commutes
            for a, b in combinations(sorted(set(values)), 2)
            if colour[a] == colour[b]
        ]
        if not alike:
            break
        _, chosen = min(alike)
        colour[chosen] = _mix((colour[chosen], 1))
    return colour


def _mix(parts: Sequence[int]) -> int:
    """A 64-bit hash of integers in their order, the same everywhere."""
    h = 0x9E3779B97F4A7C15
    for p in parts:
        h = ((h ^ p) * 0xD6E8FEB86659FD93) & 0xFFFFFFFFFFFFFFFF
        h ^= h >> 32
    return h
