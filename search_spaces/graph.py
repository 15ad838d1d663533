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
from functools import cache, partial
from importlib import import_module
from itertools import count
from math import prod
from operator import index
from typing import Any

import onnx
from onnx import TensorProto

from search_spaces.arguments import along_axes, checked_size, plain_attribute
from search_spaces.functions import FunctionOutliner
from search_spaces.layout import channels_and_sides, has_channels_first
from search_spaces.nodes import (
    Argument,
    Call,
    Constant,
    Inferred,
    Leaf,
    Op,
    Table,
    TensorInfo,
    Value,
    Weight,
    ops_before,
    ops_in,
)
from search_spaces.onnx_model import Port, onnx_model, share_weights
from search_spaces.wording import counted

__all__ = ["Constant", "Graph", "Table", "Value", "Weight"]

INPUT_TYPES = {"float": TensorProto.FLOAT, "int64": TensorProto.INT64}


class Graph:
    """A network that is being built, with its costs so far.

    Args:
        input_shape: batch size, and the sizes of an input, see `search_spaces.SearchSpace`.
        weights: give every weight its own initialiser; otherwise there is one input for each weight shape.
        outlined: write repeated blocks as local functions.
        seed: random seed of the initialisers.
        checked: check each operator, and infer the shape of its output. The spaces of this package, whose
            networks are tested, do without, which is faster.
        input_type: element type of the input: `float`, or `int64` for token ids.

    Attributes:
        input: input value.
        body: nodes so far.
        params: number of trainable parameters so far, without the running statistics of batch norm.
        macs: multiply-accumulates of convolutions and matrix products so far, for all inputs of the batch.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        weights: bool = False,
        outlined: bool = True,
        seed: int = 0,
        checked: bool = True,
        input_type: str = "float",
    ) -> None:
        self.input_shape, self.checked = input_shape, checked
        self.weights, self.outlined, self.seed = weights, outlined, seed
        self.params = 0
        self.macs = 0
        self._ids = count()
        self._uses = count()
        self.body: list[Op | Call] = []
        self._values: dict[int, Value] = {}  # of a checked graph, by id
        self._op_macs: dict[int, int] = {}  # by the id of the output
        self._frozen: set[Weight] = set()  # weights that are not trainable
        self._first_id = 0  # of the values of the block that is written
        self.input_info = TensorInfo(INPUT_TYPES[input_type], tuple(map(index, input_shape)))
        channels_first = True if input_type == "float" and len(input_shape) > 2 else None
        if checked:
            self.input = self._new_value(self.input_info, channels_first)
        else:
            self.input = Value(next(self._ids), *channels_and_sides(self.input_info.shape, channels_first))
        self._block_input = self.input

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
            arguments: values, weights, constants and tables that it reads; None for an omitted input.
            channels: channels of the output. In a checked graph they are inferred, as are the sizes, and may
                be given to check them. Otherwise they are by default those of the first value.
            side: height of the output in pixels; by default that of the first value.
            width: width of the output in pixels; by default `side` if that is given.
            attributes: attributes of the ONNX operator.

        Raises:
            ValueError: in a checked graph, the operator does not exist, its inputs or attributes do not fit,
                or it reads a value from outside of the block.
        """
        out = self._result(kind, arguments, attributes, channels, side, width)
        self.body.append(Op(kind, arguments, tuple(sorted(attributes.items())), out))
        return out

    def _result(
        self,
        kind: str,
        arguments: Sequence[Argument],
        attributes: dict[str, Any],
        channels: int | None,
        side: int | None,
        width: int | None,
    ) -> Value:
        """Return the output value of an operator; see `op`."""
        if self.checked:
            return self._inferred_result(kind, arguments, attributes, (channels, side, width))
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

    def _inferred_result(
        self,
        kind: str,
        arguments: Sequence[Argument],
        attributes: dict[str, Any],
        expected: tuple[int | None, int | None, int | None],
    ) -> Value:
        """Return the output value of an operator that is checked; see `op`."""
        for name, value in attributes.items():
            attributes[name] = plain_attribute(value)
        infos = []
        for k, a in enumerate(arguments):
            if isinstance(a, Value):
                self._check_value(a, f"input {k} of graph.op({kind!r})")
            elif a is not None and not isinstance(a, Leaf):
                raise ValueError(
                    f"input {k} of graph.op({kind!r}) is {a!r}: expected a value, a weight or a Constant"
                )
            infos.append(None if a is None else a.info)
        output, macs = _inference()(kind, tuple(sorted(attributes.items())), tuple(infos))
        value = self._new_value(output, has_channels_first(kind, arguments, attributes, output.shape))
        self._op_macs[value.id] = macs
        self.macs += self._op_macs[value.id]
        channels, side, width = expected
        found = value.channels, value.side, value.width
        for name, given, inferred in zip(
            ("channels", "side", "width"),
            (channels, side, side if width is None else width),
            found,
            strict=True,
        ):
            if given is not None and given != inferred:
                raise ValueError(
                    f"graph.op({kind!r}) was given {name}={given}, but its output of shape"
                    f" {list(output.shape)} has {inferred}"
                )
        return value

    def _new_value(self, info: TensorInfo, channels_first: bool | None) -> Value:
        """Return a new value of a checked graph."""
        value = Value(next(self._ids), *channels_and_sides(info.shape, channels_first), info, channels_first)
        self._values[value.id] = value
        return value

    def _check_value(self, value: object, what: str) -> None:
        """Refuse what is no value of this graph, or lies outside of the block that is written.

        Raises:
            ValueError: it is or does.
        """
        if not isinstance(value, Value):
            raise ValueError(f"{what} is {value!r}: expected a value of the graph")
        if self._values.get(value.id) is not value:
            raise ValueError(f"{what} is a value of another graph, or from inside of a block")
        if value.id < self._first_id and value is not self._block_input:
            raise ValueError(
                f"{what} is a value from outside of the block: a block reads only its input x; write the"
                " layers without graph.block, or concatenate what they read"
            )

    def weight(self, *shape: int, fill: float | None = None, trainable: bool = True) -> Weight:
        """Return a weight.

        Args:
            shape: shape of the weight.
            fill: initial value; None for He's normal initialisation.
            trainable: count the weight as a parameter.
        """
        if self.checked:
            shape = tuple([checked_size(d, shape) for d in shape])
            self.params += prod(shape) if trainable else 0
            weight = Weight(shape, fill, next(self._uses))
            if not trainable:
                self._frozen.add(weight)
            return weight
        if trainable:
            self.params += prod(shape)
        return Weight(shape, fill, next(self._uses)) if self.weights else Weight(shape)

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = False,
        dilation: int | tuple[int, ...] = 1,
    ) -> Value:
        """Add a padded convolution and return its output.

        Args:
            x: images, or in a checked graph also signals [batch, channels, length] or volumes.
            channels: output channels.
            kernel: kernel size; a tuple has a size for each axis, such as height and width. The input is
                padded by half of it, so that an even kernel adds a position.
            stride: stride; a tuple has one for each axis.
            groups: number of groups.
            bias: add a bias.
            dilation: dilation of the kernel; a tuple has one for each axis.
        """
        in_channels, num_axes = self._channels_and_axes(x, "graph.conv")
        if groups < 1 or in_channels % groups or channels % groups:
            raise ValueError(
                f"{counted(groups, 'group does', 'groups do')} not divide the channels {in_channels} and"
                f" {channels}"
            )
        sizes = along_axes(kernel, num_axes, "the kernel of graph.conv")
        strides = along_axes(stride, num_axes, "the stride of graph.conv")
        dilations = along_axes(dilation, num_axes, "the dilation of graph.conv")
        w = self.weight(channels, in_channels // groups, *sizes)
        arguments: list[Argument] = [x, w, self.weight(channels, fill=0.0)] if bias else [x, w]
        attributes: dict[str, Any] = {}
        if max(sizes) > 1:
            attributes["pads"] = [d * (size // 2) for d, size in zip(dilations, sizes, strict=True)] * 2
        if max(strides) > 1:
            attributes["strides"] = [*strides]
        if groups > 1:
            attributes["group"] = groups
        if max(dilations) > 1:
            attributes["dilations"] = [*dilations]
        if self.checked:
            return self.op("Conv", *arguments, **attributes)
        size = -(-x.side // strides[0]), -(-x.width // strides[1])
        self.macs += self.input_shape[0] * prod(size) * prod(w.shape)
        return self.op("Conv", *arguments, channels=channels, side=size[0], width=size[1], **attributes)

    def _channels_and_axes(self, x: Value, what: str) -> tuple[int, int]:
        """Return the channels of the input of a layer that slides, and the number of axes behind them.

        Raises:
            ValueError: in a checked graph, the input has no such axis.
        """
        if not self.checked:
            return x.channels, 2
        self._check_value(x, f"the input of {what}")
        if len(x.shape) < 3:
            raise ValueError(
                f"{what} reads signals [batch, channels, length], images or volumes, not the shape"
                f" {list(x.shape)}"
            )
        if len(x.shape) == 3 and x.channels_first is False:
            raise ValueError(
                f"{what} reads signals, not tokens of shape {list(x.shape)}: graph.op('Transpose', x,"
                " perm=[0, 2, 1]) makes signals of tokens"
            )
        return x.shape[1], len(x.shape) - 2

    def batch_norm(self, x: Value) -> Value:
        """Add batch normalisation and return its output."""
        is_vector = self.checked and len(x.shape) == 2
        c = x.channels if is_vector else self._channels_and_axes(x, "graph.batch_norm")[0]
        return self.op(
            "BatchNormalization",
            x,
            self.weight(c, fill=1.0),
            self.weight(c, fill=0.0),
            self.weight(c, fill=0.0, trainable=False),
            self.weight(c, fill=1.0, trainable=False),
        )

    def pool(
        self,
        kind: str,
        x: Value,
        kernel: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padded: bool = False,
        ceil: bool = False,
    ) -> Value:
        """Add a pooling layer and return its output.

        Args:
            kind: `AveragePool`, which does not count padding, or `MaxPool`.
            x: images, or in a checked graph also signals or volumes.
            kernel: kernel size; a tuple has a size for each axis.
            stride: stride; a tuple has one for each axis.
            padded: pad by half the kernel size.
            ceil: round the output size up.
        """
        num_axes = self._channels_and_axes(x, "graph.pool")[1]
        sizes = along_axes(kernel, num_axes, "the kernel of graph.pool")
        strides = along_axes(stride, num_axes, "the stride of graph.pool")
        attributes: dict[str, Any] = {"kernel_shape": [*sizes]}
        if max(strides) > 1:
            attributes["strides"] = [*strides]
        if padded:
            attributes["pads"] = [size // 2 for size in sizes] * 2
        if ceil:
            attributes["ceil_mode"] = 1
        if self.checked:
            return self.op(kind, x, **attributes)
        side = -(-x.side // strides[0]) if padded or ceil else (x.side - sizes[0]) // strides[0] + 1
        return self.op(kind, x, side=side, **attributes)

    def classifier(self, x: Value, classes: int) -> Value:
        """Add the mean over all positions of each channel and a linear layer, and return the logits."""
        if self.checked:
            self._channels_and_axes(x, "graph.classifier")
            return self.linear(self.op("Flatten", self.op("GlobalAveragePool", x)), classes)
        return self.linear(self.op("Flatten", self.op("GlobalAveragePool", x, side=1), side=0), classes)

    def linear(self, x: Value, classes: int) -> Value:
        """Add a linear layer on vectors [batch, features] and return its output."""
        if self.checked:
            self._check_value(x, "the input of graph.linear")
            if len(x.shape) != 2:
                raise ValueError(f"graph.linear reads vectors, not the shape {list(x.shape)}")
            w, b = self.weight(classes, x.channels), self.weight(classes, fill=0.0)
            return self.op("Gemm", x, w, b, transB=1)
        self.macs += self.input_shape[0] * classes * x.channels
        w, b = self.weight(classes, x.channels), self.weight(classes, fill=0.0)
        return self.op("Gemm", x, w, b, channels=classes, transB=1)

    def matmul(self, x: Value, y: Value | Weight) -> Value:
        """Add a matrix product and return its output.

        Args:
            x: tokens [batch, tokens, features], or matrices [batch, heads, rows, features].
            y: a weight [features, outputs] for tokens; other matrices for matrices.
        """
        if self.checked:
            return self.op("MatMul", x, y)
        if isinstance(y, Weight):
            self.macs += self.input_shape[0] * x.side * prod(y.shape)
            return self.op("MatMul", x, y, channels=y.shape[1])
        self.macs += self.input_shape[0] * x.channels * x.side * x.width * y.width
        return self.op("MatMul", x, y, width=y.width)

    def block(self, body: Callable[..., Value], x: Value, *arguments: Any, **options: Any) -> Value:
        """Add a block, which becomes a local function if it repeats, and return its output.

        The block may only depend on its arguments and the shape of `x`. In a checked graph it may also depend
        on other Python objects, but may not read other values of the graph.

        Args:
            body: function that writes the block: `body(graph, x, *arguments, **options)` returns its output.
            x: input of the block.
            arguments: further arguments of `body`.
            options: further named arguments of `body`.
        """
        body = partial(body, **options) if options else body
        outer, self.body = self.body, []
        result = self._write_block(body, x, arguments) if self.checked else body(self, x, *arguments)
        call = Call(x, self.body, result)
        self.body = outer
        if call.output is x:
            return x
        outer.append(call)
        return call.output

    def _write_block(self, body: Callable[..., Value], x: Value, arguments: Sequence[Any]) -> Value:
        """Write the body of a block into a checked graph, which may read no other value than `x`."""
        self._check_value(x, "the input of graph.block")
        outer = self._first_id, self._block_input
        self._first_id, self._block_input = next(self._ids), x
        result = body(self, x, *arguments)
        self._check_value(result, f"the output of the block {getattr(body, '__name__', 'that is written')}")
        for inner in range(self._first_id, next(self._ids)):
            if inner != result.id:
                self._values.pop(inner, None)  # nothing outside of the block may read it
        self._first_id, self._block_input = outer
        return result

    def checked_output(self, out: object) -> Value:
        """Return the output of the network, which has to be a value of this checked graph.

        From then on `params` and `macs` are those of the layers on which the output depends.

        Raises:
            ValueError: it is not.
        """
        self._check_value(out, "the output that `write` returns")
        assert isinstance(out, Value)
        if out is self.input:
            raise ValueError("the output that `write` returns is graph.input: expected the output of a layer")
        ops = ops_before(self.body, out)
        weights = {leaf for op in ops for leaf in op.leaves if isinstance(leaf, Weight)}
        self.macs = sum(self._op_macs[op.output.id] for op in ops)
        self.params = sum(prod(w.shape) for w in weights - self._frozen)
        return out

    def ops(self) -> Iterator[Op]:
        """Yield all operators in order, including those in blocks."""
        return ops_in(self.body)

    def build(self, out: Value) -> onnx.ModelProto:
        """Return the ONNX model with the output `out`.

        Raises:
            ValueError: the weights are larger than an ONNX file can be.
        """
        if self.checked and not self.weights:
            share_weights(self.body, out)
        info = out.info or TensorInfo(TensorProto.FLOAT, (self.input_shape[0], *out.inner_shape))
        return onnx_model(
            FunctionOutliner(self.body, self.outlined),
            Port(self.input, self.input_info),
            Port(out, info),
            self.seed if self.weights else None,
        )


@cache
def _inference() -> Callable[..., Inferred]:
    """Return the function that checks operators and infers shapes.

    It belongs to `nas_rlm`, which imports this package; it is looked up only where a checked graph is built.
    """
    function: Callable[..., Inferred] = import_module("nas_rlm.graph.builder_checks").infer_operator
    return function
