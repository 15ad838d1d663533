"""Rewrite rules that replace the variants which exporters write for one computation by a single form.

A rule returns the operators that replace an operator, or None if it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.onnx_graphs.shapes.layers import CHANNELS_LAST, convolution_inputs
from nas_rlm.graph.onnx_graphs.tensors import (
    COMPUTED,
    FLOATS,
    INT64,
    VARIABLE,
    Dim,
    Tensor,
    constant,
    vector,
)
from nas_rlm.graph.rewriting.rewriter import Rewriter

Rule = Callable[[Rewriter, Op], list[Op] | None]
SLICE_END = int(np.iinfo(np.int32).max)  # a Slice to the end of an axis


def _drop(graph: Rewriter, op: Op) -> list[Op]:
    """Remove the operator: its output is replaced by its first input."""
    graph.rename(op.outputs[0], op.inputs[0])
    return []


def _batch_norm(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop the attributes and outputs that only matter in training."""
    if _has_read_outputs(graph, op) or not (
        len(op.outputs) > 1 or {"momentum", "training_mode"} & op.attributes.keys()
    ):
        return None
    plain = op.changed(momentum=None, training_mode=None)
    return [Op(op.kind, plain.attributes, op.inputs, op.outputs[:1])]


def _has_read_outputs(graph: Rewriter, op: Op) -> bool:
    """Return True if an output other than the first one is read."""
    return any(graph.readers[v] for v in op.outputs[1:])


def _dropout(graph: Rewriter, op: Op) -> list[Op] | None:
    """Remove a Dropout whose mask is not read."""
    return None if _has_read_outputs(graph, op) else _drop(graph, op)


def _cast(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a cast to the type that the input already has."""
    x = graph.tensor(op, 0)
    is_same = x is not None and x.dtype == op.attributes["to"]
    return _drop(graph, op) if is_same else None


def _transpose(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a transpose that keeps the order of the axes, and merge two in a row."""
    x = graph.tensor(op, 0)
    if x is None or x.shape is None:
        return None
    order = tuple(op.attributes.get("perm", range(len(x.shape))[::-1]))
    if order == tuple(range(len(order))):
        return _drop(graph, op)
    producer = graph.exclusive_producer(op.inputs[0], "Transpose")
    if producer is None:
        return None
    inner = tuple(producer.attributes.get("perm", range(len(x.shape))[::-1]))
    return [op.changed(producer.inputs, perm=tuple([inner[a] for a in order]))]


def _reduce_mean(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace a mean over all image positions by GlobalAveragePool, and Flatten if the axes are dropped."""
    x, axes = graph.tensor(op, 0), graph.tensor(op, 1)
    values = None if axes is None else axes.array
    shape = None if x is None else x.shape
    if shape is None or values is None:
        return None
    reduced = sorted(int(a) % len(shape) for a in values.reshape(-1))
    is_float = x is not None and x.dtype in FLOATS
    if len(shape) < 3 or reduced != list(range(2, len(shape))) or not is_float:
        return _reduce_axes(graph, op)
    if op.attributes.get("keepdims", 1):
        return [Op("GlobalAveragePool", {}, op.inputs[:1], op.outputs)]
    pooled = graph.new_value()
    return [
        Op("GlobalAveragePool", {}, op.inputs[:1], (pooled,)),
        Op("Flatten", {}, (pooled,), op.outputs),
    ]


def _reduce_axes(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write axes in ascending order, counted from 0; drop a transpose before that does not matter."""
    x, axes = graph.tensor(op, 0), graph.tensor(op, 1)
    values = None if axes is None else axes.array
    if x is None or x.shape is None or values is None or values.size == 0:
        return None
    producer = graph.exclusive_producer(op.inputs[0], "Transpose")
    if producer is not None and not op.attributes.get("keepdims", 1):
        order = producer.attributes.get("perm", range(len(x.shape))[::-1])
        reduced = {int(a) % len(x.shape) for a in values.reshape(-1)}
        kept = [a for k, a in enumerate(order) if k not in reduced]
        if kept == sorted(kept):
            moved = graph.new(vector(sorted(order[k] for k in reduced)))
            return [op.changed([producer.inputs[0], moved])]
    found = [int(a) for a in values.reshape(-1)]
    ordered = sorted(a % len(x.shape) for a in found)
    if found == ordered and values.ndim == 1:
        return None
    return [op.changed([op.inputs[0], graph.new(vector(ordered))])]


def _reshape(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace a reshape to one row for each image by Flatten; write the target with all its sizes.

    A batch that stays is written as 0. A second reshape makes the first one superfluous.
    """
    x = graph.tensor(op, 0)
    before = None if x is None else x.known_shape
    after = graph.tensors[op.outputs[0]].known_shape
    if before is None or after is None:
        return None
    if before == after:
        return _drop(graph, op)
    merged = _after_reshape(graph, op)
    if merged is not None:
        return merged
    if len(before) > 2 and len(after) == 2 and before[0] == after[0]:
        return [Op("Flatten", {}, op.inputs[:1], op.outputs)]
    if op.kind != "Reshape":
        return None
    moved = _split_before_transpose(graph, op, before, after)
    if moved is not None:
        return moved
    target = graph.tensor(op, 1)
    values = None if target is None else target.array
    if 0 in after:
        return None
    kept = (0, *after[1:]) if before and before[0] == after[0] else after  # 0 keeps the batch
    if values is None or tuple(values.tolist()) != kept or "allowzero" in op.attributes:
        return [Op("Reshape", {}, (op.inputs[0], graph.new(vector(kept))), op.outputs)]
    return None


def _after_reshape(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace an operator that only changes the shape, and the reshape before it, by one reshape."""
    producer = graph.exclusive_producer(op.inputs[0], "Reshape")
    after = graph.tensors[op.outputs[0]].known_shape
    if producer is None or after is None:
        return None
    return [Op("Reshape", {}, (producer.inputs[0], graph.new(vector(after))), op.outputs)]


def _gemm(graph: Rewriter, op: Op) -> list[Op] | None:
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


def _activation(graph: Rewriter, op: Op) -> list[Op] | None:
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


def _split_before_transpose(
    graph: Rewriter, op: Op, before: tuple[int, ...], after: tuple[int, ...]
) -> list[Op] | None:
    """Move a reshape that only splits axes before a transpose."""
    producer = graph.exclusive_producer(op.inputs[0], "Transpose")
    groups = _split_axes(before, after) if producer is not None else None
    if producer is None or groups is None:
        return None
    order = producer.attributes.get("perm", tuple(range(len(before)))[::-1])
    group_of = dict(zip(order, groups, strict=True))
    sizes = [after[k] for axis in range(len(order)) for k in group_of[axis]]
    start, first = 0, {}
    for axis in range(len(order)):
        first[axis] = start
        start += len(group_of[axis])
    perm = tuple([first[axis] + k for axis in order for k in range(len(group_of[axis]))])
    split = graph.new_value()
    return [
        Op("Reshape", {}, (producer.inputs[0], graph.new(vector(sizes))), (split,)),
        Op("Transpose", {"perm": perm}, (split,), op.outputs),
    ]


def _split_axes(before: tuple[int, ...], after: tuple[int, ...]) -> list[list[int]] | None:
    """Return for each axis the axes into which a reshape splits it; None if it does anything else."""
    groups: list[list[int]] = []
    k = 0
    for size in before:
        group: list[int] = []
        product = 1
        while k < len(after) and (not group or product < size):
            group.append(k)
            product *= after[k]
            k += 1
        if product != size:
            return None
        groups.append(group)
    return groups if k == len(after) and len(after) > len(before) else None


def _squeeze(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace as `_reshape`; write axes in ascending order, counted from 0."""
    replaced = _reshape(graph, op)
    if replaced is not None:
        return replaced
    x, axes = graph.tensor(op, 0), graph.tensor(op, 1)
    after = graph.tensors[op.outputs[0]].shape
    if x is None or x.shape is None or after is None or axes is None or axes.array is None:
        return None
    rank = len(x.shape) if op.kind == "Squeeze" else len(after)
    found = [int(a) for a in axes.array.reshape(-1)]
    ordered = sorted(a % rank for a in found)
    return None if found == ordered else [op.changed([op.inputs[0], graph.new(vector(ordered))])]


def _flatten(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a Flatten that changes nothing, and count its axis from 0."""
    x = graph.tensor(op, 0)
    if x is None or x.shape is None:
        return None
    if x.known_shape is not None and x.known_shape == graph.tensors[op.outputs[0]].known_shape:
        return _drop(graph, op)
    merged = _after_reshape(graph, op)
    if merged is not None:
        return merged
    axis = op.attributes.get("axis", 1)
    if axis < 0:
        return [op.changed(axis=axis + len(x.shape))]
    is_image = len(x.shape) > 1 and axis != 1 and all(d == 1 for d in x.shape[1:axis])
    return [op.changed(axis=None)] if is_image and axis > 1 else None


def _average_pool(graph: Rewriter, op: Op) -> list[Op] | None:
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


def _slice(graph: Rewriter, op: Op) -> list[Op] | None:
    """Merge slices of different axes into one, and write bounds and axes in one form."""
    bounds = _normalized_slice(graph, op)
    if bounds is None:
        return None
    if not bounds:
        return _drop(graph, op)
    producer = graph.exclusive_producer(op.inputs[0], "Slice")
    inner = _normalized_slice(graph, producer) if producer is not None else None
    source = op.inputs[0]
    if producer is not None and inner is not None and not set(inner) & set(bounds):
        bounds, source = {**inner, **bounds}, producer.inputs[0]
    axes = sorted(bounds)
    starts, ends, steps = ([bounds[a][k] for a in axes] for k in range(3))
    columns = [starts, ends, axes, *([steps] if any(s != 1 for s in steps) else [])]
    if source == op.inputs[0] and len(op.inputs) == 1 + len(columns):
        given = [graph.tensor(op, k) for k in range(1, len(op.inputs))]
        arrays = [None if x is None or x.dtype != INT64 else x.array for x in given]
        if [None if a is None else a.tolist() for a in arrays] == columns:
            return None
    return [Op("Slice", {}, (source, *[graph.new(vector(values)) for values in columns]), op.outputs)]


def _slice_arguments(graph: Rewriter, op: Op) -> dict[int, tuple[int, int, int]] | None:
    """Return start, end and step of each axis of a Slice as in the file; None if they are not constant."""
    tensors = [graph.tensor(op, k) for k in range(1, len(op.inputs))]
    if len(tensors) < 2:
        return None
    values = [
        None if x is None or x.array is None else [int(v) for v in x.array.reshape(-1)] for x in tensors
    ]
    starts, ends = values[:2]
    if (
        starts is None
        or ends is None
        or any(v is None and x is not None for v, x in zip(values, tensors, strict=True))
    ):
        return None
    axes = values[2] if len(values) > 2 and values[2] is not None else list(range(len(starts)))
    steps = values[3] if len(values) > 3 and values[3] is not None else [1] * len(starts)
    return {a: (s, e, k) for a, s, e, k in zip(axes, starts, ends, steps, strict=True)}


def _normalized_slice(graph: Rewriter, op: Op) -> dict[int, tuple[int, int, int]] | None:
    """Return start, end and step of each axis of a Slice in one form, axes counted from 0.

    Axes of which all elements are kept are left out.
    """
    arguments, x = _slice_arguments(graph, op), graph.tensor(op, 0)
    if arguments is None or x is None or x.shape is None or not all(k for _, _, k in arguments.values()):
        return None
    found = {a % len(x.shape): _bounds(*bounds, x.shape[a]) for a, bounds in arguments.items()}
    return {axis: bounds for axis, bounds in found.items() if bounds != (0, SLICE_END, 1)}


def _bounds(start: int, end: int, step: int, side: Dim) -> tuple[int, int, int]:
    """Return start, end and step of the slice of an axis in one form.

    Starts and ends are counted from 0. An end beyond the axis is SLICE_END, or -SLICE_END for a negative
    step. A negative step from the last element starts at -1. For a side of unknown size, only bounds that no
    size reaches are changed.
    """
    if type(side) is not int:
        if step > 0:
            return 0 if start <= -SLICE_END else start, min(end, SLICE_END), step
        return -1 if start >= SLICE_END else start, max(end, -SLICE_END), step
    low, high = (0, side) if step > 0 else (-1, side - 1)
    first, beyond = (min(max(v + side if v < 0 else v, low), high) for v in (start, end))
    kept = range(first, beyond, step)
    if len(kept) == side and step > 0:
        return 0, SLICE_END, 1
    if not kept:
        return 0, 0, 1
    step = step if len(kept) > 1 else 1
    first, last = kept[0], kept[-1]
    if step > 0:
        return first, SLICE_END if last + step >= side else last + 1, step
    return -1 if first == side - 1 else first, -SLICE_END if last + step < 0 else last - 1, step


def _pad(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a Pad of zero width; write pads for all axes."""
    pads = graph.tensor(op, 1)
    values = None if pads is None else pads.array
    if values is None:
        return None
    if not values.any():
        return _drop(graph, op)
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


def _cast_like(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace by Cast."""
    kind = graph.tensors[op.outputs[0]].dtype
    return [Op("Cast", {"to": kind}, op.inputs[:1], op.outputs)] if kind > 0 else None


def _conv(graph: Rewriter, op: Op) -> list[Op] | None:
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


def _drop_neutral(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop an addition or subtraction of scalar zero, and a multiplication or division by scalar one."""
    positions = (0, 1) if op.kind in ("Add", "Mul") else (1,)
    for k in positions:
        x = graph.tensor(op, k)
        value = None if x is None or x.shape != () else x.array
        if value is not None and value == (op.kind in ("Mul", "Div")):
            graph.rename(op.outputs[0], op.inputs[1 - k])
            return []
    return None


def _multiply(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace by HardSwish or Gelu, drop a factor of one, and write a factor of one element as a scalar."""
    if _drop_neutral(graph, op) is not None:
        return []
    if op.kind == "Mul":
        for x, gate in (op.inputs, op.inputs[::-1]):
            producer = graph.exclusive_producer(gate, "HardSigmoid")
            if producer is not None and producer.inputs[0] == x and _is_hard_swish(producer):
                return [Op("HardSwish", {}, (x,), op.outputs)]
        gelu_input = _gelu_input(graph, op)
        if gelu_input is not None:
            return [Op("Gelu", {}, (gelu_input,), op.outputs)]
    return _scalar_factor(graph, op)


def _scalar_factor(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write a constant factor of one element as a scalar."""
    for k in (0, 1):
        x, other = graph.tensor(op, k), graph.tensor(op, 1 - k)
        if x is None or not x.shape or other is None or other.shape is None or x.origin == VARIABLE:
            continue
        is_single = all(d == 1 for d in x.shape) and len(x.shape) <= len(other.shape)
        if is_single and x.array is not None:
            inputs = list(op.inputs)
            inputs[k] = graph.new(constant(x.array.reshape(()), x.origin))
            return [op.changed(inputs)]
    return None


def _is_hard_swish(gate: Op) -> bool:
    """Return True for the HardSigmoid of a HardSwish."""
    alpha, beta = gate.attributes.get("alpha", 0.2), gate.attributes.get("beta", 0.5)
    return beta == 0.5 and _is_close(alpha, 1 / 6, _PRECISIONS[TensorProto.FLOAT])


def _gelu_input(graph: Rewriter, op: Op) -> int | None:
    """Return x for a product that computes x / 2 · (1 + erf(x / √2)); None for any other."""
    factors = _factors(graph, op)
    halves = [v for v in factors if _is_number(graph, v, 0.5)]
    gates = [v for v in factors if graph.exclusive_producer(v, "Add") is not None]
    rest = [v for v in factors if v not in (*halves[:1], *gates[:1])]
    if len(factors) != 3 or len(halves) != 1 or len(gates) != 1 or len(rest) != 1:
        return None
    add = graph.exclusive_producer(gates[0], "Add")
    assert add is not None
    for erf_value, one in (add.inputs, add.inputs[::-1]):
        erf = graph.exclusive_producer(erf_value, "Erf")
        if erf is None or not _is_number(graph, one, 1.0):
            continue
        for kind, scalar in (("Div", 2**0.5), ("Mul", 0.5**0.5)):
            scaled = graph.exclusive_producer(erf.inputs[0], kind)
            if scaled is None:
                continue
            pairs = (scaled.inputs, scaled.inputs[::-1]) if kind == "Mul" else (scaled.inputs,)
            numbers = [number for x, number in pairs if x == rest[0] and _is_number(graph, number, scalar)]
            constants = (halves[0], one, *numbers)
            if numbers and all(_keeps_shape(graph, v, rest[0]) for v in constants):
                return rest[0]
    return None


def _keeps_shape(graph: Rewriter, number: int | None, value: int) -> bool:
    """Return True if a constant of one element does not add dimensions to a value."""
    shape = () if number is None else graph.tensors[number].shape
    other = graph.tensors[value].shape
    return not shape or (other is not None and len(shape) <= len(other))


def _factors(graph: Rewriter, op: Op) -> list[int]:
    """Return the factors of a product of two or three values."""
    factors: list[int] = []
    for v in op.inputs:
        inner = graph.exclusive_producer(v, "Mul") if len(factors) < 2 else None
        factors += [w for w in (inner.inputs if inner is not None else (v,)) if w is not None]
    return factors


def _is_number(graph: Rewriter, value: int | None, expected: float) -> bool:
    """Return True for a constant of one element that is a number, up to the rounding of its type."""
    x = graph.tensors[value] if value is not None else None
    if x is None or x.origin == VARIABLE or x.array is None or x.array.size != 1:
        return False
    if x.dtype not in _PRECISIONS:
        return False
    return _is_close(float(x.array.reshape(-1)[0]), expected, _PRECISIONS[x.dtype])


# Distance from 1 to the next larger number. Exporters often round numbers of type double to float.
_PRECISIONS: dict[int, float] = {
    TensorProto.FLOAT16: 2.0**-10,
    TensorProto.BFLOAT16: 2.0**-7,
    TensorProto.FLOAT: 2.0**-23,
    TensorProto.DOUBLE: 2.0**-23,
}


def _is_close(value: float, expected: float, precision: float) -> bool:
    """Return True if a number differs from a positive one by rounding."""
    return abs(value - expected) <= 2 * precision * expected


def _add(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace MatMul of matrices plus a bias vector by Gemm, and drop an addition of zero."""
    if _drop_neutral(graph, op) is not None:
        return []
    for product, bias in (op.inputs, op.inputs[::-1]):
        matmul = graph.exclusive_producer(product, "MatMul")
        x = graph.tensors[bias] if bias is not None else None
        if matmul is None or x is None or x.shape is None or len(x.shape) != 1 or x.origin == VARIABLE:
            continue
        if graph.tensors[op.outputs[0]].shape != graph.tensors[matmul.outputs[0]].shape:
            continue
        left, right = graph.tensor(matmul, 0), graph.tensor(matmul, 1)
        if left is not None and right is not None and len(left.shape or ()) == len(right.shape or ()) == 2:
            return [Op("Gemm", {}, (*matmul.inputs, bias), op.outputs)]
    return None


def _resize(graph: Rewriter, op: Op) -> list[Op] | None:
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
        return _drop(graph, op)
    is_nearest = op.attributes.get("mode", b"nearest") == b"nearest"
    unused = [] if is_nearest else ["nearest_mode"]
    unused += [] if op.attributes.get("mode") == b"cubic" else ["cubic_coeff_a"]
    unused += [] if mode == b"tf_crop_and_resize" else ["extrapolation_value"]
    found = [name for name in unused if name in op.attributes]
    return [op.changed(**dict.fromkeys(found))] if found else None


# Coordinates of Resize that may differ from those of the input even if the shape is the same.
_MOVING_MODES = (b"tf_crop_and_resize", b"tf_half_pixel_for_nn")


def _has_scales_of_one(graph: Rewriter, op: Op) -> bool:
    """Return True if a Resize that keeps the shape has sizes, or scales of exactly one."""
    scales = graph.tensor(op, 2)
    return scales is None or (scales.array is not None and bool((scales.array == 1).all()))


def _axis(graph: Rewriter, op: Op) -> list[Op] | None:
    """Count an axis from 0; for operators whose default is the last axis, from the right."""
    axis, x = op.attributes.get("axis"), graph.tensor(op, 0)
    if axis is None or x is None or x.shape is None:
        return None
    rank = len(x.shape) + (op.kind == "OneHot")
    counted = axis % rank - (rank if op.kind in _LAST_AXIS else 0) if rank else axis
    return [op.changed(axis=counted)] if counted != axis else None


_LAST_AXIS = frozenset(
    {
        *("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization", "TopK", "OneHot"),
        *("LpNormalization", "TensorScatter"),
    }
)


def _axes(graph: Rewriter, op: Op) -> list[Op] | None:
    """Count axes from 0."""
    axes, x = op.attributes.get("axes"), graph.tensor(op, 0)
    if not axes or x is None or not x.shape:
        return None
    counted = tuple([a % len(x.shape) for a in axes])
    return [op.changed(axes=counted)] if counted != axes else None


def _axis_input(graph: Rewriter, op: Op) -> list[Op] | None:
    """Count a constant axis that is an input from 0."""
    position = 2 if op.kind == "DFT" else 1
    axis, x = graph.tensor(op, position), graph.tensor(op, 0)
    if axis is None or axis.array is None or axis.array.size != 1 or x is None or not x.shape:
        return None
    counted = np.array(int(axis.array.reshape(-1)[0]) % len(x.shape), np.int64)
    if axis.dtype == INT64 and axis.shape == () and axis.array == counted:
        return None
    inputs = list(op.inputs)
    inputs[position] = graph.new(constant(counted))
    return [op.changed(inputs)]


def _concat(graph: Rewriter, op: Op) -> list[Op] | None:
    """Leave out empty inputs, drop a Concat of one tensor, and count the axis from 0."""
    kept = [v for v in op.inputs if v is not None and not _is_empty(graph.tensors[v], op.attributes["axis"])]
    if len(kept) == 1:
        graph.rename(op.outputs[0], kept[0])
        return []
    return [op.changed(kept)] if kept and len(kept) < len(op.inputs) else _axis(graph, op)


def _is_empty(tensor: Tensor, axis: int) -> bool:
    """Return True for a tensor that has no elements along an axis."""
    shape = tensor.shape or ()
    return -len(shape) <= axis < len(shape) and shape[axis] == 0


def _split(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write the sizes of the parts, and count the axis from 0."""
    x = graph.tensor(op, 0)
    if x is None or x.shape is None:
        return None
    axis = op.attributes.get("axis", 0) % len(x.shape)
    shapes = [graph.tensors[v].shape for v in op.outputs]
    sizes = [None if s is None else s[axis] for s in shapes]
    given = graph.tensor(op, 1)
    if any(type(d) is not int for d in sizes):
        return _axis(graph, op)
    if (
        given is None
        or given.array is None
        or given.array.tolist() != sizes
        or "num_outputs" in op.attributes
    ):
        parts = graph.new(vector([d for d in sizes if type(d) is int]))
        return [op.changed([op.inputs[0], parts], num_outputs=None)]
    return _axis(graph, op)


def _expand(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop an expansion or tiling that changes nothing; write the target with all its sizes."""
    x, after = graph.tensor(op, 0), graph.tensors[op.outputs[0]].known_shape
    if x is None or after is None:
        return None
    if x.known_shape == after:
        return _drop(graph, op)
    target = graph.tensor(op, 1)
    values = None if target is None else target.array
    if op.kind == "Expand" and (values is None or tuple(values.tolist()) != after):
        return [op.changed([op.inputs[0], graph.new(vector(after))])]
    return None


def _clip(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write bounds as scalars, and drop those that no finite number exceeds."""
    inputs = list(op.inputs)
    for k in range(1, len(inputs)):
        x = graph.tensor(op, k)
        if x is None or x.array is None or x.array.size != 1:
            continue
        bound = x.array.reshape(())
        sign = -1 if k == 1 else 1
        if x.dtype == TensorProto.FLOAT and sign * bound >= np.finfo(np.float32).max:
            inputs[k] = None
        elif x.shape:
            inputs[k] = graph.new(constant(bound, x.origin))
    while inputs[-1] is None:
        inputs.pop()
    return [op.changed(inputs)] if tuple(inputs) != op.inputs else None


def _where(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a choice whose condition is constant."""
    condition = graph.tensor(op, 0)
    value = None if condition is None else condition.array
    if value is None or value.size == 0 or not (value.all() or not value.any()):
        return None
    chosen = op.inputs[1 if value.all() else 2]
    if chosen is None or graph.tensors[chosen].known_shape != graph.tensors[op.outputs[0]].known_shape:
        return None
    graph.rename(op.outputs[0], chosen)
    return []


def _recurrent(graph: Rewriter, op: Op) -> list[Op] | None:
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


def _pad_of_pool(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace `auto_pad`, and drop the storage order, which matters for indices only."""
    if op.attributes.get("storage_order") is not None and len(op.outputs) == 1:
        return [op.changed(storage_order=None)]
    return _auto_pad(graph, op)


def _quantize(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop the axis of a single scale, and count others from 0."""
    scale = graph.tensor(op, 1)
    if scale is not None and "axis" in op.attributes and scale.known_shape in ((), (1,)):
        return [op.changed(axis=None)]
    return _axis(graph, op)


def _scalar_scale(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write a scale and zero point of one element as scalars."""
    inputs = list(op.inputs)
    for k in (1, 2):
        x = graph.tensor(op, k)
        if x is not None and x.known_shape == (1,) and x.origin != VARIABLE:
            inputs[k] = graph.new(Tensor(x.dtype, (), origin=x.origin))
    return [op.changed(inputs)] if tuple(inputs) != op.inputs else _quantize(graph, op)


_ACTIVATIONS = (
    "Elu",
    "Gelu",
    "HardSwish",
    "LeakyRelu",
    "Mish",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softplus",
    "Tanh",
)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ACTIVATIONS, _activation),
    "Add": _add,
    "ArgMax": _axis,
    "ArgMin": _axis,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "CastLike": _cast_like,
    "CenterCropPad": _axes,
    "Clip": _clip,
    "Compress": _axis,
    "Concat": _concat,
    "Conv": _conv,
    "CumProd": _axis_input,
    "CumSum": _axis_input,
    "DFT": _axis_input,
    "DequantizeLinear": _scalar_scale,
    "Div": _multiply,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "Gather": _axis,
    "GatherElements": _axis,
    "Hardmax": _axis,
    "Identity": _drop,
    "LSTM": _recurrent,
    "LayerNormalization": _axis,
    "LogSoftmax": _axis,
    "LpNormalization": _axis,
    "MaxPool": _pad_of_pool,
    "MeanVarianceNormalization": _axes,
    "Mul": _multiply,
    "OneHot": _axis,
    "Pad": _pad,
    "QuantizeLinear": _scalar_scale,
    "RMSNormalization": _axis,
    "RNN": _recurrent,
    "ReduceL1": _reduce_axes,
    "ReduceL2": _reduce_axes,
    "ReduceLogSum": _reduce_axes,
    "ReduceLogSumExp": _reduce_axes,
    "ReduceMax": _reduce_axes,
    "ReduceMean": _reduce_mean,
    "ReduceMin": _reduce_axes,
    "ReduceProd": _reduce_axes,
    "ReduceSum": _reduce_axes,
    "ReduceSumSquare": _reduce_axes,
    "Reshape": _reshape,
    "Resize": _resize,
    "ScatterElements": _axis,
    "Slice": _slice,
    "Softmax": _axis,
    "Split": _split,
    "SplitToSequence": _axis,
    "Squeeze": _squeeze,
    "Sub": _drop_neutral,
    "TensorScatter": _axis,
    "Tile": _expand,
    "TopK": _axis,
    "Transpose": _transpose,
    "Unique": _axis,
    "Unsqueeze": _squeeze,
    "Where": _where,
}
