import math

import numpy as np
import pytest
from onnx.numpy_helper import from_array
from onnx.parser import parse_model

import search_spaces
from nas_rlm.data.synthetic import COSTS, KINDS, LAYERS, metrics, table
from nas_rlm.text import from_architecture, from_onnx

CELLS101, CELLS201 = search_spaces.get("nasbench101"), search_spaces.get("nasbench201")
SIZES = search_spaces.get("nats_size")


def counted(space, architecture, chains=0):
    return metrics(from_architecture(space, architecture), chains)


def of_201(text):
    return counted(CELLS201, CELLS201.parse(text))


def test_a_chain_has_one_path():
    """Stem, then in each of nine cells a projection and two convolutions: counted by hand."""
    cell = CELLS101.parse(
        '{"adjacency": "0100001000010000", "ops": ["input", "conv3x3-bn-relu", "conv1x1-bn-relu", "output"]}'
    )
    found = counted(CELLS101, cell)
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


def test_costs_of_each_kind():
    """Stem, fifteen 1x1 convolutions, and two reductions of two 3x3 and a 1x1 convolution: by hand."""
    found = of_201("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    places = (32 * 32, 16 * 16, 8 * 8)
    cells = [5 * c * c for c in (16, 32, 64)]
    shortcuts = [16 * 32, 32 * 64]
    assert found["pointwise/params"] == sum(cells) + sum(shortcuts)
    macs = [*(n * p for n, p in zip(cells, places, strict=True)), 16 * 32 * places[1], 32 * 64 * places[2]]
    assert found["pointwise/macs"] == sum(macs)
    assert found["pointwise/sides"] == 5 * (32 + 16 + 8) + 16 + 8
    assert found["convs/params"] == 9 * (3 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64)
    each = [16 * 16 * places[0]] * 5 + [32 * 32 * places[1]] * 5 + [64 * 64 * places[2]] * 5 + macs[3:]
    assert found["pointwise/roots"] == pytest.approx(sum(map(math.sqrt, each)))
    assert found["pointwise/logs"] == pytest.approx(sum(map(math.log2, each)))
    assert found["convs/macs"] + found["pointwise/macs"] + 64 * 10 == found["flops"]
    assert found["pools/activations"] == 16 * places[1] + 32 * places[2]
    assert (found["depthwise/macs"], found["pools/macs"], found["pools/logs"]) == (0, 0, 0)


def test_what_is_cut_off_counts_for_costs_alone():
    live = of_201("|nor_conv_3x3~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    bare = of_201("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    costs = {"flops", "params", "activations", *(f"{k}/{c}" for k in KINDS for c in COSTS)}
    assert live["flops"] > bare["flops"]
    assert live["convs/macs"] > bare["convs/macs"]
    assert {k: v for k, v in live.items() if k not in costs} == {
        k: v for k, v in bare.items() if k not in costs
    }
    assert set(of_201("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")) == costs


def test_a_table_leaves_out_what_never_varies():
    found = table("nats_size", 50)
    assert len(found) == len({row.arch_str for row in found.rows}) == 50
    names = {name for row in found.rows for name in row.targets}
    assert {"flops", "params", "convs/macs", "convs/roots"} <= names
    assert not names & {"depthwise/macs", "paths", "convs", "convs/sides"}
    assert all(row.targets["flops"] == SIZES.flops(SIZES.parse(row.arch_str)) for row in found.rows)
    assert table("nats_size", 50).rows == found.rows
    assert table("nats_size", 50, seed=1).rows != found.rows
    with pytest.raises(ValueError, match="20,000 networks of nats_size: expected at most half of 32,768"):
        table("nats_size", 20000)


@pytest.mark.parametrize("name", search_spaces.names())
def test_every_space_can_be_counted(name):
    space = search_spaces.get(name)
    found = counted(space, space.sample(np.random.default_rng(0)))
    assert all(math.isfinite(v) and v >= 0 for v in found.values())
    assert sum(found[k] for k in KINDS) == found["layers"]
    for k in LAYERS:
        assert found[f"{k}/least"] <= found[f"{k}/mean"] + 1e-9 <= found[f"{k}/most"] + 2e-9


def test_chains_of_operators():
    """By hand: a chain of operators has each chain once; in a sum of two, the chains of both end."""
    cell = CELLS101.parse(
        '{"adjacency": "0100001000010000", "ops": ["input", "conv3x3-bn-relu", "conv1x1-bn-relu", "output"]}'
    )
    found = counted(CELLS101, cell, chains=3)
    assert (found["convs-pointwise"], found["pointwise-convs"], found["pointwise-pools"]) == (10, 9, 2)
    assert found["pointwise-convs-pointwise"] == 9
    assert "joins" not in found and not any(name.count("-") > 2 for name in found)
    assert counted(CELLS101, cell) == {k: v for k, v in found.items() if not {"-", ":"} & set(k)}
    one = CELLS201.parse("|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|")
    found = counted(CELLS201, one, chains=2)
    assert found["sums"] == 2
    assert (found["convs-sums"], found["pointwise-sums"], found["convs-convs"]) == (2, 2, 5 + 2 + 4 + 2 + 4)


def test_layers_by_kernel_and_stage():
    """By hand: at 32 pixels are the stem and a cell of five, at 16 two that reduce and five of the next."""
    space = search_spaces.get("nats_size")
    found = counted(space, space.parse("8:16:24:32:40"), chains=1)
    assert found["Conv3x3@0:number"] == 1 + 5
    assert found["Conv3x3@1:activations"] == (2 * 16 + 5 * 24) * 16 * 16
    assert found["Conv3x3@0:macs"] == 32 * 32 * 9 * (3 * 8 + 5 * 8 * 8)
    assert found["Conv3x3@0:roots"] == pytest.approx(32 * 3 * (24**0.5 + 5 * 8))
    assert not any(":" in name for name in counted(space, space.parse("8:16:24:32:40")))


def test_any_network_can_be_counted():
    """A linear layer, two heads of one input and a sum of both, by hand."""
    model = parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        main (float[1,4,8] x) => (float[1,4,16] y) <float[8,16] w, float[8,16] u>
        {
          a = MatMul(x, w)
          b = MatMul(x, u)
          r = Relu(b)
          y = Add(a, r)
        }"""
    )
    for name in "wu":
        model.graph.initializer.append(from_array(np.ones((8, 16), np.float32), name))
    found = metrics(from_onnx(model), chains=2)
    assert (found["flops"], found["params"], found["activations"]) == (2 * 4 * 8 * 16, 2 * 8 * 16, 4 * 4 * 16)
    assert (found["paths"], found["layers"], found["sums"]) == (1, 0, 1)


def test_other_texts_are_refused():
    with pytest.raises(ValueError, match=r"'def f\(\): pass' is not the text of a network"):
        metrics("def f(): pass")


@pytest.mark.parametrize("name", search_spaces.names())
def test_functions_and_the_operators_in_their_place_count_the_same(name):
    space, rng = search_spaces.get(name), np.random.default_rng(11)
    for _ in range(2):
        model = space.to_onnx(space.sample(rng))
        whole, flat = (metrics(from_onnx(model, outlined=o), chains=4) for o in (True, False))
        assert whole == pytest.approx(flat)
