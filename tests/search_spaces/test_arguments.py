"""Sizes of layers are those of the axes along which they slide."""

import pytest

from search_spaces.graph import Graph


@pytest.mark.parametrize(
    ("shape", "kernel", "weight", "out"),
    [
        ((1, 4, 32), 5, (8, 4, 5), (1, 8, 16)),
        ((1, 4, 32), (5,), (8, 4, 5), (1, 8, 16)),
        ((1, 4, 16, 20), (3, 5), (8, 4, 3, 5), (1, 8, 8, 10)),
        ((1, 4, 16, 20), [3, 5], (8, 4, 3, 5), (1, 8, 8, 10)),
        ((1, 4, 8, 16, 16), (1, 3, 3), (8, 4, 1, 3, 3), (1, 8, 4, 8, 8)),
    ],
)
def test_a_convolution_slides_along_all_axes(shape, kernel, weight, out):
    g = Graph(shape)
    y = g.conv(g.input, 8, kernel, stride=2)
    assert y.shape == out
    assert g.body[0].arguments[1].shape == weight
    assert g.pool("MaxPool", y, 2, 2).shape == (*out[:2], *(d // 2 for d in out[2:]))


@pytest.mark.parametrize(
    ("shape", "write", "message"),
    [
        (
            (1, 4, 32),
            lambda g: g.conv(g.input, 8, (3, 3)),
            r"the kernel of graph.conv is \(3, 3\): expected a positive integer$",
        ),
        ((1, 4, 8, 8), lambda g: g.conv(g.input, 8, 3, (2,)), r"the stride of graph.conv is \(2,\)"),
        ((1, 4), lambda g: g.conv(g.input, 8, 3), r"graph.conv reads signals .* not the shape \[1, 4\]"),
        ((1, 4), lambda g: g.pool("MaxPool", g.input, 3), r"graph.pool reads signals"),
        ((1, 4), lambda g: g.classifier(g.input, 3), r"graph.classifier reads signals"),
        (
            (1, 4, 32),
            lambda g: g.conv(g.input, 8, 3, 0),
            "stride of graph.conv is 0: expected a positive integer$",
        ),
        ((1, 4, 32), lambda g: g.conv(g.input, 8, 3, -1), "stride of graph.conv is -1"),
        ((1, 4, 32), lambda g: g.conv(g.input, 8, 3, dilation=0), "dilation of graph.conv is 0"),
        ((1, 4, 32), lambda g: g.conv(g.input, 8, 3, 2.0), r"stride of graph.conv is 2\.0"),
        ((1, 4, 32), lambda g: g.conv(g.input, 8, 3, "2"), "stride of graph.conv is '2'"),
        ((1, 4, 32), lambda g: g.conv(g.input, 8, None), "kernel of graph.conv is None"),
        (
            (1, 4, 8, 8),
            lambda g: g.pool("MaxPool", g.input, 0),
            "kernel of graph.pool is 0: .* each of 2 axes",
        ),
        ((1, 4, 8, 8), lambda g: g.pool("MaxPool", g.input, 2, -2), "stride of graph.pool is -2"),
        (
            (1, 6, 32),
            lambda g: g.conv(g.input, 9, 3, groups=2),
            "2 groups do not divide the channels 6 and 9",
        ),
    ],
)
def test_sizes_that_do_not_fit(shape, write, message):
    with pytest.raises(ValueError, match=message):
        write(Graph(shape))


def test_sizes_may_differ_between_axes():
    g = Graph((1, 4, 8, 16, 16))
    y = g.pool("MaxPool", g.conv(g.input, 8, (1, 3, 3), dilation=(1, 2, 2)), (1, 2, 2), (1, 2, 2))
    assert y.shape == (1, 8, 8, 8, 8)
    assert g.pool("AveragePool", g.input, (3, 1, 1), 1, padded=True).shape == g.input.shape
