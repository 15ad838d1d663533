"""Graphs of architectures of a search space, built directly instead of through ONNX.

Blocks that the builder of a space marks are recorded once and cached, together with the regions in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nas_rlm.graph.cache import cache_table, memoized
from nas_rlm.graph.canonical_order import Form
from nas_rlm.graph.ir import UNKNOWN_VALUE, VALUE_IDS, Block, Leaf, Node, Spec, StaticInput, chain_spec, leaf
from nas_rlm.graph.operator_text import constant_leaf, operator_spec
from nas_rlm.text.layers import live_nodes, with_layer_calls
from nas_rlm.text.regions import call_node, inline_call
from search_spaces import SearchSpace
from search_spaces.graph import Graph
from search_spaces.nodes import Argument, Constant, Table, Value, Weight


def architecture_graph(space: SearchSpace[Any], architecture: Any) -> Block | None:
    """Return the graph of an architecture, with layers and the regions in marked blocks as calls.

    It is None for a network of a user's own space with operators that rewriting may change, so that its ONNX
    model has to be read.

    Args:
        space: search space of the architecture.
        architecture: architecture of that space.
    """
    input_shape, is_checked = (space.batch_size, *space.shape(architecture)), not space.is_built_in
    graph = _RecordingGraph(input_shape, checked=is_checked, input_type=space.input_type)
    out = space.write_checked(graph, architecture)
    if not graph.is_plain:
        return None
    shapes = input_shape, (space.batch_size, *out.inner_shape)
    inputs, outputs = (",".join(map(str, shape)) for shape in shapes)
    types = (f"{space.input_type}[{inputs}]",), (f"float[{outputs}]",)
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
    """A builder graph that records nodes of `nas_rlm.graph.ir`.

    Attributes:
        is_plain: True if rewriting leaves the operators so far as they are; always True without checks.
    """

    def __init__(self, input_shape: tuple[int, ...], checked: bool, input_type: str) -> None:
        super().__init__(input_shape, checked=checked, input_type=input_type)
        self.nodes: list[Node] = []
        self.is_plain = True
        self._read_weights: set[Weight] = set()

    def op(
        self,
        kind: str,
        *arguments: Argument,
        channels: int | None = None,
        side: int | None = None,
        width: int | None = None,
        **attributes: Any,
    ) -> Value:
        out = self._result(kind, arguments, attributes, channels, side, width)
        if self.checked:
            self.is_plain &= _is_plain(kind, arguments, attributes) and self._reads_new_weights(arguments)
            if not self.is_plain:
                return out
            arguments = tuple([Weight(a.shape) if isinstance(a, Weight) else a for a in arguments])
        pattern = tuple([... if isinstance(a, Value) else a for a in arguments])
        values = tuple([a.id for a in arguments if isinstance(a, Value)])
        named = tuple([(k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items()])
        self.nodes.append(Node(_operator(kind, pattern, named), values, (out.id,)))
        return out

    def _reads_new_weights(self, arguments: tuple[Argument, ...]) -> bool:
        """Return True if no earlier operator reads one of the weights."""
        weights = [a for a in arguments if isinstance(a, Weight)]
        known = self._read_weights
        is_new = len({*weights}) == len(weights) and known.isdisjoint(weights)
        known.update(weights)
        return is_new

    def block(self, body: Callable[..., Value], x: Value, *arguments: Any, **options: Any) -> Value:
        if self.checked:  # the body may depend on more than its arguments
            outer, self.nodes = self.nodes, []
            result = self._write_block(partial(body, **options) if options else body, x, arguments)
            nodes, self.nodes = self.nodes, outer
            if result is x or not self.is_plain:
                return result
            return self._add_block(self._recorded(x, result, nodes), x, result)
        key = body, arguments, *options.items(), x.channels, x.side, x.width
        try:
            recorded = _recorded_blocks.get(key)
        except TypeError:
            return body(self, x, *arguments, **options)  # an argument is not hashable
        if recorded is None:
            outer, self.nodes = self.nodes, []
            result = body(self, x, *arguments, **options)
            nodes, self.nodes = self.nodes, outer
            recorded = _recorded_blocks[key] = self._recorded(x, result, nodes)
        if recorded.output is None:
            return x
        output = recorded.output
        return self._add_block(
            recorded, x, Value(next(self._ids), output.channels, output.side, output.width)
        )

    def _recorded(self, x: Value, result: Value, nodes: list[Node]) -> _RecordedBlock:
        """Return a block with input, output and nodes."""
        outer, self.nodes = self.nodes, nodes
        block = Block((x.id,), (result.id,), self.recorded_nodes())
        self.nodes = outer
        is_empty = result is x
        return _RecordedBlock(
            block, None if is_empty else _block_as_chain(block), None if is_empty else result
        )

    def _add_block(self, recorded: _RecordedBlock, x: Value, out: Value) -> Value:
        """Add the nodes of a block with the output `out`, and return that."""
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


def _is_plain(kind: str, arguments: tuple[Argument, ...], attributes: dict[str, Any]) -> bool:
    """Return True for an operator that no rewrite rule changes, whatever is before and after it."""
    values = [a for a in arguments if isinstance(a, Value)]
    if kind in ("Conv", "BatchNormalization"):
        is_plain = len(values) == 1 and isinstance(arguments[0], Value)
        return is_plain and not attributes.keys() & {"auto_pad", "momentum", "training_mode"}
    if kind == "Gemm":
        return len(values) == 1 and len(arguments) == 3 and attributes == {"transB": 1}
    if kind == "Clip":
        bounds = [a.value for a in arguments if isinstance(a, Constant)]
        limit = float(np.finfo(np.float32).max)
        is_plain = len(arguments) == 3 and len(values) == 1 and len(bounds) == 2
        return is_plain and all(isinstance(b, float) and abs(b) < limit for b in bounds)
    if len(values) < len(arguments):
        return False
    shapes = [v.shape for v in values]
    if kind == "Mul":
        return len(shapes[0]) == 4 and shapes[0] != shapes[1]  # no part of an activation
    if kind == "Flatten":
        return not attributes and len(shapes[0]) == 4 and shapes[0][2:] == (1, 1) and shapes[0][1] > 1
    if kind == "Concat":
        return len(shapes) > 1 and attributes["axis"] >= 0
    if kind in ("MaxPool", "AveragePool"):
        return not attributes.keys() & {"auto_pad", "count_include_pad"}
    return kind in ("Add", "GlobalAveragePool", "HardSigmoid", "HardSwish", "Relu", "Sigmoid")


@memoized
def _operator(kind: str, arguments: tuple[Any, ...], attributes: tuple[tuple[str, Any], ...]) -> Spec:
    """Return an operator of the builder as an operation; ... in the arguments stands for a value."""
    pattern = tuple([a if a is ... else _leaf(a) for a in arguments])
    return operator_spec(kind, {k: v.encode() if isinstance(v, str) else v for k, v in attributes}, pattern)


def _leaf(argument: Weight | Constant | Table) -> Leaf:
    """Return the leaf of a weight, constant or table of the builder."""
    if isinstance(argument, Weight):
        return leaf("float", argument.shape)
    if isinstance(argument, Table):
        return leaf("float", argument.shape, UNKNOWN_VALUE, is_size=True)
    if isinstance(argument.value, float):
        return constant_leaf(np.array(argument.value, dtype=np.float32))
    return constant_leaf(np.array(argument.value, dtype=np.int64))
