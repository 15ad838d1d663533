"""A small ONNX builder that writes networks in plain Python and turns repeated blocks into local functions.

Examples:
    >>> graph = Graph((1, 3, 32, 32))
    >>> x = graph.conv(graph.input, 16, kernel=3)
    >>> for _ in range(4):
    ...     x = graph.block(lambda g, y: g.op("Relu", g.batch_norm(g.conv(y, 16, kernel=3))), x)
    >>> [f.name for f in graph.build(graph.classifier(x, 10)).functions]
    ['f0']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from search_spaces.functions import DOMAIN, OPSET, FunctionOutliner, node_proto
from search_spaces.nodes import Argument, Call, Constant, Op, Value, Weight

__all__ = ["Constant", "Graph", "Value"]

IR_VERSION = 10


class Graph:
    """A network that is being built, with its costs so far.

    Args:
        input_shape: batch size, channels, height and width; height and width are equal.
        weights: give every weight its own initialiser; otherwise there is one input for each weight shape.
        outlined: write repeated blocks as local functions.
        seed: random seed of the initialisers.

    Attributes:
        input: input value.
        body: nodes so far.
        params: number of trainable parameters so far, without the running statistics of batch norm.
        macs: multiply-accumulates of convolutions and linear layers so far, for one image.
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
        """Add an operator and return its output.

        Args:
            kind: name of the ONNX operator.
            arguments: values, weights and constants that it reads.
            channels: channels of the output; by default those of the first value.
            side: height of the output in pixels; by default that of the first value.
            width: width of the output in pixels; by default `side` if that is given.
            attributes: attributes of the ONNX operator.
        """
        out = self._result(arguments, channels, side, width)
        self.body.append(Op(kind, arguments, tuple(sorted(attributes.items())), out))
        return out

    def _result(
        self, arguments: Sequence[Argument], channels: int | None, side: int | None, width: int | None
    ) -> Value:
        """Return the output value of an operator; see `op`."""
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
        """Return a weight.

        Args:
            shape: shape of the weight.
            fill: initial value; None for He's normal initialisation.
            trainable: count the weight as a parameter.
        """
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
        """Add a padded convolution and return its output.

        Args:
            x: input.
            channels: output channels.
            kernel: kernel size; a pair is height and width.
            stride: stride; a pair is height and width.
            groups: number of groups.
            bias: add a bias.
            dilation: dilation of the kernel.
        """
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
        """Add batch normalisation and return its output."""
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
        """Add a pooling layer and return its output.

        Args:
            kind: `AveragePool`, which does not count padding, or `MaxPool`.
            x: input.
            kernel: kernel size.
            stride: stride.
            padded: pad by half the kernel size.
            ceil: round the output size up.
        """
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
        """Add global average pooling and a linear layer, and return the logits."""
        return self.linear(self.op("Flatten", self.op("GlobalAveragePool", x, side=1), side=0), classes)

    def linear(self, x: Value, classes: int) -> Value:
        """Add a linear layer and return its output."""
        self.macs += classes * x.channels
        w, b = self.weight(classes, x.channels), self.weight(classes, fill=0.0)
        return self.op("Gemm", x, w, b, channels=classes, transB=1)

    def block(self, body: Callable[..., Value], x: Value, *arguments: Any) -> Value:
        """Add a block, which becomes a local function if it repeats, and return its output.

        The block may only depend on its arguments and the shape of `x`, since it is cached by them.

        Args:
            body: function that writes the block: `body(graph, x, *arguments)` returns its output.
            x: input of the block.
            arguments: further arguments of `body`.
        """
        outer, self.body = self.body, []
        call = Call(x, self.body, body(self, x, *arguments))
        self.body = outer
        if call.output is x:
            return x
        outer.append(call)
        return call.output

    def ops(self) -> Iterator[Op]:
        """Yield all operators in order, including those in blocks."""
        stack = list(reversed(self.body))
        while stack:
            node = stack.pop()
            if isinstance(node, Op):
                yield node
            else:
                stack.extend(reversed(node.body))

    def build(self, out: Value) -> onnx.ModelProto:
        """Return the ONNX model with the output `out`."""
        outliner = FunctionOutliner(self.body, self.outlined)
        body, functions = outliner.result()
        leaves = list(dict.fromkeys(leaf for node in body for leaf in outliner.call_arguments(node)))
        weights = [leaf for leaf in leaves if isinstance(leaf, Weight)]
        nodes = [leaf.node() for leaf in leaves if isinstance(leaf, Constant)]
        names = {self.input: "x", out: "y"}
        nodes += [node_proto(n, names, {}, functions) for n in body]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(self.input_shape))]
        initialisers = []
        if self.weights:
            rng = np.random.default_rng(self.seed)
            initialisers = [numpy_helper.from_array(_initial_values(w, rng), w.name) for w in weights]
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


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """Return an integer as a pair of equal integers, and a pair unchanged."""
    return (value, value) if isinstance(value, int) else value


def _initial_values(weight: Weight, rng: np.random.Generator) -> np.ndarray:
    """Return the initial values of a weight: constant, or He's normal initialisation."""
    if weight.fill is not None:
        return np.full(weight.shape, weight.fill, dtype=np.float32)
    fan_in = prod(weight.shape[1:])
    return (rng.standard_normal(weight.shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)
