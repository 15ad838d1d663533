import itertools

import numpy as np
import onnx
import onnx.inliner
import pytest

import search_spaces
from search_spaces.blocks import conv_norm
from search_spaces.graph import Constant, Graph, Value


def block(g: Graph, x: Value, channels: int) -> Value:
    return g.op("Add", x, g.op("Relu", g.batch_norm(g.conv(x, channels, kernel=3))))


def network(repeats: int, **options: bool) -> onnx.ModelProto:
    g = Graph((1, 8, 8, 8), **options)
    x = g.input
    for _ in range(repeats):
        x = g.block(block, x, 8)
    return g.build(x)


def test_a_block_that_repeats_is_a_function_with_shared_parameters():
    model = network(5)
    (function,) = model.functions
    assert list(function.input) == ["x", "w0", "w1"]
    assert [n.op_type for n in model.graph.node] == [function.name] * 5


def test_block_that_saves_no_nodes_is_inlined():
    assert not network(1).functions
    assert not network(5, outlined=False).functions


def test_each_weight_has_its_own_initialiser_with_weights():
    model = network(5, weights=True)
    assert len(model.graph.initializer) == 5 * 5
    assert len(model.functions[0].input) == 6
    values = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if len(t.dims) == 4}
    assert len({v.tobytes() for v in values.values()}) == 5


def test_inlining_gives_the_same_operators():
    flat = onnx.inliner.inline_local_functions(network(5))
    assert [n.op_type for n in flat.graph.node] == [n.op_type for n in network(5, outlined=False).graph.node]


def test_constants_that_differ_between_calls_are_parameters():
    def narrow(g: Graph, x: Value, end: int) -> Value:
        y = g.op("Slice", x, Constant((0,)), Constant((end,)), Constant((1,)))
        return g.op("Sigmoid", g.op("Mul", g.op("Relu", y), Constant(0.5)))

    g = Graph((1, 8, 8, 8))
    x = g.input
    for end in (8, 7, 6, 5):
        x = g.block(narrow, x, end)
    (function,) = g.build(x).functions
    assert len(function.input) == 2
    assert [n.op_type for n in function.node].count("Constant") == 3


def test_counts_follow_the_shapes():
    g = Graph((1, 3, 32, 32))
    x = g.classifier(g.pool("MaxPool", g.conv(g.input, 16, 3, stride=2, bias=True), 2, stride=2), 10)
    assert (x.channels, x.side) == (10, 0)
    assert g.params == 3 * 16 * 9 + 16 + 170
    assert g.macs == 16 * 16 * 16 * 27 + 160
    assert np.isclose(g.macs, 110_752)


def test_a_block_may_depend_on_variables_that_change_between_its_calls():
    g = Graph((1, 8, 8, 8))
    x = g.input
    for width in (8, 16, 8, 32):
        x = g.block(lambda g, y, width=width: g.conv(y, width, 3), x)
        assert x.channels == width
    for width in (8, 16, 8, 32):
        x = g.block(lambda g, y: g.conv(y, width, 3), x)  # noqa: B023
        assert x.channels == width
    widths = (8, 8, 16, 8, 32, 8, 16, 8, 32)
    assert g.params == 9 * sum(a * b for a, b in itertools.pairwise(widths))


def test_a_block_reads_no_other_value_than_its_input():
    g = Graph((1, 8, 8, 8))
    other = g.conv(g.input, 8, 3)
    with pytest.raises(ValueError, match=r"input 1 of graph.op.'Add'. is a value from outside of the block"):
        g.block(lambda g, x: g.op("Add", x, other), g.op("Relu", g.input))


def test_no_layer_reads_a_value_from_inside_of_a_block():
    g, values = Graph((1, 8, 8, 8)), []

    def body(g, x):
        values.append(g.op("Relu", x))
        return g.op("Sigmoid", values[0])

    out = g.block(body, g.input)
    with pytest.raises(ValueError, match="or from inside of a block"):
        g.op("Add", out, values[0])


def test_nested_blocks_and_blocks_that_do_nothing():
    g = Graph((1, 8, 8, 8))
    x = g.block(lambda g, x: g.op("Add", x, g.block(lambda g, y: g.conv(y, 8, 3), g.op("Relu", x))), g.input)
    assert g.block(lambda g, x: x, x) is x
    assert [n.op_type for n in g.build(x).graph.node] == ["Relu", "Conv", "Add"]


def test_the_output_of_a_block_is_a_value():
    g = Graph((1, 8, 8, 8))
    with pytest.raises(ValueError, match="the output of the block <lambda> is None"):
        g.block(lambda g, x: None, g.input)


def test_a_weight_that_two_operators_read_is_counted_once():
    g = Graph((1, 8, 8, 8))
    w = g.weight(8, 8, 1, 1)
    x = g.op("Conv", g.op("Relu", g.op("Conv", g.input, w)), w)
    model = g.build(g.conv(x, 8, 1))
    assert g.params == 2 * 64
    assert [i.name for i in model.graph.input] == ["x", "W8_8_1_1_t1", "W8_8_1_1"]


@pytest.mark.parametrize("name", search_spaces.names())
def test_the_networks_of_all_spaces_are_valid(name):
    space = search_spaces.get(name)
    a = space.sample(np.random.default_rng(4))
    g = Graph((2, *space.shape(a)), input_type=space.input_type)
    out = space.write(g, a)
    assert (g.macs * space.batch_size, g.params) == (2 * space.flops(a), space.params(a))
    assert g.checked_output(out).shape == (2, *out.inner_shape)


def test_layers_that_nothing_reads_are_not_counted():
    g = Graph((1, 8, 8, 8))
    out = g.conv(g.input, 4, 1)
    g.block(lambda g, x: g.conv(x, 16, 3), out)
    g.weight(100)
    assert g.checked_output(out) is out
    assert (g.macs, g.params) == (64 * 32, 32)


def test_a_block_has_named_arguments():
    g = Graph((1, 8, 8, 8))
    x = g.input
    for kernel in (3, 5, 3):
        x = g.block(conv_norm, x, 8, kernel=kernel, activation="hardswish")
    assert [n.op_type for n in g.build(x).graph.node].count("HardSwish") == 3
    assert g.params == 64 * (9 + 25 + 9) + 3 * 16
