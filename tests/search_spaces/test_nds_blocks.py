import json

import numpy as np
import pytest

import search_spaces

SIZES = {
    "nds_vanilla": 1_259_712,
    "nds_resnet": 1_259_712,
    "nds_resnext_a": 11_390_625,
    "nds_resnext_b": 52_734_375,
}


@pytest.mark.parametrize("name", SIZES)
def test_as_many_networks_as_the_paper_counts(name):
    assert search_spaces.get(name).size == SIZES[name]


def network(block, ds, ws, ratios=(0.0,) * 3, groups=(0,) * 3):
    known = {"block_type": block, "ds": ds, "ws": ws, "ss": [1, 2, 2]}
    return json.dumps({**known, "bot_muls": ratios, "num_gs": groups})


def test_resnet_56_has_its_published_size():
    space = search_spaces.get("nds_resnet")
    a = space.parse(network("res_basic_block", [9, 9, 9], [16, 32, 64]))
    # He et al. count 0.85 M; here the shortcuts of both reductions are projected
    projections = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    assert space.params(a) - projections == 853_018


@pytest.mark.parametrize(
    ("name", "text", "params"),
    [
        # stem 432 + 32; each stage 9ab + 2b + 9bb + 2b; linear 650
        (
            "nds_vanilla",
            network("vanilla_block", [1, 1, 1], [16, 32, 64]),
            464 + 2 * (2304 + 32) + (4608 + 64) + (9216 + 64) + (18432 + 128) + (36864 + 128) + 650,
        ),
        # as above, and projections 512 + 64 and 2048 + 128 in the second and third stage
        (
            "nds_resnet",
            network("res_basic_block", [1, 1, 1], [16, 32, 64]),
            464 + 2 * 2336 + 4672 + 9280 + 576 + 18560 + 36992 + 2176 + 650,
        ),
        # widths 16, inner 8, two groups: 128 + 16, 9 * 8 * 4 + 16, 128 + 32; projections 256 + 32 for strides
        (
            "nds_resnext_a",
            network("res_bottleneck_block", [1, 1, 1], [16, 16, 16], [0.5] * 3, [2] * 3),
            464 + 3 * (144 + 304 + 160) + 2 * 288 + 170,
        ),
        # width 64 from 16: 16 * 64 + 128, 9 * 64 * 4 + 128, 4096 + 128, projection 1024 + 128, then from 64
        (
            "nds_resnext_b",
            network("res_bottleneck_block", [1, 1, 1], [64, 64, 64], [1.0] * 3, [16] * 3),
            464 + (1152 + 2432 + 4224 + 1152) + 2 * (4224 + 2432 + 4224 + 4224) + 650,
        ),
    ],
)
def test_counts_by_hand(name, text, params):
    space = search_spaces.get(name)
    assert space.params(space.parse(text)) == params


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("nds_resnet", "[]", "is not JSON"),
        ("nds_resnet", network("vanilla_block", [1] * 3, [16] * 3), "block_type of .* expected 'res_basic"),
        ("nds_resnet", network("res_basic_block", [1, 0, 1], [16] * 3), "ds of .* expected 3 numbers"),
        ("nds_resnet", network("res_basic_block", [1, 1, 1], [16] * 2), "ws of .* expected 3 numbers"),
        (
            "nds_resnext_a",
            network("res_bottleneck_block", [1] * 3, [16] * 3, [0.3] * 3, [1] * 3),
            "divisible by num_gs",
        ),
        (
            "nds_resnext_a",
            network("res_bottleneck_block", [1] * 3, [16] * 3, [0.5] * 3, [0] * 3),
            "divisible by num_gs",
        ),
    ],
)
def test_malformed_text_names_the_bad_part(name, text, part):
    with pytest.raises(ValueError, match=part):
        search_spaces.get(name).parse(text)


def test_networks_off_the_grid_have_the_nearest_genome():
    space = search_spaces.get("nds_resnet")
    a = space.parse(network("res_basic_block", [5, 7, 25], [20, 300, 16]))
    near = space.decode(space.encode(a))
    assert near.depths == (4, 6, 24)
    assert near.widths == (16, 256, 16)
    assert np.array_equal(space.encode(near), space.encode(a))
