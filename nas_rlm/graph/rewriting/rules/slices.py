"""The rewrite rule of Slice: operators that take the same elements have the same bounds."""

from __future__ import annotations

import numpy as np

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.onnx_graphs.tensors import INT64, Dim, vector
from nas_rlm.graph.rewriting.rewriter import Rewriter
from nas_rlm.graph.rewriting.rules.common import drop

SLICE_END = int(np.iinfo(np.int32).max)  # a Slice to the end of an axis


def rewrite_slice(graph: Rewriter, op: Op) -> list[Op] | None:
    """Merge slices of different axes into one, and write bounds and axes in one form."""
    bounds = _normalized_slice(graph, op)
    if bounds is None:
        return None
    if not bounds:
        return drop(graph, op)
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
