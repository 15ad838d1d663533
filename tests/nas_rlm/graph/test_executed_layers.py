import numpy as np
import pytest

import search_spaces
from nas_rlm.graph.costs import compute_costs
from nas_rlm.graph.executed_layers import (
    ANY,
    FUSED,
    FUSED_FUNCTION,
    FUSED_SUM,
    MODES,
    TERMS,
    Layer,
    executed_layers,
    layers_of,
)
from nas_rlm.text import from_architecture, from_onnx
from nas_rlm.text.parser import parse_network
from tests.nas_rlm.graph.small_models import small_model

SPACE = search_spaces.get("nasbench201")
CELLS = 5  # in each of three stages


def sums_of(cell):
    return executed_layers(parse_network(from_architecture(SPACE, SPACE.parse(cell))))


def numbers(sums, layer, stage=0):
    return [sums.get(f"{mode}/{layer}@{stage}:number", 0.0) for mode in MODES]


def test_signals_have_the_layers_of_images_of_height_1():
    body = "a = Conv<{pads}, group=2>(x, w) b = Relu(a) c = MaxPool<{kernel}>(b) y = Conv(c, v)"
    of_signals = small_model(
        body.format(pads="pads=[2,2]", kernel="kernel_shape=[2]"),
        "float[1,6,64] x",
        {"w": (8, 3, 5), "v": (4, 8, 1)},
    )
    of_images = small_model(
        body.format(pads="pads=[0,2,0,2]", kernel="kernel_shape=[1,2]"),
        "float[1,6,1,64] x",
        {"w": (8, 3, 1, 5), "v": (4, 8, 1, 1)},
    )
    found, expected = (executed_layers(parse_network(from_onnx(model))) for model in (of_signals, of_images))
    assert found == expected


@pytest.mark.parametrize("name", ["nasbench101", "nasbench201", "fbnet", "ofa_mbv3", "nds_darts", "gpt_s"])
def test_all_layers_add_up_to_the_costs_of_the_network(name):
    space, rng = search_spaces.get(name), np.random.default_rng(0)
    for _ in range(3):
        network = parse_network(from_architecture(space, space.sample(rng)))
        sums, (macs, _, activations) = executed_layers(network), compute_costs(network).sums()
        assert sums[f"all/{ANY}:macs"] == pytest.approx(macs)
        assert sums[f"all/{ANY}:outputs"] == pytest.approx(activations)
        for term in TERMS:
            layers = [v for k, v in sums.items() if k.startswith("all/") and k.endswith(f":{term}")]
            assert sum(layers) == pytest.approx(2 * sums[f"all/{ANY}:{term}"])
        for mode in ("needed", "live"):
            assert sums[f"{mode}/{ANY}:macs"] <= sums[f"all/{ANY}:macs"]


def test_layers_that_no_output_needs_are_executed_in_one_mode_only():
    sums = sums_of("|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|+|skip_connect~0|none~1|none~2|")
    stem = 1
    assert numbers(sums, "Conv3x3") == [stem + CELLS, stem, stem, stem]
    assert numbers(sums, "Conv1x1") == [CELLS, 0, 0, 0]


def test_layers_that_read_zeros_alone_are_executed_unless_they_are_computed_in_advance():
    sums = sums_of("|none~0|+|none~0|none~1|+|skip_connect~0|nor_conv_1x1~1|none~2|")
    assert numbers(sums, "Conv1x1") == [CELLS, CELLS, 0, CELLS]


def test_sums_with_one_operand_are_not_executed():
    sums = sums_of("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    whole = numbers(sums, "Add")
    assert whole[0] > 0 and whole[1:] == [0, 0, 0]
    assert numbers(sums, "Mul")[1:] == [0, 0, 0]


X, WEIGHT = "float[1,8,4,4] x", {"w": np.ones((8, 8, 1, 1), np.float32)}


@pytest.mark.parametrize(
    ("body", "fused"),
    [
        ("y = Relu(c)", {"Conv1x1": 1, "FusedFunction": 1}),
        ("y = Add(c, x)", {"Conv1x1": 1, "FusedSum": 1}),
        ("s = Add(c, x) y = Relu(s)", {"Conv1x1": 1, "FusedSum": 1, "FusedFunction": 1}),
        (
            "s = Add(c, x) t = Add(s, x) y = Relu(t)",
            {"Conv1x1": 1, "FusedSum": 1, "Add": 1, "FusedFunction": 1},
        ),
        ("r = Relu(c) y = Add(r, c)", {"Conv1x1": 1, "Relu": 1, "Add": 1}),
        ("p = MaxPool<kernel_shape=[1,1]>(c) y = Relu(p)", {"Conv1x1": 1, "MaxPool": 1, "Relu": 1}),
        ("y = Sigmoid(c) z = Conv(x, w)", {"Conv1x1": 2, "FusedFunction": 1}),
    ],
)
def test_a_convolution_takes_in_the_sum_and_the_functions_that_alone_read_it(body, fused):
    model = small_model(
        f"c = Conv(x, w) {body}", X, WEIGHT, "float y, float z" if " z = " in body else "float y"
    )
    sums = executed_layers(parse_network(from_onnx(model)))
    found = {
        k.split("/")[1].split("@")[0]: v
        for k, v in sums.items()
        if k.startswith("fused/") and k.endswith(":number") and ANY not in k
    }
    assert found == fused


def test_layers_are_told_apart_by_kernel_groups_and_stage():
    weights = {
        "a": np.ones((8, 8, 3, 3), np.float32),
        "b": np.ones((8, 1, 3, 3), np.float32),
        "d": np.ones((8, 4, 3, 3), np.float32),
    }
    body = (
        "p = Conv<pads=[1,1,1,1],strides=[1,1]>(x, a) q = Conv<group=8,pads=[1,1,1,1],strides=[2,2]>(p, b)"
        " y = Conv<group=2,pads=[1,1,1,1]>(q, d)"
    )
    sums = executed_layers(parse_network(from_onnx(small_model(body, X, weights))))
    for name in ("Conv3x3@0", "Conv3x3d@1", "Conv3x3g@1"):
        assert sums[f"all/{name}:number"] == 1
    assert sums["all/Conv3x3d@1:inputs"] == 8 * 16 and sums["all/Conv3x3d@1:outputs"] == 8 * 4
    assert sums["all/Conv3x3d@1:macs"] == 8 * 4 * 9
    assert sums["all/Conv3x3d@1:roots"] == pytest.approx((8 * 4 * 9) ** 0.5)
    assert sums["all/Conv3x3d@1:params"] == 8 * 9


IMAGE = {"a": (8, 3, 3, 3), "b": (8, 1, 3, 3), "w": (8, 5)}
SEVEN_LAYERS = (
    "c = Conv<pads=[1,1,1,1],strides=[2,2]>(x, a) r = Relu(c) d = Conv<group=8,pads=[1,1,1,1]>(r, b)"
    " s = Add(d, r) g = GlobalAveragePool(s) f = Flatten(g) y = Gemm(f, w)"
)


def layers_of_model(mode, body, inputs, weights=None, output="float y", outlined=True):
    text = from_onnx(small_model(body, inputs, weights, output), outlined=outlined)
    return dict(layers_of(parse_network(text), mode))


@pytest.mark.parametrize("mode", MODES)
def test_the_fields_of_each_layer(mode):
    image = {"side": 4, "out_channels": 8, "outputs": 128}
    expected = {
        Layer("Conv3x3", **image, kernel=3, in_channels=3, inputs=3 * 64, macs=128 * 27, params=216): 1,
        Layer("Relu", **image, inputs=128): 1,
        Layer("Conv3x3d", **image, kernel=3, groups=8, in_channels=8, inputs=128, macs=128 * 9, params=72): 1,
        Layer("Add", **image, inputs=256): 1,
        Layer("GlobalAveragePool", 1, out_channels=8, inputs=128, outputs=8): 1,
        Layer("Flatten", 0, out_channels=8, inputs=8, outputs=8): 1,
        Layer("Gemm", 0, in_channels=8, out_channels=5, inputs=8, outputs=5, macs=40, params=40): 1,
    }
    if mode == FUSED:
        fused = {"Relu": Layer(FUSED_FUNCTION, 4), "Add": Layer(FUSED_SUM, 4, inputs=128)}
        expected = {fused.get(layer.type, layer): count for layer, count in expected.items()}
    found = layers_of_model(mode, SEVEN_LAYERS, "float[1,3,8,8] x", IMAGE)
    assert found == expected
    assert list(found) == list(expected)


@pytest.mark.parametrize("mode", MODES)
def test_the_first_layer_reads_the_input_of_the_network(mode):
    found = layers_of_model(mode, "y = Relu(x)", "float[2,8,4,6] x")
    assert found == {Layer("Relu", 6, out_channels=8, inputs=384, outputs=384): 1}
    found = layers_of_model(mode, "r = Relu(x) y = Add(r, x)", "float[1,8] x")
    assert [layer.inputs for layer in found] == [8, 16]


QUANTIZED = {
    "w": np.ones((4, 5), np.int8),
    "s": np.array(0.1, np.float32),
    "z": np.array(3, np.uint8),
    "zi": np.array(1, np.int8),
}


@pytest.mark.parametrize(
    ("body", "inputs", "weights", "inner"),
    [
        ("y = MatMul(x, w)", "float[2,3,4] x", {"w": (4, 5)}, 4),
        ("y = MatMul(w, x)", "float[2,4,3] x", {"w": (5, 4)}, 4),
        ("y = MatMul(x, z)", "float[2,3,4] x, float[2,4,6] z", {}, 4),
        ("y = Gemm(x, w)", "float[2,4] x", {"w": (4, 5)}, 4),
        ("y = Gemm<transB=1>(x, w)", "float[2,4] x", {"w": (5, 4)}, 4),
        ('y = Einsum<equation="bij,jk->bik">(x, w)', "float[2,3,4] x", {"w": (4, 5)}, 4),
        ("y = QLinearMatMul(x, s, z, w, s, zi, s, z)", "uint8[2,4] x", QUANTIZED, 4),
        ("y = com.microsoft.QGemm(x, s, z, w, s, zi)", "uint8[2,4] x", QUANTIZED, 4),
        ("y = MatMulInteger(x, w, z)", "uint8[2,4] x", QUANTIZED, 4),
        ("y = Mul(x, w)", "float[2,4] x", {"w": (4,)}, 0),
        ("y = Reshape(x, w)", "float[2,4] x", {"w": np.array([8])}, 0),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_the_inner_dimension_of_products(body, inputs, weights, inner, mode):
    used = {name: value for name, value in weights.items() if f" {name}" in body or f"({name}" in body}
    (layer,) = layers_of_model(mode, body, inputs, used)
    assert (layer.in_channels, layer.kernel, layer.groups) == (inner, 0, 1)
    assert layer.macs == inner * layer.outputs


@pytest.mark.parametrize("mode", MODES)
def test_repeated_blocks_are_counted_as_often_as_in_the_unrolled_network(mode):
    blocks = [
        f"c{i} = Conv<pads=[1,1,1,1]>(p{i}, w{i}) s{i} = Add(c{i}, p{i}) p{i + 1} = Relu(s{i})"
        for i in range(6)
    ]
    weights = {f"w{i}": (8, 8, 3, 3) for i in range(6)}
    body = f"p0 = Sigmoid(x) {' '.join(blocks)} y = Sigmoid(p6)"
    assert from_onnx(small_model(body, X, weights)) != from_onnx(
        small_model(body, X, weights), outlined=False
    )
    rolled, unrolled = (layers_of_model(mode, body, X, weights, outlined=o) for o in (True, False))
    assert rolled == unrolled
    (convolutions,) = [count for layer, count in rolled.items() if layer.type == "Conv3x3"]
    assert convolutions == 6


@pytest.mark.parametrize("name", ["nasbench201", "nds_darts", "ofa_mbv3", "gpt_s"])
@pytest.mark.parametrize("mode", MODES)
def test_executed_layers_are_sums_over_the_layers(name, mode):
    space, rng = search_spaces.get(name), np.random.default_rng(1)
    network = parse_network(from_architecture(space, space.sample(rng)))
    layers, sums = layers_of(network, mode), executed_layers(network)
    for k, term in enumerate(TERMS):
        total = sum(count * layer.terms[k] for layer, count in layers.items())
        assert total > 0
        assert sums[f"{mode}/{ANY}:{term}"] == pytest.approx(total)
    for layer_type in {layer.type for layer in layers}:
        macs = sum(count * layer.macs for layer, count in layers.items() if layer.type == layer_type)
        own = [
            value
            for key, value in sums.items()
            if key.split(":")[0].split("@")[0] == f"{mode}/{layer_type}"
            if key.endswith(":macs")
        ]
        assert sum(own) == pytest.approx(macs)
