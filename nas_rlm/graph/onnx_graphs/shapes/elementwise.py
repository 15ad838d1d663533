"""Shapes of element-wise operators, normalizations, reductions and other operators that keep positions."""

from __future__ import annotations

from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, checked_axis, shape_of
from nas_rlm.graph.onnx_graphs.tensors import BOOL, FLOAT, INT64, Dims, Tensor, broadcast, product

_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Bernoulli",
    "BitwiseNot",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "CumProd",
    "CumSum",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "InstanceNormalization",
    "LRN",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "Mish",
    "Neg",
    "Not",
    "RMSNormalization",
    "RandomNormalLike",
    "RandomUniformLike",
    "Reciprocal",
    "Relu",
    "ReverseSequence",
    "Round",
    "ScatterElements",
    "Scatter",
    "ScatterND",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "SwiGLU",
    "Swish",
    "Tan",
    "Tanh",
    "TensorScatter",
    "ThresholdedRelu",
    "Trilu",
    "Identity",
    "EyeLike",
    "GroupNormalization",
]
_BINARY = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Mod",
    "Max",
    "Min",
    "Mean",
    "Sum",
    "PRelu",
    "BitShift",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
]
_COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"]
_CONTRIB_UNARY = [
    "com.microsoft.BiasGelu",
    "com.microsoft.FastGelu",
    "com.microsoft.Gelu",
    "com.microsoft.QuickGelu",
    "com.microsoft.QLinearSigmoid",
    "com.microsoft.QLinearLeakyRelu",
    "com.microsoft.QLinearSoftmax",
    "com.microsoft.BiasAdd",
    "com.microsoft.GroupNorm",
    "com.microsoft.RotaryEmbedding",
    "com.microsoft.BiasSoftmax",
    "com.microsoft.BiasDropout",
    "com.microsoft.QuantizeWithOrder",
    "com.microsoft.SoftmaxDropoutGrad",
    "ai.onnx.ml.Binarizer",
]


@shape_of(*_UNARY, *_CONTRIB_UNARY)
def _same_as_first(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    dtype = call.attribute("dtype", x.dtype)
    if x.shape is not None and "axis" in call.attributes:
        call.axis(0, len(x.shape))
    return [Tensor(dtype, x.shape, sizes=x.sizes if call.kind == "Identity" else None, elements=x.elements)]


@shape_of("IsInf", "IsNaN")
def _flags(call: OperatorCall) -> list[Tensor]:
    return [Tensor(BOOL, call.shape(0))]


@shape_of(*_BINARY)
def _broadcast(call: OperatorCall) -> list[Tensor]:
    inputs = [call.input(k) for k in range(len(call.inputs))]
    shape = inputs[0].shape if call.kind == "PRelu" else broadcast([x.shape for x in inputs])
    return [Tensor(inputs[0].dtype, shape, sizes=_arithmetic(call.kind, inputs))]


def _arithmetic(kind: str, inputs: list[Tensor]) -> Dims | None:
    """Return the result of integer arithmetic on sizes of which some are unknown."""
    if len(inputs) != 2 or kind not in ("Add", "Sub", "Mul", "Div") or all(x.sizes is None for x in inputs):
        return None
    left, right = inputs[0].integers, inputs[1].integers
    if left is None or right is None or (1 not in (len(left), len(right)) and len(left) != len(right)):
        return None
    count = max(len(left), len(right))
    pairs = zip(left * (count // len(left)), right * (count // len(right)), strict=True)
    return tuple([_apply(kind, a, b) for a, b in pairs])


def _apply(kind: str, a: int | str | None, b: int | str | None) -> int | str | None:
    """Return `a kind b`; None unless both are known or `b` does not change `a`."""
    if b == (0 if kind in ("Add", "Sub") else 1):
        return a
    if type(a) is not int or type(b) is not int:
        return product((a, b)) if kind == "Mul" else None
    if kind == "Div":
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None
    return {"Add": a + b, "Sub": a - b, "Mul": a * b}[kind]


@shape_of(*_COMPARISONS)
def _compare(call: OperatorCall) -> list[Tensor]:
    return [Tensor(BOOL, broadcast([call.shape(0), call.shape(1)]))]


@shape_of("Where")
def _where(call: OperatorCall) -> list[Tensor]:
    shape = broadcast([call.shape(0), call.shape(1), call.shape(2)])
    condition, a, b = call.input(0).array, call.input(1).integers, call.input(2).integers
    sizes = None
    if condition is not None and a is not None and b is not None and len(a) == len(b) == condition.size:
        sizes = tuple([x if c else y for c, x, y in zip(condition.reshape(-1), a, b, strict=True)])
    return [Tensor(call.input(1).dtype, shape, sizes=sizes)]


@shape_of("Cast")
def _cast(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.input(0), call.attributes["to"]
    return [Tensor(dtype, x.shape, sizes=x.sizes)]


@shape_of("CastLike", "BitCast")
def _cast_like(call: OperatorCall) -> list[Tensor]:
    dtype = call.attributes["to"] if call.kind == "BitCast" else call.input(1).dtype
    return [Tensor(dtype, call.shape(0))]


@shape_of("Dropout")
def _dropout(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    return [Tensor(x.dtype, x.shape), Tensor(BOOL, x.shape)]


@shape_of("BatchNormalization")
def _batch_norm(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    if x.shape is not None and len(x.shape) > 1:
        check_channels(call, x.shape[1], range(1, 5))
    statistics = Tensor(x.dtype, call.shape(3))
    return [Tensor(x.dtype, x.shape), *[statistics] * (call.num_outputs - 1)]


def check_channels(call: OperatorCall, channels: int | str | None, indices: range) -> None:
    """Refuse vectors that do not have one element for each channel."""
    for k in indices:
        vector = call.optional(k)
        shape = vector.known_shape if vector is not None else None
        if shape is not None and type(channels) is int and (len(shape) != 1 or shape[0] != channels):
            raise ValueError(f"input {k} has the shape {list(shape)}: expected [{channels}]")


@shape_of("LayerNormalization", "com.microsoft.SimplifiedLayerNormalization")
def _layer_norm(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    if x.shape is None:
        return [Tensor(x.dtype, None), *[Tensor(FLOAT, None)] * (call.num_outputs - 1)]
    axis = call.axis(-1, len(x.shape))
    scale = call.optional(1)
    if scale is not None:
        broadcast([x.shape[axis:], scale.shape])
    statistics = Tensor(FLOAT, (*x.shape[:axis], *[1] * (len(x.shape) - axis)))
    return [Tensor(x.dtype, x.shape), *[statistics] * (call.num_outputs - 1)]


@shape_of(
    "com.microsoft.SkipLayerNormalization",
    "com.microsoft.SkipSimplifiedLayerNormalization",
    "com.microsoft.SkipGroupNorm",
)
def _skip_layer_norm(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    statistics = Tensor(FLOAT, (*x.shape[:-1], 1) if x.shape else None)
    return [Tensor(x.dtype, x.shape), statistics, statistics, Tensor(x.dtype, x.shape)][: call.num_outputs]


@shape_of("QuantizeLinear", "com.microsoft.QuantizeLinear")
def _quantize(call: OperatorCall) -> list[Tensor]:
    zero_point = call.optional(2)
    dtype = zero_point.dtype if zero_point is not None else call.attribute("output_dtype", 0)
    return [Tensor(dtype or TensorProto.UINT8, call.shape(0))]


@shape_of("DequantizeLinear", "com.microsoft.DequantizeLinear")
def _dequantize(call: OperatorCall) -> list[Tensor]:
    return [Tensor(call.attribute("output_dtype", 0) or call.input(1).dtype, call.shape(0))]


@shape_of("DynamicQuantizeLinear")
def _dynamic_quantize(call: OperatorCall) -> list[Tensor]:
    return [Tensor(TensorProto.UINT8, call.shape(0)), Tensor(FLOAT, ()), Tensor(TensorProto.UINT8, ())]


@shape_of(
    *[
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
    ]
)
@shape_of("ReduceSum", "ReduceSumSquare")
def _reduce(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    given = call.optional(1)
    axes = call.attribute("axes", ()) if given is None else given.integers
    if given is not None and given.known_shape == (0,):
        axes = ()
    keeps = call.attribute("keepdims", 1)
    known = [a for a in axes or () if isinstance(a, int)]
    if x.shape is None or axes is None or len(known) < len(axes):
        return [Tensor(x.dtype, (None,) * len(x.shape) if x.shape is not None and keeps else None)]
    rank = len(x.shape)
    reduced = {checked_axis(a, rank) for a in known}
    if not axes:
        if call.attribute("noop_with_empty_axes", 0):
            return [Tensor(x.dtype, x.shape)]
        reduced = set(range(rank))
    shape = [1 if k in reduced else d for k, d in enumerate(x.shape) if keeps or k not in reduced]
    return [Tensor(x.dtype, tuple(shape))]


@shape_of("ArgMax", "ArgMin")
def _arg_extreme(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    if shape is None:
        return [Tensor(INT64, None)]
    axis = call.axis(0, len(shape))
    kept = (1,) if call.attribute("keepdims", 1) else ()
    return [Tensor(INT64, (*shape[:axis], *kept, *shape[axis + 1 :]))]


@shape_of("com.microsoft.QLinearAdd", "com.microsoft.QLinearMul")
def _quantized_binary(call: OperatorCall) -> list[Tensor]:
    return [Tensor(call.input(0).dtype, broadcast([call.shape(0), call.shape(3)]))]


@shape_of("com.microsoft.QLinearWhere")
def _quantized_where(call: OperatorCall) -> list[Tensor]:
    return [Tensor(call.input(1).dtype, broadcast([call.shape(0), call.shape(1), call.shape(4)]))]


@shape_of("com.microsoft.QLinearConcat")
def _quantized_concat(call: OperatorCall) -> list[Tensor]:
    shapes = [call.shape(k) for k in range(2, len(call.inputs), 3)]
    if any(s is None for s in shapes) or not shapes:
        return [Tensor(call.input(1).dtype, None)]
    known = [s for s in shapes if s is not None]
    axis = call.axis(0, len(known[0]))
    sizes = [s[axis] for s in known]
    total = sum(d for d in sizes if type(d) is int) if all(type(d) is int for d in sizes) else None
    return [Tensor(call.input(1).dtype, (*known[0][:axis], total, *known[0][axis + 1 :]))]


@shape_of("com.microsoft.QLinearReduceMean")
def _quantized_reduce(call: OperatorCall) -> list[Tensor]:
    return _reduce(OperatorCall(call.kind, call.attributes, call.inputs[:1], 1))
