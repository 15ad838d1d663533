"""Conversion of nn-Meter's graphs, which are TensorFlow graphs without weights, to ONNX models.

The shapes and paddings that a graph states are partly wrong: a convolution's are those of a kernel as large
as its stride, and the output of a layer before a mean is that of the mean. Shapes are computed here from the
kernels, strides, kinds of padding and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import NodeProto, TensorProto, helper

OPERATOR_SET = 17
EPSILON = 1e-3  # of batch normalizations, which graphs leave out: the default of Keras
WEIGHTS_FILE = "weights.bin"  # named by the weights, which have shapes alone
ONE_SIXTH = 0.16667  # as graphs write it in a hard sigmoid
CONSTANTS = ("Const", "Pack")  # operators with values instead of a tensor of the network


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the ONNX model.

    Args:
        name: its name.
        shape: its shape in TensorFlow, where channels follow height and width.
        height: axis of the height in that shape, which the width follows; None if it has none. In ONNX both
            are the last axes.
    """

    name: str
    shape: tuple[int, ...]
    height: int | None = None

    @property
    def axes(self) -> list[int]:
        """Axis in TensorFlow of each axis in ONNX."""
        axes = list(range(len(self.shape)))
        if self.height is None:
            return axes
        return [*axes[: self.height], *axes[self.height + 2 :], self.height, self.height + 1]

    @property
    def onnx_shape(self) -> list[int]:
        """Its shape in ONNX."""
        return [self.shape[axis] for axis in self.axes]

    def onnx_axis(self, axis: int) -> int:
        """Return the axis in ONNX of an axis in TensorFlow."""
        if not -len(self.shape) <= axis < len(self.shape):
            raise ValueError(f"there is no axis {axis} in a tensor of shape {list(self.shape)}")
        return self.axes.index(axis % len(self.shape))

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of a batch of images.

        Raises:
            ValueError: it is none.
        """
        if len(self.shape) != 4 or self.height != 1:
            raise ValueError(f"the input has the shape {list(self.shape)}: expected a batch of images")
        return self.shape[1], self.shape[2]


def to_onnx(graph: Mapping[str, Any]) -> onnx.ModelProto:
    """Return the ONNX model of a graph, with weights that have shapes but no values.

    Args:
        graph: nodes by name, each with `inbounds`, `outbounds` and `attr`, which has the `type` of a
            TensorFlow operator, its `attr` and its `output_shape`.

    Raises:
        ValueError: the graph has an operator that is not known, or is not consistent.
    """
    return _Converter(graph).model()


class _Converter:
    """Converter of the nodes of a graph.

    Args:
        graph: see `to_onnx`.
    """

    def __init__(self, graph: Mapping[str, Any]) -> None:
        self.graph = graph
        self.count = 0  # of nodes, for their names
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[_Tensor] = []
        self.outputs: dict[str, list[_Tensor]] = {}  # of each converted node

    def model(self) -> onnx.ModelProto:
        """Return the converted graph."""
        sinks = [name for name in self.graph if not self.graph[name]["outbounds"] and self.data_inputs(name)]
        for sink in sinks:
            for name in self.order(sink):
                self.convert(name)
        results = [tensor for sink in sinks for tensor in self.outputs[sink]]
        if not self.inputs or not results:
            raise ValueError("the graph has no path from a Placeholder to an output")
        graph = helper.make_graph(self.nodes, "network", _values(self.inputs), _values(results), self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPERATOR_SET)])

    def order(self, sink: str) -> Iterator[str]:
        """Yield the nodes that are not converted yet and that a node needs, and the node, in their order."""
        stack, opened = [sink], set()
        while stack:
            name = stack[-1]
            if name in self.outputs:
                stack.pop()
                continue
            missing = [source for source, _ in self.data_inputs(name) if source not in self.outputs]
            if not missing:
                yield stack.pop()
            elif name in opened:
                raise ValueError(f"{name} depends on itself")
            else:
                opened.add(name)
                stack += missing

    def convert(self, name: str) -> None:
        """Convert a node whose inputs are converted."""
        kind = self.kind(name)
        try:
            convert = OPERATORS.get(kind)
            if convert is None:
                raise ValueError(f"the operator is not supported: expected one of {', '.join(OPERATORS)}")
            outputs = convert(self, name)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{name}, {kind}: {reason}") from None
        self.outputs[name] = outputs if isinstance(outputs, list) else [outputs]

    def kind(self, name: str) -> str:
        """Return the operator of a node."""
        return str(self.graph[name]["attr"]["type"])

    def attribute(self, name: str, attribute: str) -> Any:
        """Return an attribute of a node.

        Raises:
            KeyError: the node has none of that name.
        """
        return self.graph[name]["attr"]["attr"][attribute]

    def sources(self, name: str) -> list[tuple[str, int | None]]:
        """Return the node of each input, and which of its outputs it is if the name of the input says it.

        Names of weights, which are not part of the graph, are left out.
        """
        sources: list[tuple[str, int | None]] = []
        for source in self.graph[name]["inbounds"]:
            base, colon, index = source.rpartition(":")
            if source in self.graph:
                sources.append((source, None))
            elif colon and base in self.graph:
                sources.append((base, int(index)))
        return sources

    def data_inputs(self, name: str) -> list[tuple[str, int | None]]:
        """Return the sources of a node that have tensors of the network."""
        sources = [source for source in self.sources(name) if not self.is_weight(source[0])]
        return sources[:1] if self.kind(name) in ("Reshape", "Transpose", "Split") else sources

    def is_weight(self, name: str) -> bool:
        """Return whether a node is a constant, or reads a weight."""
        kind = self.kind(name)
        return kind in CONSTANTS or (kind == "Identity" and not self.data_inputs(name))

    def tensors(self, name: str) -> list[_Tensor]:
        """Return the tensors of the network that a node reads.

        The k-th reader of a node with several outputs reads the k-th output.
        """
        tensors = []
        seen: dict[str, int] = {}
        for source, index in self.data_inputs(name):
            outputs = self.outputs[source]
            if index is None and len(outputs) > 1:
                readers = [i for i, reader in enumerate(self.graph[source]["outbounds"]) if reader == name]
                index = readers[seen.get(source, 0)]
                seen[source] = seen.get(source, 0) + 1
            tensors.append(outputs[index or 0])
        return tensors

    def tensor(self, name: str) -> _Tensor:
        """Return the only tensor of the network that a node reads."""
        tensors = self.tensors(name)
        if len(tensors) != 1:
            raise ValueError(f"it has {len(tensors)} inputs: expected 1")
        return tensors[0]

    def constant(self, name: str) -> list[Any] | None:
        """Return the values of the first constant that a node reads; None if there is none."""
        for source, _ in self.sources(name):
            if self.kind(source) in CONSTANTS:
                values: list[Any] = self.attribute(source, "constant")
                return values
        return None

    def add(self, name: str, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add an ONNX node with one output, and return the name of the output."""
        self.count += 1
        output = f"{name}.{self.count}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def weight(self, *shape: int) -> str:
        """Add a weight of a shape, and return its name."""
        if not all(type(size) is int and size > 0 for size in shape):
            raise ValueError(f"a weight has the shape {list(shape)}: expected positive sizes")
        tensor = TensorProto(name=f"weight{len(self.weights)}", dims=shape, data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=WEIGHTS_FILE)
        self.weights.append(tensor)
        return tensor.name

    def values(self, kind: int, shape: Sequence[int], values: Sequence[float]) -> str:
        """Add constant values, and return their name."""
        tensor = helper.make_tensor(f"constant{len(self.weights)}", kind, shape, values)
        self.weights.append(tensor)
        return str(tensor.name)

    def reshaped(self, name: str, tensor: _Tensor, shape: Sequence[int]) -> _Tensor:
        """Return a tensor in another shape, which is that in TensorFlow."""
        target = _resolved(tensor.shape, shape)
        result = _Tensor("", target, _height_of_reshaped(tensor, target))
        sizes = self.values(TensorProto.INT64, [len(target)], result.onnx_shape)
        output = self.add(name, "Reshape", [tensor.name, sizes])
        return _Tensor(output, target, result.height)


Convert = Callable[[_Converter, str], _Tensor | list[_Tensor]]  # converts the node of a name


def _placeholder(c: _Converter, name: str) -> _Tensor:
    """Convert the input of the network; an open first size is a batch of 1."""
    shape = [int(size) for size in c.attribute(name, "shape")]
    shape = [1 if size < 0 and i == 0 else size for i, size in enumerate(shape)]
    if min(shape, default=0) < 1:
        raise ValueError(f"the shape is {shape}: expected positive sizes")
    tensor = _Tensor(f"input{len(c.inputs)}", tuple(shape), 1 if len(shape) == 4 else None)
    c.inputs.append(tensor)
    return tensor


def _window(
    c: _Converter, name: str, size: tuple[int, int], kernel: tuple[int, int]
) -> tuple[dict[str, Any], tuple[int, int]]:
    """Return the attributes of a convolution or pool, and the size of its output.

    Args:
        c: the converter.
        name: the node.
        size: height and width of the input.
        kernel: height and width of the kernel.
    """
    strides = _pair(c.attribute(name, "strides"))
    dilations = _pair(c.graph[name]["attr"]["attr"].get("dilations", (1, 1)))
    padding = c.attribute(name, "padding")
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"the padding is {padding!r}: expected SAME or VALID")
    begins, ends, output = [], [], []
    for length, k, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
        extent = (k - 1) * dilation + 1
        count = math.ceil(length / stride) if padding == "SAME" else (length - extent) // stride + 1
        if count < 1:
            raise ValueError(f"a kernel of {extent} is larger than the input of {length}")
        total = max((count - 1) * stride + extent - length, 0) if padding == "SAME" else 0
        begins.append(total // 2)
        ends.append(total - total // 2)
        output.append(count)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": [*begins, *ends]}
    if dilations != (1, 1):
        attributes["dilations"] = dilations
    return attributes, (output[0], output[1])


def _conv(c: _Converter, name: str) -> _Tensor:
    """Convert a convolution. A kernel with fewer channels than the input is one of a grouped convolution."""
    x = c.tensor(name)
    height, width, channels, filters = c.attribute(name, "weight_shape")
    attributes, size = _window(c, name, x.image_size, (height, width))
    if c.kind(name) == "DepthwiseConv2dNative":
        group, filters, channels = channels, channels * filters, 1
    else:
        group = x.shape[3] // channels
    if group * channels != x.shape[3]:
        raise ValueError(f"the weights are for {group * channels} channels, and the input has {x.shape[3]}")
    weight = c.weight(filters, channels, height, width)
    output = c.add(name, "Conv", [x.name, weight], group=group, **attributes)
    return _Tensor(output, (x.shape[0], *size, filters), 1)


def _pool(c: _Converter, name: str) -> _Tensor:
    """Convert a pool; an average over the whole image is a global one."""
    x = c.tensor(name)
    kernel = _pair(c.attribute(name, "ksize"))
    attributes, size = _window(c, name, x.image_size, kernel)
    is_average = c.kind(name) == "AvgPool"
    if is_average and kernel == x.image_size and size == (1, 1) and not any(attributes["pads"]):
        output = c.add(name, "GlobalAveragePool", [x.name])
    else:
        output = c.add(name, "AveragePool" if is_average else "MaxPool", [x.name], **attributes)
    return _Tensor(output, (x.shape[0], *size, x.shape[3]), 1)


def _mean(c: _Converter, name: str) -> _Tensor:
    """Convert the mean over height and width; the graph does not say whether it keeps these axes."""
    x = c.tensor(name)
    axes = sorted(axis % 4 for axis in c.attribute(name, "reduction_indices"))
    if axes != [1, 2] or x.height != 1:
        raise ValueError(f"the mean is over the axes {axes}: expected height and width")
    return _Tensor(c.add(name, "GlobalAveragePool", [x.name]), (x.shape[0], 1, 1, x.shape[3]), 1)


def _linear(c: _Converter, name: str) -> _Tensor:
    """Convert a linear layer, also one that follows a mean without a reshape."""
    x = c.tensor(name)
    if len(x.shape) == 4:
        x = c.reshaped(name, x, (x.shape[0], -1))
    if len(x.shape) != 2:
        raise ValueError(f"the input has the shape {list(x.shape)}: expected a matrix")
    features = int(c.graph[name]["attr"]["output_shape"][0][-1])
    output = c.add(name, "Gemm", [x.name, c.weight(features, x.shape[1])], transB=1)
    return _Tensor(output, (x.shape[0], features))


def _bias(c: _Converter, name: str) -> _Tensor:
    """Convert a bias: an input of the layer before it if nothing else reads that layer."""
    x = c.tensor(name)
    source = c.data_inputs(name)[0][0]
    layer = next((node for node in c.nodes if x.name in node.output), None)
    has_bias = layer is not None and layer.op_type in ("Conv", "Gemm") and len(layer.input) == 2
    if layer is not None and has_bias and c.graph[source]["outbounds"] == [name]:
        layer.input.append(c.weight(x.shape[-1]))
        return x
    shape = [x.shape[-1], 1, 1] if x.height is not None else [x.shape[-1]]
    return _Tensor(c.add(name, "Add", [x.name, c.weight(*shape)]), x.shape, x.height)


def _batch_norm(c: _Converter, name: str) -> _Tensor:
    """Convert a batch normalization."""
    x = c.tensor(name)
    weights = [c.weight(x.shape[-1]) for _ in range(4)]
    output = c.add(name, "BatchNormalization", [x.name, *weights], epsilon=EPSILON)
    return _Tensor(output, x.shape, x.height)


def _activation(operator: str) -> Convert:
    """Return the conversion of an operator on each element to the ONNX operator of a name."""

    def convert(c: _Converter, name: str) -> _Tensor:
        x = c.tensor(name)
        return _Tensor(c.add(name, operator, [x.name]), x.shape, x.height)

    return convert


def _relu6(c: _Converter, name: str) -> _Tensor:
    """Convert a ReLU with the upper bound 6."""
    x = c.tensor(name)
    bounds = [c.values(TensorProto.FLOAT, [], [bound]) for bound in (0.0, 6.0)]
    return _Tensor(c.add(name, "Clip", [x.name, *bounds]), x.shape, x.height)


def _softmax(c: _Converter, name: str) -> _Tensor:
    """Convert a softmax over the channels."""
    x = c.tensor(name)
    output = c.add(name, "Softmax", [x.name], axis=x.onnx_axis(-1))
    return _Tensor(output, x.shape, x.height)


def _arithmetic(operator: str) -> Convert:
    """Return the conversion of a sum, product and the like, of tensors or of one with a number."""

    def convert(c: _Converter, name: str) -> _Tensor:
        first, *others = c.tensors(name)
        if not others:
            gated = _hard_sigmoid(c, name) if operator == "Mul" else None
            if gated is not None:
                return gated
            is_second = c.kind(c.sources(name)[0][0]) not in CONSTANTS
            names = [first.name, c.values(TensorProto.FLOAT, [], [_number(c.constant(name))])]
            output = c.add(name, operator, names if is_second else names[::-1])
            return _Tensor(output, first.shape, first.height)
        for other in others:
            shape = _broadcast(first, other)
            height = first.height if len(shape) == len(first.shape) else other.height
            first = _Tensor(c.add(name, operator, [first.name, other.name]), shape, height)
        return first

    return convert


def _hard_sigmoid(c: _Converter, name: str) -> _Tensor | None:
    """Convert relu6(x + 3) / 6 to one operator at its last node; None for another product."""
    clip = c.data_inputs(name)[0][0]
    is_sixth = c.kind(clip) == "Relu6" and _number(c.constant(name)) == 1 / 6
    total = c.data_inputs(clip)[0][0] if is_sixth else ""
    if not is_sixth or c.kind(total) not in ("Add", "AddV2") or len(c.data_inputs(total)) != 1:
        return None
    if _number(c.constant(total)) != 3 or any(len(c.graph[n]["outbounds"]) != 1 for n in (clip, total)):
        return None
    x = c.tensor(total)
    unused = {c.outputs[node][0].name for node in (clip, total)}
    c.nodes = [node for node in c.nodes if node.output[0] not in unused]
    return _Tensor(c.add(name, "HardSigmoid", [x.name], alpha=1 / 6, beta=0.5), x.shape, x.height)


def _concat(c: _Converter, name: str) -> _Tensor:
    """Convert a concatenation."""
    first, *others = c.tensors(name)
    (axis,) = c.attribute(name, "axis")
    onnx_axis, axis = first.onnx_axis(axis), axis % len(first.shape)
    shape = list(first.shape)
    for other in others:
        rest = [size for i, size in enumerate(other.shape) if i != axis]
        if rest != [size for i, size in enumerate(first.shape) if i != axis] or other.height != first.height:
            raise ValueError(f"the shapes {list(first.shape)} and {list(other.shape)} do not fit together")
        shape[axis] += other.shape[axis]
    names = [tensor.name for tensor in (first, *others)]
    return _Tensor(c.add(name, "Concat", names, axis=onnx_axis), tuple(shape), first.height)


def _split(c: _Converter, name: str) -> list[_Tensor]:
    """Convert a split into equal parts, one for each reader."""
    x = c.tensor(name)
    (axis,) = c.attribute(name, "split_dim")
    onnx_axis, axis = x.onnx_axis(axis), axis % len(x.shape)
    count = max(len(c.graph[name]["attr"]["output_shape"]), len(c.graph[name]["outbounds"]))
    if x.shape[axis] % count:
        raise ValueError(f"{x.shape[axis]} channels cannot be split into {count} equal parts")
    size = x.shape[axis] // count
    shape = tuple(size if i == axis else length for i, length in enumerate(x.shape))
    parts = []
    for k in range(count):
        bounds = [c.values(TensorProto.INT64, [1], [n]) for n in (k * size, (k + 1) * size, onnx_axis)]
        parts.append(_Tensor(c.add(name, "Slice", [x.name, *bounds]), shape, x.height))
    return parts


def _reshape(c: _Converter, name: str) -> _Tensor:
    """Convert a reshape, whose shape is an attribute, a constant, or packed without the size of the batch."""
    x = c.tensor(name)
    shape = c.graph[name]["attr"]["attr"].get("shape") or _flat(c.constant(name) or ())
    if not shape:
        raise ValueError("its shape is missing")
    if any(c.kind(source) == "Pack" for source, _ in c.sources(name)):
        shape = [x.shape[0], *shape]
    return c.reshaped(name, x, shape)


def _squeeze(c: _Converter, name: str) -> _Tensor:
    """Convert the removal of height and width of one pixel."""
    x = c.tensor(name)
    if x.image_size != (1, 1):
        raise ValueError(f"the input has the shape {list(x.shape)}: expected one pixel")
    return c.reshaped(name, x, (x.shape[0], x.shape[3]))


def _transpose(c: _Converter, name: str) -> _Tensor:
    """Convert a transpose that keeps height and width together."""
    x = c.tensor(name)
    order = _flat(c.constant(name) or ())
    if sorted(order) != list(range(len(x.shape))):
        raise ValueError(f"the order of the axes is {order}, and the input has the shape {list(x.shape)}")
    height = None
    if x.height is not None:
        height = order.index(x.height)
        if order[height + 1 : height + 2] != [x.height + 1]:
            raise ValueError(f"the order of the axes is {order}: expected the width after the height")
    result = _Tensor("", tuple(x.shape[axis] for axis in order), height)
    perm = [x.axes.index(order[axis]) for axis in result.axes]
    return _Tensor(c.add(name, "Transpose", [x.name], perm=perm), result.shape, height)


def _identity(c: _Converter, name: str) -> _Tensor:
    """Convert a node that returns its input."""
    return c.tensor(name)


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    """Return the two sizes of height and width, also from those of all four axes."""
    height, width = sizes[1:3] if len(sizes) == 4 else sizes
    if not (type(height) is int and type(width) is int and height > 0 and width > 0):
        raise ValueError(f"the sizes of height and width are {list(sizes)}: expected positive numbers")
    return height, width


def _flat(values: Sequence[Any]) -> list[int]:
    """Return integers in a list of integers or of lists of them."""
    return [int(n) for value in values for n in (value if isinstance(value, list) else [value])]


def _number(values: list[Any] | None) -> float:
    """Return the number of a constant with one element; a rounded sixth is made exact."""
    if values is None or len(values) != 1:
        raise ValueError(f"the constant has the values {values}: expected one number")
    value = float(values[0])
    return 1 / 6 if math.isclose(value, ONE_SIXTH, rel_tol=1e-4) else value


def _broadcast(a: _Tensor, b: _Tensor) -> tuple[int, ...]:
    """Return the shape of the sum of two tensors."""
    is_alike = len(a.shape) == len(b.shape) and a.height == b.height
    if not is_alike or any(m != n and 1 not in (m, n) for m, n in zip(a.shape, b.shape, strict=True)):
        raise ValueError(f"the shapes {list(a.shape)} and {list(b.shape)} do not fit together")
    return tuple(max(m, n) for m, n in zip(a.shape, b.shape, strict=True))


def _resolved(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Return the target of a reshape with its open size."""
    total, known = math.prod(shape), math.prod(size for size in target if size != -1)
    if list(target).count(-1) == 1 and known > 0 and total % known == 0:
        return tuple(total // known if size == -1 else size for size in target)
    if min(target) < 1 or known != total:
        raise ValueError(f"the shape {list(shape)} cannot become {list(target)}")
    return tuple(target)


def _height_of_reshaped(tensor: _Tensor, target: Sequence[int]) -> int | None:
    """Return the axis of the height after a reshape, which may divide and merge the other axes.

    Height and width disappear if the images become vectors. The order of a vector's elements in ONNX is that
    of its channels, which only permutes the weights after it.

    Raises:
        ValueError: the reshape mixes height or width with other axes.
    """
    shape, height = tensor.shape, tensor.height
    if height is None:
        is_pixel = len(target) == 4 and tuple(target[1:3]) == (1, 1)
        if len(target) == 4 and not is_pixel:
            raise ValueError(f"the shape {list(shape)} becomes that of images, {list(target)}")
        return 1 if is_pixel else None
    size, before = shape[height : height + 2], math.prod(shape[:height])
    for axis in range(len(target) - 1):
        if tuple(target[axis : axis + 2]) == size and math.prod(target[:axis]) == before:
            return axis
    if len(target) == 2 and target[0] == shape[0]:
        return None
    raise ValueError(f"the reshape of {list(shape)} to {list(target)} mixes height or width with other axes")


def _values(tensors: Sequence[_Tensor]) -> list[onnx.ValueInfoProto]:
    """Return the declarations of inputs or outputs."""
    return [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, t.onnx_shape) for t in tensors]


OPERATORS: dict[str, Convert] = {
    **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative"), _conv),
    **dict.fromkeys(("MaxPool", "AvgPool"), _pool),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _batch_norm),
    **dict.fromkeys(("Add", "AddV2", "AddN"), _arithmetic("Add")),
    **dict.fromkeys(("Concat", "ConcatV2"), _concat),
    **dict.fromkeys(("Identity", "StopGradient"), _identity),
    "Sub": _arithmetic("Sub"),
    "Mul": _arithmetic("Mul"),
    "RealDiv": _arithmetic("Div"),
    "BiasAdd": _bias,
    "Elu": _activation("Elu"),
    "MatMul": _linear,
    "Mean": _mean,
    "Placeholder": _placeholder,
    "Relu": _activation("Relu"),
    "Relu6": _relu6,
    "Reshape": _reshape,
    "Sigmoid": _activation("Sigmoid"),
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tanh": _activation("Tanh"),
    "Transpose": _transpose,
}
