import math

import pytest

from nas_rlm.graph.costs import COST_NAMES, OPERATOR_KINDS
from nas_rlm.graph.paths import PATH_COUNTS
from tests.nas_rlm.data.graph_features import CELLS101, CELLS201, features_of_architecture, features_of_cell


def test_a_chain_has_one_path():
    """Stem, then in each of nine cells a projection and two convolutions; features computed by hand."""
    cell = CELLS101.parse(
        '{"adjacency": "0100001000010000", "ops": ["input", "conv3x3-bn-relu", "conv1x1-bn-relu", "output"]}'
    )
    found = features_of_architecture(CELLS101, cell)
    assert found["paths"] == 0
    assert (found["convs"], found["pointwise"], found["pools"]) == (10, 18, 2)
    for name in PATH_COUNTS:
        assert found[name] == found[f"{name}/mean"] == found[f"{name}/least"] == found[f"{name}/most"]
        assert found[f"{name}/std"] == 0
    assert found["layers"] == 30
    assert (found["convs/pointwise"], found["pointwise/convs"], found["convs/convs"]) == (10, 9, 0)
    assert (found["pointwise/pointwise"], found["pointwise/pools"], found["pools/pointwise"]) == (6, 2, 2)
    assert found["flops"] == CELLS101.flops(cell)
    assert found["params"] == CELLS101.params(cell)


def test_paths_of_parallel_branches():
    """Fifteen cells of a skip beside a 3x3 convolution, and two reductions of a shortcut and two of them."""
    found = features_of_cell("|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|")
    assert found["paths"] == pytest.approx(2)
    found = features_of_cell(
        "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_1x1~2|"
    )
    assert found["paths"] == pytest.approx(17)
    assert found["convs/least"] == 1
    assert found["convs/most"] == 1 + 15 + 4
    assert found["convs/mean"] == pytest.approx(1 + 15 / 2 + 2)
    assert found["convs/std"] == pytest.approx(math.sqrt(15 / 4 + 2))


def test_operators_cut_off_from_the_output_count_only_in_costs():
    live = features_of_cell("|nor_conv_3x3~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    bare = features_of_cell("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    costs = {"flops", "params", "activations", *(f"{k}/{c}" for k in OPERATOR_KINDS for c in COST_NAMES)}
    assert live["flops"] > bare["flops"]
    assert live["convs/macs"] > bare["convs/macs"]
    assert {k: v for k, v in live.items() if k not in costs} == {
        k: v for k, v in bare.items() if k not in costs
    }
    assert set(features_of_cell("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")) == costs


def test_chains_of_operators():
    """By hand: a chain of operators has each chain once; in a sum of two, the chains of both end."""
    cell = CELLS101.parse(
        '{"adjacency": "0100001000010000", "ops": ["input", "conv3x3-bn-relu", "conv1x1-bn-relu", "output"]}'
    )
    found = features_of_architecture(CELLS101, cell, max_chain_length=3)
    assert (found["convs-pointwise"], found["pointwise-convs"], found["pointwise-pools"]) == (10, 9, 2)
    assert found["pointwise-convs-pointwise"] == 9
    assert "joins" not in found and not any(name.count("-") > 2 for name in found)
    assert features_of_architecture(CELLS101, cell) == {
        k: v for k, v in found.items() if not {"-", ":"} & set(k)
    }
    one = CELLS201.parse("|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|")
    found = features_of_architecture(CELLS201, one, max_chain_length=2)
    assert found["sums"] == 2
    assert (found["convs-sums"], found["pointwise-sums"], found["convs-convs"]) == (2, 2, 5 + 2 + 4 + 2 + 4)
