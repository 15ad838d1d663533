import onnx

from nas_rlm.text import from_onnx

from .graphs import FlatModel, residual_network


def test_equal_residual_blocks_become_one_function():
    text = from_onnx(residual_network(6))
    parsed = onnx.parser.parse_model(text)
    assert len(parsed.functions) == 2  # the layer and the block
    assert text.count("=Conv<") == 1
    assert text.count("=Add(") == 1
    assert [n.op_type for n in parsed.graph.node].count("block0") == 6


def test_the_text_grows_by_a_line_a_block_at_most():
    lines = [from_onnx(residual_network(n)).count("\n") for n in (6, 12)]
    assert lines[1] - lines[0] <= 6


def test_what_is_not_worth_a_function_stays_in_place():
    g = FlatModel()
    assert "f." not in from_onnx(g.build(g.conv_bn_relu(g.conv_bn_relu("image", 8, 8), 8, 8)))


def test_a_layer_holds_at_most_one_weight_matrix():
    g = FlatModel()
    x = "image"
    for _ in range(6):
        x = g.conv_bn_relu(g.conv_bn_relu(x, 8, 8), 8, 8, kernel=1)
    for function in onnx.parser.parse_model(from_onnx(g.build(x))).functions:
        assert [n.op_type for n in function.node].count("Conv") <= 1


def test_weights_that_always_agree_share_a_parameter():
    text = from_onnx(residual_network(6))
    assert "BatchNormalization(x1,w1,w1,w1,w1)" in text
