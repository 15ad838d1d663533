"""Conversion of repeated blocks of a network to ONNX local functions; see `search_spaces` for the terms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from search_spaces.nodes import Call, Constant, Leaf, Op, Value

OPSET = 21
DOMAIN = "f"
MIN_SAVING = 4  # nodes that a function must save: (calls - 1) * (nodes - 1)


@dataclass
class _Function:
    """A local function.

    Args:
        name: name of the function.
        parameters: for each leaf of a call, the index of the parameter that receives it; -1 for a constant in
            the body.
        proto: ONNX function.
    """

    name: str
    parameters: list[int]
    proto: onnx.FunctionProto

    def call_arguments(self, leaves: Sequence[Leaf]) -> list[Leaf]:
        """Return the leaves that a call passes as arguments, in the order of the parameters."""
        arguments: dict[int, Leaf] = {}
        for parameter, leaf in zip(self.parameters, leaves, strict=True):
            if parameter >= 0:
                arguments.setdefault(parameter, leaf)
        return [arguments[k] for k in sorted(arguments)]


class FunctionOutliner:
    """Makes functions of the blocks that repeat, inner blocks first, and inlines the other blocks.

    Args:
        body: nodes of the network, changed in place.
        outlined: make functions; otherwise all calls are inlined.
    """

    def __init__(self, body: list[Op | Call], outlined: bool) -> None:
        self.body, self.outlined = body, outlined
        self.functions: dict[tuple[object, ...], _Function] = {}

    def result(self) -> tuple[list[Op | Call], dict[tuple[object, ...], _Function]]:
        """Return the nodes of the network, and the functions by the key of their calls."""
        levels = defaultdict(list)
        for call in _all_calls(self.body):
            levels[call.height].append(call)
        for height in sorted(levels):
            self._decide(levels[height])
        return self.body, self.functions

    def _decide(self, calls: list[Call]) -> None:
        """Make functions of the repeated calls among calls of one nesting depth, and inline the others."""
        groups: dict[tuple[object, ...], list[Call]] = defaultdict(list)
        for call in calls:
            call.key = _structure_key(call)
            call.leaves = [leaf for n in call.body for leaf in self.call_arguments(n)]
            groups[call.key].append(call)
        inlined_calls: set[int] = set()
        for key, group in groups.items():
            if self.outlined and (len(group) - 1) * (len(group[0].body) - 1) >= MIN_SAVING:
                self.functions[key] = self._define(group)
            else:
                inlined_calls.update(id(c) for c in group)
        _inline(self.body, inlined_calls)

    def call_arguments(self, node: Op | Call) -> list[Leaf]:
        """Return the leaves that an operator reads or that the call of a function passes as arguments."""
        return node.leaves if isinstance(node, Op) else self.functions[node.key].call_arguments(node.leaves)

    def _define(self, calls: list[Call]) -> _Function:
        """Return the function that replaces calls of equal structure."""
        columns = list(zip(*(c.leaves for c in calls), strict=True))
        parameter_indices: dict[tuple[Leaf, ...], int] = {}
        parameters = [
            -1
            if isinstance(column[0], Constant) and len(set(column)) == 1
            else parameter_indices.setdefault(column, len(parameter_indices))
            for column in columns
        ]
        first = calls[0]
        name = f"f{len(self.functions)}"
        names = {first.input: "x", first.output: "y"}
        slots = iter(zip(parameters, first.leaves, strict=True))
        constants: dict[str, onnx.NodeProto] = {}
        nodes = []
        for n in first.body:
            leaf_names: dict[int, str] = {}
            for k in range(len(self.call_arguments(n))):
                parameter, leaf = next(slots)
                leaf_names[k] = f"w{parameter}" if parameter >= 0 else leaf.name
                if parameter < 0 and isinstance(leaf, Constant):
                    constants.setdefault(leaf.name, leaf.node())
            nodes.append(node_proto(n, names, leaf_names, self.functions))
        proto = helper.make_function(
            DOMAIN,
            name,
            ["x", *(f"w{k}" for k in range(len(parameter_indices)))],
            ["y"],
            [*constants.values(), *nodes],
            [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)],
        )
        return _Function(name, parameters, proto)


def node_proto(
    node: Op | Call,
    names: dict[Value, str],
    leaf_names: dict[int, str],
    functions: dict[tuple[object, ...], _Function],
) -> onnx.NodeProto:
    """Return a node as ONNX.

    Args:
        node: operator or call.
        names: names of values; missing ones are added.
        leaf_names: names of leaves by their position among the leaves of the node; by default `leaf.name`.
        functions: functions by the key of their calls.
    """

    def value_name(value: Value) -> str:
        return names.setdefault(value, f"v{value.id}")

    if isinstance(node, Call):
        function = functions[node.key]
        leaves = [leaf_names.get(k, leaf.name) for k, leaf in enumerate(function.call_arguments(node.leaves))]
        return helper.make_node(
            function.name, [value_name(node.input), *leaves], [value_name(node.output)], domain=DOMAIN
        )
    leaf_index = iter(range(len(node.arguments)))
    inputs = [
        value_name(a)
        if isinstance(a, Value)
        else ""
        if a is None
        else leaf_names.get(next(leaf_index), a.name)
        for a in node.arguments
    ]
    return helper.make_node(node.kind, inputs, [value_name(node.output)], **dict(node.attributes))


def _structure_key(call: Call) -> tuple[object, ...]:
    """Return the operators, attributes and wiring of a call; calls with equal keys can share a function."""
    number = {call.input: 0}
    structure: list[object] = []
    for n in call.body:
        if isinstance(n, Op):
            arguments = tuple(
                number[a] if isinstance(a, Value) else None if a is None else (a.signature,)
                for a in n.arguments
            )
            structure.append((n.kind, arguments, repr(n.attributes)))
        else:
            structure.append((n.key, number[n.input]))
        number[n.output] = len(number)
    return tuple(structure)


def _all_calls(body: Sequence[Op | Call]) -> list[Call]:
    """Return all calls in a body, including those in nested blocks."""
    calls = [n for n in body if isinstance(n, Call)]
    return [*calls, *(c for n in calls for c in _all_calls(n.body))]


def _inline(body: list[Op | Call], inlined_calls: set[int]) -> None:
    """Inline the calls whose object ids are in `inlined_calls`, also in nested blocks."""
    for n in body:
        if isinstance(n, Call):
            _inline(n.body, inlined_calls)
    body[:] = [m for n in body for m in (n.body if isinstance(n, Call) and id(n) in inlined_calls else [n])]
