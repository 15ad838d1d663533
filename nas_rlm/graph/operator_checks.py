"""Whether a model's operators fit each other: what ONNX's checker lets pass and no runtime can run."""

from __future__ import annotations

import math

import onnx
from onnx import AttributeProto, NodeProto, shape_inference

from nas_rlm.graph.folding import attribute

MOST = 2**34  # elements of a value

Shapes = dict[str, tuple[int, ...]]


def check_fit(model: onnx.ModelProto) -> None:
    """Refuse operators that do not fit their inputs, and values that nobody can hold.

    What a file claims of the values that it computes does not matter: runtimes ignore it too.

    Args:
        model: flat.

    Raises:
        ValueError: with the first operator or value that is wrong.
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
        known = [d.dim_value for d in dims if d.HasField("dim_value")]
        if any(size < 1 for size in known) or math.prod(known) > MOST:
            raise ValueError(
                f"value {value.name!r} has the shape {known}: expected sizes of at least 1,"
                f" and {MOST:,} elements at most"
            )
        if value.type.tensor_type.HasField("shape") and len(known) == len(dims):
            shapes[value.name] = tuple(known)
    for node in inferred.graph.node:
        _check_node(node, shapes)


def _check_node(node: NodeProto, shapes: Shapes) -> None:
    for a in node.attribute:
        if a.type == AttributeProto.FLOAT and not math.isfinite(a.f):
            raise ValueError(f"{a.name} of {node.op_type} is {a.f}: expected a finite number")
    given = [shapes.get(name) for name in node.input]
    if node.op_type == "Conv" and len(given) > 1 and given[0] and given[1]:
        _check_conv(node, given[0], given[1])
    if node.op_type in ("Conv", "Gemm") and len(given) > 2 and given[1] and given[2]:
        is_row = node.op_type == "Conv" or attribute(node, "transB", 0)
        wanted = given[1][0] if is_row else given[1][-1]
        if given[2][-1] not in ((wanted,) if node.op_type == "Conv" else (1, wanted)):
            raise ValueError(
                f"a {node.op_type} with a weight of shape {list(given[1])} adds {list(given[2])}:"
                f" expected [{wanted}]"
            )


def _check_conv(node: NodeProto, image: tuple[int, ...], weight: tuple[int, ...]) -> None:
    groups, kernel = attribute(node, "group", 1), attribute(node, "kernel_shape", weight[2:])
    shown = f"a Conv of {groups} groups reads {image[1]} channels with a weight of shape {list(weight)}"
    if groups < 1 or weight[0] % groups:
        raise ValueError(f"{shown}: expected groups of equal size")
    if image[1] != weight[1] * groups:
        raise ValueError(f"{shown}: expected {weight[1] * groups} channels")
    if tuple(kernel) != weight[2:]:
        raise ValueError(f"{shown} and kernel_shape {list(kernel)}: expected {list(weight[2:])}")
