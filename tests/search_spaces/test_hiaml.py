import pytest

from search_spaces.hiaml import HiAML

SPACE = HiAML()
AROUND = 27 * 64 + 2 * 64 + 256 * 10 + 10
SHAPES = ((64, 64), (64, 64), (64, 128), (128, 128), (128, 128), (128, 128), (128, 256), (256, 256))


def conv(c_in, c_out, area=1):
    return c_in * c_out * area + 2 * c_out


def test_there_are_fourteen_blocks():
    assert SPACE.size == 38_416


def test_golden_params():
    for name, block in {
        "l20": lambda a, b: conv(a, b, 9) + conv(b, b),
        "t20": lambda a, b: conv(a, b) + conv(a, b, 3) + conv(b, b, 3),
        "src1": lambda a, b: conv(a, b) + conv(a, a, 9) + conv(a, b, 9),
        "b23": lambda a, b: (a != b) * conv(a, b) + conv(a, b, 3) + 3 * conv(b, b, 3),
        "r30": lambda a, b: (a != b) * 2 * conv(a, b) + conv(a, b, 3) + 3 * conv(b, b, 3) + conv(b, b),
    }.items():
        expected = AROUND + sum(block(a, b) for a, b in SHAPES)
        assert SPACE.params(SPACE.parse("_".join([name] * 4))) == expected, name


@pytest.mark.parametrize(
    ("text", "part"), [("a22_z", "has 2 block names"), ("a22_z_b23_t3", "'t3'.* mean 't31'")]
)
def test_malformed_text_names_the_bad_part(text, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(text)
