import itertools
import json

import numpy as np
import pytest

from search_spaces.blocks import make_divisible
from search_spaces.ofa import OFAMobileNetV3, OFAProxyless, OFAResNet50

MOBILE, PROXYLESS, RESNET = OFAMobileNetV3(), OFAProxyless(), OFAResNet50()


def setting(space, **values):
    content = json.loads(str(space.decode(np.zeros(len(space.genes)))))
    return space.parse(json.dumps({**content, **values}))


def conv(c_in, c_out, area=1):
    return c_in * c_out * area + 2 * c_out


def test_there_are_about_2e19_subnets_of_mobilenet():
    assert 2e19 < MOBILE.size < 2.3e19


def test_blocks_beyond_the_depth_do_not_matter():
    a = setting(MOBILE, d=[2] * 5)
    b = setting(MOBILE, d=[2] * 5, ks=[3, 3, 7, 7] * 5)
    assert MOBILE.params(a) == MOBILE.params(b)
    assert MOBILE.key(a) == MOBILE.key(b) != MOBILE.key(setting(MOBILE, d=[2] * 5, ks=[3, 5, 7, 7] * 5))


def test_golden_params_of_the_smallest_proxyless():
    def block(c_in, c_out, expansion=3):
        wide = make_divisible(c_in * expansion)
        return (expansion > 1) * conv(c_in, wide) + conv(1, wide, 9) + conv(wide, c_out)

    widths = [24, 32, 32, 56, 56, 104, 104, 128, 128, 248, 248, 416]
    expected = conv(3, 40, 9) + block(40, 24, 1) + conv(416, 1664) + 1664 * 1000 + 1000
    expected += sum(block(a, b) for a, b in itertools.pairwise(widths))
    assert PROXYLESS.params(setting(PROXYLESS, d=[2] * 5)) == expected


def test_golden_params_of_the_smallest_resnet():
    widths = [make_divisible(c * 0.65) for c in (32, 64, 256, 512, 1024, 2048)]

    def block(c_in, c_out):
        hidden = make_divisible(round(c_out * 0.2))
        shortcut = conv(c_in, c_out) if c_in != c_out else 0
        return conv(c_in, hidden) + conv(hidden, hidden, 9) + conv(hidden, c_out) + shortcut

    expected = conv(3, widths[0], 9) + conv(widths[0], widths[1], 9) + widths[-1] * 1000 + 1000
    x = widths[1]
    for depth, width in zip((2, 2, 4, 2), widths[2:], strict=True):
        for _ in range(depth):
            expected += block(x, width)
            x = width
    assert RESNET.params(setting(RESNET)) == expected


def test_golden_params_of_the_largest_mobilenet():
    def squeeze(c):
        return 2 * c * make_divisible(c // 4) + make_divisible(c // 4) + c

    def block(c_in, c_out, has_squeeze):
        wide = 6 * c_in
        return conv(c_in, wide) + conv(1, wide, 49) + has_squeeze * squeeze(wide) + conv(wide, c_out)

    expected = conv(3, 16, 9) + conv(1, 16, 9) + conv(16, 16)  # stem and the first block, which is fixed
    x = 16
    for width, has_squeeze in zip(MOBILE.widths, MOBILE.squeezed, strict=True):
        for _ in range(4):
            expected += block(x, width, has_squeeze)
            x = width
    expected += conv(160, 960) + 960 * 1280 + 1280 * 1000 + 1000
    assert MOBILE.params(setting(MOBILE, ks=[7] * 20, e=[6] * 20, d=[4] * 5)) == expected == 7_664_760


def test_resolution_changes_the_work_but_not_the_size():
    small, large = setting(MOBILE, r=128), setting(MOBILE, r=224)
    assert MOBILE.params(small) == MOBILE.params(large)
    assert MOBILE.flops(large) > 2.5 * MOBILE.flops(small)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"r": 100}, "r of .* is 100"),
        ({"ks": [3] * 19}, "ks of .* expected 20 values"),
        ({"e": [3] * 19 + [5]}, "e\\[19\\] of .* is 5, expected one of 3, 4, 6"),
        ({"x": 1}, "has the unknown key 'x', not one of ks, e, d, r"),
    ],
)
def test_malformed_text_names_the_bad_part(values, part):
    with pytest.raises(ValueError, match=part):
        setting(MOBILE, **values)
