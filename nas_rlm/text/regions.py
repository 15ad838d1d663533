"""Regions: subgraphs from a value that branches to the node where all its paths have joined again.

A value branches if several nodes read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count

from nas_rlm.graph.cache import memoized
from nas_rlm.graph.ir import (
    MAX_UNIT_NODES,
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


@dataclass(frozen=True, eq=False)
class Region:
    """A region of a graph.

    Args:
        enclosing: the graph.
        positions: positions of the nodes of the region in it.
    """

    enclosing: Block
    positions: list[int]

    @cached_property
    def graph(self) -> Block:
        """The nodes of the region as a graph."""
        return extract_subgraph(self.enclosing, self.positions)


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
    all_bits = (1 << len(nodes)) - 1
    postdominators = _postdominators(block, readers, all_bits)
    regions = []
    for v in branching:
        check_time()
        joins = all_bits
        for c in readers[v]:
            joins &= postdominators[c]
        entry = producer.get(v, -1)
        if not joins or (entry >= 0 and len(nodes[entry].outs) > 1):
            continue
        last = (joins & -joins).bit_length() - 1
        positions = _dependent_nodes(nodes, v, range(entry + 1, last + 1))
        if len(positions) >= 2 and len(nodes[last].outs) == 1:
            regions.append(Region(block, positions))
    return regions


def _dependent_nodes(nodes: list[Node], value: int, positions: range) -> list[int]:
    """Return the positions of the nodes that depend on a value; empty if they read other values from outside.

    Args:
        nodes: nodes of a graph.
        value: id of the value.
        positions: positions of the nodes to look at.
    """
    defined = {value}
    dependent = []
    for i in positions:
        n = nodes[i]
        if not defined.isdisjoint(n.values):
            if not defined.issuperset(n.values):
                return []
            defined.update(n.outs)
            dependent.append(i)
    return dependent


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


def inner_regions(block: Block) -> list[Block]:
    """Return the regions of a block, without a region that is the entire block."""
    return [r.graph for r in find_regions(block) if len(r.positions) < len(block.nodes)]


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
        max_nodes = min(MAX_UNIT_NODES, len(block.nodes) if include_whole else len(block.nodes) - 1)
        units = [r for r in find_regions(block) if len(r.positions) <= max_nodes and r.graph.is_unit]
        if not units:
            return block
        min_nodes = min(len(r.positions) for r in units)
        calls = [(r.positions, call_node(r.graph)) for r in units if len(r.positions) == min_nodes]
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
