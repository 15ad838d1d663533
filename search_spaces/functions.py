"""Repeated blocks of a network as ONNX's local functions, and nodes as protos that call them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from search_spaces.nodes import Call, Constant, Leaf, Op, Value

OPSET = 21
DOMAIN = "f"
LEAST_SAVING = 4  # a function must save this much: (calls - 1) * (nodes - 1)


@dataclass
class _Function:
    name: str
    parameters: list[
        int
    ]  # for each leaf of a call in order: the parameter it is, or -1 for a constant inside
    proto: onnx.FunctionProto

    def handed(self, leaves: Sequence[Leaf]) -> list[Leaf]:
        """The arguments of a call, in the order of the parameters."""
        found: dict[int, Leaf] = {}
        for parameter, leaf in zip(self.parameters, leaves, strict=True):
            if parameter >= 0:
                found.setdefault(parameter, leaf)
        return [found[k] for k in sorted(found)]


class Functions:
    """Decides, from the inside out, which traced blocks become functions."""

    def __init__(self, body: list[Op | Call], outlined: bool) -> None:
        self.body, self.outlined = body, outlined
        self.kept: dict[tuple[object, ...], _Function] = {}

    def result(self) -> tuple[list[Op | Call], dict[tuple[object, ...], _Function]]:
        levels = defaultdict(list)
        for call in _calls(self.body):
            levels[call.height].append(call)
        for height in sorted(levels):
            self._decide(levels[height])
        return self.body, self.kept

    def _decide(self, calls: list[Call]) -> None:
        groups: dict[tuple[object, ...], list[Call]] = defaultdict(list)
        for call in calls:
            call.key = _structure(call)
            call.leaves = [leaf for n in call.body for leaf in self.handed(n)]
            groups[call.key].append(call)
        gone: set[int] = set()
        for key, alike in groups.items():
            if self.outlined and (len(alike) - 1) * (len(alike[0].body) - 1) >= LEAST_SAVING:
                self.kept[key] = self._define(alike)
            else:
                gone.update(id(c) for c in alike)
        _inline(self.body, gone)

    def handed(self, node: Op | Call) -> list[Leaf]:
        return node.leaves if isinstance(node, Op) else self.kept[node.key].handed(node.leaves)

    def _define(self, calls: list[Call]) -> _Function:
        columns = list(zip(*(c.leaves for c in calls), strict=True))
        rows: dict[tuple[Leaf, ...], int] = {}
        parameters = [
            -1
            if isinstance(column[0], Constant) and len(set(column)) == 1
            else rows.setdefault(column, len(rows))
            for column in columns
        ]
        first = calls[0]
        name = f"f{len(self.kept)}"
        names = {first.input: "x", first.output: "y"}
        slots = iter(zip(parameters, first.leaves, strict=True))
        inside: dict[str, onnx.NodeProto] = {}
        nodes = []
        for n in first.body:
            formal: dict[int, str] = {}
            for k in range(len(self.handed(n))):
                parameter, leaf = next(slots)
                formal[k] = f"w{parameter}" if parameter >= 0 else leaf.name
                if parameter < 0 and isinstance(leaf, Constant):
                    inside.setdefault(leaf.name, leaf.node())
            nodes.append(node_proto(n, names, formal, self.kept))
        proto = helper.make_function(
            DOMAIN,
            name,
            ["x", *(f"w{k}" for k in range(len(rows)))],
            ["y"],
            [*inside.values(), *nodes],
            [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)],
        )
        return _Function(name, parameters, proto)


def node_proto(
    node: Op | Call,
    names: dict[Value, str],
    formal: dict[int, str],
    functions: dict[tuple[object, ...], _Function],
) -> onnx.NodeProto:
    """A node; its k-th leaf is called `formal[k]`, or by its own name."""

    def named(value: Value) -> str:
        return names.setdefault(value, f"v{value.id}")

    if isinstance(node, Call):
        function = functions[node.key]
        leaves = [formal.get(k, leaf.name) for k, leaf in enumerate(function.handed(node.leaves))]
        return helper.make_node(
            function.name, [named(node.input), *leaves], [named(node.output)], domain=DOMAIN
        )
    place = iter(range(len(node.arguments)))
    inputs = [named(a) if isinstance(a, Value) else formal.get(next(place), a.name) for a in node.arguments]
    return helper.make_node(node.kind, inputs, [named(node.output)], **dict(node.attributes))


def _structure(call: Call) -> tuple[object, ...]:
    """What calls of one function have in common: operators, attributes and wiring, but no shapes."""
    number = {call.input: 0}
    described: list[object] = []
    for n in call.body:
        if isinstance(n, Op):
            arguments = tuple(number[a] if isinstance(a, Value) else (a.sort,) for a in n.arguments)
            described.append((n.kind, arguments, repr(n.attributes)))
        else:
            described.append((n.key, number[n.input]))
        number[n.output] = len(number)
    return tuple(described)


def _calls(body: Sequence[Op | Call]) -> list[Call]:
    """All calls of a body and of the blocks in it."""
    here = [n for n in body if isinstance(n, Call)]
    return [*here, *(c for n in here for c in _calls(n.body))]


def _inline(body: list[Op | Call], gone: set[int]) -> None:
    """Replace some calls, wherever they are, by their nodes."""
    for n in body:
        if isinstance(n, Call):
            _inline(n.body, gone)
    body[:] = [m for n in body for m in (n.body if isinstance(n, Call) and id(n) in gone else [n])]
