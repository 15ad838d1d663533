"""Conversion of operators of earlier operator sets to the one of the text.

Operators of later sets keep their meaning, except that an operator that is new in one of them needs that set.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.onnx_graphs.tensors import Tensor, constant, vector
from nas_rlm.graph.rewriting.rewriter import Rewriter
from search_spaces.wording import counted

Upgrade = Callable[[Rewriter, Op], list[Op]]
# By operator: the operator set that changed it, and the function that converts operators of earlier sets.
_UPGRADES: dict[str, list[tuple[int, Upgrade]]] = {}


def upgrade(normalizer: Rewriter, op: Op, opset: int) -> list[Op]:
    """Return the operators of the text's operator set that replace an operator.

    Args:
        normalizer: the network that is read.
        op: operator of ONNX's own domain.
        opset: operator set of the file.
    """
    for version, function in _UPGRADES.get(op.kind, ()):
        if opset < version:
            ops = function(normalizer, op)
            if len(ops) != 1:
                return ops
            op = ops[0]
    return [op]


def _before(version: int, *kinds: str) -> Callable[[Upgrade], Upgrade]:
    """Register a function that converts operators of sets before `version`."""

    def register(function: Upgrade) -> Upgrade:
        for kind in kinds:
            _UPGRADES.setdefault(kind, []).append((version, function))
            _UPGRADES[kind].sort(key=lambda entry: entry[0])
        return function

    return register


def _with_input(normalizer: Rewriter, op: Op, position: int, tensor: Tensor, *attributes: str) -> Op:
    """Return an operator with a constant as an input in place of attributes."""
    inputs = [*op.inputs, *[None] * (position + 1 - len(op.inputs))]
    inputs[position] = normalizer.new(tensor)
    return op.changed(inputs, **dict.fromkeys(attributes))


@_before(18, "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum")
@_before(18, "ReduceLogSumExp", "ReduceSumSquare")
@_before(13, "ReduceSum", "Squeeze", "Unsqueeze")
def _axes(normalizer: Rewriter, op: Op) -> list[Op]:
    axes = op.attributes.get("axes")
    return [op if axes is None else _with_input(normalizer, op, 1, vector(axes), "axes")]


@_before(13, "Split")
def _split(normalizer: Rewriter, op: Op) -> list[Op]:
    sizes = op.attributes.get("split")
    return [op if sizes is None else _with_input(normalizer, op, 1, vector(sizes), "split")]


@_before(18, "Split")
def _split_count(_: Rewriter, op: Op) -> list[Op]:
    return [op if len(op.inputs) > 1 else op.changed(num_outputs=len(op.outputs))]


@_before(11, "Clip")
def _clip(normalizer: Rewriter, op: Op) -> list[Op]:
    dtype = normalizer.tensors[op.inputs[0]].dtype if op.inputs[0] is not None else TensorProto.FLOAT
    for position, name in ((1, "min"), (2, "max")):
        value = op.attributes.get(name)
        if value is not None and abs(value) < np.finfo(np.float32).max:
            kind = np.float16 if dtype == TensorProto.FLOAT16 else np.float32
            op = _with_input(normalizer, op, position, constant(np.array(value, kind)), name)
    return [op.changed(min=None, max=None)]


@_before(12, "Dropout")
def _dropout(_: Rewriter, op: Op) -> list[Op]:
    return [op.changed(op.inputs[:1], ratio=None, is_test=None)]


@_before(10, "Slice")
def _slice(normalizer: Rewriter, op: Op) -> list[Op]:
    starts = op.attributes.get("starts", ())
    axes = op.attributes.get("axes", range(len(starts)))
    op = _with_input(normalizer, op, 1, vector(starts), "starts")
    op = _with_input(normalizer, op, 2, vector(op.attributes.get("ends", ())), "ends")
    return [_with_input(normalizer, op, 3, vector(axes), "axes")]


@_before(11, "Pad")
def _pad(normalizer: Rewriter, op: Op) -> list[Op]:
    value = op.attributes.get("value", 0.0)
    op = _with_input(normalizer, op, 1, vector(op.attributes.get("pads", ())), "pads", "value")
    return [_with_input(normalizer, op, 2, constant(np.array(value, np.float32))) if value else op]


@_before(10, "TopK")
def _top_k(normalizer: Rewriter, op: Op) -> list[Op]:
    k = op.attributes.get("k")
    return [op if k is None else _with_input(normalizer, op, 1, vector([k]), "k")]


@_before(9, "Upsample")
def _upsample(normalizer: Rewriter, op: Op) -> list[Op]:
    scales = op.attributes.get("scales")
    if scales is None:
        return [op]
    return [_with_input(normalizer, op, 1, constant(np.array(scales, np.float32)), "scales")]


@_before(10, "Upsample")
def _upsample_as_resize(_: Rewriter, op: Op) -> list[Op]:
    inputs = (op.inputs[0], None, op.inputs[1] if len(op.inputs) > 1 else None)
    return [_asymmetric(Op("Resize", op.attributes, inputs, op.outputs))]


@_before(11, "Resize")
def _resize(_: Rewriter, op: Op) -> list[Op]:
    return [_asymmetric(op.changed((op.inputs[0], None, *op.inputs[1:2])))]


def _asymmetric(op: Op) -> Op:
    """Return a Resize with the coordinates of operator set 10."""
    mode = op.attributes.get("mode", b"nearest")
    nearest = {"nearest_mode": b"floor"} if mode == b"nearest" else {}
    mode = b"linear" if mode == b"bilinear" else mode
    return op.changed(mode=mode, coordinate_transformation_mode=b"asymmetric", **nearest)


@_before(13, "Softmax", "LogSoftmax", "Hardmax")
def _softmax(normalizer: Rewriter, op: Op) -> list[Op]:
    """Replace the softmax of a tensor that is flattened to a matrix."""
    shape = normalizer.tensors[op.inputs[0]].shape if op.inputs and op.inputs[0] is not None else None
    axis = op.attributes.get("axis", 1)
    if shape is None:
        raise ValueError(f"{op.kind} of operator set 12 or earlier reads a value of unknown shape")
    if not -len(shape) <= axis <= len(shape):
        raise ValueError(f"axis {axis} is not one of {counted(len(shape), 'dimension')}")
    axis = axis + len(shape) if axis < 0 else axis
    if all(d == 1 for d in shape[axis + 1 :]):
        return [op.changed(axis=axis if axis < len(shape) else len(shape) - 1)]
    flat, result, sizes = (normalizer.new_value() for _ in range(3))
    return [
        Op("Flatten", {"axis": axis}, op.inputs, (flat,)),
        Op(op.kind, {"axis": -1}, (flat,), (result,)),
        Op("Shape", {}, op.inputs, (sizes,)),
        Op("Reshape", {}, (result, sizes), op.outputs),
    ]


@_before(7, "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
def _broadcast(normalizer: Rewriter, op: Op) -> list[Op]:
    """Insert the dimensions by which the second input is aligned at an axis."""
    axis = op.attributes.get("axis")
    op = op.changed(axis=None, broadcast=None)
    if axis is None:
        return [op]
    first, second = (normalizer.tensors[v].shape for v in op.inputs if v is not None)
    if first is None or second is None:
        raise ValueError("a broadcast along an axis of a tensor of unknown shape")
    missing = len(first) - axis % len(first) - len(second)
    if missing <= 0:
        return [op]
    rank = len(second)
    aligned, axes = normalizer.new_value(), normalizer.new(vector(range(rank, rank + missing)))
    return [
        Op("Unsqueeze", {}, (op.inputs[1], axes), (aligned,)),
        op.changed((op.inputs[0], aligned)),
    ]


@_before(7, "Gemm")
def _gemm(_: Rewriter, op: Op) -> list[Op]:
    return [op.changed(broadcast=None)]


@_before(9, "BatchNormalization")
def _batch_norm(_: Rewriter, op: Op) -> list[Op]:
    return [op.changed(spatial=None, is_test=None)]


@_before(16, "RoiAlign")
def _roi_align(_: Rewriter, op: Op) -> list[Op]:
    return [op.changed(coordinate_transformation_mode=b"output_half_pixel")]


@_before(20, "GridSample")
def _grid_sample(_: Rewriter, op: Op) -> list[Op]:
    names = {b"bilinear": b"linear", b"bicubic": b"cubic"}
    mode = op.attributes.get("mode", b"bilinear")
    return [op.changed(mode=names.get(mode, mode))]


@_before(20, "DFT")
def _dft(normalizer: Rewriter, op: Op) -> list[Op]:
    axis = constant(np.array(op.attributes.get("axis", 1), np.int64))
    return [_with_input(normalizer, op, 2, axis, "axis")]


@_before(11, "Scatter")
def _scatter(_: Rewriter, op: Op) -> list[Op]:
    return [Op("ScatterElements", op.attributes, op.inputs, op.outputs)]


@_before(21, "GroupNormalization")
def _group_norm(normalizer: Rewriter, op: Op) -> list[Op]:
    """Repeat scale and bias of a group for each of its channels."""
    shape = normalizer.tensors[op.inputs[0]].shape if op.inputs and op.inputs[0] is not None else None
    inputs = list(op.inputs)
    for k in (1, 2):
        value = inputs[k] if len(inputs) > k else None
        tensor = normalizer.tensors.get(value) if value is not None else None
        if tensor is not None and tensor.is_static and shape is not None and type(shape[1]) is int:
            inputs[k] = normalizer.new(Tensor(tensor.dtype, (shape[1],), origin=tensor.origin))
    return [op.changed(inputs)]


@_before(14, "LSTM", "GRU", "RNN")
def _recurrent(_: Rewriter, op: Op) -> list[Op]:
    return [op.changed(output_sequence=None)]


@_before(9, "Scan")
def _scan(_: Rewriter, op: Op) -> list[Op]:
    raise ValueError(
        "Scan of operator set 8 is not supported: export the model with opset_version 9 or later"
    )
