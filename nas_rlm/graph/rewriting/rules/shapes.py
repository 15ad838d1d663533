"""Rewrite rules of operators that change the shape or the order of elements."""

from __future__ import annotations

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.onnx_graphs.tensors import vector
from nas_rlm.graph.rewriting.rewriter import Rewriter
from nas_rlm.graph.rewriting.rules.common import drop


def transpose(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a transpose that keeps the order of the axes, and merge two in a row."""
    x = graph.tensor(op, 0)
    if x is None or x.shape is None:
        return None
    order = tuple(op.attributes.get("perm", range(len(x.shape))[::-1]))
    if order == tuple(range(len(order))):
        return drop(graph, op)
    producer = graph.exclusive_producer(op.inputs[0], "Transpose")
    if producer is None:
        return None
    inner = tuple(producer.attributes.get("perm", range(len(x.shape))[::-1]))
    return [op.changed(producer.inputs, perm=tuple([inner[a] for a in order]))]


def reshape(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace a reshape to one row for each image by Flatten; write the target with all its sizes.

    A batch that stays is written as 0. A second reshape makes the first one superfluous.
    """
    x = graph.tensor(op, 0)
    before = None if x is None else x.known_shape
    after = graph.tensors[op.outputs[0]].known_shape
    if before is None or after is None:
        return None
    if before == after:
        return drop(graph, op)
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


def squeeze(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace as `reshape` and `_pool_of_signals`; write axes in ascending order, counted from 0."""
    replaced = reshape(graph, op)
    if replaced is None:
        replaced = _pool_of_signals(graph, op)
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


def _pool_of_signals(graph: Rewriter, op: Op) -> list[Op] | None:
    """Pool signals themselves, where an exporter pools images of height 1 and squeezes the result."""
    pool = graph.exclusive_producer(op.inputs[0], "GlobalAveragePool")
    image = None if pool is None else graph.exclusive_producer(pool.inputs[0], "Unsqueeze")
    before = None if image is None else graph.tensor(image, 0)
    after = graph.tensors[op.outputs[0]].known_shape
    if image is None or before is None or before.shape is None or len(before.shape) < 3 or after is None:
        return None
    is_pooled = len(after) == len(before.shape) and set(after[2:]) == {1} and after[:2] == before.shape[:2]
    return [Op("GlobalAveragePool", {}, image.inputs[:1], op.outputs)] if is_pooled else None


def flatten(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a Flatten that changes nothing, and count its axis from 0."""
    x = graph.tensor(op, 0)
    if x is None or x.shape is None:
        return None
    if x.known_shape is not None and x.known_shape == graph.tensors[op.outputs[0]].known_shape:
        return drop(graph, op)
    merged = _after_reshape(graph, op)
    if merged is not None:
        return merged
    axis = op.attributes.get("axis", 1)
    if axis < 0:
        return [op.changed(axis=axis + len(x.shape))]
    is_image = len(x.shape) > 1 and axis != 1 and all(d == 1 for d in x.shape[1:axis])
    return [op.changed(axis=None)] if is_image and axis > 1 else None


def expand(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop an expansion or tiling that changes nothing; write the target with all its sizes."""
    x, after = graph.tensor(op, 0), graph.tensors[op.outputs[0]].known_shape
    if x is None or after is None:
        return None
    if x.known_shape == after:
        return drop(graph, op)
    target = graph.tensor(op, 1)
    values = None if target is None else target.array
    if op.kind == "Expand" and (values is None or tuple(values.tolist()) != after):
        return [op.changed([op.inputs[0], graph.new(vector(after))])]
    return None
