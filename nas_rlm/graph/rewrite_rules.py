"""Operators that exporters spell in several ways, each with a rule that leaves one spelling."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from nas_rlm.graph.folding import KnownGraph, Rule, attribute, bare_weight, copied

END = np.iinfo(np.int32).max  # where a slice ends that goes to the end


def _nothing(graph: KnownGraph, node: NodeProto) -> list[NodeProto]:
    """The node's output is its input."""
    graph.renamed[node.output[0]] = node.input[0]
    return []


def _batch_norm(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """The text is of the network that predicts: how its statistics were gathered does not matter."""
    if len(node.output) == 1 and not any(a.name in ("momentum", "training_mode") for a in node.attribute):
        return None
    plain = copied(node, node.input, momentum=None, training_mode=None)
    del plain.output[1:]
    return [plain]


def _cast(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    same = graph.types.get(node.input[0]) == attribute(node, "to", 0)
    return _nothing(graph, node) if same else None


def _transpose(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    shape = graph.shapes.get(node.input[0])
    order = list(attribute(node, "perm", range(len(shape))[::-1] if shape is not None else (1, 0)))
    if node.input[0] in graph.weights and shape is not None:
        kind = graph.weights[node.input[0]].data_type
        name = node.output[0]
        graph.weights[name] = bare_weight(name, kind, [shape[a] for a in order])
        graph.shapes[name], graph.types[name] = tuple(shape[a] for a in order), kind
        return []
    return _nothing(graph, node) if order == sorted(order) else None


def _reduce_mean(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """A mean over all positions of a map is a GlobalAveragePool, flat if it drops them."""
    shape = graph.shapes.get(node.input[0])
    axes = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
    if shape is None or axes is None or len(shape) < 3:
        return None
    if sorted(int(a) % len(shape) for a in axes.reshape(-1)) != list(range(2, len(shape))):
        return None
    if attribute(node, "keepdims", 1):
        return [helper.make_node("GlobalAveragePool", [node.input[0]], node.output)]
    pooled = graph.name((*shape[:2], *[1] * (len(shape) - 2)))
    return [
        helper.make_node("GlobalAveragePool", [node.input[0]], [pooled]),
        helper.make_node("Flatten", [pooled], node.output),
    ]


def _reshape(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """Reshapes to a row for each image are Flatten; others keep no flag that does not matter."""
    before, after = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    if before is not None and before == after:
        return _nothing(graph, node)
    is_flat = before is not None and after is not None and len(before) > 2 and len(after) == 2
    if is_flat and before is not None and after is not None and before[0] == after[0]:
        return [helper.make_node("Flatten", [node.input[0]], node.output)]
    wanted = graph.constants.get(node.input[1]) if node.op_type == "Reshape" else None
    if attribute(node, "allowzero", 0) and wanted is not None and (wanted != 0).all():
        return [copied(node, node.input, allowzero=None)]
    return None


def _average_pool(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """Whether padding counts is no matter where there is none."""
    padded = _auto_pad(graph, node)
    if padded is not None:
        return padded
    counts, pads = attribute(node, "count_include_pad", 0), attribute(node, "pads", [0])
    is_padded = any(pads) or attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    if not counts or is_padded or attribute(node, "ceil_mode", 0):
        return None
    return [copied(node, node.input, count_include_pad=None)]


def _auto_pad(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """Padding that follows from the sizes is told in numbers."""
    how, shape = attribute(node, "auto_pad", b"NOTSET"), graph.shapes.get(node.input[0])
    if how == b"VALID":
        return [copied(node, node.input, auto_pad=None, pads=None)]
    kernel = attribute(node, "kernel_shape", graph.shapes.get(node.input[-1], ())[2:])
    if how == b"NOTSET" or shape is None or len(shape) != 2 + len(kernel) or not kernel:
        return None
    ones = [1] * len(kernel)
    strides, dilations = attribute(node, "strides", ones), attribute(node, "dilations", ones)
    totals = [
        max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        for size, k, s, d in zip(shape[2:], kernel, strides, dilations, strict=True)
    ]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    pads = [*less, *more] if how == b"SAME_UPPER" else [*more, *less]
    return [copied(node, node.input, auto_pad=None, pads=pads)]


def _slice(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """Slices of one axis after another are one slice; ends beyond the end are all the same end."""
    bounds = _bounds(graph, node)
    if bounds is None:
        return None
    before = graph.only_reader(node.input[0], "Slice")
    inner = _bounds(graph, before) if before is not None else None
    if before is not None and inner is not None and not set(inner) & set(bounds):
        merged, source = {**inner, **bounds}, before.input[0]
    elif bounds != _written(graph, node):
        merged, source = bounds, node.input[0]
    else:
        return None
    axes = sorted(merged)
    columns = [[merged[a][k] for a in axes] for k in range(3)]
    steps = [graph.constant(columns[2])] if any(s != 1 for s in columns[2]) else []
    inputs = [source, graph.constant(columns[0]), graph.constant(columns[1]), graph.constant(axes), *steps]
    return [helper.make_node("Slice", inputs, node.output)]


def _written(graph: KnownGraph, node: NodeProto) -> dict[int, tuple[int, int, int]] | None:
    """Start, end and step of each axis, as a Slice has them."""
    given = [graph.constants.get(name) for name in node.input[1:]]
    if any(g is None for g in given) or len(given) < 3:
        return None
    starts, ends, axes, *rest = ([int(v) for v in g.reshape(-1)] for g in given if g is not None)
    steps = rest[0] if rest else [1] * len(starts)
    return {a: (s, e, k) for a, s, e, k in zip(axes, starts, ends, steps, strict=True)}


def _bounds(graph: KnownGraph, node: NodeProto) -> dict[int, tuple[int, int, int]] | None:
    """The same with positive axes, and one number for the end of an axis."""
    written, shape = _written(graph, node), graph.shapes.get(node.input[0])
    if written is None or shape is None:
        return None
    found = {}
    for axis, (start, end, step) in written.items():
        axis %= len(shape)
        found[axis] = (start, int(END) if step > 0 and end >= shape[axis] else end, step)
    return found


def _pad(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    pads = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
    return _nothing(graph, node) if pads is not None and not pads.any() else None


def _cast_like(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    value, kind = graph.constants.get(node.input[0]), graph.types.get(node.input[1], 0)
    if value is None or not kind:
        return None
    graph.keep(node.output[0], value.astype(helper.tensor_dtype_to_np_dtype(kind)))
    return []


def _conv(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """Padding with zeros before a convolution is the convolution's own, and a bias of zeros is none."""
    bias = node.input[2] if len(node.input) > 2 else ""
    if bias in graph.constants and bias not in graph.given and not graph.constants[bias].any():
        return [copied(node, node.input[:2])]
    padded = _auto_pad(graph, copied(node, node.input[:2]))
    if padded is not None:
        return [copied(padded[0], node.input)]
    before = graph.only_reader(node.input[0], "Pad")
    if before is None or attribute(before, "mode", b"constant") != b"constant" or len(before.input) > 3:
        return None
    pads = graph.constants.get(before.input[1])
    value = graph.constants.get(before.input[2]) if len(before.input) > 2 and before.input[2] else np.zeros(1)
    if pads is None or value is None or value.any() or attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
        return None
    half = len(pads) // 2
    spatial = [int(p) for p in (*pads[2:half], *pads[half + 2 :])]
    if pads[:2].any() or pads[half : half + 2].any() or min(spatial) < 0:
        return None
    total = np.add(spatial, attribute(node, "pads", [0] * len(spatial))).tolist()
    return [copied(node, [before.input[0], *node.input[1:]], pads=total)]


def _neutral(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """Adding a scalar zero, or multiplying by a scalar one, is nothing."""
    sides = (0, 1) if node.op_type in ("Add", "Mul") else (1,)
    for k in sides:
        value = graph.constants.get(node.input[k])
        if value is not None and value.ndim == 0 and value == (node.op_type in ("Mul", "Div")):
            graph.renamed[node.output[0]] = node.input[1 - k]
            return []
    return None


def _add(graph: KnownGraph, node: NodeProto) -> list[NodeProto] | None:
    """A product of rows with a matrix, plus a vector, is a linear layer; zero adds nothing."""
    if _neutral(graph, node) is not None:
        return []
    for product, vector in (node.input, tuple(node.input)[::-1]):
        made = graph.only_reader(product, "MatMul")
        shape = graph.shapes.get(vector)
        if made is None or shape is None or len(shape) != 1 or vector in graph.producers:
            continue
        left, right = (graph.shapes.get(name) for name in made.input)
        if left is not None and right is not None and len(left) == len(right) == 2:
            return [helper.make_node("Gemm", [*made.input, vector], node.output)]
    return None


RULES: dict[str, Rule] = {
    "Add": _add,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Conv": _conv,
    "Div": _neutral,
    "Dropout": _nothing,
    "Identity": _nothing,
    "MaxPool": _auto_pad,
    "Mul": _neutral,
    "Pad": _pad,
    "ReduceMean": _reduce_mean,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _reshape,
    "Sub": _neutral,
    "Transpose": _transpose,
}
