"""Regions: from a value that forks to where all its paths have met again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import count

from nas_rlm.graph.cache import remembered
from nas_rlm.graph.ir import FRESH, Block, Given, Node, Param, Spec, call_spec, param, uses

Region = tuple[list[int], Block]


@lru_cache(maxsize=1 << 8)
def regions(block: Block) -> list[Region]:
    """For each node or input whose value forks: the nodes up to where its paths meet, if they are closed.

    Returns:
        Positions of the nodes, and these nodes as a graph.
    """
    if block.is_chain:
        return []
    nodes = block.nodes
    readers = uses(block)
    forks = [v for v, c in readers.items() if len(c) > 1 and len(set(c)) > 1 and v not in block.outputs]
    if not forks:
        return []
    producer = {v: i for i, n in enumerate(nodes) for v in n.outs}
    everything = (1 << (len(nodes) + 1)) - 1
    after = [0] * len(nodes)
    for i in range(len(nodes) - 1, -1, -1):
        mask = everything
        for v in nodes[i].outs:
            for c in readers[v]:
                mask &= after[c]
            if v in block.outputs:
                mask = 0
        after[i] = (1 << i) | (mask if mask != everything else 0)
    before = [0] * len(nodes)
    for i, n in enumerate(nodes):
        mask = everything
        for v in n.values:
            mask &= before[producer[v]] if v in producer else 1 << len(nodes)
        before[i] = (1 << i) | (mask if n.values else 0)
    found = []
    for v in forks:
        meet = everything
        for c in readers[v]:
            meet &= after[c]
        meet &= (1 << len(nodes)) - 1
        if not meet:
            continue
        last = (meet & -meet).bit_length() - 1
        entry = producer.get(v, len(nodes))
        if not before[last] >> entry & 1 or (entry < len(nodes) and len(nodes[entry].outs) > 1):
            continue
        first = entry + 1 if entry < len(nodes) else 0
        inside = [i for i in range(first, last + 1) if before[i] >> entry & 1 and after[i] >> last & 1]
        if len(inside) >= 2 and len(nodes[last].outs) == 1:
            members = set(inside)
            if all(a == v or producer.get(a) in members for i in inside for a in nodes[i].values):
                found.append((inside, extract(block, inside)))
    return found


def inner_regions(block: Block) -> list[Block]:
    """The regions of a block that are not all of it."""
    return [part for positions, part in regions(block) if len(positions) < len(block.nodes)]


def extract(block: Block, positions: list[int]) -> Block:
    """Some of the nodes as a graph of its own, whose output is that of the last one."""
    nodes = [block.nodes[i] for i in positions]
    made = {v for n in nodes for v in n.outs}
    entries = dict.fromkeys(v for n in nodes for v in n.values if v not in made)
    return Block(tuple(entries), nodes[-1].outs, nodes)


def call(region: Block) -> Node:
    """A graph as the call of a block, every leaf handed over; equal graphs call the same block."""
    ordered = region.canonical
    number = {v: i for i, v in enumerate(ordered.inputs)}
    rows = []
    handed: list[Given] = []
    for n in ordered.nodes:
        bare, given = _bare(n.spec, len(handed))
        handed += given
        values = tuple([number[v] for v in n.values])
        for v in n.outs:
            number[v] = len(number)
        rows.append((bare, values, tuple([number[v] for v in n.outs])))
    outputs = tuple([number[v] for v in ordered.outputs])
    callee = _structure(len(ordered.inputs), tuple(rows), outputs, ordered.is_canonical)
    return Node(call_spec(callee, handed), ordered.inputs, ordered.outputs)


def in_place(
    callee: Block, read: tuple[int, ...], made: tuple[int, ...], handed: Sequence[Given]
) -> list[Node]:
    """The nodes of a block where it is called.

    Args:
        callee: the block.
        read: the values that the call reads.
        made: the values that it defines.
        handed: the leaves that it hands over.
    """
    values = dict(zip(callee.inputs, read, strict=True)) | dict(zip(callee.outputs, made, strict=True))
    nodes = []
    for n in callee.nodes:
        for v in n.outs:
            if v not in values:
                values[v] = next(FRESH)
        found, outs = tuple([values[v] for v in n.values]), tuple([values[v] for v in n.outs])
        nodes.append(Node(substituted(n.spec, handed), found, outs))
    return nodes


def substituted(done: Spec, given: Sequence[Given]) -> Spec:
    """The same with leaves for its parameters."""
    if not any(isinstance(a, Param) for a in done.handed):
        return done
    return done.handing([given[a.index] if isinstance(a, Param) else a for a in done.handed])


def with_parts(block: Block, whole: bool = True) -> Block:
    """The graph with its parts as calls, the smallest first.

    Args:
        block: a graph.
        whole: also if all of it is a part.
    """
    while True:
        found = [(r, part) for r, part in regions(block) if whole or len(r) < len(block.nodes)]
        parts = [(r, part) for r, part in found if part.is_part]
        if not parts:
            return block
        least = min(len(r) for r, _ in parts)
        block = with_calls(block, [(r, call(part)) for r, part in parts if len(r) == least])


def with_calls(block: Block, calls: list[tuple[list[int], Node]]) -> Block:
    """The graph with calls in the place of some of its nodes."""
    made = {positions[-1]: node for positions, node in calls}
    gone = {i for positions, _ in calls for i in positions}
    nodes = [made.get(i, n) for i, n in enumerate(block.nodes) if i in made or i not in gone]
    return block.with_nodes(nodes)


@remembered
def part_call(done: Spec) -> Spec:
    """The call of a part, in which its own parts are called as well."""
    assert done.callee is not None
    made = call(with_parts(done.callee, whole=False)).spec
    assert made.callee is not None
    return call_spec(made.callee, [done.handed[a.index] for a in made.handed if isinstance(a, Param)])


@remembered
def _bare(done: Spec, first: int) -> tuple[Spec, list[Given]]:
    """An operator with parameters, numbered from `first`, for its leaves; and these leaves."""
    number = count(first)
    given = [a if a.is_fixed else param(next(number), a.sort, a.is_matrix) for a in done.handed]
    return done.handing(given), [a for a in done.handed if not a.is_fixed]


@remembered
def _structure(
    inputs: int,
    rows: tuple[tuple[Spec, tuple[int, ...], tuple[int, ...]], ...],
    outputs: tuple[int, ...],
    is_canonical: bool,
) -> Block:
    nodes = [Node(*row) for row in rows]
    return Block(tuple(range(inputs)), outputs, nodes, is_canonical=is_canonical)
