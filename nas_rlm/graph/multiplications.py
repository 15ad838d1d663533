"""Multiply-accumulates of operators, from the shapes of their inputs and outputs.

They count what multiplies matrices or windows: convolutions, matrix products, recurrent layers and attention.
A bias, an element-wise product, a normalization or a pool counts 0. Quantized operators count as their float
originals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from nas_rlm.graph.onnx_graphs.flat_graph import CONTROL_FLOW, LARGE_MODELS
from nas_rlm.graph.onnx_graphs.shapes import SHAPE_FUNCTIONS, OperatorCall
from nas_rlm.graph.onnx_graphs.shapes.attention import (
    attention_sizes,
    contrib_attention_sizes,
    linear_attention_sizes,
)
from nas_rlm.graph.onnx_graphs.shapes.convolutions import CONVOLUTIONS, convolution_inputs
from nas_rlm.graph.onnx_graphs.shapes.layers import GATES
from nas_rlm.graph.onnx_graphs.shapes.products import (
    GEMMS,
    PRODUCTS,
    einsum_terms,
    gemm_sizes,
    product_shapes,
)
from nas_rlm.graph.onnx_graphs.tensors import Dim, Dims, Tensor

# Operators that multiply matrices or windows in a way that is not counted.
_NOT_COUNTED = frozenset(
    f"com.microsoft.{name}"
    for name in [
        "BeamSearch",
        "GreedySearch",
        "Sampling",
        "WhisperBeamSearch",
        "MoE",
        "QMoE",
        "LongformerAttention",
        "DecoderAttention",
        "PackedAttention",
        "PackedMultiHeadAttention",
        "RelativePositionBias",
        "GatedRelativePositionBias",
        "Inverse",
        "RemovePadding",
        "SparseAttention",
        "PagedAttention",
        "QOrderedMatMul",
        "QOrderedAttention",
        "SparseToDenseMatMul",
        "MulInteger",
        "WordConvEmbedding",
        "AttnLSTM",
        "MatMulBlockQuantized",
        "DecoderMaskedSelfAttention",
        "UnfoldTensor",
        "FusedDequantizeMatMul",
        "CDist",
    ]
)


class _UnknownSizeError(Exception):
    """A size that decides the number is not known."""


def multiply_accumulates(call: OperatorCall, output: Tensor) -> int | None:
    """Return the multiply-accumulates of an operator.

    Args:
        call: the operator with what is known of its inputs.
        output: what is known of its first output.

    Returns:
        The exact number; None if it depends on an open size, or on a size that depends on data.

    Raises:
        ValueError: the operator multiplies in a way that is not counted.
    """
    count = _COUNTS.get(call.kind)
    if count is None:
        if call.kind in _NOT_COUNTED:
            raise ValueError(f"{call.kind}: its multiply-accumulates are not counted")
        if call.kind not in SHAPE_FUNCTIONS and call.kind not in CONTROL_FLOW:
            _refuse_unknown(call)
        return 0
    try:
        return count(call, output)
    except _UnknownSizeError:
        return None


def _refuse_unknown(call: OperatorCall) -> NoReturn:
    name = f"{call.kind} is a custom operator" if "." in call.kind else f"{call.kind} is not known"
    raise ValueError(
        f"{name}: its multiply-accumulates are not known; expected operators of ONNX or of onnxruntime"
        " (com.microsoft)"
    )


def _product(*sizes: Dim) -> int:
    """Return a product of sizes.

    Raises:
        _UnknownSizeError: one is not known.
    """
    total = 1
    for d in sizes:
        if type(d) is not int:
            raise _UnknownSizeError
        total *= d
    return total


def _known(shape: Dims | None) -> Dims:
    if shape is None:
        raise _UnknownSizeError
    return shape


def _conv(call: OperatorCall, output: Tensor) -> int:
    _, weight = convolution_inputs(call.kind)
    return _product(*_known(output.shape), *_known(call.shape(weight))[1:])


def _conv_transpose(call: OperatorCall, output: Tensor) -> int:
    return _product(*_known(call.shape(0)), *_known(call.shape(1))[1:])


def _matmul(call: OperatorCall, output: Tensor) -> int:
    left, _ = product_shapes(call)
    return _product(*_known(output.shape), _known(left)[-1])


def _packed_matmul(call: OperatorCall, output: Tensor) -> int:
    return _product(*_known(output.shape), _known(call.shape(0))[-1])


def _gemm(call: OperatorCall, output: Tensor) -> int:
    rows, inner, inner_right, columns = gemm_sizes(call)
    return _product(rows, inner if type(inner) is int else inner_right, columns)


def _einsum(call: OperatorCall, output: Tensor) -> int:
    """Contract the inputs from left to right, and sum over a label as soon as no other input has it."""
    shapes = [_known(call.shape(k)) for k in range(len(call.inputs))]
    terms, result, sizes = einsum_terms(call.attributes["equation"].decode("utf-8", "replace"), shapes)
    total, labels = 0, set(terms[0])
    for k, term in enumerate(terms[1:], 1):
        labels |= set(term)
        total += _product(*[sizes[label] for label in labels])
        labels &= set("".join(terms[k + 1 :])) | set(result)
    return total


def _recurrent(call: OperatorCall, output: Tensor) -> int:
    steps, batch, width = _known(call.shape(0))
    if call.attribute("layout", 0):
        steps, batch = batch, steps
    directions = 2 if call.attribute("direction", b"forward") == b"bidirectional" else 1
    hidden = _known(output.shape)[-1] if output.shape else call.attribute("hidden_size")
    gates = GATES[call.kind]
    return _product(steps, batch, directions, gates, hidden) * (_product(width) + _product(hidden))


def _attention(call: OperatorCall, output: Tensor) -> int:
    batch, heads, steps, keys, width, value_width = attention_sizes(call)
    return _product(batch, heads, steps, keys) * (_product(width) + _product(value_width))


def _linear_attention(call: OperatorCall, output: Tensor) -> int:
    """Count the products of a state with queries, of keys with values, and of a state with keys."""
    batch, steps, heads, key_heads, width, value_width = linear_attention_sizes(call)
    updates = 2 if b"delta" in call.attribute("update_rule", b"gated_delta") else 1
    products = _product(heads) + updates * _product(key_heads)
    return _product(batch, steps, width, value_width) * products


def _causal_conv(call: OperatorCall, output: Tensor) -> int:
    return _product(*_known(output.shape), *_known(call.shape(1))[1:])


def _multi_head_attention(call: OperatorCall, output: Tensor) -> int:
    batch, steps, keys, width, value_width = contrib_attention_sizes(call)
    heads = call.attributes["num_heads"]
    return _product(batch, heads, steps, keys) * (_product(width) + _product(value_width))


def _contrib_attention(call: OperatorCall, output: Tensor) -> int:
    batch, steps, _ = _known(call.shape(0))
    inner, columns = _known(call.shape(1))
    projections = _product(batch, steps, inner, columns)
    widths = call.attribute("qkv_hidden_sizes") or (_product(columns) // 3,) * 3
    past = call.optional(8 if call.kind.endswith("QAttention") else 4)
    keys = _product(steps) + (_product(_known(past.shape)[3]) if past is not None else 0)
    return projections + _product(batch, steps, keys) * (widths[0] + widths[2])


def _classical(call: OperatorCall, output: Tensor) -> int:
    """A linear model or support vector machine: each learnt number of a product is used once for each row."""
    shape = _known(call.shape(0))
    rows = _product(shape[0] if len(shape) > 1 else 1)
    return rows * (table_size(call, "coefficients") + table_size(call, "support_vectors"))


def table_size(call: OperatorCall, name: str) -> int:
    """Return the number of elements of a learnt table of an operator of ai.onnx.ml; 0 if it has none.

    The text of large models has the attribute `{name}_size` in place of the table.
    """
    return len(call.attribute(name, ())) or int(call.attribute(f"{name}_size", 0))


_Count = Callable[[OperatorCall, Tensor], int]
_COUNTS: dict[str, _Count] = {
    **dict.fromkeys(CONVOLUTIONS, _conv),
    **dict.fromkeys(("ConvTranspose", "com.microsoft.ConvTransposeWithDynamicPads"), _conv_transpose),
    **dict.fromkeys(PRODUCTS, _matmul),
    **dict.fromkeys(
        (f"com.microsoft.{k}" for k in ("MatMulNBits", "MatMulBnb4", "MatMulFpQ4")), _packed_matmul
    ),
    **dict.fromkeys(GEMMS, _gemm),
    **dict.fromkeys(GATES, _recurrent),
    **dict.fromkeys(("com.microsoft.Attention", "com.microsoft.QAttention"), _contrib_attention),
    **dict.fromkeys(
        (
            "com.microsoft.MultiHeadAttention",
            "com.microsoft.GroupQueryAttention",
            "com.microsoft.DecoderMaskedMultiHeadAttention",
        ),
        _multi_head_attention,
    ),
    **dict.fromkeys(
        (
            f"{domain}.{model}{task}"
            for domain in ("ai.onnx.ml", LARGE_MODELS)
            for model in ("Linear", "SVM")
            for task in ("Regressor", "Classifier")
        ),
        _classical,
    ),
    "Attention": _attention,
    **dict.fromkeys(("LinearAttention", "com.microsoft.LinearAttention"), _linear_attention),
    **dict.fromkeys(("CausalConvWithState", "com.microsoft.CausalConvWithState"), _causal_conv),
    "Einsum": _einsum,
}
