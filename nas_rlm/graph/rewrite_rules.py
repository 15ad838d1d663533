"""Rewrite rules that replace the variants which exporters write for one computation by a single form.

A rule returns the nodes that replace a node, or None if it does not apply.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from nas_rlm.graph.folding import RewriteGraph, Rule, copy_node, get_attribute, weight_without_values

SLICE_END = np.iinfo(np.int32).max  # a Slice to the end of an axis


def _drop(graph: RewriteGraph, node: NodeProto) -> list[NodeProto]:
    """Remove the node: its output is replaced by its first input."""
    graph.renamed[node.output[0]] = node.input[0]
    return []


def _batch_norm(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Drop the attributes and outputs that only matter in training."""
    if len(node.output) == 1 and not any(a.name in ("momentum", "training_mode") for a in node.attribute):
        return None
    plain = copy_node(node, node.input, momentum=None, training_mode=None)
    del plain.output[1:]
    return [plain]


def _cast(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Drop a cast to the type that the input already has."""
    is_same = graph.types.get(node.input[0]) == get_attribute(node, "to", 0)
    return _drop(graph, node) if is_same else None


def _transpose(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Transpose weights in advance, and drop a transpose that keeps the order of the axes."""
    shape = graph.shapes.get(node.input[0])
    order = list(get_attribute(node, "perm", range(len(shape))[::-1] if shape is not None else (1, 0)))
    if node.input[0] in graph.weights and shape is not None:
        kind = graph.weights[node.input[0]].data_type
        name = node.output[0]
        graph.weights[name] = weight_without_values(name, kind, [shape[a] for a in order])
        graph.shapes[name], graph.types[name] = tuple(shape[a] for a in order), kind
        return []
    return _drop(graph, node) if order == sorted(order) else None


def _reduce_mean(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Replace a mean over all image positions by GlobalAveragePool, and Flatten if the axes are dropped."""
    shape = graph.shapes.get(node.input[0])
    axes = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
    if shape is None or axes is None or len(shape) < 3:
        return None
    if sorted(int(a) % len(shape) for a in axes.reshape(-1)) != list(range(2, len(shape))):
        return None
    if get_attribute(node, "keepdims", 1):
        return [helper.make_node("GlobalAveragePool", [node.input[0]], node.output)]
    pooled = graph.new_name((*shape[:2], *[1] * (len(shape) - 2)))
    return [
        helper.make_node("GlobalAveragePool", [node.input[0]], [pooled]),
        helper.make_node("Flatten", [pooled], node.output),
    ]


def _reshape(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Replace a reshape to one row for each image by Flatten, and drop an `allowzero` without effect."""
    before, after = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    if before is not None and before == after:
        return _drop(graph, node)
    is_flat = before is not None and after is not None and len(before) > 2 and len(after) == 2
    if is_flat and before is not None and after is not None and before[0] == after[0]:
        return [helper.make_node("Flatten", [node.input[0]], node.output)]
    target = graph.constants.get(node.input[1]) if node.op_type == "Reshape" else None
    if get_attribute(node, "allowzero", 0) and target is not None and (target != 0).all():
        return [copy_node(node, node.input, allowzero=None)]
    return None


def _average_pool(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Drop `count_include_pad` of a pool without padding."""
    with_pads = _auto_pad(graph, node)
    if with_pads is not None:
        return with_pads
    counts, pads = get_attribute(node, "count_include_pad", 0), get_attribute(node, "pads", [0])
    is_padded = any(pads) or get_attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    if not counts or is_padded or get_attribute(node, "ceil_mode", 0):
        return None
    return [copy_node(node, node.input, count_include_pad=None)]


def _auto_pad(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Replace `auto_pad` by explicit `pads`."""
    mode, shape = get_attribute(node, "auto_pad", b"NOTSET"), graph.shapes.get(node.input[0])
    if mode == b"VALID":
        return [copy_node(node, node.input, auto_pad=None, pads=None)]
    kernel = get_attribute(node, "kernel_shape", graph.shapes.get(node.input[-1], ())[2:])
    if mode == b"NOTSET" or shape is None or len(shape) != 2 + len(kernel) or not kernel:
        return None
    ones = [1] * len(kernel)
    strides, dilations = get_attribute(node, "strides", ones), get_attribute(node, "dilations", ones)
    totals = [
        max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        for size, k, s, d in zip(shape[2:], kernel, strides, dilations, strict=True)
    ]
    smaller, larger = [t // 2 for t in totals], [t - t // 2 for t in totals]
    pads = [*smaller, *larger] if mode == b"SAME_UPPER" else [*larger, *smaller]
    return [copy_node(node, node.input, auto_pad=None, pads=pads)]


def _slice(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Merge slices of different axes into one, and write all ends beyond the axis as SLICE_END."""
    bounds = _normalized_slice(graph, node)
    if bounds is None:
        return None
    producer = graph.exclusive_producer(node.input[0], "Slice")
    inner = _normalized_slice(graph, producer) if producer is not None else None
    if producer is not None and inner is not None and not set(inner) & set(bounds):
        merged, source = {**inner, **bounds}, producer.input[0]
    elif bounds != _slice_arguments(graph, node):
        merged, source = bounds, node.input[0]
    else:
        return None
    axes = sorted(merged)
    columns = [[merged[a][k] for a in axes] for k in range(3)]
    steps = [graph.add_constant(columns[2])] if any(s != 1 for s in columns[2]) else []
    inputs = [
        source,
        graph.add_constant(columns[0]),
        graph.add_constant(columns[1]),
        graph.add_constant(axes),
        *steps,
    ]
    return [helper.make_node("Slice", inputs, node.output)]


def _slice_arguments(graph: RewriteGraph, node: NodeProto) -> dict[int, tuple[int, int, int]] | None:
    """Return start, end and step of each axis of a Slice as in the file; None if they are not constant."""
    arrays = [graph.constants.get(name) for name in node.input[1:]]
    if any(a is None for a in arrays) or len(arrays) < 3:
        return None
    starts, ends, axes, *rest = ([int(v) for v in a.reshape(-1)] for a in arrays if a is not None)
    steps = rest[0] if rest else [1] * len(starts)
    return {a: (s, e, k) for a, s, e, k in zip(axes, starts, ends, steps, strict=True)}


def _normalized_slice(graph: RewriteGraph, node: NodeProto) -> dict[int, tuple[int, int, int]] | None:
    """Return start, end and step of each axis of a Slice, axes counted from 0, ends limited to SLICE_END."""
    arguments, shape = _slice_arguments(graph, node), graph.shapes.get(node.input[0])
    if arguments is None or shape is None:
        return None
    bounds = {}
    for axis, (start, end, step) in arguments.items():
        axis %= len(shape)
        bounds[axis] = (start, int(SLICE_END) if step > 0 and end >= shape[axis] else end, step)
    return bounds


def _pad(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Drop a Pad of zero width."""
    pads = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
    return _drop(graph, node) if pads is not None and not pads.any() else None


def _cast_like(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Replace the cast of a constant by the cast constant."""
    value, kind = graph.constants.get(node.input[0]), graph.types.get(node.input[1], 0)
    if value is None or not kind:
        return None
    graph.set_constant(node.output[0], value.astype(helper.tensor_dtype_to_np_dtype(kind)))
    return []


def _conv(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Drop a zero bias, replace `auto_pad`, and merge a preceding Pad with zeros into `pads`."""
    bias = node.input[2] if len(node.input) > 2 else ""
    if bias in graph.constants and bias not in graph.initializer_names and not graph.constants[bias].any():
        return [copy_node(node, node.input[:2])]
    with_pads = _auto_pad(graph, copy_node(node, node.input[:2]))
    if with_pads is not None:
        return [copy_node(with_pads[0], node.input)]
    producer = graph.exclusive_producer(node.input[0], "Pad")
    if (
        producer is None
        or get_attribute(producer, "mode", b"constant") != b"constant"
        or len(producer.input) > 3
    ):
        return None
    pads = graph.constants.get(producer.input[1])
    value = (
        graph.constants.get(producer.input[2])
        if len(producer.input) > 2 and producer.input[2]
        else np.zeros(1)
    )
    if (
        pads is None
        or value is None
        or value.any()
        or get_attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    ):
        return None
    half = len(pads) // 2
    spatial = [int(p) for p in (*pads[2:half], *pads[half + 2 :])]
    if pads[:2].any() or pads[half : half + 2].any() or min(spatial) < 0:
        return None
    total = np.add(spatial, get_attribute(node, "pads", [0] * len(spatial))).tolist()
    return [copy_node(node, [producer.input[0], *node.input[1:]], pads=total)]


def _drop_neutral(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Drop an addition or subtraction of scalar zero, and a multiplication or division by scalar one."""
    positions = (0, 1) if node.op_type in ("Add", "Mul") else (1,)
    for k in positions:
        value = graph.constants.get(node.input[k])
        if value is not None and value.ndim == 0 and value == (node.op_type in ("Mul", "Div")):
            graph.renamed[node.output[0]] = node.input[1 - k]
            return []
    return None


def _add(graph: RewriteGraph, node: NodeProto) -> list[NodeProto] | None:
    """Replace MatMul of matrices plus a bias vector by Gemm, and drop an addition of zero."""
    if _drop_neutral(graph, node) is not None:
        return []
    for product, vector in (node.input, tuple(node.input)[::-1]):
        matmul = graph.exclusive_producer(product, "MatMul")
        shape = graph.shapes.get(vector)
        if matmul is None or shape is None or len(shape) != 1 or vector in graph.producers:
            continue
        left, right = (graph.shapes.get(name) for name in matmul.input)
        if left is not None and right is not None and len(left) == len(right) == 2:
            return [helper.make_node("Gemm", [*matmul.input, vector], node.output)]
    return None


RULES: dict[str, Rule] = {
    "Add": _add,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Conv": _conv,
    "Div": _drop_neutral,
    "Dropout": _drop,
    "Identity": _drop,
    "MaxPool": _auto_pad,
    "Mul": _drop_neutral,
    "Pad": _pad,
    "ReduceMean": _reduce_mean,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _reshape,
    "Sub": _drop_neutral,
    "Transpose": _transpose,
}
