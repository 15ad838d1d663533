"""Rewrite rules of layers: convolutions, products, norms, pooling, activations, padding and resizing."""

from __future__ import annotations

import numpy as np

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.onnx_graphs.shapes.convolutions import CHANNELS_LAST, convolution_inputs
from nas_rlm.graph.onnx_graphs.tensors import COMPUTED, VARIABLE, vector
from nas_rlm.graph.rewriting.rewriter import Rewriter
from nas_rlm.graph.rewriting.rules.common import drop, has_read_outputs

# Coordinates of Resize that may differ from those of the input even if the shape is the same.
_MOVING_MODES = (b"tf_crop_and_resize", b"tf_half_pixel_for_nn")


def batch_norm(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop the attributes and outputs that only matter in training."""
    if has_read_outputs(graph, op) or not (
        len(op.outputs) > 1 or {"momentum", "training_mode"} & op.attributes.keys()
    ):
        return None
    plain = op.changed(momentum=None, training_mode=None)
    return [Op(op.kind, plain.attributes, op.inputs, op.outputs[:1])]


def dropout(graph: Rewriter, op: Op) -> list[Op] | None:
    """Remove a Dropout whose mask is not read."""
    return None if has_read_outputs(graph, op) else drop(graph, op)


def gemm(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace a Gemm after a reshape that merges the leading axes by MatMul, Add and that reshape."""
    defaults = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    is_plain = all(op.attributes.get(name, value) == value for name, value in defaults.items())
    rows, matrix = _merged_rows(graph, op.inputs[0]), graph.tensor(op, 1)
    after = graph.tensors[op.outputs[0]].known_shape
    bias = graph.tensor(op, 2)
    if rows is None or matrix is None or bias is None or after is None or not is_plain:
        return None
    if bias.shape is None or any(d != 1 for d in bias.shape[:-1]):
        return None  # a bias for each row
    weight = op.inputs[1]
    if op.attributes.get("transB", 0):
        if matrix.origin == VARIABLE:
            return None
        weight = graph.new_value()
        graph.infer(Op("Transpose", {"perm": (1, 0)}, (op.inputs[1],), (weight,)))
    product, biased = graph.new_value(), graph.new_value()
    return [
        Op("MatMul", {}, (rows.inputs[0], weight), (product,)),
        Op("Add", {}, (product, op.inputs[2]), (biased,)),
        Op("Reshape", {}, (biased, graph.new(vector(after))), op.outputs),
    ]


def _merged_rows(graph: Rewriter, value: int | None) -> Op | None:
    """Return the reshape that defines a value, if it merges all axes but the last one."""
    for kind in ("Reshape", "Flatten"):
        producer = graph.exclusive_producer(value, kind)
        x = None if producer is None else graph.tensor(producer, 0)
        shape = None if x is None else x.known_shape
        after = None if value is None else graph.tensors[value].known_shape
        if shape is not None and after is not None and len(shape) > 2 and len(after) == 2:
            return producer if shape[-1] == after[-1] else None
    return None


def activation(graph: Rewriter, op: Op) -> list[Op] | None:
    """Move a reshape that merges leading axes behind an activation."""
    rows = _merged_rows(graph, op.inputs[0])
    after = graph.tensors[op.outputs[0]].known_shape
    if rows is None or after is None:
        return None
    activated = graph.new_value()
    return [
        op.changed((rows.inputs[0], *op.inputs[1:])).with_outputs((activated,)),
        Op("Reshape", {}, (activated, graph.new(vector(after))), op.outputs),
    ]


def average_pool(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop `count_include_pad` of a pool without padding, and write a pool of the entire image as global."""
    with_pads = _auto_pad(graph, op)
    if with_pads is not None:
        return with_pads
    counts, pads = op.attributes.get("count_include_pad", 0), op.attributes.get("pads", (0,))
    if not counts or any(pads) or "auto_pad" in op.attributes or op.attributes.get("ceil_mode", 0):
        return None
    return [op.changed(count_include_pad=None)]


def _auto_pad(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace `auto_pad` by explicit `pads`."""
    mode = op.attributes.get("auto_pad")
    if mode is None:
        return None
    if mode == b"NOTSET":
        return [op.changed(auto_pad=None)]
    if mode == b"VALID":
        return [op.changed(auto_pad=None, pads=None)]
    image, weight = convolution_inputs(op.kind) if "Conv" in op.kind else (0, None)
    x = graph.tensor(op, image)
    w = None if weight is None else graph.tensor(op, weight)
    shape = None if x is None else x.shape
    kernel = op.attributes.get("kernel_shape", () if w is None or w.shape is None else w.shape[2:])
    if shape is None or len(shape) != 2 + len(kernel) or not kernel or op.kind in CHANNELS_LAST:
        return None
    sides = [d for d in shape[2:] if isinstance(d, int)]
    if len(sides) < len(kernel) or any(type(d) is not int for d in kernel):
        return None
    ones = (1,) * len(kernel)
    strides, dilations = op.attributes.get("strides", ones), op.attributes.get("dilations", ones)
    totals = [
        max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        for size, k, s, d in zip(sides, kernel, strides, dilations, strict=True)
    ]
    smaller, larger = [t // 2 for t in totals], [t - t // 2 for t in totals]
    pads = (*smaller, *larger) if mode == b"SAME_UPPER" else (*larger, *smaller)
    return [op.changed(auto_pad=None, pads=pads, ceil_mode=None)]  # SAME has no ceil_mode


def pad(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a Pad of zero width; write pads for all axes."""
    pads = graph.tensor(op, 1)
    values = None if pads is None else pads.array
    if values is None:
        return None
    if not values.any():
        return drop(graph, op)
    x, axes = graph.tensor(op, 0), graph.tensor(op, 3)
    if axes is not None and axes.array is not None and x is not None and x.shape is not None:
        full = [0] * (2 * len(x.shape))
        half = values.size // 2
        for k, a in enumerate(axes.array.reshape(-1).tolist()):
            full[a % len(x.shape)] = int(values[k])
            full[a % len(x.shape) + len(x.shape)] = int(values[half + k])
        return [op.changed([op.inputs[0], graph.new(vector(full)), *op.inputs[2:3]])]
    value = graph.tensor(op, 2)
    is_used = op.attributes.get("mode", b"constant") == b"constant"
    if value is not None and (not is_used or (value.array is not None and not value.array.any())):
        return [op.changed(op.inputs[:2])]
    return None


def conv(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a computed bias of zero, replace `auto_pad`, and merge a preceding Pad with zeros into `pads`."""
    bias = graph.tensor(op, 2)
    if bias is not None and bias.origin == COMPUTED and bias.array is not None and not bias.array.any():
        return [op.changed(op.inputs[:2])]
    with_pads = _auto_pad(graph, op)
    if with_pads is not None:
        return with_pads
    producer = graph.exclusive_producer(op.inputs[0], "Pad")
    if (
        producer is None
        or producer.attributes.get("mode", b"constant") != b"constant"
        or len(producer.inputs) > 3
    ):
        return None
    tensor, value = graph.tensor(producer, 1), graph.tensor(producer, 2)
    pads = None if tensor is None else tensor.array
    if pads is None or (value is not None and (value.array is None or value.array.any())):
        return None
    if "auto_pad" in op.attributes:
        return None
    half = len(pads) // 2
    spatial = [int(p) for p in (*pads[2:half], *pads[half + 2 :])]
    if pads[:2].any() or pads[half : half + 2].any() or min(spatial) < 0:
        return None
    total = np.add(spatial, op.attributes.get("pads", (0,) * len(spatial))).tolist()
    return [op.changed([producer.inputs[0], *op.inputs[1:]], pads=tuple(total))]


def resize(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop empty inputs, which exporters write for omitted ones, and a resize that changes nothing."""
    kept = [
        None if (x := graph.tensor(op, k)) is None or (k and x.known_shape == (0,)) else v
        for k, v in enumerate(op.inputs)
    ]
    mode = op.attributes.get("coordinate_transformation_mode", b"half_pixel")
    if len(kept) > 1 and mode != b"tf_crop_and_resize":
        kept[1] = None
    while kept and kept[-1] is None:
        kept.pop()
    if tuple(kept) != op.inputs:
        return [op.changed(kept)]
    x = graph.tensor(op, 0)
    before = None if x is None else x.known_shape
    is_same = before is not None and before == graph.tensors[op.outputs[0]].known_shape
    if is_same and mode not in _MOVING_MODES and _has_scales_of_one(graph, op):
        return drop(graph, op)
    is_nearest = op.attributes.get("mode", b"nearest") == b"nearest"
    unused = [] if is_nearest else ["nearest_mode"]
    unused += [] if op.attributes.get("mode") == b"cubic" else ["cubic_coeff_a"]
    unused += [] if mode == b"tf_crop_and_resize" else ["extrapolation_value"]
    found = [name for name in unused if name in op.attributes]
    return [op.changed(**dict.fromkeys(found))] if found else None


def _has_scales_of_one(graph: Rewriter, op: Op) -> bool:
    """Return True if a Resize that keeps the shape has sizes, or scales of exactly one."""
    scales = graph.tensor(op, 2)
    return scales is None or (scales.array is not None and bool((scales.array == 1).all()))


def recurrent(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop initial states of zero, and lengths that are those of the input."""
    inputs = list(op.inputs)
    for k in (5, 6):
        x = graph.tensor(op, k)
        if (
            x is not None
            and x.array is not None
            and not x.array.any()
            and k < (7 if op.kind == "LSTM" else 6)
        ):
            inputs[k] = None
    x, lengths = graph.tensor(op, 0), graph.tensor(op, 4)
    if lengths is not None and lengths.array is not None and x is not None and x.shape is not None:
        steps = x.shape[1 if op.attributes.get("layout", 0) else 0]
        if (lengths.array == steps).all():
            inputs[4] = None
    while inputs[-1] is None:
        inputs.pop()
    return [op.changed(inputs)] if tuple(inputs) != op.inputs else None


def pad_of_pool(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace `auto_pad`, and drop the storage order, which matters for indices only."""
    if op.attributes.get("storage_order") is not None and len(op.outputs) == 1:
        return [op.changed(storage_order=None)]
    return _auto_pad(graph, op)
