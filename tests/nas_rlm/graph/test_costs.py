import math

import pytest

import search_spaces
from tests.nas_rlm.data.graph_features import features_of_architecture, features_of_cell


def test_costs_of_each_kind():
    """Stem, fifteen 1x1 convolutions, and two reductions of two 3x3 and a 1x1 convolution: by hand."""
    found = features_of_cell("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
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


def test_layers_by_kernel_and_stage():
    """By hand: at 32 pixels are the stem and a cell of five, at 16 two that reduce and five of the next."""
    space = search_spaces.get("nats_size")
    found = features_of_architecture(space, space.parse("8:16:24:32:40"), max_chain_length=1)
    assert found["Conv3x3@0:number"] == 1 + 5
    assert found["Conv3x3@1:activations"] == (2 * 16 + 5 * 24) * 16 * 16
    assert found["Conv3x3@0:macs"] == 32 * 32 * 9 * (3 * 8 + 5 * 8 * 8)
    assert found["Conv3x3@0:roots"] == pytest.approx(32 * 3 * (24**0.5 + 5 * 8))
    assert not any(":" in name for name in features_of_architecture(space, space.parse("8:16:24:32:40")))
