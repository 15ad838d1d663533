"""Shapes of attention and of what belongs to it: rotary positions, linear attention, causal convolutions."""

from __future__ import annotations

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, shape_of
from nas_rlm.graph.onnx_graphs.tensors import Dim, Dims, Tensor, add, divide, product
from search_spaces.wording import counted


@shape_of("Attention")
def _attention(call: OperatorCall) -> list[Tensor]:
    sizes = attention_sizes(call)
    dtype = call.input(0).dtype
    query = call.shape(0)
    batch, heads, steps, keys, _, value_width = sizes
    if query is not None and len(query) == 3:
        shape: Dims = (batch, steps, product((heads, value_width)))
    else:
        shape = (batch, heads, steps, value_width)
    key_heads = (call.shape(1) or (None, None))[1] if query is None or len(query) == 4 else None
    key_heads = call.attribute("kv_num_heads", key_heads)
    outputs = [
        Tensor(dtype, shape),
        Tensor(dtype, (batch, key_heads, keys, sizes[4])),
        Tensor(dtype, (batch, key_heads, keys, value_width)),
        Tensor(dtype, (batch, heads, steps, keys)),
    ]
    return outputs[: call.num_outputs]


def attention_sizes(call: OperatorCall) -> tuple[Dim, Dim, Dim, Dim, Dim, Dim]:
    """Return batch, heads of queries, steps, keys, and width of keys and values of a head of Attention."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    if q is None or k is None or v is None:
        return (None,) * 6
    past = call.shape(4) if call.has(4) else None
    if len(q) == 4 and len(k) == len(v) == 4:
        batch, heads, steps, width = q
        keys, value_width = k[2], v[3]
    elif len(q) == 3:
        heads, key_heads = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
        if not heads or not key_heads:
            raise ValueError("inputs of 3 dimensions: expected q_num_heads and kv_num_heads")
        batch, steps = q[:2]
        width, value_width = divide(q[2], heads), divide(v[2], key_heads)
        keys = k[1]
    else:
        raise ValueError("expected queries, keys and values of 3 or 4 dimensions")
    if past is not None:
        keys = add(keys, past[2])
    return batch, heads, steps, keys, width, value_width


@shape_of("LinearAttention", "com.microsoft.LinearAttention")
def _linear_attention(call: OperatorCall) -> list[Tensor]:
    batch, steps, heads, key_heads, width, value_width = linear_attention_sizes(call)
    dtype, past = call.input(0).dtype, call.optional(3)
    state: Dims = (batch, key_heads, width, value_width)
    outputs = [Tensor(dtype, (batch, steps, product((heads, value_width))))]
    return [*outputs, Tensor(dtype if past is None else past.dtype, state)][: call.num_outputs]


def linear_attention_sizes(call: OperatorCall) -> tuple[Dim, Dim, Dim, Dim, Dim, Dim]:
    """Return batch, steps, heads of queries and keys, and width of keys and values of LinearAttention."""
    q, k, v = (call.shape(position, rank=3) or (None,) * 3 for position in range(3))
    heads, key_heads = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
    if not heads or not key_heads or heads % key_heads:
        raise ValueError(
            f"q_num_heads is {heads} and kv_num_heads is {key_heads}: expected a multiple of kv_num_heads"
        )
    for name, shape, number in (("queries", q, heads), ("keys", k, key_heads), ("values", v, key_heads)):
        if type(shape[2]) is int and shape[2] % number:
            raise ValueError(
                f"{name} of shape {list(shape)}: expected {counted(number, 'head')} of equal size"
            )
    width, key_width = divide(q[2], heads), divide(k[2], key_heads)
    if width is not None and key_width is not None and width != key_width:
        raise ValueError(f"heads of queries of size {width} and of keys of size {key_width}")
    return q[0], q[1], heads, key_heads, width or key_width, divide(v[2], key_heads)


@shape_of("CausalConvWithState", "com.microsoft.CausalConvWithState")
def _causal_conv(call: OperatorCall) -> list[Tensor]:
    x, w, dtype = call.shape(0), call.shape(1), call.input(0).dtype
    if x is None or w is None:
        return [Tensor(dtype, x), Tensor(dtype, None)][: call.num_outputs]
    if len(x) != len(w) or len(x) < 3:
        raise ValueError(f"an input of {counted(len(x), 'dimension')} with a weight of shape {list(w)}")
    if (type(x[1]) is int and w[0] not in (x[1], None)) or w[1] not in (1, None):
        raise ValueError(
            f"an input of shape {list(x)} with a weight of shape {list(w)}: expected [{x[1]},1,…]"
        )
    state = (*x[:-1], add(w[-1], -1))
    return [Tensor(dtype, x), Tensor(dtype, state)][: call.num_outputs]


@shape_of("RotaryEmbedding")
def _rotary(call: OperatorCall) -> list[Tensor]:
    return [Tensor(call.input(0).dtype, call.shape(0))]


@shape_of("com.microsoft.Attention", "com.microsoft.QAttention")
def _contrib_attention(call: OperatorCall) -> list[Tensor]:
    x, w = call.shape(0, rank=3), call.shape(1, rank=2)
    widths = call.attribute("qkv_hidden_sizes")
    width = widths[2] if widths else divide(w[1], 3) if w else None
    dtype = call.input(3 if call.kind.endswith("QAttention") else 0).dtype
    past = call.shape(8 if call.kind.endswith("QAttention") else 4) if call.num_outputs > 1 else None
    heads = call.attribute("num_heads")
    steps = None if x is None else add(x[1], past[3]) if past else x[1]
    present: Dims = (2, x[0] if x else None, heads, steps, divide(width, heads))
    return [Tensor(dtype, (*(x[:2] if x else (None, None)), width)), Tensor(dtype, present)][
        : call.num_outputs
    ]


@shape_of("com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention")
@shape_of("com.microsoft.DecoderMaskedMultiHeadAttention")
def _multi_head_attention(call: OperatorCall) -> list[Tensor]:
    x, dtype = call.shape(0), call.input(0).dtype
    heads = call.attribute("num_heads")
    batch, steps, keys, width, value_width = contrib_attention_sizes(call)
    key_heads = call.attribute("kv_num_heads", heads)
    shape = None if x is None else (batch, steps, product((heads, value_width)))
    present = Tensor(dtype, (batch, key_heads, keys, width))
    present_values = Tensor(dtype, (batch, key_heads, keys, value_width))
    return [Tensor(dtype, shape), present, present_values][: call.num_outputs]


def contrib_attention_sizes(call: OperatorCall) -> tuple[Dim, Dim, Dim, Dim, Dim]:
    """Return batch, steps, keys, and width of keys and values of a head of onnxruntime's attention."""
    x = call.shape(0)
    heads = call.attribute("num_heads")
    is_grouped = call.kind.endswith("GroupQueryAttention")
    key_heads = call.attribute("kv_num_heads", heads)
    past = 3 if is_grouped else 6
    if x is None:
        return (None,) * 5
    batch, steps = x[0], x[1]
    past_shape = call.shape(past) if call.has(past) else None
    if len(x) == 5:  # queries, keys and values of each head, packed
        return batch, steps, steps, x[4], x[4]
    if not call.has(1):  # packed in one tensor
        width = divide(x[2], add(heads, product((2, key_heads))))
        keys = steps
        value_width = width
    else:
        k = call.shape(1)
        width = divide(x[2], heads)
        if k is None:
            return batch, steps, None, width, width
        if len(k) == 5:
            keys, value_width = k[1], k[4]
        elif len(k) == 4:
            keys, value_width = k[2], k[3]
        else:
            keys = k[1]
            v = call.shape(2) if call.has(2) else None
            value_width = divide(v[2], key_heads) if v is not None and len(v) == 3 else width
        v4 = call.shape(2) if call.has(2) else None
        if v4 is not None and len(v4) == 4:
            value_width = v4[3]
    if past_shape is not None and len(past_shape) == 4:
        # A buffer that present and past share has room for all keys.
        keys = past_shape[2] if is_grouped and call.num_outputs < 2 else add(keys, past_shape[2])
    return batch, steps, keys, width, value_width
