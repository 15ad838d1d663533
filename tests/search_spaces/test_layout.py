"""The channels of values of three axes are where the layers before put them."""

import pytest

from search_spaces import blocks
from search_spaces.graph import Constant, Graph

SIGNAL, IMAGE, TOKENS = (2, 6, 32), (2, 3, 16, 16), (2, 10, 6)


def tokens_of_signal(g, x):
    return g.op("Transpose", x, perm=[0, 2, 1])


def lstm(g, x, directions=1):
    """The states [length, batch, directions * 4] of a recurrent layer that reads a signal of six channels."""
    weights = g.weight(directions, 16, 6), g.weight(directions, 16, 4)
    direction = "bidirectional" if directions == 2 else "forward"
    x = g.op("Transpose", x, perm=[2, 0, 1])
    y = g.op("LSTM", x, *weights, hidden_size=4, direction=direction)
    y = g.op("Transpose", y, perm=[0, 2, 1, 3])
    return g.op("Reshape", y, Constant((0, 0, -1))) if directions == 2 else g.op("Squeeze", y, Constant((2,)))


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
        (SIGNAL, lambda g, x: g.conv(g.op("Reshape", g.op("Flatten", x), Constant((0, 8, 24))), 4, 1), 4),
        (SIGNAL, lambda g, x: blocks.normalize(g, g.conv(x, 8, 3), "layer"), 8),
        (SIGNAL, lambda g, x: blocks.patch_embedding(g, x, 12, 4), 12),
        (SIGNAL, lstm, 4),
        (SIGNAL, lambda g, x: lstm(g, x, 2), 8),
        (SIGNAL, lambda g, x: g.op("Transpose", lstm(g, x), perm=[1, 2, 0]), 4),
        (SIGNAL, lambda g, x: g.op("Transpose", lstm(g, x, 2), perm=[1, 2, 0]), 8),
        (SIGNAL, lambda g, x: g.conv(g.op("Transpose", lstm(g, x, 2), perm=[1, 2, 0]), 5, 3), 5),
        (SIGNAL, lambda g, x: g.op("Transpose", lstm(g, x, 2), perm=[1, 0, 2]), 8),
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


@pytest.mark.parametrize(
    "layer",
    [
        lambda g, x: g.conv(x, 8, 3),
        lambda g, x: g.pool("MaxPool", x, 3),
        lambda g, x: g.batch_norm(x),
        lambda g, x: g.classifier(x, 4),
        lambda g, x: blocks.basic_block(g, x, 8),
    ],
)
def test_layers_that_slide_refuse_tokens(layer):
    g = Graph(SIGNAL)
    for tokens in (tokens_of_signal(g, g.input), blocks.linear(g, g.input, 6)):
        with pytest.raises(ValueError, match="reads signals, not tokens of shape"):
            layer(g, tokens)


def test_a_layer_norm_is_over_the_channels():
    for shape in (SIGNAL, IMAGE, (2, 4, 6, 8, 8)):
        g = Graph(shape)
        assert blocks.normalize(g, g.input, "layer").shape == shape and g.params == 2 * shape[1]
    g = Graph(SIGNAL)
    blocks.normalize(g, tokens_of_signal(g, g.input), "layer")
    assert g.params == 2 * SIGNAL[1]
