import json

import numpy as np
import pytest

from search_spaces.two_path import SUPPORTS, TwoPath

SPACE = TwoPath()
STEM = 27 * 32 + 2 * 32 + 9 * 32 * 32 + 2 * 32
HEAD = 9 * 256 * 512 + 2 * 512 + 512 * 10 + 10


def path(*blocks):
    return [{"ops": list(ops), "reduce": reduce} for ops, reduce in blocks]


def conv(c_in, c_out, area=1):
    return c_in * c_out * area + 2 * c_out


PLAIN = path((["conv3x3"], True), (["conv3x3"], True))


@pytest.mark.parametrize(
    ("blocks", "params"),
    [
        (PLAIN, conv(32, 64, 9) + conv(64, 128, 9)),
        (
            path((["bottleneck-r4-k3"], True), (["maxpool3x3", "double3x3"], True)),
            conv(32, 8) + conv(8, 8, 9) + conv(8, 64) + 2 * 64 + conv(64, 128, 9) + conv(128, 128, 9),
        ),
        (
            path((["inception_s5x5", "bottleneck-e2-k1"], False), (["conv5x5"], True), (["conv3x3"], True)),
            2 * conv(32, 32, 5)
            + sum([conv(32, 64), conv(64, 64), conv(64, 32)])
            + conv(32, 64, 25)
            + conv(64, 128, 9),
        ),
    ],
)
def test_golden_params(blocks, params):
    found = SPACE.params(SPACE.parse(json.dumps([blocks, PLAIN])))
    assert found == STEM + params + conv(32, 64, 9) + conv(64, 128, 9) + HEAD


def test_samples_follow_the_rules():
    rng = np.random.default_rng(0)
    blocks = [b for _ in range(200) for p in SPACE.sample(rng).paths for b in p]
    second = [b.operators for b in blocks if len(b.operators) == 2]
    supported = np.mean([any(o in SUPPORTS for o in ops) for ops in second])
    assert 0.3 < supported < 0.47  # 5 of 13


@pytest.mark.parametrize(
    ("paths", "part"),
    [
        ([PLAIN], "has 1 path,"),
        ([PLAIN, PLAIN[:1]], "path 1 .* has 1 block,"),
        ([PLAIN, path((["conv3x3"], True), (["conv3x3"], False))], "has 1 reductions"),
        ([PLAIN, path((["conv3x3"], True), (["conv9x9"], True))], "unknown operator 'conv9x9'"),
        ([PLAIN, path((["conv3x3"], True), (["conv1x1"], True))], "at most one of"),
    ],
)
def test_malformed_text_names_the_bad_part(paths, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(json.dumps(paths))
