"""Checks of operators and shapes that ONNX's checker omits, but that every runtime would fail on."""

from __future__ import annotations

import math

import onnx
from onnx import AttributeProto, NodeProto, shape_inference

from nas_rlm.graph.folding import get_attribute

MAX_VALUE_ELEMENTS = 2**34

Shapes = dict[str, tuple[int, ...]]


def check_operator_shapes(model: onnx.ModelProto) -> None:
    """Check that every operator fits the shapes of its inputs and that no value is too large.

    Shapes of computed values are inferred; those that the file declares are ignored, as runtimes do.

    Args:
        model: model without local functions.

    Raises:
        ValueError: an operator does not fit its inputs, or a value has an impossible shape; the message names
            the first one.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    try:
        inferred = shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        raise ValueError(f"types or shapes contradict each other: {error}") from None
    shapes: Shapes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        dims = value.type.tensor_type.shape.dim
        sizes = [d.dim_value for d in dims if d.HasField("dim_value")]
        if any(size < 1 for size in sizes) or math.prod(sizes) > MAX_VALUE_ELEMENTS:
            raise ValueError(
                f"value {value.name!r} has the shape {sizes}: expected sizes of at least 1,"
                f" and {MAX_VALUE_ELEMENTS:,} elements at most"
            )
        if value.type.tensor_type.HasField("shape") and len(sizes) == len(dims):
            shapes[value.name] = tuple(sizes)
    for node in inferred.graph.node:
        _check_node(node, shapes)


def _check_node(node: NodeProto, shapes: Shapes) -> None:
    """Raise a ValueError if the attributes, weight or bias of an operator do not fit its input shapes."""
    for a in node.attribute:
        if a.type == AttributeProto.FLOAT and not math.isfinite(a.f):
            raise ValueError(f"{a.name} of {node.op_type} is {a.f}: expected a finite number")
    inputs = [shapes.get(name) for name in node.input]
    if node.op_type == "Conv" and len(inputs) > 1 and inputs[0] and inputs[1]:
        _check_conv(node, inputs[0], inputs[1])
    if node.op_type in ("Conv", "Gemm") and len(inputs) > 2 and inputs[1] and inputs[2]:
        is_row = node.op_type == "Conv" or get_attribute(node, "transB", 0)
        channels = inputs[1][0] if is_row else inputs[1][-1]
        if inputs[2][-1] not in ((channels,) if node.op_type == "Conv" else (1, channels)):
            raise ValueError(
                f"a {node.op_type} with a weight of shape {list(inputs[1])} has a bias of shape"
                f" {list(inputs[2])}: expected [{channels}]"
            )


def _check_conv(node: NodeProto, image: tuple[int, ...], weight: tuple[int, ...]) -> None:
    """Raise a ValueError if channels, groups or kernel do not fit the shapes of image and weight."""
    groups, kernel = get_attribute(node, "group", 1), get_attribute(node, "kernel_shape", weight[2:])
    description = f"a Conv of {groups} groups reads {image[1]} channels with a weight of shape {list(weight)}"
    if groups < 1 or weight[0] % groups:
        raise ValueError(f"{description}: expected groups of equal size")
    if image[1] != weight[1] * groups:
        raise ValueError(f"{description}: expected {weight[1] * groups} channels")
    if tuple(kernel) != weight[2:]:
        raise ValueError(f"{description} and kernel_shape {list(kernel)}: expected {list(weight[2:])}")
