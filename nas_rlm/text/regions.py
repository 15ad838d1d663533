"""Regions: subgraphs from a value that branches to the node where all its paths have joined again.

A value branches if several nodes read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import count

from nas_rlm.graph.cache import memoized
from nas_rlm.graph.ir import (
    VALUE_IDS,
    Block,
    Node,
    Param,
    Spec,
    StaticInput,
    call_spec,
    param,
    readers_by_value,
)
from nas_rlm.graph.limits import check_time

Region = tuple[list[int], Block]  # positions of the nodes in the enclosing graph, and these nodes as a graph


@lru_cache(maxsize=1 << 8)
def find_regions(block: Block) -> list[Region]:
    """Return the regions of a graph, at most one for each value that branches.

    A region ends at the nearest node that lies on all paths from the branching value to the outputs. Regions
    of a single node are left out, and those whose nodes also read other values from outside.
    """
    if block.is_chain:
        return []
    nodes = block.nodes
    readers, outputs = readers_by_value(block), set(block.outputs)
    branching = [v for v, c in readers.items() if len(c) > 1 and len(set(c)) > 1 and v not in outputs]
    if not branching:
        return []
    producer = {v: i for i, n in enumerate(nodes) for v in n.outs}
    all_bits = (1 << (len(nodes) + 1)) - 1
    postdominators = _postdominators(block, readers, all_bits)
    dominators = _dominators(block, producer, all_bits)
    regions = []
    for v in branching:
        check_time()
        joins = all_bits
        for c in readers[v]:
            joins &= postdominators[c]
        joins &= (1 << len(nodes)) - 1
        if not joins:
            continue
        last = (joins & -joins).bit_length() - 1
        entry = producer.get(v, len(nodes))
        if not dominators[last] >> entry & 1 or (entry < len(nodes) and len(nodes[entry].outs) > 1):
            continue
        first = entry + 1 if entry < len(nodes) else 0
        positions = [
            i for i in range(first, last + 1) if dominators[i] >> entry & 1 and postdominators[i] >> last & 1
        ]
        if len(positions) >= 2 and len(nodes[last].outs) == 1:
            members = set(positions)
            if all(a == v or producer.get(a) in members for i in positions for a in nodes[i].values):
                regions.append((positions, extract_subgraph(block, positions)))
    return regions


def _postdominators(block: Block, readers: dict[int, list[int]], all_bits: int) -> list[int]:
    """Return for each node a bit mask of the nodes on all paths from it to the outputs."""
    nodes, outputs = block.nodes, set(block.outputs)
    postdominators = [0] * len(nodes)
    for i in range(len(nodes) - 1, -1, -1):
        mask = all_bits
        for v in nodes[i].outs:
            for c in readers[v]:
                mask &= postdominators[c]
            if v in outputs:
                mask = 0
        postdominators[i] = (1 << i) | (mask if mask != all_bits else 0)
    return postdominators


def _dominators(block: Block, producer: dict[int, int], all_bits: int) -> list[int]:
    """Return for each node a bit mask of the nodes on all paths to it; the last bit stands for the inputs."""
    nodes = block.nodes
    dominators = [0] * len(nodes)
    for i, n in enumerate(nodes):
        mask = all_bits
        for v in n.values:
            mask &= dominators[producer[v]] if v in producer else 1 << len(nodes)
        dominators[i] = (1 << i) | (mask if n.values else 0)
    return dominators


def inner_regions(block: Block) -> list[Block]:
    """Return the regions of a block, without a region that is the entire block."""
    return [region for positions, region in find_regions(block) if len(positions) < len(block.nodes)]


def extract_subgraph(block: Block, positions: list[int]) -> Block:
    """Return the nodes at these positions as a graph, whose outputs are those of the last node."""
    nodes = [block.nodes[i] for i in positions]
    defined = {v for n in nodes for v in n.outs}
    inputs = dict.fromkeys(v for n in nodes for v in n.values if v not in defined)
    return Block(tuple(inputs), nodes[-1].outs, nodes)


def call_node(region: Block) -> Node:
    """Return a node that calls a graph as a block and passes all its leaves; equal graphs share one block."""
    ordered = region.canonical
    number = {v: i for i, v in enumerate(ordered.inputs)}
    rows = []
    leaves: list[StaticInput] = []
    for n in ordered.nodes:
        generic, arguments = _with_params(n.spec, len(leaves))
        leaves += arguments
        values = tuple([number[v] for v in n.values])
        for v in n.outs:
            number[v] = len(number)
        rows.append((generic, values, tuple([number[v] for v in n.outs])))
    outputs = tuple([number[v] for v in ordered.outputs])
    callee = _block(len(ordered.inputs), tuple(rows), outputs, ordered.is_canonical)
    return Node(call_spec(callee, leaves), ordered.inputs, ordered.outputs)


def inline_call(
    callee: Block, inputs: tuple[int, ...], outputs: tuple[int, ...], leaves: Sequence[StaticInput]
) -> list[Node]:
    """Return the nodes that replace the call of a block.

    Args:
        callee: called block.
        inputs: ids of the values that the call reads.
        outputs: ids of the values that the call defines.
        leaves: leaves that the call passes.
    """
    values = dict(zip(callee.inputs, inputs, strict=True)) | dict(zip(callee.outputs, outputs, strict=True))
    nodes = []
    for n in callee.nodes:
        for v in n.outs:
            if v not in values:
                values[v] = next(VALUE_IDS)
        read, defined = tuple([values[v] for v in n.values]), tuple([values[v] for v in n.outs])
        nodes.append(Node(substitute_params(n.spec, leaves), read, defined))
    return nodes


def substitute_params(spec: Spec, leaves: Sequence[StaticInput]) -> Spec:
    """Return an operation with its parameters replaced by leaves, which are indexed by parameter."""
    if not any(isinstance(a, Param) for a in spec.leaves):
        return spec
    return spec.with_leaves([leaves[a.index] if isinstance(a, Param) else a for a in spec.leaves])


def with_unit_calls(block: Block, include_whole: bool = True) -> Block:
    """Return a graph with its units as calls, inner units first; see `Block.is_unit`.

    Args:
        block: graph.
        include_whole: if the entire graph is a unit, replace it by a call too.
    """
    while True:
        regions = [(r, b) for r, b in find_regions(block) if include_whole or len(r) < len(block.nodes)]
        units = [(positions, region) for positions, region in regions if region.is_unit]
        if not units:
            return block
        min_nodes = min(len(positions) for positions, _ in units)
        calls = [(positions, call_node(unit)) for positions, unit in units if len(positions) == min_nodes]
        block = replace_with_calls(block, calls)


def replace_with_calls(block: Block, calls: list[tuple[list[int], Node]]) -> Block:
    """Return a graph with groups of nodes replaced by calls.

    Args:
        block: graph.
        calls: positions of the nodes of each group, and the call that replaces them.
    """
    call_at = {positions[-1]: node for positions, node in calls}
    replaced = {i for positions, _ in calls for i in positions}
    nodes = [call_at.get(i, n) for i, n in enumerate(block.nodes) if i in call_at or i not in replaced]
    return block.with_nodes(nodes)


@memoized
def unit_call(spec: Spec) -> Spec:
    """Return the call of a unit, with the units inside it as calls."""
    assert spec.callee is not None
    call = call_node(with_unit_calls(spec.callee, include_whole=False)).spec
    assert call.callee is not None
    return call_spec(call.callee, [spec.leaves[a.index] for a in call.leaves if isinstance(a, Param)])


@memoized
def _with_params(spec: Spec, first: int) -> tuple[Spec, list[StaticInput]]:
    """Return an operation with its leaves replaced by parameters, numbered from `first`, and the leaves."""
    number = count(first)
    inputs = [a if a.is_fixed else param(next(number), a.signature, a.is_matrix) for a in spec.leaves]
    return spec.with_leaves(inputs), [a for a in spec.leaves if not a.is_fixed]


@memoized
def _block(
    num_inputs: int,
    rows: tuple[tuple[Spec, tuple[int, ...], tuple[int, ...]], ...],
    outputs: tuple[int, ...],
    is_canonical: bool,
) -> Block:
    """Return the block of these nodes; equal blocks are one object."""
    nodes = [Node(*row) for row in rows]
    return Block(tuple(range(num_inputs)), outputs, nodes, is_canonical=is_canonical)
