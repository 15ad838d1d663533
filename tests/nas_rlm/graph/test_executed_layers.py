import numpy as np
import pytest

import search_spaces
from nas_rlm.graph.costs import compute_costs
from nas_rlm.graph.executed_layers import ANY, MODES, TERMS, executed_layers
from nas_rlm.text import from_architecture, from_onnx
from nas_rlm.text.parser import parse_network
from tests.nas_rlm.graph.small_models import small_model

SPACE = search_spaces.get("nasbench201")
CELLS = 5  # in each of three stages


def sums_of(cell):
    return executed_layers(parse_network(from_architecture(SPACE, SPACE.parse(cell))))


def numbers(sums, layer, stage=0):
    return [sums.get(f"{mode}/{layer}@{stage}:number", 0.0) for mode in MODES]


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
