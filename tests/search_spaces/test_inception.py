import json

import numpy as np
import pytest

from search_spaces.inception import CONVS, SUPPORTS, Inception

SPACE = Inception()
CHANNELS = (32, 64, 128, 256)


def conv(c_in, c_out, area=1, groups=1):
    return c_in // groups * c_out * area + c_out + 2 * c_out


AROUND = conv(3, 32, 9) + conv(256, 512, 9) + 512 * 10 + 10


def stages(*paths, wide=0):
    listed = [{"ops": list(ops), "inner": inner} for ops, inner in paths]
    return json.dumps([{"blocks": 2, "wide": wide, "paths": listed}] * 4)


def blocks():
    """Input and output channels of each block, two a stage."""
    c_in = 32
    for c in CHANNELS:
        yield c_in, c
        yield c, c
        c_in = c


def test_golden_params_of_one_path():
    expected = AROUND + sum(conv(a, b, 9) for a, b in blocks())
    assert SPACE.params(SPACE.parse(stages((["conv3x3"], "same")))) == expected


def test_golden_params_of_two_paths_with_an_inner_width():
    def block(a, b):
        wide = conv(a, b, 3) + conv(b, b, 3) + conv(b, b // 2, 25)  # twice the path's width in between
        return wide + conv(a, b // 2) + conv(b // 2, b // 2)

    text = stages((["inception_s3x3", "conv5x5"], "double"), (["double1x1"], "same"))
    expected = AROUND + sum(block(a, b) for a, b in blocks())
    assert SPACE.params(SPACE.parse(text)) == expected


def test_paths_have_at_least_sixteen_channels():
    text = stages(*[(["conv3x3", "depthwise3x3"], "same")] * 4)
    expected = AROUND
    for a, b in blocks():
        w = max(16, b // 4)
        expected += 4 * (conv(a, w, 9) + conv(1, w, 9)) + (conv(4 * w, b) if 4 * w != b else 0)
    assert SPACE.params(SPACE.parse(text)) == expected


def test_samples_follow_the_rules():
    rng = np.random.default_rng(0)
    for _ in range(100):
        for stage in SPACE.sample(rng).stages:
            n = len(stage.paths)
            assert sum(len(p.operators) for p in stage.paths) <= {1: 3, 2: 4, 3: 8, 4: 10}[n]
            for path in stage.paths:
                assert len(path.operators) >= {1: 1, 2: 1, 3: 2, 4: 2}[n]
                assert sum(o in SUPPORTS for o in path.operators) <= 1
                assert set(path.operators) <= {*CONVS, *SUPPORTS}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[]", "has 0 stages"),
        (stages((["conv3x3"] * 4, "same")), "more than 3 operators"),
        (stages((["conv1x1", "double1x1"], "same")), "more than one of"),
        (stages((["conv3x3"], "double")), "inner is 'double'"),
        (stages((["conv4x4"], "same")), "unknown operator 'conv4x4'"),
        (stages((["conv3x3"], "same"), wide=1), "wide is 1"),
    ],
)
def test_malformed_text_names_the_bad_part(text, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(text)
