import pytest

from search_spaces.nats_size import Channels, NATSSize

SPACE = NATSSize()


def test_golden_params():
    assert SPACE.params(Channels((8, 8, 8, 8, 8))) == 11_714


def test_the_widest_network_is_eight_times_as_wide():
    narrow, wide = (SPACE.parse(":".join([w] * 5)) for w in ("8", "64"))
    assert 60 < SPACE.flops(wide) / SPACE.flops(narrow) < 64


@pytest.mark.parametrize(
    ("text", "part"), [("8:8:8", "has 3 numbers"), ("8:8:9:8:8", "stage 3"), ("", "has 1")]
)
def test_malformed_text_names_the_bad_part(text, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(text)
