"""A small ONNX builder: networks are written as plain Python, and repeated blocks become local functions.

>>> graph = Graph((1, 3, 32, 32))
>>> x = graph.conv(graph.input, 16, kernel=3)
>>> for _ in range(4):
...     x = graph.block(lambda g, y: g.op("Relu", g.batch_norm(g.conv(y, 16, kernel=3))), x)
>>> [f.name for f in graph.build(graph.classifier(x, 10)).functions]
['f0']
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
IR_VERSION = 10
DOMAIN = "f"
LEAST_SAVING = 4  # a function must save this much: (calls - 1) * (nodes - 1)


@dataclass(eq=False, slots=True)
class Value:
    """What a node computes: channels, height (`side`) and width of a map, or features where both are 0."""

    id: int
    channels: int
    side: int
    width: int


@dataclass(frozen=True)
class Weight:
    """A weight, declared where it is used; `fill` is its initial value, None for He's normal."""

    shape: tuple[int, ...]
    fill: float | None = None
    use: int | None = None

    @property
    def sort(self) -> object:
        """What calls of one function have in common."""
        return len(self.shape)

    @property
    def name(self) -> str:
        return "W" + "_".join(map(str, self.shape)) + ("" if self.use is None else f"_use{self.use}")


@dataclass(frozen=True)
class Constant:
    """Integers or one float that an operator reads."""

    value: tuple[int, ...] | float

    @property
    def sort(self) -> object:
        """Floats are structure; integers may differ between calls of one function."""
        return self.value if isinstance(self.value, float) else "int"

    @property
    def name(self) -> str:
        return "C" + re.sub(r"\W", "_", repr(self.value))

    def node(self) -> onnx.NodeProto:
        if isinstance(self.value, float):
            return helper.make_node("Constant", [], [self.name], value_float=self.value)
        return helper.make_node("Constant", [], [self.name], value_ints=list(self.value))


Leaf = Weight | Constant
Argument = Value | Leaf


@dataclass(eq=False, slots=True)
class Op:
    """An operator of a network: what it reads, its attributes by name, and what it computes."""

    kind: str
    arguments: tuple[Argument, ...]
    attributes: tuple[tuple[str, Any], ...]
    output: Value

    @property
    def leaves(self) -> list[Leaf]:
        return [a for a in self.arguments if not isinstance(a, Value)]


@dataclass
class Call:
    """A block in a network: what it reads, the nodes between, and what it computes."""

    input: Value
    body: list[Op | Call]
    output: Value
    key: tuple[object, ...] = ()
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def height(self) -> int:
        """Blocks within blocks: 1 for a block of operators."""
        return 1 + _height(self.body)


class Graph:
    """A network in the making, counted while it is written.

    Args:
        input_shape: batch, channels, height and width; height and width are equal.
        weights: give every weight an initialiser of its own; without it, a weight is an input named by its
            shape, one for each distinct shape.
        outlined: emit repeated blocks as local functions.
        seed: of the initialisers.

    Attributes:
        input: the image.
        body: the network so far.
        params: trainable parameters so far (batch norm's scale and bias, not its statistics).
        macs: multiply-accumulates so far of convolutions and linear layers, for one image.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int, int],
        weights: bool = False,
        outlined: bool = True,
        seed: int = 0,
    ) -> None:
        self.input_shape = input_shape
        self.weights, self.outlined, self.seed = weights, outlined, seed
        self.params = 0
        self.macs = 0
        self._ids = count()
        self._uses = count()
        self.input = Value(next(self._ids), *input_shape[1:])
        self.body: list[Op | Call] = []

    def op(
        self,
        kind: str,
        *arguments: Argument,
        channels: int | None = None,
        side: int | None = None,
        width: int | None = None,
        **attributes: Any,
    ) -> Value:
        """Add an operator; its result has its first argument's channels and size unless told otherwise.

        Args:
            kind: the ONNX operator.
            arguments: values, weights and constants.
            channels: of the result.
            side: of the result; its width too, unless that is told.
            width: of the result.
            attributes: of the operator.
        """
        out = self._result(arguments, channels, side, width)
        self.body.append(Op(kind, arguments, tuple(sorted(attributes.items())), out))
        return out

    def _result(
        self, arguments: Sequence[Argument], channels: int | None, side: int | None, width: int | None
    ) -> Value:
        for first in arguments:
            if isinstance(first, Value):
                break
        else:
            raise ValueError(f"an operator reads {arguments}, expected at least one value of the graph")
        return Value(
            next(self._ids),
            first.channels if channels is None else channels,
            first.side if side is None else side,
            width if width is not None else first.width if side is None else side,
        )

    def weight(self, *shape: int, fill: float | None = None, trainable: bool = True) -> Weight:
        """A weight of a shape."""
        if trainable:
            self.params += prod(shape)
        return Weight(shape, fill, next(self._uses)) if self.weights else Weight(shape)

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = False,
        dilation: int = 1,
    ) -> Value:
        """A convolution that keeps the size, or divides it by the stride; a pair is height and width."""
        height, width = _pair(kernel)
        down, across = _pair(stride)
        w = self.weight(channels, x.channels // groups, height, width)
        arguments: list[Argument] = [x, w, self.weight(channels, fill=0.0)] if bias else [x, w]
        attributes: dict[str, Any] = {}
        if height > 1 or width > 1:
            attributes["pads"] = [dilation * (height // 2), dilation * (width // 2)] * 2
        if down > 1 or across > 1:
            attributes["strides"] = [down, across]
        if groups > 1:
            attributes["group"] = groups
        if dilation > 1:
            attributes["dilations"] = [dilation, dilation]
        size = -(-x.side // down), -(-x.width // across)
        self.macs += prod(size) * prod(w.shape)
        return self.op("Conv", *arguments, channels=channels, side=size[0], width=size[1], **attributes)

    def batch_norm(self, x: Value) -> Value:
        """Batch normalisation with freshly initialised statistics."""
        c = x.channels
        return self.op(
            "BatchNormalization",
            x,
            self.weight(c, fill=1.0),
            self.weight(c, fill=0.0),
            self.weight(c, fill=0.0, trainable=False),
            self.weight(c, fill=1.0, trainable=False),
        )

    def pool(
        self, kind: str, x: Value, kernel: int, stride: int = 1, padded: bool = False, ceil: bool = False
    ) -> Value:
        """`AveragePool` (padding not counted) or `MaxPool`; `ceil` rounds the size up."""
        attributes: dict[str, Any] = {"kernel_shape": [kernel, kernel]}
        if stride > 1:
            attributes["strides"] = [stride, stride]
        if padded:
            attributes["pads"] = [kernel // 2] * 4
        if ceil:
            attributes["ceil_mode"] = 1
        side = -(-x.side // stride) if padded or ceil else (x.side - kernel) // stride + 1
        return self.op(kind, x, side=side, **attributes)

    def classifier(self, x: Value, classes: int) -> Value:
        """Global average pooling and a linear layer."""
        return self.linear(self.op("Flatten", self.op("GlobalAveragePool", x, side=1), side=0), classes)

    def linear(self, x: Value, classes: int) -> Value:
        """A linear layer."""
        self.macs += classes * x.channels
        w, b = self.weight(classes, x.channels), self.weight(classes, fill=0.0)
        return self.op("Gemm", x, w, b, channels=classes, transB=1)

    def block(self, body: Callable[..., Value], x: Value, *arguments: Any) -> Value:
        """Write `body(graph, x, *arguments)` as a block, which becomes a function if it repeats enough.

        What the body writes must follow from its arguments and the shape of x, so that it need not be written
        again where these are the same.
        """
        outer, self.body = self.body, []
        call = Call(x, self.body, body(self, x, *arguments))
        self.body = outer
        if call.output is x:
            return x
        outer.append(call)
        return call.output

    def ops(self) -> Iterator[Op]:
        """The operators in their order, those within blocks too."""
        waiting = list(reversed(self.body))
        while waiting:
            node = waiting.pop()
            if isinstance(node, Op):
                yield node
            else:
                waiting.extend(reversed(node.body))

    def build(self, out: Value) -> onnx.ModelProto:
        """The model whose output is `out`."""
        chosen = _Functions(self.body, self.outlined)
        body, functions = chosen.result()
        leaves = list(dict.fromkeys(leaf for node in body for leaf in chosen.handed(node)))
        weights = [leaf for leaf in leaves if isinstance(leaf, Weight)]
        nodes = [leaf.node() for leaf in leaves if isinstance(leaf, Constant)]
        names = {self.input: "x", out: "y"}
        nodes += [_node_proto(n, names, {}, functions) for n in body]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(self.input_shape))]
        initialisers = []
        if self.weights:
            rng = np.random.default_rng(self.seed)
            initialisers = [numpy_helper.from_array(_initial(w, rng), w.name) for w in weights]
        else:
            inputs += [
                helper.make_tensor_value_info(w.name, TensorProto.FLOAT, list(w.shape)) for w in weights
            ]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [self.input_shape[0], out.channels])]
        return helper.make_model(
            helper.make_graph(nodes, "network", inputs, outputs, initialisers),
            functions=[f.proto for f in functions.values()],
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)],
            ir_version=IR_VERSION,
        )


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


class _Functions:
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
            nodes.append(_node_proto(n, names, formal, self.kept))
        proto = helper.make_function(
            DOMAIN,
            name,
            ["x", *(f"w{k}" for k in range(len(rows)))],
            ["y"],
            [*inside.values(), *nodes],
            [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)],
        )
        return _Function(name, parameters, proto)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _node_proto(
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


def _height(body: Sequence[Op | Call]) -> int:
    return max((n.height for n in body if isinstance(n, Call)), default=0)


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


def _initial(weight: Weight, rng: np.random.Generator) -> np.ndarray:
    if weight.fill is not None:
        return np.full(weight.shape, weight.fill, dtype=np.float32)
    fan_in = prod(weight.shape[1:])
    return (rng.standard_normal(weight.shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)
