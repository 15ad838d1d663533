"""A canonical order of the nodes of a graph, which does not depend on the order in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from nas_rlm.graph.limits import check_time

MAX_TIE_BREAKS = 64  # between indistinguishable values; further ties keep the order of the file
# Number of inputs; for each node its label, if it commutes, the values it reads, and how many it defines;
# and the output values. Values are numbered in the order of definition, inputs first.
Form = tuple[int, tuple[tuple[int, bool, tuple[int, ...], int], ...], tuple[int, ...]]


@lru_cache(maxsize=1 << 11)
def canonical_order(
    form: Form, leaf_hashes: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...] | None]] | None:
    """Return the canonical order of the nodes and of the operands of commutative operators.

    Values are coloured by hashes from the inputs to the outputs and back, then visited depth first from the
    outputs; operands of commutative operators are sorted by decreasing depth. Dead code is left out.

    Args:
        form: structure of the graph, see `Form`.
        leaf_hashes: a hash of the leaves of each node, which orders nodes of equal structure; may be empty.

    Returns:
        For each node in canonical order, its position in `form` and the order of its operands (None if
        unchanged). None instead of the list if the order depends on leaves and `leaf_hashes` is empty.
    """
    _, nodes, outputs = form
    ranking = _rank_operands(form)
    producer, operands = ranking.producer, ranking.operands
    if ranking.tied:
        if not leaf_hashes:
            return None
        operands = list(operands)
        leaf_colour = _colour_with_leaves(form, leaf_hashes, ranking.colour)
        tie_colour = _break_ties(form, leaf_hashes, leaf_colour)
        for i in ranking.tied:
            values = nodes[i][2]
            keys = [
                (-ranking.depth[v], ranking.colour[v], leaf_colour[v], tie_colour[v], v, k)
                for k, v in enumerate(values)
            ]
            operands[i] = _permutation([key[-1] for key in sorted(keys)])

    ordered_nodes: list[tuple[int, tuple[int, ...] | None]] = []
    is_visited = [False] * len(nodes)
    stack = [producer[v] for v in reversed(outputs) if producer[v] >= 0]
    while stack:
        i = stack.pop()
        if i < 0:  # ~i follows the nodes that node i reads
            ordered_nodes.append((~i, operands[~i]))
        elif not is_visited[i]:
            is_visited[i] = True
            stack.append(~i)
            values = nodes[i][2]
            order = operands[i]
            if order is not None:
                values = tuple([values[k] for k in order])
            for v in values[::-1]:
                p = producer[v]
                if p >= 0 and not is_visited[p]:
                    stack.append(p)
    return ordered_nodes


class _Ranking(NamedTuple):
    """The order of the operands of commutative operators, as far as it does not depend on leaves.

    Args:
        depth: for each value, the length of the longest path to it.
        producer: for each value, the position of the node that defines it; -1 for an input.
        operands: for each node the order of its operands; None if unchanged.
        colour: for each value a hash, see `_colour_values`; empty if depths decide everywhere.
        tied: positions of the nodes whose operands are ordered by their leaves.
    """

    depth: list[int]
    producer: list[int]
    operands: list[tuple[int, ...] | None]
    colour: list[int]
    tied: list[int]


@lru_cache(maxsize=4)  # canonical_order is called again for the same form if leaves have to decide
def _rank_operands(form: Form) -> _Ranking:
    """Return the order of the operands of each commutative operator without regard to leaves."""
    inputs, nodes, _ = form
    depth = [0] * inputs
    producer = [-1] * inputs
    operands: list[tuple[int, ...] | None] = [None] * len(nodes)
    colour: list[int] = []
    tied: list[int] = []
    for i, (_, commutes, values, outs) in enumerate(nodes):
        if len(values) == 1:
            d = 1 + depth[values[0]]
        else:
            depths = [depth[v] for v in values]
            d = 1 + max(depths, default=0)
            if commutes and len(set(depths)) == len(set(values)):
                operands[i] = _permutation(sorted(range(len(values)), key=[-k for k in depths].__getitem__))
            elif commutes:
                colour = colour or _colour_values(form)
                keys = sorted([(-depth[v], colour[v], v, k) for k, v in enumerate(values)])
                operands[i] = _permutation([key[-1] for key in keys])
                if any(a[1] == b[1] and a[2] != b[2] for a, b in pairwise(keys)):
                    tied.append(i)
        if outs == 1:
            depth.append(d)
            producer.append(i)
        else:
            depth += [d] * outs
            producer += [i] * outs
    return _Ranking(depth, producer, operands, colour, tied)


def _permutation(order: list[int]) -> tuple[int, ...] | None:
    """Return an order of operands; None if it leaves them unchanged."""
    return tuple(order) if order != list(range(len(order))) else None


def _colour_values(form: Form) -> list[int]:
    """Return for each value a hash of its ancestors and descendants in the graph."""
    inputs, nodes, outputs = form
    up = [_hash_pair(1, i) for i in range(inputs)]
    for label, commutes, values, outs in nodes:
        if len(values) == 1:
            h = _hash_pair(label, up[values[0]])
        else:
            hash_parts = [up[v] for v in values]
            h = _hash_ints([label, *(sorted(hash_parts) if commutes else hash_parts)])
        if outs == 1:
            up.append(_hash_pair(h, 0))
        else:
            up += [_hash_pair(h, k) for k in range(outs)]
    below: list[list[int]] = [[] for _ in up]
    for k, v in enumerate(outputs):
        below[v].append(_hash_pair(2, k))
    colour = [0] * len(up)
    v = len(up)
    for label, commutes, values, outs in reversed(nodes):
        v -= outs
        if outs == 1:
            colour[v] = c = _hash_below(up[v], below[v])
            h = _hash_pair(label, c)
        else:
            colour[v : v + outs] = own = [_hash_below(up[k], below[k]) for k in range(v, v + outs)]
            h = _hash_ints([label, *own])
        for k, operand in enumerate(values):
            below[operand].append(h if commutes else _hash_pair(h, k))
    for v in range(inputs):
        colour[v] = _hash_below(up[v], below[v])
    return colour


def _hash_below(up: int, below: list[int]) -> int:
    """Return a hash of the ancestors of a value and of its readers."""
    return _hash_pair(up, below[0]) if len(below) == 1 else _hash_ints([up, *sorted(below)])


def _colour_with_leaves(form: Form, leaf_hashes: tuple[int, ...], colour: list[int]) -> list[int]:
    """Return for each value a hash of its colour and of the leaves that it depends on."""
    inputs, nodes, _ = form
    leaf_colour = list(colour)
    num_values = inputs
    for (_, commutes, values, outs), leaves in zip(nodes, leaf_hashes, strict=False):
        if len(values) == 1:
            h = _hash_pair(leaves, leaf_colour[values[0]])
        else:
            hash_parts = [leaf_colour[v] for v in values]
            h = _hash_ints([leaves, *(sorted(hash_parts) if commutes else hash_parts)])
        for v in range(num_values, num_values + outs):
            leaf_colour[v] = _hash_pair(colour[v], h)
        num_values += outs
    return leaf_colour


def _break_ties(form: Form, leaf_hashes: tuple[int, ...], colour: list[int]) -> list[int]:
    """Return for each value a colour that is unique among the operands of each commutative operator.

    If tied values are read only once each, every order of them gives the same graph, and ties remain.
    Otherwise the order of one pair affects that of others, so that values are coloured again after each.
    """
    inputs, nodes, outputs = form
    num_equal, readers = Counter(colour), Counter(v for _, _, values, _ in nodes for v in values)
    if all(n < 2 or num_equal[colour[v]] < 2 for v, n in readers.items()):
        return colour
    firsts = list(accumulate((outs for *_, outs in nodes), initial=inputs))
    for _ in range(MAX_TIE_BREAKS):
        check_time()
        num_colours = 0
        while len(set(colour)) > num_colours:
            num_colours = len(set(colour))
            labels = [
                _hash_ints([leaves, label, *colour[first : first + outs]])
                for leaves, first, (label, _, _, outs) in zip(leaf_hashes, firsts, nodes, strict=False)
            ]
            relabelled = tuple([(label, *node[1:]) for label, node in zip(labels, nodes, strict=True)])
            colour = _colour_values((inputs, relabelled, outputs))
        tied = []
        for _, commutes, values, _ in nodes:
            if commutes and len(values) > 1:
                first_by_colour: dict[int, int] = {}
                for v in sorted(set(values)):
                    first = first_by_colour.setdefault(colour[v], v)
                    if first != v:
                        tied.append((colour[v], first))
        if not tied:
            break
        _, first = min(tied)
        colour[first] = _hash_pair(colour[first], 1)
    return colour


def _hash_ints(values: Sequence[int]) -> int:
    """Return a 64-bit hash of a sequence of integers, the same on every machine."""
    h = 0x9E3779B97F4A7C15
    for value in values:
        h = ((h ^ value) * 0xD6E8FEB86659FD93) & 0xFFFFFFFFFFFFFFFF
        h ^= h >> 32
    return h


def _hash_pair(first: int, second: int) -> int:
    """Return `_hash_ints` of two integers; most hashes are of two."""
    h = ((0x9E3779B97F4A7C15 ^ first) * 0xD6E8FEB86659FD93) & 0xFFFFFFFFFFFFFFFF
    h = ((h ^ (h >> 32) ^ second) * 0xD6E8FEB86659FD93) & 0xFFFFFFFFFFFFFFFF
    return h ^ (h >> 32)
