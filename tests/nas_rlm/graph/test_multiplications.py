"""Multiply-accumulates and parameters of single operators, counted by hand."""

import numpy as np
import pytest

from nas_rlm.text import from_onnx
from tests.nas_rlm.graph.small_models import costs, float16, int4, integers, small_model

X = "float[1,8,10,10] x"
# name: statements, inputs, weights, multiply-accumulates, parameters
CONVOLUTIONS = {
    "conv": ("y = Conv(x, w, b)", X, {"w": (16, 8, 3, 3), "b": (16,)}, 16 * 8 * 8 * 72, 16 * 73),
    "batch of 2": ("y = Conv(x, w)", "float[2,8,10,10] x", {"w": (16, 8, 3, 3)}, 2 * 16 * 64 * 72, 16 * 72),
    "groups": ("y = Conv<group=4>(x, w)", X, {"w": (16, 2, 3, 3)}, 16 * 64 * 18, 16 * 18),
    "depthwise": ("y = Conv<group=8, pads=[1,1,1,1]>(x, w)", X, {"w": (8, 1, 3, 3)}, 8 * 100 * 9, 72),
    "dilation": ("y = Conv<dilations=[2,3]>(x, w)", X, {"w": (16, 8, 3, 3)}, 16 * 6 * 4 * 72, 16 * 72),
    "stride": ("y = Conv<strides=[2,3]>(x, w)", X, {"w": (16, 8, 3, 3)}, 16 * 4 * 3 * 72, 16 * 72),
    "same": ('y = Conv<auto_pad="SAME_UPPER", strides=[3,3]>(x, w)', X, {"w": (16, 8, 3, 3)}, 256 * 72, 1152),
    "1-D": ("y = Conv(x, w)", "float[1,4,9] x", {"w": (6, 4, 3)}, 6 * 7 * 12, 72),
    "3-D": ("y = Conv(x, w)", "float[1,2,5,6,7] x", {"w": (3, 2, 2, 2, 2)}, 3 * 4 * 5 * 6 * 16, 48),
    "float16": ("y = Conv(x, w)", "float16[1,8,10,10] x", {"w": float16("w", 4, 8, 1, 1)}, 4 * 100 * 8, 32),
    "weight is an input": ("y = Conv(x, k)", f"{X}, float[4,8,3,3] k", {}, 4 * 64 * 72, 0),
    "transposed": (
        "y = ConvTranspose<strides=[2,2]>(x, w, b)",
        X,
        {"w": (8, 4, 3, 3), "b": (4,)},
        800 * 4 * 9,
        292,
    ),
    "transposed, groups": ("y = ConvTranspose<group=2>(x, w)", X, {"w": (8, 3, 2, 2)}, 800 * 12, 96),
    "transposed 1-D": ("y = ConvTranspose(x, w)", "float[3,4,9] x", {"w": (4, 5, 2)}, 3 * 36 * 10, 40),
    "integers": (
        "y = ConvInteger(x, w)",
        "uint8[1,8,10,10] x",
        {"w": integers(16, 8, 3, 3)},
        16 * 64 * 72,
        16 * 72,
    ),
    "quantized": (
        "y = QLinearConv(x, s, z, w, s, i, s, z, b)",
        "uint8[1,8,10,10] x",
        {
            "w": integers(16, 8, 3, 3),
            "s": np.array(0.5, np.float32),
            "z": np.array(0, np.uint8),
            "i": np.array(0, np.int8),
            "b": integers(16, dtype=np.int32),
        },
        16 * 64 * 72,
        16 * 73,
    ),
    "deformable": (
        "y = DeformConv(x, w, o)",
        f"{X}, float[1,18,8,8] o",
        {"w": (16, 8, 3, 3)},
        16 * 64 * 72,
        16 * 72,
    ),
    "blocked": (
        "y = com.microsoft.nchwc.Conv<pads=[1,1,1,1], kernel_shape=[3,3]>(x, w)",
        X,
        {"w": (16, 8, 3, 3)},
        16 * 100 * 72,
        16 * 72,
    ),
    "fused": (
        'y = com.microsoft.FusedConv<activation="Relu">(x, w, b)',
        X,
        {"w": (16, 8, 3, 3), "b": (16,)},
        16 * 64 * 72,
        16 * 73,
    ),
}
A = "float[6,8] x"
PRODUCTS = {
    "gemm": ("y = Gemm(x, w, b)", A, {"w": (8, 5), "b": (5,)}, 240, 45),
    "gemm, transB": ("y = Gemm<transB=1>(x, w)", A, {"w": (5, 8)}, 240, 40),
    "gemm, transA": ("y = Gemm<transA=1>(x, w)", "float[8,6] x", {"w": (8, 5)}, 240, 40),
    "gemm, both": ("y = Gemm<transA=1, transB=1>(x, w)", "float[8,6] x", {"w": (5, 8)}, 240, 40),
    "gemm of two inputs": ("y = Gemm(x, z)", f"{A}, float[8,5] z", {}, 240, 0),
    "fused gemm": (
        'y = com.microsoft.FusedGemm<activation="Relu", transB=1>(x, w)',
        A,
        {"w": (5, 8)},
        240,
        40,
    ),
    "vectors": ("y = MatMul(x, w)", "float[8] x", {"w": (8,)}, 8, 8),
    "vector and matrix": ("y = MatMul(x, w)", "float[8] x", {"w": (8, 5)}, 40, 40),
    "matrix and vector": ("y = MatMul(x, w)", A, {"w": (8,)}, 48, 8),
    "matrices": ("y = MatMul(x, w)", A, {"w": (8, 5)}, 240, 40),
    "three dimensions": ("y = MatMul(x, w)", "float[1,6,8] x", {"w": (8, 5)}, 240, 40),
    "batch of matrices": ("y = MatMul(x, w)", "float[3,6,8] x", {"w": (3, 8, 5)}, 720, 120),
    "left weight": ("y = MatMul(w, x)", "float[2,8,3] x", {"w": (5, 8)}, 2 * 5 * 8 * 3, 40),
    "attention scores": ("y = MatMul(x, z)", "float[1,4,6,8] x, float[1,4,8,6] z", {}, 4 * 36 * 8, 0),
    "broadcast": ("y = MatMul(x, z)", "float[2,1,6,8] x, float[3,8,5] z", {}, 6 * 240, 0),
    "integers": ("y = MatMulInteger(x, w)", "uint8[6,8] x", {"w": integers(8, 5)}, 240, 40),
    "quantized": (
        "y = QLinearMatMul(x, s, z, w, s, i, s, z)",
        "uint8[6,8] x",
        {
            "w": integers(8, 5),
            "s": np.array(0.5, np.float32),
            "z": np.array(0, np.uint8),
            "i": np.array(0, np.int8),
        },
        240,
        40,
    ),
    "4 bits": (
        "y = com.microsoft.MatMulNBits<K=64, N=10, bits=4, block_size=32>(x, w, s)",
        "float[2,64] x",
        {"w": integers(10, 2, 16, dtype=np.uint8), "s": (20,)},
        2 * 64 * 10,
        640,
    ),
    "fused": ("y = com.microsoft.FusedMatMul(x, w)", "float[2,6,8] x", {"w": (8, 5)}, 480, 40),
    "fused, transA": (
        "y = com.microsoft.FusedMatMul<transA=1>(x, w)",
        "float[2,8,6] x",
        {"w": (8, 5)},
        480,
        40,
    ),
    "fused, transB": (
        "y = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(x, w)",
        "float[2,6,8] x",
        {"w": (5, 8)},
        480,
        40,
    ),
    "QGemm": (
        "y = com.microsoft.QGemm<transB=1>(x, s, z, w, s, z, b)",
        "uint8[6,8] x",
        {
            "w": integers(5, 8, dtype=np.uint8),
            "s": np.array(0.5, np.float32),
            "z": np.array(0, np.uint8),
            "b": integers(5, dtype=np.int32),
        },
        240,
        45,
    ),
    "dynamic": (
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, s)",
        A,
        {"w": integers(8, 5), "s": np.array(0.5, np.float32)},
        240,
        40,
    ),
}
QKV = "float[2,3,10,16] q, float[2,3,12,16] k, float[2,3,12,20] v"
FLAT = "float[2,10,64] q, float[2,12,32] k, float[2,12,32] v"
ATTENTION = {
    "4-D": ("y = Attention(q, k, v)", QKV, {}, 2 * 3 * 10 * 12 * 36, 0),
    "3-D": (
        "y = Attention<q_num_heads=4, kv_num_heads=2>(q, k, v)",
        FLAT,
        {},
        2 * 4 * 10 * 12 * 32,
        0,
    ),
    "grouped queries": (
        "y = Attention(q, k, v)",
        "float[1,8,10,16] q, float[1,2,12,16] k, float[1,2,12,16] v",
        {},
        8 * 10 * 12 * 32,
        0,
    ),
    "past": (
        "y, pk, pv = Attention(q, k, v, , a, b)",
        f"{QKV}, float[2,3,5,16] a, float[2,3,5,20] b",
        {},
        2 * 3 * 10 * 17 * 36,
        0,
    ),
}
CONTRIB = {
    "attention": (
        "y = com.microsoft.Attention<num_heads=4>(x, w, b)",
        "float[2,10,32] x",
        {"w": (32, 96), "b": (96,)},
        2 * 10 * 32 * 96 + 2 * 100 * 64,
        32 * 96 + 96,
    ),
    "sizes of heads": (
        "y = com.microsoft.Attention<num_heads=4, qkv_hidden_sizes=[16,16,24]>(x, w, b)",
        "float[2,10,32] x",
        {"w": (32, 56), "b": (56,)},
        2 * 10 * 32 * 56 + 2 * 100 * 40,
        33 * 56,
    ),
    "quantized": (
        "y = com.microsoft.QAttention<num_heads=4>(x, w, b, s, s)",
        "uint8[2,10,32] x",
        {"w": integers(32, 96), "b": (96,), "s": np.array(0.5, np.float32)},
        2 * 10 * 32 * 96 + 2 * 100 * 64,
        33 * 96,
    ),
    "multi-head": (
        "y = com.microsoft.MultiHeadAttention<num_heads=4>(q, k, v)",
        "float[2,10,32] q, float[2,12,32] k, float[2,12,48] v",
        {},
        2 * 4 * 10 * 12 * (8 + 12),
        0,
    ),
    "packed keys and values": (
        "y = com.microsoft.MultiHeadAttention<num_heads=4>(q, k)",
        "float[2,10,32] q, float[2,12,4,2,8] k",
        {},
        2 * 4 * 10 * 12 * 16,
        0,
    ),
    "packed": (
        "y = com.microsoft.MultiHeadAttention<num_heads=4>(q)",
        "float[2,10,4,3,8] q",
        {},
        2 * 4 * 10 * 10 * 16,
        0,
    ),
    "grouped queries": (
        "y = com.microsoft.GroupQueryAttention<num_heads=8, kv_num_heads=2>(q, k, v, , , n, t)",
        "float[1,10,64] q, float[1,10,16] k, float[1,10,16] v, int32[1] n, int32 t",
        {},
        8 * 10 * 10 * 16,
        0,
    ),
    "grouped queries, past": (
        "y, pk, pv = com.microsoft.GroupQueryAttention<num_heads=8, kv_num_heads=2>(q, k, v, a, b, n, t)",
        "float[1,1,64] q, float[1,1,16] k, float[1,1,16] v, float[1,2,9,8] a, float[1,2,9,8] b,"
        " int32[1] n, int32 t",
        {},
        8 * 10 * 16,
        0,
    ),
}
EINSUM = {
    "matrices": ('y = Einsum<equation="ij,jk->ik">(x, z)', "float[6,8] x, float[8,5] z", {}, 240, 0),
    "weight": ('y = Einsum<equation="bij,jk->bik">(x, w)', "float[2,6,8] x", {"w": (8, 5)}, 480, 40),
    "scores": (
        'y = Einsum<equation="bihd,bjhd->bhij">(x, z)',
        "float[1,6,4,8] x, float[1,7,4,8] z",
        {},
        4 * 6 * 7 * 8,
        0,
    ),
    "ellipsis": (
        'y = Einsum<equation="...ij,...jk->...ik">(x, z)',
        "float[3,2,6,8] x, float[1,2,8,5] z",
        {},
        6 * 240,
        0,
    ),
    "no output": ('y = Einsum<equation="ij,jk">(x, z)', "float[6,8] x, float[8,5] z", {}, 240, 0),
    "outer": ('y = Einsum<equation="i,j->ij">(x, z)', "float[6] x, float[5] z", {}, 30, 0),
    "three": (
        'y = Einsum<equation="ab,bc,cd->ad">(x, z, u)',
        "float[2,3] x, float[3,4] z, float[4,5] u",
        {},
        2 * 3 * 4 + 2 * 4 * 5,
        0,
    ),
    "trace": ('y = Einsum<equation="ii->i">(x)', "float[4,4] x", {}, 0, 0),
}
RECURRENT = {
    "LSTM": (
        "y, h, c = LSTM<hidden_size=16>(x, w, r, b)",
        "float[7,2,5] x",
        {"w": (1, 64, 5), "r": (1, 64, 16), "b": (1, 128)},
        7 * 2 * 64 * 21,
        64 * 21 + 128,
    ),
    "bidirectional LSTM": (
        'y = LSTM<hidden_size=16, direction="bidirectional">(x, w, r)',
        "float[7,2,5] x",
        {"w": (2, 64, 5), "r": (2, 64, 16)},
        2 * 7 * 2 * 64 * 21,
        2 * 64 * 21,
    ),
    "LSTM, layout 1": (
        "y = LSTM<hidden_size=16, layout=1>(x, w, r)",
        "float[2,7,5] x",
        {"w": (1, 64, 5), "r": (1, 64, 16)},
        7 * 2 * 64 * 21,
        64 * 21,
    ),
    "state only": (
        ", y = LSTM<hidden_size=16>(x, w, r)",
        "float[7,2,5] x",
        {"w": (1, 64, 5), "r": (1, 64, 16)},
        7 * 2 * 64 * 21,
        64 * 21,
    ),
    "GRU": (
        "y = GRU<hidden_size=16, linear_before_reset=1>(x, w, r)",
        "float[7,2,5] x",
        {"w": (1, 48, 5), "r": (1, 48, 16)},
        7 * 2 * 48 * 21,
        48 * 21,
    ),
    "RNN": (
        'y = RNN<hidden_size=16, direction="bidirectional", layout=1>(x, w, r)',
        "float[2,7,5] x",
        {"w": (2, 16, 5), "r": (2, 16, 16)},
        2 * 7 * 2 * 16 * 21,
        2 * 16 * 21,
    ),
}
CLASSICAL = {
    "linear": (
        "y = ai.onnx.ml.LinearRegressor<coefficients=[1.0, 2.0, 3.0], intercepts=[0.5]>(x)",
        "float[4,3] x",
        {},
        12,
        4,
    ),
    "linear, more than the text holds": (
        f"y = ai.onnx.ml.LinearRegressor<coefficients=[{','.join(['1.0'] * 200)}], intercepts=[0.5, 0.5]>(x)",
        "float[4,100] x",
        {},
        800,
        202,
    ),
    "support vectors": (
        f"y = ai.onnx.ml.SVMRegressor<coefficients=[{','.join(['1.0'] * 5)}], n_supports=5, rho=[0.0],"
        f" support_vectors=[{','.join(['0.0'] * 150)}]>(x)",
        "float[4,30] x",
        {},
        4 * (150 + 5),
        156,
    ),
}
NONE = {
    "pool": ("y = MaxPool<kernel_shape=[3,3]>(x)", X, {}, 0, 0),
    "normalization": (
        "y = BatchNormalization(x, a, b, m, v)",
        X,
        {"a": (8,), "b": (8,), "m": (8,), "v": (8,)},
        0,
        16,
    ),
    "layer normalization": ("y = LayerNormalization(x, a, b)", A, {"a": (8,), "b": (8,)}, 0, 16),
    "product": ("y = Mul(x, a)", A, {"a": (6, 8)}, 0, 48),
    "embedding": ("y = Gather(a, i)", "int64[1,7] i", {"a": (100, 16)}, 0, 1600),
}
CASES = {
    f"{group}: {name}": case
    for group, cases in (
        ("convolution", CONVOLUTIONS),
        ("product", PRODUCTS),
        ("onnxruntime's attention", CONTRIB),
        ("einsum", EINSUM),
        ("recurrent", RECURRENT),
        ("classical", CLASSICAL),
        ("none", NONE),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_operators_cost_what_is_counted_by_hand(name):
    body, inputs, weights, macs, params = CASES[name]
    assert costs(small_model(body, inputs, weights)) == (macs, params)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_operator_set_23(name):
    body, inputs, weights, macs, params = ATTENTION[name]
    assert costs(small_model(body, inputs, weights, opset=23)) == (macs, params)


LINEAR = "float[2,7,24] q, float[2,7,12] k, float[2,7,20] v, float[2,7,2] d, float[2,7,2] b"
STATE = {  # statements, inputs, weights, multiply-accumulates and parameters, and shapes of the outputs
    "linear": (
        'y, s = {domain}LinearAttention<q_num_heads=4, kv_num_heads=2, update_rule="linear">(q, k, v)',
        LINEAR,
        {},
        (2 * 7 * 6 * 10 * (4 + 2), 0),
        ("[2,7,40]", "[2,2,6,10]"),
    ),
    "gated": (
        'y, s = {domain}LinearAttention<q_num_heads=4, kv_num_heads=2, update_rule="gated">(q, k, v, , d)',
        LINEAR,
        {},
        (2 * 7 * 6 * 10 * (4 + 2), 0),
        ("[2,7,40]", "[2,2,6,10]"),
    ),
    "delta": (
        'y, s = {domain}LinearAttention<q_num_heads=4, kv_num_heads=2, update_rule="delta">(q, k, v, , , b)',
        LINEAR,
        {},
        (2 * 7 * 6 * 10 * (4 + 2 * 2), 0),
        ("[2,7,40]", "[2,2,6,10]"),
    ),
    "default": (
        "y, s = {domain}LinearAttention<q_num_heads=4, kv_num_heads=2>(q, k, v, , d, b)",
        LINEAR,
        {},
        (2 * 7 * 6 * 10 * (4 + 2 * 2), 0),
        ("[2,7,40]", "[2,2,6,10]"),
    ),
    "causal convolution": (
        "y, s = {domain}CausalConvWithState(x, w, b)",
        "float[2,8,24] x",
        {"w": (8, 1, 4), "b": (8,)},
        (2 * 8 * 24 * 4, 40),
        ("[2,8,24]", "[2,8,3]"),
    ),
    "causal convolution, past": (
        'y, s = {domain}CausalConvWithState<activation="silu">(x, w, , p)',
        "float[2,8,1] x, float[2,8,3] p",
        {"w": (8, 1, 4)},
        (2 * 8 * 4, 32),
        ("[2,8,1]", "[2,8,3]"),
    ),
}


@pytest.mark.parametrize("domain", ["", "com.microsoft."])
@pytest.mark.parametrize("name", STATE)
def test_operators_with_a_state(name, domain):
    body, inputs, weights, expected, shapes = STATE[name]
    model = small_model(body.format(domain=domain), inputs, weights, "float y, float s", opset=27)
    assert costs(model) == expected
    header = from_onnx(model).splitlines()[1].partition("=>")[2]
    assert all(shape in header for shape in shapes)


@pytest.mark.parametrize("domain", ["", "com.microsoft."])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y, s = {domain}LinearAttention<q_num_heads=3, kv_num_heads=2>(q, k, v)", "expected a multiple of"),
        ("y, s = {domain}LinearAttention<q_num_heads=0, kv_num_heads=0>(q, k, v)", "expected a multiple of"),
        ("y, s = {domain}LinearAttention<q_num_heads=10, kv_num_heads=10>(q, k, v)", "expected 10 heads"),
        ("y, s = {domain}LinearAttention<q_num_heads=2, kv_num_heads=2>(q, k, v)", "of size 12 and of keys"),
        ("y, s = {domain}CausalConvWithState(q, w)", r"an input of shape \[.*7.*\] with a weight of shape"),
        ("y, s = {domain}CausalConvWithState(q, v2)", "3 dimensions with a weight of shape"),
    ],
)
def test_operators_with_a_state_that_do_not_fit_their_inputs(body, message, domain):
    model = small_model(body.format(domain=domain), LINEAR, {"w": (8, 1, 4), "v2": (7, 4)}, opset=27)
    with pytest.raises(ValueError, match=message):
        from_onnx(model)


@pytest.mark.parametrize(("channels", "padded"), [(16, 16), (32, 32), (8, 8), (8, 16), (20, 32), (20, 24)])
@pytest.mark.parametrize("is_last", [0, 1])
def test_networks_with_blocks_of_channels(channels, padded, is_last):
    image = f"1,10,10,{channels}" if is_last else f"1,{channels},10,10"
    body = (
        f"i = com.microsoft.nchwc.ReorderInput<channels_last={is_last}>(x)"
        " c = com.microsoft.nchwc.Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(i, w)"
        " m = com.microsoft.nchwc.MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)"
        ' u = com.microsoft.nchwc.Upsample<scales=[1,1,2,3], mode="nearest">(m)'
        f" o = com.microsoft.nchwc.ReorderOutput<channels=24, channels_last={is_last}>(u) y = Relu(o)"
    )
    model = small_model(body, f"float[{image}] x", {"w": (32, padded, 3, 3)})
    assert costs(model) == (32 * 100 * padded * 9, 32 * padded * 9)
    output = "1,10,15,24" if is_last else "1,24,10,15"
    assert f"=>(float[{output}] x" in from_onnx(model)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = com.microsoft.nchwc.ReorderOutput(x)", "channels is 0"),
        ("y = com.microsoft.nchwc.ReorderOutput<channels=9>(x)", "channels is 9 .* expected 1 to 8"),
        ("y = com.microsoft.nchwc.ReorderOutput<channels=2>(z)", "2 dimensions: expected an image"),
        ("y = com.microsoft.nchwc.ReorderInput(z)", "2 dimensions: expected an image"),
        ("y = com.microsoft.nchwc.Upsample<scales=[2,2]>(x)", "for an input of 4 dimensions"),
    ],
)
def test_blocks_of_channels_that_do_not_fit_their_inputs(body, message):
    with pytest.raises(ValueError, match=message):
        from_onnx(small_model(body, f"{X}, float[2,8] z"))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int4"])
def test_dequantized_weights_count_once(kind):
    """As the float weight; scales and zero points are no parameters."""
    weight = int4("w", 5, 8) if kind == "int4" else integers(5, 8, dtype=np.dtype(kind).type)
    scale = np.linspace(0.1, 0.5, 5, dtype=np.float32)
    body = "d = DequantizeLinear<axis=0>(w, s) y = Gemm<transB=1>(x, d)"
    assert costs(small_model(body, A, {"w": weight, "s": scale})) == (240, 40)


def test_both_branches_and_all_steps_of_a_composed_network():
    body = (
        "a = Conv(x, w) b = Conv(a, u) c = Add(a, b) d = GlobalAveragePool(c) e = Flatten(d) y = Gemm(e, g)"
    )
    weights = {"w": (8, 8, 1, 1), "u": (8, 8, 1, 1), "g": (8, 10)}
    assert costs(small_model(body, X, weights)) == (2 * 64 * 100 + 80, 128 + 80)
