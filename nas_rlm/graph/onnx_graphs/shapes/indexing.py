"""Shapes of operators that select elements: slices, gathers, and results whose length depends on data."""

from __future__ import annotations

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, checked_axis, shape_of
from nas_rlm.graph.onnx_graphs.tensors import INT64, Dims, Tensor
from search_spaces.wording import counted


@shape_of("Slice")
def _slice(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    shape = x.shape
    if shape is None:
        return [Tensor(x.dtype, None)]
    starts, ends = call.input(1).integers, call.input(2).integers
    axes = call.input(3).integers if call.has(3) else None if starts is None else tuple(range(len(starts)))
    steps = call.input(4).integers if call.has(4) else None if starts is None else (1,) * len(starts)
    if axes is None or any(type(a) is not int for a in axes):
        return [Tensor(x.dtype, (None,) * len(shape))]
    count = len(axes)
    starts, ends, steps = starts or (None,) * count, ends or (None,) * count, steps or (None,) * count
    if not len(starts) == len(ends) == len(steps) == count:
        raise ValueError("starts, ends, axes and steps have different lengths")
    out = list(shape)
    sizes = x.sizes
    for start, end, a, step in zip(starts, ends, axes, steps, strict=True):
        axis = checked_axis(a, len(shape))  # type: ignore[arg-type]
        side = shape[axis]
        if start == 0 and step == 1 and (end == side or (isinstance(end, int) and end >= 2**31 - 1)):
            continue
        out[axis], kept = None, None
        is_known = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
        if is_known and step and isinstance(side, int):
            kept = slice(*_python_bounds(start, end, step, side))  # type: ignore[arg-type]
            out[axis] = len(range(side)[kept])
        if sizes is not None:
            sizes = sizes[kept] if kept is not None and len(shape) == 1 else None
    return [Tensor(x.dtype, tuple(out), sizes=sizes)]


def _python_bounds(start: int, end: int, step: int, side: int) -> tuple[int, int | None, int]:
    """Return start, end and step of a slice for Python, whose negative end counts from the right."""
    if step > 0:
        return start, end, step
    start = min(start, side - 1)
    end = max(end, -side - 1) if end < 0 else end
    return start, None if end == -side - 1 else end, step


@shape_of("Gather")
def _gather(call: OperatorCall) -> list[Tensor]:
    x, indices = call.input(0), call.input(1)
    if x.shape is None or indices.shape is None:
        return [Tensor(x.dtype, None)]
    axis = call.axis(0, len(x.shape))
    sizes, picked = None, indices.integers
    if x.sizes is not None and len(x.shape) == 1 and picked is not None:
        n = len(x.sizes)
        for k in picked:
            if type(k) is int and not -n <= k < n:
                raise ValueError(f"index {k} of {counted(n, 'element')}")
        sizes = tuple([x.sizes[k] if type(k) is int else None for k in picked])
    return [Tensor(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), sizes=sizes)]


@shape_of("GatherElements")
def _gather_elements(call: OperatorCall) -> list[Tensor]:
    return [Tensor(call.input(0).dtype, call.shape(1))]


@shape_of("GatherND")
def _gather_nd(call: OperatorCall) -> list[Tensor]:
    x, indices = call.input(0), call.input(1)
    batch = call.attribute("batch_dims", 0)
    if x.shape is None or not indices.shape or type(indices.shape[-1]) is not int:
        return [Tensor(x.dtype, None)]
    if batch + indices.shape[-1] > len(x.shape):
        raise ValueError(
            f"indices of {counted(indices.shape[-1], 'dimension')} into a tensor of {len(x.shape)}"
        )
    return [Tensor(x.dtype, (*indices.shape[:-1], *x.shape[batch + indices.shape[-1] :]))]


@shape_of("OneHot")
def _one_hot(call: OperatorCall) -> list[Tensor]:
    indices, depth = call.shape(0), call.input(1).array
    dtype = call.input(2).dtype
    if indices is None:
        return [Tensor(dtype, None)]
    axis = checked_axis(call.attribute("axis", -1), len(indices) + 1)
    size = int(depth.reshape(-1)[0]) if depth is not None and depth.size else None
    return [Tensor(dtype, (*indices[:axis], size, *indices[axis:]))]


@shape_of("TopK")
def _top_k(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    if x.shape is None:
        return [Tensor(x.dtype, None), Tensor(INT64, None)]
    k = call.input(1).integers
    axis = call.axis(-1, len(x.shape))
    shape = (*x.shape[:axis], k[0] if k else None, *x.shape[axis + 1 :])
    return [Tensor(x.dtype, shape), Tensor(INT64, shape)]


@shape_of("NonZero")
def _non_zero(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    return [Tensor(INT64, (None if shape is None else max(1, len(shape)), None))]


@shape_of("NonMaxSuppression")
def _non_max_suppression(call: OperatorCall) -> list[Tensor]:
    return [Tensor(INT64, (None, 3))]


@shape_of("Compress")
def _compress(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    axis = call.attribute("axis")
    if axis is None or x.shape is None:
        return [Tensor(x.dtype, (None,) if axis is None else None)]
    axis = checked_axis(axis, len(x.shape))
    return [Tensor(x.dtype, (*x.shape[:axis], None, *x.shape[axis + 1 :]))]


@shape_of("Unique")
def _unique(call: OperatorCall) -> list[Tensor]:
    x, axis = call.input(0), call.attribute("axis")
    shape: Dims | None = (None,)
    if axis is not None and x.shape is not None:
        axis = checked_axis(axis, len(x.shape))
        shape = (*x.shape[:axis], None, *x.shape[axis + 1 :])
    return [Tensor(x.dtype, shape), *[Tensor(INT64, (None,))] * (call.num_outputs - 1)]
