import json

import numpy as np
import pytest

import search_spaces
from search_spaces.nds import DARTS, NASNet

DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1),"
    " ('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)],"
    " normal_concat=[2, 3, 4, 5], reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2),"
    " ('max_pool_3x3', 1), ('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2),"
    " ('max_pool_3x3', 1)], reduce_concat=[2, 3, 4, 5])"
)


def test_the_second_cell_of_darts_has_its_published_size():
    assert DARTS().params(DARTS().parse(DARTS_V2)) == 3_349_342


NASNET_A = {
    "normal": "sep_conv_5x5 1 sep_conv_3x3 0 sep_conv_5x5 0 sep_conv_3x3 0 avg_pool_3x3 1 skip_connect 0"
    " avg_pool_3x3 0 avg_pool_3x3 0 sep_conv_3x3 1 skip_connect 1",
    "normal_concat": [2, 3, 4, 5, 6],
    "reduce": "sep_conv_5x5 1 sep_conv_7x7 0 max_pool_3x3 1 sep_conv_7x7 0 avg_pool_3x3 1 sep_conv_5x5 0"
    " skip_connect 3 avg_pool_3x3 2 sep_conv_3x3 2 max_pool_3x3 1",
    "reduce_concat": [4, 5, 6],
}
AMOEBA_A = {
    "normal": "avg_pool_3x3 0 max_pool_3x3 1 sep_conv_3x3 0 sep_conv_5x5 2 sep_conv_3x3 0 avg_pool_3x3 3"
    " sep_conv_3x3 1 skip_connect 1 skip_connect 0 avg_pool_3x3 1",
    "normal_concat": [4, 5, 6],
    "reduce": "avg_pool_3x3 0 sep_conv_3x3 1 max_pool_3x3 0 sep_conv_7x7 2 sep_conv_7x7 0 avg_pool_3x3 1"
    " max_pool_3x3 0 max_pool_3x3 1 conv_7x1_1x7 0 sep_conv_3x3 5",
    "reduce_concat": [3, 4, 6],
}


@pytest.mark.parametrize(
    ("name", "cells", "width", "published", "within"),
    [
        # Zoph et al. count 3.3 M; their cells also concatenate an input, which these design spaces do not
        ("nds_nasnet", NASNET_A, 32, 3.3e6, 0.08),
        ("nds_amoeba", AMOEBA_A, 36, 3.2e6, 0.02),
    ],
)
def test_famous_cells_have_about_their_published_size(name, cells, width, published, within):
    genotype = dict(cells)
    for kind in ("normal", "reduce"):
        words = cells[kind].split()
        genotype[kind] = [[o, int(i)] for o, i in zip(words[::2], words[1::2], strict=True)]
    space = search_spaces.get(name)
    a = space.parse(json.dumps({"genotype": genotype, "depth": 20, "width": width}))
    assert space.params(a) == pytest.approx(published, rel=within)


def test_a_genotype_is_read_but_not_run():
    with pytest.raises(ValueError, match="is not Genotype"):
        DARTS().parse("Genotype(normal=__import__('os').getcwd())")


def test_golden_params_of_one_cell():
    space, w = NASNet(), 16
    edges = [["conv_3x3", 0], ["conv_7x1_1x7", 1], *[["skip_connect", 2], ["max_pool_7x7", 0]] * 4]
    cell = {
        "genotype": {"normal": edges, "normal_concat": [3, 4, 5, 6], "reduce": edges, "reduce_concat": [3]}
    }
    architecture = space.parse(json.dumps({**cell, "depth": 1, "width": w}))

    def conv(c_in, c_out, area=1):
        return c_in * c_out * area + 2 * c_out

    wide = 2 * w  # with one cell, the cell at a third of the depth is the first: a reduction
    stem = conv(3, 3 * w, 9)
    inputs = 2 * conv(3 * w, wide)
    node = conv(wide, wide, 9) + wide * wide * 7 + conv(wide, wide, 7)
    assert space.params(architecture) == stem + inputs + node + wide * 10 + 10


@pytest.mark.parametrize("name", ["nds_amoeba", "nds_darts", "nds_enas", "nds_nasnet", "nds_pnas"])
def test_nodes_that_no_other_reads_are_the_output(name):
    space, rng = search_spaces.get(name), np.random.default_rng(0)
    for _ in range(20):
        cell = space.sample(rng).normal
        read = {source for _, source in cell.edges} if space.concat_unread_only else set()
        assert set(cell.concat) == set(range(2, space.nodes + 2)) - read


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("'sep_conv_3x3', 0", "'sep_conv_4x4', 0"), "unknown operator 'sep_conv_4x4' in normal"),
        (("'dil_conv_3x3', 2", "'dil_conv_3x3', 5"), "edge 7 of normal .* comes from 5, expected 0 to 4"),
        (("normal_concat=[2, 3, 4, 5]", "normal_concat=[2, 9]"), "normal_concat of .* is \\[2, 9\\]"),
        (("Genotype(", "Genotyp("), "is not JSON"),
    ],
)
def test_malformed_text_names_the_bad_part(change, part):
    with pytest.raises(ValueError, match=part):
        DARTS().parse(DARTS_V2.replace(*change, 1))
