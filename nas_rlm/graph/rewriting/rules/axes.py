"""Rewrite rules of axes and sizes along them, which may be attributes or inputs, and count from both ends."""

from __future__ import annotations

import numpy as np

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.onnx_graphs.tensors import FLOATS, INT64, VARIABLE, Tensor, constant, vector
from nas_rlm.graph.rewriting.rewriter import Rewriter

_LAST_AXIS = frozenset(
    {
        *("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization", "TopK", "OneHot"),
        *("LpNormalization", "TensorScatter"),
    }
)


def reduce_mean(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace a mean over all image positions by GlobalAveragePool, and Flatten if the axes are dropped."""
    x, axes = graph.tensor(op, 0), graph.tensor(op, 1)
    values = None if axes is None else axes.array
    shape = None if x is None else x.shape
    if shape is None or values is None:
        return None
    reduced = sorted(int(a) % len(shape) for a in values.reshape(-1))
    is_float = x is not None and x.dtype in FLOATS
    if len(shape) < 3 or reduced != list(range(2, len(shape))) or not is_float:
        return reduce_axes(graph, op)
    if op.attributes.get("keepdims", 1):
        return [Op("GlobalAveragePool", {}, op.inputs[:1], op.outputs)]
    pooled = graph.new_value()
    return [
        Op("GlobalAveragePool", {}, op.inputs[:1], (pooled,)),
        Op("Flatten", {}, (pooled,), op.outputs),
    ]


def reduce_axes(graph: Rewriter, op: Op) -> list[Op] | None:
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


def count_axis(graph: Rewriter, op: Op) -> list[Op] | None:
    """Count an axis from 0; for operators whose default is the last axis, from the right."""
    axis, x = op.attributes.get("axis"), graph.tensor(op, 0)
    if axis is None or x is None or x.shape is None:
        return None
    rank = len(x.shape) + (op.kind == "OneHot")
    counted = axis % rank - (rank if op.kind in _LAST_AXIS else 0) if rank else axis
    return [op.changed(axis=counted)] if counted != axis else None


def count_axes(graph: Rewriter, op: Op) -> list[Op] | None:
    """Count axes from 0."""
    axes, x = op.attributes.get("axes"), graph.tensor(op, 0)
    if not axes or x is None or not x.shape:
        return None
    counted = tuple([a % len(x.shape) for a in axes])
    return [op.changed(axes=counted)] if counted != axes else None


def count_axis_input(graph: Rewriter, op: Op) -> list[Op] | None:
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


def concat(graph: Rewriter, op: Op) -> list[Op] | None:
    """Leave out empty inputs, drop a Concat of one tensor, and count the axis from 0."""
    kept = [v for v in op.inputs if v is not None and not _is_empty(graph.tensors[v], op.attributes["axis"])]
    if len(kept) == 1:
        graph.rename(op.outputs[0], kept[0])
        return []
    return [op.changed(kept)] if kept and len(kept) < len(op.inputs) else count_axis(graph, op)


def _is_empty(tensor: Tensor, axis: int) -> bool:
    """Return True for a tensor that has no elements along an axis."""
    shape = tensor.shape or ()
    return -len(shape) <= axis < len(shape) and shape[axis] == 0


def split(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write the sizes of the parts, and count the axis from 0."""
    x = graph.tensor(op, 0)
    if x is None or x.shape is None:
        return None
    axis = op.attributes.get("axis", 0) % len(x.shape)
    shapes = [graph.tensors[v].shape for v in op.outputs]
    sizes = [None if s is None else s[axis] for s in shapes]
    given = graph.tensor(op, 1)
    if any(type(d) is not int for d in sizes):
        return count_axis(graph, op)
    if (
        given is None
        or given.array is None
        or given.array.tolist() != sizes
        or "num_outputs" in op.attributes
    ):
        parts = graph.new(vector([d for d in sizes if type(d) is int]))
        return [op.changed([op.inputs[0], parts], num_outputs=None)]
    return count_axis(graph, op)


def _quantize(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop the axis of a single scale, and count others from 0."""
    scale = graph.tensor(op, 1)
    if scale is not None and "axis" in op.attributes and scale.known_shape in ((), (1,)):
        return [op.changed(axis=None)]
    return count_axis(graph, op)


def scalar_scale(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write a scale and zero point of one element as scalars."""
    inputs = list(op.inputs)
    for k in (1, 2):
        x = graph.tensor(op, k)
        if x is not None and x.known_shape == (1,) and x.origin != VARIABLE:
            inputs[k] = graph.new(Tensor(x.dtype, (), origin=x.origin))
    return [op.changed(inputs)] if tuple(inputs) != op.inputs else _quantize(graph, op)
