import numpy as np
import pytest

import search_spaces

SPACE = search_spaces.get("snas")


def test_counts_by_hand():
    # stem 3 * 9 * 16 + 32; two stacks of one cell; between them 9 * 16 * 16 + 32; linear 16 * 10 + 10
    bare = 464 + 2336 + 170
    cells = {
        "max_pool_3x3:0": 0,
        "conv_1x1:0": 256 + 32,
        "conv_3x3:0|sep_5x5:0,1": 2304 + 32 + (25 * 16 + 32) + (256 + 32),
    }
    for cell, params in cells.items():
        assert SPACE.params(SPACE.parse(f"w16_s2_c1_m1.0_r1|{cell}")) == bare + 2 * params


def test_macs_by_hand():
    a = SPACE.parse("w16_s2_c1_m2.0_r0|conv_1x1:0")
    stem, first, between = 27 * 16 * 256, 256 * 256, 9 * 16 * 32 * 64
    assert SPACE.flops(a) == stem + first + between + 1024 * 64 + 320


def test_every_cell_is_counted_once():
    assert SPACE.size == 4 * 3 * 3 * 3 * 2 * (
        6 + 6 * 18 + 6 * 18 * 36 + 6 * 18 * 36 * 60 + 6 * 18 * 36 * 60 * 90
    )


def test_genes_of_absent_nodes_do_not_matter():
    rng = np.random.default_rng(0)
    for _ in range(20):
        genome = rng.integers(SPACE.genes)
        a = SPACE.decode(genome)
        assert SPACE.decode(SPACE.encode(a)) == a
        assert np.array_equal(SPACE.encode(SPACE.decode(SPACE.encode(a))), SPACE.encode(a))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("w16_s2_c1_m1.0", "is not a macro configuration"),
        ("w16_s2_c1_m1.0_r1", "1 to 5 nodes"),
        ("w17_s2_c1_m1.0_r1|conv_1x1:0", "stem of .* is 17, expected one of 16"),
        ("w16_s2_c1_m3.0_r1|conv_1x1:0", "multiplier of .* is 3.0"),
        ("w16_s2_c1_m1.0_r1|conv_9x9:0", "unknown operator 'conv_9x9' .* did you mean 'conv_"),
        ("w16_s2_c1_m1.0_r1|conv_1x1:1", "node 1 of .* reads '1', expected one or two values from 0 to 0"),
        ("w16_s2_c1_m1.0_r1|conv_1x1:0|conv_1x1:1,0", "node 2 of .* reads '1,0'"),
        ("w16_s2_c1_m1.0_r1|conv_1x1", "reads ''"),
    ],
)
def test_malformed_text_names_the_bad_part(text, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(text)


def test_the_order_of_nodes_does_not_matter_for_the_key():
    def key(cell, macro="w16_s2_c1_m1.0_r0"):
        return SPACE.key(SPACE.parse(f"{macro}|{cell}"))

    known = key("conv_3x3:0|sep_3x3:0|max_pool_3x3:1,2")
    assert key("sep_3x3:0|conv_3x3:0|max_pool_3x3:1,2") == known
    assert key("conv_3x3:0|sep_3x3:0|max_pool_3x3:1") != known
    assert key("conv_3x3:0|sep_3x3:0|max_pool_3x3:1,2", "w16_s2_c1_m1.0_r1") != known
