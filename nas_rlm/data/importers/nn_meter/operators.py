"""Operators of nn-Meter's graphs, which are TensorFlow graphs without weights, as ONNX nodes.

The shapes and paddings that a graph states are partly wrong: a convolution's are those of a kernel as large
as its stride, and the output of a layer before a mean is that of the mean. Shapes are computed here from the
kernels, strides, kinds of padding and weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto

from nas_rlm.data.importers.nn_meter.converter import CONSTANTS, Convert, ConvertedTensor, GraphConverter
from search_spaces.wording import counted

EPSILON = 1e-3  # of batch normalizations, which graphs leave out: the default of Keras
ONE_SIXTH = 0.16667  # as graphs write it in a hard sigmoid


def to_onnx(graph: Mapping[str, Any]) -> onnx.ModelProto:
    """Return the ONNX model of a graph, with weights that have shapes but no values.

    Args:
        graph: nodes by name, each with `inbounds`, `outbounds` and `attr`, which has the `type` of a
            TensorFlow operator, its `attr` and its `output_shape`.

    Raises:
        ValueError: the graph has an operator that is not known, or is not consistent.
    """
    return GraphConverter(graph, OPERATORS).model()


def _placeholder(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert the input of the network; an open first size is a batch of 1."""
    shape = [int(size) for size in c.attribute(name, "shape")]
    shape = [1 if size < 0 and i == 0 else size for i, size in enumerate(shape)]
    if min(shape, default=0) < 1:
        raise ValueError(f"the shape is {shape}: expected positive sizes")
    tensor = ConvertedTensor(f"input{len(c.inputs)}", tuple(shape), 1 if len(shape) == 4 else None)
    c.inputs.append(tensor)
    return tensor


def _window(
    c: GraphConverter, name: str, size: tuple[int, int], kernel: tuple[int, int]
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


def _conv(c: GraphConverter, name: str) -> ConvertedTensor:
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
    return ConvertedTensor(output, (x.shape[0], *size, filters), 1)


def _pool(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert a pool; an average over the whole image is a global one."""
    x = c.tensor(name)
    kernel = _pair(c.attribute(name, "ksize"))
    attributes, size = _window(c, name, x.image_size, kernel)
    is_average = c.kind(name) == "AvgPool"
    if is_average and kernel == x.image_size and size == (1, 1) and not any(attributes["pads"]):
        output = c.add(name, "GlobalAveragePool", [x.name])
    else:
        output = c.add(name, "AveragePool" if is_average else "MaxPool", [x.name], **attributes)
    return ConvertedTensor(output, (x.shape[0], *size, x.shape[3]), 1)


def _mean(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert the mean over height and width; the graph does not say whether it keeps these axes."""
    x = c.tensor(name)
    axes = sorted(axis % 4 for axis in c.attribute(name, "reduction_indices"))
    if axes != [1, 2] or x.height != 1:
        raise ValueError(f"the mean is over the axes {axes}: expected height and width")
    return ConvertedTensor(c.add(name, "GlobalAveragePool", [x.name]), (x.shape[0], 1, 1, x.shape[3]), 1)


def _linear(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert a linear layer, also one that follows a mean without a reshape."""
    x = c.tensor(name)
    if len(x.shape) == 4:
        x = c.reshaped(name, x, (x.shape[0], -1))
    if len(x.shape) != 2:
        raise ValueError(f"the input has the shape {list(x.shape)}: expected a matrix")
    features = int(c.graph[name]["attr"]["output_shape"][0][-1])
    output = c.add(name, "Gemm", [x.name, c.weight(features, x.shape[1])], transB=1)
    return ConvertedTensor(output, (x.shape[0], features))


def _bias(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert a bias: an input of the layer before it if nothing else reads that layer."""
    x = c.tensor(name)
    source = c.data_inputs(name)[0][0]
    layer = next((node for node in c.nodes if x.name in node.output), None)
    has_bias = layer is not None and layer.op_type in ("Conv", "Gemm") and len(layer.input) == 2
    if layer is not None and has_bias and c.graph[source]["outbounds"] == [name]:
        layer.input.append(c.weight(x.shape[-1]))
        return x
    shape = [x.shape[-1], 1, 1] if x.height is not None else [x.shape[-1]]
    return ConvertedTensor(c.add(name, "Add", [x.name, c.weight(*shape)]), x.shape, x.height)


def _batch_norm(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert a batch normalization."""
    x = c.tensor(name)
    weights = [c.weight(x.shape[-1]) for _ in range(4)]
    output = c.add(name, "BatchNormalization", [x.name, *weights], epsilon=EPSILON)
    return ConvertedTensor(output, x.shape, x.height)


def _activation(operator: str) -> Convert:
    """Return the conversion of an operator on each element to the ONNX operator of a name."""

    def convert(c: GraphConverter, name: str) -> ConvertedTensor:
        x = c.tensor(name)
        return ConvertedTensor(c.add(name, operator, [x.name]), x.shape, x.height)

    return convert


def _relu6(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert a ReLU with the upper bound 6."""
    x = c.tensor(name)
    bounds = [c.values(TensorProto.FLOAT, [], [bound]) for bound in (0.0, 6.0)]
    return ConvertedTensor(c.add(name, "Clip", [x.name, *bounds]), x.shape, x.height)


def _softmax(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert a softmax over the channels."""
    x = c.tensor(name)
    output = c.add(name, "Softmax", [x.name], axis=x.onnx_axis(-1))
    return ConvertedTensor(output, x.shape, x.height)


def _arithmetic(operator: str) -> Convert:
    """Return the conversion of a sum, product and the like, of tensors or of one with a number."""

    def convert(c: GraphConverter, name: str) -> ConvertedTensor:
        first, *others = c.tensors(name)
        if not others:
            gated = _hard_sigmoid(c, name) if operator == "Mul" else None
            if gated is not None:
                return gated
            is_second = c.kind(c.sources(name)[0][0]) not in CONSTANTS
            names = [first.name, c.values(TensorProto.FLOAT, [], [_number(c.constant(name))])]
            output = c.add(name, operator, names if is_second else names[::-1])
            return ConvertedTensor(output, first.shape, first.height)
        for other in others:
            shape = _broadcast(first, other)
            height = first.height if len(shape) == len(first.shape) else other.height
            first = ConvertedTensor(c.add(name, operator, [first.name, other.name]), shape, height)
        return first

    return convert


def _hard_sigmoid(c: GraphConverter, name: str) -> ConvertedTensor | None:
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
    return ConvertedTensor(c.add(name, "HardSigmoid", [x.name], alpha=1 / 6, beta=0.5), x.shape, x.height)


def _concat(c: GraphConverter, name: str) -> ConvertedTensor:
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
    return ConvertedTensor(c.add(name, "Concat", names, axis=onnx_axis), tuple(shape), first.height)


def _split(c: GraphConverter, name: str) -> list[ConvertedTensor]:
    """Convert a split into equal parts, one for each reader."""
    x = c.tensor(name)
    (axis,) = c.attribute(name, "split_dim")
    onnx_axis, axis = x.onnx_axis(axis), axis % len(x.shape)
    count = max(len(c.graph[name]["attr"]["output_shape"]), len(c.graph[name]["outbounds"]))
    if x.shape[axis] % count:
        raise ValueError(f"{counted(x.shape[axis], 'channel')} cannot be split into {count} equal parts")
    size = x.shape[axis] // count
    shape = tuple(size if i == axis else length for i, length in enumerate(x.shape))
    parts = []
    for k in range(count):
        bounds = [c.values(TensorProto.INT64, [1], [n]) for n in (k * size, (k + 1) * size, onnx_axis)]
        parts.append(ConvertedTensor(c.add(name, "Slice", [x.name, *bounds]), shape, x.height))
    return parts


def _reshape(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert a reshape, whose shape is an attribute, a constant, or packed without the size of the batch."""
    x = c.tensor(name)
    shape = c.graph[name]["attr"]["attr"].get("shape") or _flat(c.constant(name) or ())
    if not shape:
        raise ValueError("its shape is missing")
    if any(c.kind(source) == "Pack" for source, _ in c.sources(name)):
        shape = [x.shape[0], *shape]
    return c.reshaped(name, x, shape)


def _squeeze(c: GraphConverter, name: str) -> ConvertedTensor:
    """Convert the removal of height and width of one pixel."""
    x = c.tensor(name)
    if x.image_size != (1, 1):
        raise ValueError(f"the input has the shape {list(x.shape)}: expected one pixel")
    return c.reshaped(name, x, (x.shape[0], x.shape[3]))


def _transpose(c: GraphConverter, name: str) -> ConvertedTensor:
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
    result = ConvertedTensor("", tuple(x.shape[axis] for axis in order), height)
    perm = [x.axes.index(order[axis]) for axis in result.axes]
    return ConvertedTensor(c.add(name, "Transpose", [x.name], perm=perm), result.shape, height)


def _identity(c: GraphConverter, name: str) -> ConvertedTensor:
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


def _broadcast(a: ConvertedTensor, b: ConvertedTensor) -> tuple[int, ...]:
    """Return the shape of the sum of two tensors."""
    is_alike = len(a.shape) == len(b.shape) and a.height == b.height
    if not is_alike or any(m != n and 1 not in (m, n) for m, n in zip(a.shape, b.shape, strict=True)):
        raise ValueError(f"the shapes {list(a.shape)} and {list(b.shape)} do not fit together")
    return tuple(max(m, n) for m, n in zip(a.shape, b.shape, strict=True))


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
