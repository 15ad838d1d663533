import onnx

from nas_rlm.text import from_onnx
from tests.nas_rlm.onnx_models import FlatModel, residual_network


def test_equal_residual_blocks_become_one_function():
    text = from_onnx(residual_network(6))
    parsed = onnx.parser.parse_model(text)
    assert len(parsed.functions) == 2  # the layer and the block
    assert text.count("=Conv<") == 1
    assert text.count("=Add(") == 1
    (part,) = [f.name for f in parsed.functions if f.name.startswith("part_")]
    assert [n.op_type for n in parsed.graph.node].count(part) == 6


def test_the_text_grows_by_a_line_a_block_at_most():
    lines = [from_onnx(residual_network(n)).count("\n") for n in (6, 12)]
    assert lines[1] - lines[0] <= 6


def test_elementwise_operators_without_matrix_are_not_outlined():
    g = FlatModel()
    assert "f." not in from_onnx(g.build(g.op("Sigmoid", g.op("Relu", g.op("Relu", "image")))))


def test_units_have_the_same_name_in_every_network():
    networks = [onnx.parser.parse_model(from_onnx(residual_network(n))) for n in (1, 2, 9)]
    names = {tuple(f.name for f in m.functions if not f.name.startswith("block")) for m in networks}
    assert len(names) == 1


def test_groups_are_arguments_so_that_widths_share_a_function():
    g, x = FlatModel(), "image"
    for width, before in ((8, 8), (16, 8), (32, 16)):
        x = g.op("Conv", x, g.weight(width, before, 1, 1))
        x = g.op("Relu", g.op("Conv", x, g.weight(width, 1, 3, 3), group=width, pads=[1] * 4))
    text = from_onnx(g.build(x))
    assert text.count("group:int=@g0") == 1
    assert [f"<g0={width}>" in text for width in (8, 16, 32)] == [True] * 3
    flat = onnx.inliner.inline_local_functions(onnx.parser.parse_model(text))
    groups = [a.i for n in flat.graph.node for a in n.attribute if a.name == "group"]
    assert groups == [8, 16, 32]


def test_cells_that_read_the_two_previous_cells_become_one_function():
    g, before, x = FlatModel(), "image", "image"
    for _ in range(6):
        a, b = g.conv_bn_relu(before, 8, 8, 1), g.conv_bn_relu(x, 8, 8, 1)
        c = g.op("Add", g.conv_bn_relu(a, 8, 8), g.op("MaxPool", b, kernel_shape=[3, 3], pads=[1] * 4))
        d = g.op("Add", g.conv_bn_relu(b, 8, 8), c)
        before, x = x, g.op("Add", g.conv_bn_relu(d, 8, 8), c)
    text = from_onnx(g.build(x))
    calls = [n for n in onnx.parser.parse_model(text).graph.node if n.op_type == "block0"]
    assert len(calls) >= 3
    assert all(sum(not i.startswith("W") for i in n.input) == 2 for n in calls)


def test_a_layer_holds_at_most_one_weight_matrix():
    g = FlatModel()
    x = "image"
    for _ in range(6):
        x = g.conv_bn_relu(g.conv_bn_relu(x, 8, 8), 8, 8, kernel=1)
    for function in onnx.parser.parse_model(from_onnx(g.build(x))).functions:
        assert [n.op_type for n in function.node].count("Conv") <= 1


def test_weights_that_are_equal_at_all_calls_share_a_parameter():
    text = from_onnx(residual_network(6))
    assert "BatchNormalization(x1,w1,w1,w1,w1)" in text
