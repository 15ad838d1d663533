"""Networks of the search spaces as graphs, without a detour through ONNX.

What the builder of a space marks as a block is written once and remembered, as are the regions in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from nas_rlm.graph.cache import remembered, table
from nas_rlm.graph.canonical_order import Form
from nas_rlm.graph.ir import FRESH, Block, Given, Leaf, Node, Spec, chain_spec, leaf
from nas_rlm.graph.reader import constant, operator
from nas_rlm.text.layers import layered, needed
from nas_rlm.text.regions import call, in_place
from search_spaces import SearchSpace
from search_spaces.graph import Graph
from search_spaces.nodes import Argument, Constant, Value, Weight


def network(space: SearchSpace[Any], architecture: Any) -> Block:
    """The network of an architecture, its layers called, and its regions where they are known."""
    graph = _Graph((1, *space.shape(architecture)))
    out = space.write(graph, architecture)
    shape = ",".join(map(str, graph.input_shape))
    types = (f"float[{shape}]",), (f"float[1,{out.channels}]",)
    return layered(Block((graph.input.id,), (out.id,), graph.read(), *types))


@dataclass(frozen=True)
class _Written:
    """A block that was written before: what it does, as one node if it can be one, and its output.

    Args:
        block: its nodes.
        series: the one node.
        output: its result; None if that is its input.
    """

    block: Block
    series: Spec | None
    output: Value | None


_written: dict[tuple[object, ...], _Written] = table()
_plans: dict[tuple[Form, tuple[int, ...]], list[tuple[Spec, list[int]]] | None] = table()


class _Graph(Graph):
    """Takes down what a builder writes as nodes."""

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
            known = _written.get(key)
        except TypeError:
            return body(self, x, *arguments)  # what cannot be looked up is written again
        if known is None:
            outer, self.nodes = self.nodes, []
            made = body(self, x, *arguments)
            inside = Block((x.id,), (made.id,), self.read())
            self.nodes = outer
            is_nothing = made is x
            known = _written[key] = _Written(
                inside, None if is_nothing else _series(inside), None if is_nothing else made
            )
        if known.output is None:
            return x
        shape = known.output
        out = Value(next(self._ids), shape.channels, shape.side, shape.width)
        if known.series is None:
            self.nodes += in_place(known.block, (x.id,), (out.id,), ())
        else:
            self.nodes.append(Node(known.series, (x.id,), (out.id,)))
        return out

    def read(self) -> list[Node]:
        """The nodes so far; regions whose input others read as well are in place."""
        opening = [n for n in self.nodes if n.spec.chain[0].callee is not None]
        if not opening:
            return self.nodes
        reads: dict[int, int] = {}
        for n in self.nodes:
            for v in n.values:
                reads[v] = reads.get(v, 0) + 1
        shared = {id(n) for n in opening if reads[n.values[0]] > 1}
        return [m for n in self.nodes for m in (_opened(n) if id(n) in shared else (n,))]


def _series(block: Block) -> Spec | None:
    """What a block does as one node, which is one chain; None if it is no chain.

    Blocks of one form differ in their leaves only, so that the form is looked into once.
    """
    handed = [a for n in block.nodes for a in n.spec.handed]
    first: dict[Given, int] = {}
    key = block.form, tuple([first.setdefault(a, i) for i, a in enumerate(handed)])
    if key not in _plans:
        chain = _chain(block)
        _plans[key] = None if chain is None else [(s, [first[a] for a in s.handed]) for s in chain]
    plan = _plans[key]
    if plan is None:
        return None
    return chain_spec(tuple([s.handing([handed[i] for i in places]) for s, places in plan]))


def _chain(block: Block) -> list[Spec] | None:
    """A block as operators and calls of regions that follow each other; None if it is no such chain."""
    nodes = needed(block)
    last_read = {v: i for i, n in enumerate(nodes) for v in n.values}
    made: list[Spec] = []
    entry, start, live = block.inputs[0], 0, 1
    for i, n in enumerate(nodes):
        live += 1 - sum([last_read[v] == i for v in set(n.values)])
        if live > 1:
            continue
        segment = nodes[start : i + 1]
        if len(segment) > 1:
            inside = [m for s in segment for m in _opened(s)]
            made.append(call(layered(Block((entry,), n.outs, inside))).spec)
        elif n.values == (entry,):
            made += n.spec.chain
        else:
            return None
        entry, start = n.outs[0], i + 1
    return made


def _opened(node: Node) -> list[Node]:
    """A chain with the regions that it calls in place."""
    chain = node.spec.chain
    if all(s.callee is None for s in chain):
        return [node]
    nodes: list[Node] = []
    value = node.values[0]
    for k, s in enumerate(chain):
        out = node.outs[0] if k == len(chain) - 1 else next(FRESH)
        if s.callee is None:
            nodes.append(Node(s, (value,), (out,)))
        else:
            nodes += in_place(s.callee, (value,), (out,), s.handed)
        value = out
    return nodes


@remembered
def _operator(kind: str, arguments: tuple[Any, ...], attributes: tuple[tuple[str, Any], ...]) -> Spec:
    pattern = tuple([a if a is ... else _leaf(a) for a in arguments])
    return operator(kind, [helper.make_attribute(k, v) for k, v in attributes], pattern)


def _leaf(given: Weight | Constant) -> Leaf:
    if isinstance(given, Weight):
        return leaf("float", given.shape)
    if isinstance(given.value, float):
        return constant(np.array(given.value, dtype=np.float32))
    return constant(np.array(given.value, dtype=np.int64))
