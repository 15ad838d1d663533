"""The channels of values of three axes are where the layers before put them."""

import pytest

from search_spaces import blocks
from search_spaces.graph import Constant, Graph

SIGNAL, IMAGE, TOKENS = (2, 6, 32), (2, 3, 16, 16), (2, 10, 6)


def tokens_of_signal(g, x):
    return g.op("Transpose", x, perm=[0, 2, 1])


@pytest.mark.parametrize(
    ("shape", "write", "channels"),
    [
        (SIGNAL, lambda g, x: x, 6),
        (SIGNAL, lambda g, x: g.op("Relu", g.conv(x, 8, 3)), 8),
        (SIGNAL, lambda g, x: g.op("Add", x, g.conv(x, 6, 3)), 6),
        (SIGNAL, lambda g, x: g.op("Concat", x, g.conv(x, 8, 3), axis=1), 14),
        (SIGNAL, lambda g, x: g.op("Mul", g.op("Sigmoid", g.op("GlobalAveragePool", x)), x), 6),
        (SIGNAL, lambda g, x: blocks.normalize(g, g.conv(x, 8, 3), "group", 4), 8),
        (SIGNAL, tokens_of_signal, 6),
        (SIGNAL, lambda g, x: g.op("Transpose", tokens_of_signal(g, x), perm=[0, 2, 1]), 6),
        (SIGNAL, lambda g, x: blocks.linear(g, x, 12), 12),
        (SIGNAL, lambda g, x: g.conv(blocks.linear(g, x, 16), 4, 1), 4),
        (SIGNAL, lambda g, x: blocks.patch_embedding(g, x, 12, 4), 12),
        (IMAGE, lambda g, x: blocks.patch_embedding(g, x, 12, 4), 12),
        (IMAGE, lambda g, x: g.op("Reshape", x, Constant((0, 3, -1))), 3),
        (IMAGE, lambda g, x: blocks.transformer_block(g, blocks.patch_embedding(g, x, 12, 4), 2), 12),
        (
            IMAGE,
            lambda g, x: blocks.patch_embedding(g, blocks.normalize(g, g.conv(x, 8, 3), "group", 4), 12, 4),
            12,
        ),
    ],
)
def test_channels_follow_the_layers(shape, write, channels):
    g = Graph(shape)
    assert write(g, g.input).channels == channels


@pytest.mark.parametrize(
    ("write", "features"), [(lambda g, x: x, 6), (lambda g, x: blocks.linear(g, x, 12), 12)]
)
def test_the_mean_of_a_classifier_is_over_the_positions(write, features):
    g = Graph(SIGNAL)
    model = g.build(blocks.classifier(g, write(g, g.input), 5))
    assert f"W5_{features}" in [i.name for i in model.graph.input]


@pytest.mark.parametrize("block", [blocks.attention, blocks.transformer_block])
def test_blocks_of_tokens_refuse_signals(block):
    g = Graph(SIGNAL)
    with pytest.raises(ValueError, match=r"reads tokens, not the shape \[2, 6, 32\]: see patch_embedding"):
        block(g, g.input, 2)
    assert block(g, tokens_of_signal(g, g.input), 2).shape == (2, 32, 6)
