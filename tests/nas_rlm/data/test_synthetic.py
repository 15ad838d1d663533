import math

import numpy as np
import pytest

import search_spaces
from nas_rlm.data.synthetic import KINDS, LAYERS, metrics

CELLS101, CELLS201 = search_spaces.get("nasbench101"), search_spaces.get("nasbench201")


def of_201(text):
    return metrics(CELLS201, CELLS201.parse(text))


def test_a_chain_has_one_path():
    """Stem, then in each of nine cells a projection and two convolutions: counted by hand."""
    cell = CELLS101.parse(
        '{"adjacency": "0100001000010000", "ops": ["input", "conv3x3-bn-relu", "conv1x1-bn-relu", "output"]}'
    )
    found = metrics(CELLS101, cell)
    assert found["paths"] == 0
    assert (found["convs"], found["pointwise"], found["pools"]) == (10, 18, 2)
    for name in LAYERS:
        assert found[name] == found[f"{name}/mean"] == found[f"{name}/least"] == found[f"{name}/most"]
        assert found[f"{name}/std"] == 0
    assert found["layers"] == 30
    assert (found["convs/pointwise"], found["pointwise/convs"], found["convs/convs"]) == (10, 9, 0)
    assert (found["pointwise/pointwise"], found["pointwise/pools"], found["pools/pointwise"]) == (6, 2, 2)
    assert found["flops"] == CELLS101.flops(cell)
    assert found["params"] == CELLS101.params(cell)


def test_paths_of_parallel_branches():
    """Fifteen cells of a skip beside a 3x3 convolution, and two reductions of a shortcut and two of them."""
    found = of_201("|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|")
    assert found["paths"] == pytest.approx(2)
    found = of_201("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_1x1~2|")
    assert found["paths"] == pytest.approx(17)
    assert found["convs/least"] == 1
    assert found["convs/most"] == 1 + 15 + 4
    assert found["convs/mean"] == pytest.approx(1 + 15 / 2 + 2)
    assert found["convs/std"] == pytest.approx(math.sqrt(15 / 4 + 2))


def test_what_is_cut_off_counts_for_costs_alone():
    live = of_201("|nor_conv_3x3~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    bare = of_201("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    assert live["flops"] > bare["flops"]
    assert {k: v for k, v in live.items() if k not in ("flops", "params", "activations")} == {
        k: v for k, v in bare.items() if k not in ("flops", "params", "activations")
    }
    assert set(of_201("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")) == {
        "flops",
        "params",
        "activations",
    }


@pytest.mark.parametrize("name", search_spaces.names())
def test_every_space_can_be_counted(name):
    space = search_spaces.get(name)
    found = metrics(space, space.sample(np.random.default_rng(0)))
    assert all(math.isfinite(v) and v >= 0 for v in found.values())
    assert sum(found[k] for k in KINDS) == found["layers"]
    for k in LAYERS:
        assert found[f"{k}/least"] <= found[f"{k}/mean"] + 1e-9 <= found[f"{k}/most"] + 2e-9
