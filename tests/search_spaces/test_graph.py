import numpy as np
import onnx
import onnx.inliner

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
