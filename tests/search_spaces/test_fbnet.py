import itertools

import pytest

from search_spaces.fbnet import EXAMPLE, FBNet

SPACE = FBNet()
STEM, HEAD = 27 * 16 + 2 * 16, 352 * 1504 + 2 * 1504 + 1504 * 100 + 100


def conv_bn(c_in, c_out, area=1):
    return c_in * c_out * area + 2 * c_out


def test_skips_project_only_where_shapes_change():
    widths = (16, 24, 32, 64, 112, 184, 352)
    between = sum(conv_bn(a, b) for a, b in itertools.pairwise(widths))
    assert SPACE.params(SPACE.parse("_".join(["8"] * 22))) == STEM + between + HEAD


def test_a_block_widens_filters_and_narrows():
    skips = SPACE.params(SPACE.parse("_".join(["8"] * 22)))
    for code, kernel, expansion, groups in ((3, 3, 6, 1), (6, 5, 3, 1), (1, 3, 1, 2), (5, 5, 1, 2)):
        wide = 16 * expansion
        block = conv_bn(16 // groups, wide) + conv_bn(1, wide, kernel**2) + conv_bn(wide // groups, 16)
        assert SPACE.params(SPACE.parse("_".join([str(code), *["8"] * 21]))) - skips == block


@pytest.mark.parametrize(
    ("text", "part"),
    [("0_1", "has 2 block codes"), (EXAMPLE.replace("6_6", "9_6"), "block 7 .*'9'"), ("", "has 1")],
)
def test_malformed_text_names_the_bad_part(text, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(text)
