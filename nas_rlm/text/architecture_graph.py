"""Graphs of architectures of a search space, built directly instead of through ONNX.

Blocks that the builder of a space marks are recorded once and cached, together with the regions in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas_rlm.graph.cache import cache_table, memoized
from nas_rlm.graph.canonical_order import Form
from nas_rlm.graph.ir import VALUE_IDS, Block, Leaf, Node, Spec, StaticInput, chain_spec, leaf
from nas_rlm.graph.reader import constant_leaf, operator_spec
from nas_rlm.text.layers import live_nodes, with_layer_calls
from nas_rlm.text.regions import call_node, inline_call
from search_spaces import SearchSpace
from search_spaces.graph import Graph
from search_spaces.nodes import Argument, Constant, Value, Weight


def architecture_graph(space: SearchSpace[Any], architecture: Any) -> Block:
    """Return the graph of an architecture, with layers and the regions in marked blocks as calls.

    Args:
        space: search space of the architecture.
        architecture: architecture of that space.
    """
    graph = _RecordingGraph((1, *space.shape(architecture)))
    out = space.write(graph, architecture)
    shape = ",".join(map(str, graph.input_shape))
    types = (f"float[{shape}]",), (f"float[1,{out.channels}]",)
    return with_layer_calls(Block((graph.input.id,), (out.id,), graph.recorded_nodes(), *types))


@dataclass(frozen=True)
class _RecordedBlock:
    """A cached block of a builder, see `search_spaces.graph.Graph.block`.

    Args:
        block: nodes of the block.
        chain: the block as one operation if it is a chain of operators and calls; otherwise None.
        output: output of the block; None if that is the input.
    """

    block: Block
    chain: Spec | None
    output: Value | None


_recorded_blocks: dict[tuple[object, ...], _RecordedBlock] = cache_table()
_chain_plans: dict[tuple[Form, tuple[int, ...]], list[tuple[Spec, list[int]]] | None] = cache_table()


class _RecordingGraph(Graph):
    """A builder graph that records nodes of `nas_rlm.graph.ir`."""

    def __init__(self, input_shape: tuple[int, int, int, int]) -> None:
        super().__init__(input_shape)
        self.nodes: list[Node] = []

    def op(
        self,
        kind: str,
        *arguments: Argument,
        channels: int | None = None,
        side: int | None = None,
        width: int | None = None,
        **attributes: Any,
    ) -> Value:
        out = self._result(arguments, channels, side, width)
        pattern = tuple([... if isinstance(a, Value) else a for a in arguments])
        values = tuple([a.id for a in arguments if isinstance(a, Value)])
        named = tuple([(k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items()])
        self.nodes.append(Node(_operator(kind, pattern, named), values, (out.id,)))
        return out

    def block(self, body: Callable[..., Value], x: Value, *arguments: Any) -> Value:
        key = body, arguments, x.channels, x.side, x.width
        try:
            recorded = _recorded_blocks.get(key)
        except TypeError:
            return body(self, x, *arguments)  # an argument is not hashable
        if recorded is None:
            outer, self.nodes = self.nodes, []
            result = body(self, x, *arguments)
            block = Block((x.id,), (result.id,), self.recorded_nodes())
            self.nodes = outer
            is_empty = result is x
            recorded = _recorded_blocks[key] = _RecordedBlock(
                block, None if is_empty else _block_as_chain(block), None if is_empty else result
            )
        if recorded.output is None:
            return x
        output = recorded.output
        out = Value(next(self._ids), output.channels, output.side, output.width)
        if recorded.chain is None:
            self.nodes += inline_call(recorded.block, (x.id,), (out.id,), ())
        else:
            self.nodes.append(Node(recorded.chain, (x.id,), (out.id,)))
        return out

    def recorded_nodes(self) -> list[Node]:
        """Return the nodes so far, with chains that begin with a region inlined if their input branches."""
        starts_with_region = [n for n in self.nodes if n.spec.chain[0].callee is not None]
        if not starts_with_region:
            return self.nodes
        reads: dict[int, int] = {}
        for n in self.nodes:
            for v in n.values:
                reads[v] = reads.get(v, 0) + 1
        shared = {id(n) for n in starts_with_region if reads[n.values[0]] > 1}
        return [m for n in self.nodes for m in (_expand_chain(n) if id(n) in shared else (n,))]


def _block_as_chain(block: Block) -> Spec | None:
    """Return a block that is a chain of operators and calls as one operation; None if it is no chain.

    Blocks of one form differ only in their leaves, so that the chain is computed once for each form.
    """
    leaves = [a for n in block.nodes for a in n.spec.leaves]
    first: dict[StaticInput, int] = {}
    key = block.form, tuple([first.setdefault(a, i) for i, a in enumerate(leaves)])
    if key not in _chain_plans:
        chain = _find_chain(block)
        _chain_plans[key] = None if chain is None else [(s, [first[a] for a in s.leaves]) for s in chain]
    plan = _chain_plans[key]
    if plan is None:
        return None
    return chain_spec(tuple([s.with_leaves([leaves[i] for i in positions]) for s, positions in plan]))


def _find_chain(block: Block) -> list[Spec] | None:
    """Return the operators and calls of regions of a block that is a chain; None if it is no chain."""
    nodes = live_nodes(block)
    last_read = {v: i for i, n in enumerate(nodes) for v in n.values}
    specs: list[Spec] = []
    entry, start, live = block.inputs[0], 0, 1
    for i, n in enumerate(nodes):
        live += 1 - sum([last_read[v] == i for v in set(n.values)])
        if live > 1:
            continue
        segment = nodes[start : i + 1]
        if len(segment) > 1:
            members = [m for s in segment for m in _expand_chain(s)]
            specs.append(call_node(with_layer_calls(Block((entry,), n.outs, members))).spec)
        elif n.values == (entry,):
            specs += n.spec.chain
        else:
            return None
        entry, start = n.outs[0], i + 1
    return specs


def _expand_chain(node: Node) -> list[Node]:
    """Return the nodes of a chain with its regions inlined; a chain without regions stays one node."""
    chain = node.spec.chain
    if all(s.callee is None for s in chain):
        return [node]
    nodes: list[Node] = []
    value = node.values[0]
    for k, s in enumerate(chain):
        out = node.outs[0] if k == len(chain) - 1 else next(VALUE_IDS)
        if s.callee is None:
            nodes.append(Node(s, (value,), (out,)))
        else:
            nodes += inline_call(s.callee, (value,), (out,), s.leaves)
        value = out
    return nodes


@memoized
def _operator(kind: str, arguments: tuple[Any, ...], attributes: tuple[tuple[str, Any], ...]) -> Spec:
    """Return an operator of the builder as an operation; ... in the arguments stands for a value."""
    pattern = tuple([a if a is ... else _leaf(a) for a in arguments])
    return operator_spec(kind, {k: v.encode() if isinstance(v, str) else v for k, v in attributes}, pattern)


def _leaf(argument: Weight | Constant) -> Leaf:
    """Return the leaf of a weight or constant of the builder."""
    if isinstance(argument, Weight):
        return leaf("float", argument.shape)
    if isinstance(argument.value, float):
        return constant_leaf(np.array(argument.value, dtype=np.float32))
    return constant_leaf(np.array(argument.value, dtype=np.int64))
