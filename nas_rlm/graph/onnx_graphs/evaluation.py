"""Values of operators on small constants: NumPy for common operators, ONNX's reference for others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from nas_rlm.graph.onnx_graphs.tensors import Tensor

Arrays = list[Any]
_REFERENCE_OPSET = 21
_WITH_GAPS = {"Clip", "Slice"}  # operators with several optional inputs
# Operators of the reference code whose memory and time are bounded by their inputs and outputs.
_REFERENCE = {
    "Acos",
    "Acosh",
    "ArgMax",
    "ArgMin",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "BitShift",
    "Celu",
    "Compress",
    "Cosh",
    "CumSum",
    "DepthToSpace",
    "Einsum",
    "Elu",
    "Erf",
    "GatherElements",
    "GatherND",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "HammingWindow",
    "HannWindow",
    "BlackmanWindow",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "LogSoftmax",
    "MatMul",
    "Gemm",
    "Mean",
    "Mish",
    "Mod",
    "NonZero",
    "OneHot",
    "PRelu",
    "Pad",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shrink",
    "Sign",
    "Sinh",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Sum",
    "Tan",
    "ThresholdedRelu",
    "Tile",
    "TopK",
    "Trilu",
    "Unique",
    "Xor",
    "EyeLike",
    "Round",
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Exp": np.exp,
    "Floor": np.floor,
    "Identity": np.asarray,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": lambda a, b: np.power(a, b).astype(a.dtype),
    "Sub": np.subtract,
}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
}


def evaluate(
    kind: str, attributes: Mapping[str, Any], inputs: Sequence[Tensor | None], outputs: int
) -> Arrays | None:
    """Return the values of the outputs of an operator on constants.

    Args:
        kind: name of the operator.
        attributes: its attributes.
        inputs: its inputs, which are constants or None.
        outputs: number of outputs.

    Returns:
        The values; None if they cannot be computed.
    """
    arrays = [None if x is None else x.array for x in inputs]
    if any(x is not None and a is None for x, a in zip(inputs, arrays, strict=True)):
        return None
    function = _FUNCTIONS.get(kind)
    try:
        with np.errstate(all="ignore"):
            if function is not None:
                values = function(
                    attributes, arrays if kind in _WITH_GAPS else [a for a in arrays if a is not None]
                )
                return [np.asarray(v) for v in values]
            if kind in _REFERENCE:
                return _evaluate_reference(kind, attributes, inputs, arrays, outputs)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
    ):
        return None
    return None


def _evaluate_reference(
    kind: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Tensor | None],
    arrays: Sequence[np.ndarray | None],
    outputs: int,
) -> Arrays | None:
    """Return the values of an operator by ONNX's reference code, which is slow."""
    names = ["" if x is None else f"i{k}" for k, x in enumerate(inputs)]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(kind, names, results, **attributes)
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    graph = helper.make_graph(
        [node], "node", infos, [helper.make_empty_tensor_value_info(n) for n in results]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _REFERENCE_OPSET)])
    return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, given)]


def _cast(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return [arrays[0].astype(helper.tensor_dtype_to_np_dtype(attributes["to"]))]


def _divide(_: Mapping[str, Any], arrays: Arrays) -> Arrays:
    a, b = arrays
    if a.dtype.kind in "iu":
        if not b.all():
            raise ZeroDivisionError
        return [
            np.asarray(np.trunc(np.divide(a, b, dtype=np.float64)) if _is_small(a) else a // b, dtype=a.dtype)
        ]
    return [np.divide(a, b)]


def _is_small(array: np.ndarray) -> bool:
    """Return True if all elements are exact as float64."""
    return bool(np.abs(array).max(initial=0) < 2**53)


def _concat(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return [np.concatenate(arrays, axis=attributes["axis"])]


def _gather(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return [np.take(arrays[0], arrays[1], axis=attributes.get("axis", 0))]


def _axes(attributes: Mapping[str, Any], arrays: Arrays) -> tuple[int, ...] | None:
    axes = attributes.get("axes") if len(arrays) < 2 else tuple(arrays[1].reshape(-1).tolist())
    return tuple(axes) if axes else None


def _unsqueeze(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    axes = _axes(attributes, arrays)
    return [np.expand_dims(arrays[0], axes) if axes else arrays[0]]


def _squeeze(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return [np.squeeze(arrays[0], axis=_axes(attributes, arrays))]


def _reshape(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    x, target = arrays[0], arrays[1].reshape(-1).tolist()
    if not attributes.get("allowzero", 0):
        target = [x.shape[k] if d == 0 else d for k, d in enumerate(target)]
    return [x.reshape(target)]


def _flatten(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    x, axis = arrays[0], attributes.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return [x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))]


def _transpose(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return [np.transpose(arrays[0], attributes.get("perm"))]


def _slice(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    x, starts, ends, axes, steps = (*arrays, None, None)[:5]
    axes = list(range(len(starts))) if axes is None else axes.tolist()
    steps = [1] * len(starts) if steps is None else steps.tolist()
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), axes, steps, strict=True):
        side = x.shape[axis]
        stop = None if step < 0 and end < -side else end
        index[axis] = slice(start, stop, step)
    return [x[tuple(index)]]


def _range(_: Mapping[str, Any], arrays: Arrays) -> Arrays:
    start, limit, delta = (a.reshape(-1)[0] for a in arrays)
    values = np.arange(start, limit, delta, dtype=arrays[0].dtype)
    return [values]


def _constant_of_shape(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    value = attributes.get("value")
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return [np.full(tuple(arrays[0].tolist()), fill[0], dtype=fill.dtype)]


def _expand(_: Mapping[str, Any], arrays: Arrays) -> Arrays:
    target = tuple(arrays[1].tolist())
    return [np.ascontiguousarray(np.broadcast_to(arrays[0], np.broadcast_shapes(arrays[0].shape, target)))]


def _where(_: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return [np.asarray(np.where(arrays[0], arrays[1], arrays[2]), dtype=arrays[1].dtype)]


def _split(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    x, axis = arrays[0], attributes.get("axis", 0)
    if len(arrays) > 1:
        return list(np.split(x, np.cumsum(arrays[1])[:-1], axis=axis))
    parts = attributes["num_outputs"]
    size = -(-x.shape[axis] // parts)
    return list(np.split(x, range(size, size * parts, size), axis=axis))


def _clip(_: Mapping[str, Any], arrays: Arrays) -> Arrays:
    x, minimum, maximum = (*arrays, None, None)[:3]
    if x is not None and minimum is not None:
        x = np.maximum(x, minimum)
    return [x if maximum is None else np.minimum(x, maximum)]


def _extreme(function: Callable[..., Any]) -> Callable[[Mapping[str, Any], Arrays], Arrays]:
    return lambda _, arrays: [arrays[0] if len(arrays) == 1 else _fold(function, arrays)]


def _fold(function: Callable[..., Any], arrays: Arrays) -> np.ndarray:
    result = arrays[0]
    for a in arrays[1:]:
        result = function(result, a)
    return result


def _reduction(function: Callable[..., Any]) -> Callable[[Mapping[str, Any], Arrays], Arrays]:
    def reduce(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
        axes = _axes(attributes, arrays)
        if axes is None and attributes.get("noop_with_empty_axes", 0):
            return [arrays[0]]
        keeps = bool(attributes.get("keepdims", 1))
        return [np.asarray(function(arrays[0], axis=axes, keepdims=keeps)).astype(arrays[0].dtype)]

    return reduce


def _unary(function: Callable[[Any], Any]) -> Callable[[Mapping[str, Any], Arrays], Arrays]:
    return lambda _, arrays: [np.asarray(function(arrays[0])).astype(arrays[0].dtype)]


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Mapping[str, Any], Arrays], Arrays]:
    return lambda _, arrays: [function(arrays[0], arrays[1])]


_FUNCTIONS: dict[str, Callable[[Mapping[str, Any], Arrays], Arrays]] = {
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Max": _extreme(np.maximum),
    "Min": _extreme(np.minimum),
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    **{kind: _unary(function) for kind, function in _UNARY.items()},
    **{kind: _binary(function) for kind, function in _BINARY.items()},
    **{kind: _reduction(function) for kind, function in _REDUCTIONS.items()},
}
