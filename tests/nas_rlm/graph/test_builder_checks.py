"""Checks and shapes of the operators that users' own spaces write."""

import numpy as np
import onnx
import pytest

from nas_rlm.graph.costs import compute_costs
from nas_rlm.text import from_onnx
from nas_rlm.text.parser import parse_network
from search_spaces.graph import Constant, Graph

TWICE = Constant((1.0, 1.0, 2.0, 2.0))
SHAPES = {  # operators on an image of 16 channels and 8 x 8 pixels, and the shapes of their outputs
    "scale first": (lambda g, x: g.op("Mul", g.op("GlobalAveragePool", x), x), (16, 8, 8)),
    "scale second": (lambda g, x: g.op("Mul", x, g.op("GlobalAveragePool", x)), (16, 8, 8)),
    "weight of a channel": (lambda g, x: g.op("Mul", g.weight(1, 16, 1, 1), x), (16, 8, 8)),
    "outer sum": (lambda g, x: g.op("Add", row(g, x), column(g, x)), (16, 8, 8)),
    "channels of an outer sum": (lambda g, x: g.op("Add", g.conv(x, 1, 1), row(g, x)), (16, 8, 8)),
    "constant": (lambda g, x: g.op("Mul", x, Constant(0.5)), (16, 8, 8)),
    "concatenation": (lambda g, x: g.op("Concat", x, g.conv(x, 8, 3), axis=1), (24, 8, 8)),
    "tokens": (lambda g, x: g.op("Reshape", x, Constant((0, -1, 64))), (16, 64)),
    "target from sizes": (lambda g, x: g.op("Reshape", x, target(g, x)), (16, 64)),
    "transpose": (lambda g, x: g.op("Transpose", x, perm=[0, 2, 3, 1]), (8, 8, 16)),
    "resize": (
        lambda g, x: g.op("Resize", x, None, Constant((1.0, 1.0, 2.0, 2.0)), mode="nearest"),
        (16, 16, 16),
    ),
    "gather": (lambda g, x: g.op("Gather", x, Constant(0), axis=2), (16, 8)),
    "slice": (lambda g, x: g.op("Slice", x, Constant((0,)), Constant((5,)), Constant((1,))), (5, 8, 8)),
    "mean": (lambda g, x: g.op("ReduceMean", x, Constant((2, 3)), keepdims=0), (16,)),
    "transposed": (lambda g, x: g.op("ConvTranspose", x, g.weight(16, 4, 2, 2), strides=[2, 2]), (4, 16, 16)),
    "einsum": (lambda g, x: g.op("Einsum", x, g.weight(8, 5), equation="bchw,wd->bchd"), (16, 8, 5)),
    "even kernel": (lambda g, x: g.conv(x, 4, 2, stride=2), (4, 5, 5)),
    "ceiled pool": (lambda g, x: g.pool("AveragePool", x, 3, stride=2, ceil=True), (16, 4, 4)),
    "numpy": (lambda g, x: g.conv(x, np.int64(4), np.int64(3), stride=np.int64(2)), (4, 4, 4)),
}


def row(g, x):
    return g.op("ReduceMean", x, Constant((2,)))


def column(g, x):
    return g.op("ReduceMean", x, Constant((3,)))


def target(g, x):
    return g.op("Concat", g.op("Shape", x, end=2), Constant((64,)), axis=0)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_those_of_onnxruntime(name, batch):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write, shape = SHAPES[name]
    graph = Graph((batch, 16, 8, 8), weights=True)
    out = write(graph, graph.input)
    assert out.shape == (batch, *shape)
    model = graph.build(out)
    onnx.checker.check_model(model, full_check=True)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (value,) = session.run(None, {"x": np.ones((batch, 16, 8, 8), np.float32)})
    assert value.shape == out.shape


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_costs_are_those_of_the_text(name, batch):
    graph = Graph((batch, 16, 8, 8))
    out = SHAPES[name][0](graph, graph.input)
    costs = compute_costs(parse_network(from_onnx(graph.build(out)))).totals()
    assert (graph.macs, graph.params) == (costs["flops"], costs["params"])


def test_the_costs_after_a_broadcast_are_exact():
    graph = Graph((1, 16, 8, 8))
    gate = graph.op("GlobalAveragePool", graph.input)
    graph.conv(graph.op("Mul", gate, graph.input), 32, 3)
    assert graph.macs == 8 * 8 * 32 * 16 * 9


@pytest.mark.parametrize("checked", [True, False])
def test_costs_are_for_all_inputs_of_the_batch(checked):
    graph = Graph((4, 16, 8, 8), checked=checked)
    x = graph.conv(graph.input, 2, 1)
    x = graph.op("Flatten", x, channels=128, side=0, width=0)
    graph.linear(x, 10)
    assert graph.macs == 4 * (64 * 2 * 16 + 128 * 10)


def weights(g, *sizes):
    return [g.weight(n) for n in sizes]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda g, x: g.op("Rellu", x),
            "ONNX has no operator 'Rellu' .*; did you mean 'Relu'",
        ),
        (
            lambda g, x: g.op("RMSNormalization", x, *weights(g, 8)),
            "no operator 'RMSNormalization' in",
        ),
        (lambda g, x: g.op("com.microsoft.Gelu", x), "the operator of another domain"),
        (lambda g, x: g.op("If", x), "without subgraphs"),
        (lambda g, x: g.op("Split", x, axis=1, num_outputs=2), "several outputs"),
        (lambda g, x: g.op("TopK", x, Constant((1,))), "1 output: expected 2"),
        (lambda g, x: g.op("Add", x), "1 input: expected 2"),
        (lambda g, x: g.op("Relu", x, x), "2 inputs: expected 1"),
        (lambda g, x: g.op("Add", x, None), "input 1 is omitted"),
        (lambda g, x: g.op("Add", x, "y"), r"input 1 of graph.op\('Add'\) is 'y'"),
        (lambda g, x: g.op("Relu", x, alpha=1.0), "the attribute 'alpha' does not exist"),
        (lambda g, x: g.op("LeakyRelu", x, alpha=1), "'alpha' is 1: expected a float"),
        (lambda g, x: g.op("Concat", x, x), "the attribute 'axis' is missing"),
        (lambda g, x: g.op("Mul", x, Constant(2)), "input 1 is int64, others are float"),
        (lambda g, x: g.op("Not", x), "input 0 is float: expected bool"),
        (
            lambda g, x: g.op("Conv", x, g.weight(8, 4, 3, 3)),
            "reads? 16 channels .* expected 4 channels",
        ),
        (
            lambda g, x: g.op("Conv", x, g.weight(8, 16, 3, 3), g.weight(9)),
            r"bias of shape \[9\]: expected",
        ),
        (
            lambda g, x: g.op("Conv", x, g.weight(8, 16, 9, 9)),
            "a window of 9 .* is larger than the padded",
        ),
        (lambda g, x: g.conv(x, 9, 3, groups=2), "2 groups do not divide the channels 16 and 9"),
        (lambda g, x: g.op("Gemm", g.op("Flatten", x), g.weight(10, 9), transB=1), "inner sizes 1024 and 9"),
        (lambda g, x: g.op("MatMul", x, g.weight(9, 3)), r"shapes \[1, 16, 8, 8\] and \[9, 3\] do not fit"),
        (
            lambda g, x: g.op("BatchNormalization", x, *weights(g, 8, 16, 16, 16)),
            r"input 1 .*\[8\]: expected",
        ),
        (
            lambda g, x: g.op("InstanceNormalization", x, *weights(g, 16, 15)),
            r"input 2 .*\[15\]: expected",
        ),
        (
            lambda g, x: g.op("GroupNormalization", x, *weights(g, 16, 16), num_groups=3),
            "3 groups do not divide 16 channels",
        ),
        (lambda g, x: g.op("LayerNormalization", x, g.weight(9)), r"\[8\], \[9\] do not fit"),
        (lambda g, x: g.op("PRelu", x, g.weight(5, 1, 1)), r"\[5,1,1\] do not fit"),
        (lambda g, x: g.op("PRelu", g.conv(x, 1, 1), g.weight(16, 1, 1)), "the slope has the shape"),
        (lambda g, x: g.op("Add", x, g.conv(x, 8, 3)), r"\[1,16,8,8\], \[1,8,8,8\] do not fit"),
        (lambda g, x: g.op("Concat", x, g.conv(x, 8, 3, 2), axis=1), "differ in dimension 2"),
        (lambda g, x: g.op("Reshape", x, Constant((0, -1, 7))), "does not fit 1,024 elements"),
        (lambda g, x: g.op("Softmax", x, axis=7), "axis 7 is not one of 4 dimensions"),
        (lambda g, x: g.op("NonZero", x), "depends on data"),
        (lambda g, x: g.op("Slice", x, *[Constant((k,)) for k in (9, 8, 1)]), "at least one element"),
        (lambda g, x: g.pool("MaxPool", x, 9), "larger than the padded image"),
        (lambda g, x: g.linear(x, 8), r"graph.linear reads vectors, not the shape \[1, 16, 8, 8\]"),
        (lambda g, x: g.conv(x, 0, 3), r"a weight of shape \[0, 16, 3, 3\]"),
        (lambda g, x: g.conv(x, 8.0, 3), r"a weight of shape \[8.0, 16, 3, 3\]"),
        (
            lambda g, x: g.op("Relu", x, channels=8),
            "given channels=8, but its output .* has 16",
        ),
        (lambda g, x: g.op("GlobalAveragePool", x, side=8), "given side=8, but its output .* has 1"),
        (lambda g, x: g.op("Relu", Graph((1, 3, 8, 8)).input), "a value of another graph"),
    ],
)
def test_an_operator_that_is_not_valid(write, message):
    graph = Graph((1, 16, 8, 8))
    with pytest.raises(ValueError, match=message) as error:
        write(graph, graph.input)
    assert "\n" not in str(error.value)


def test_an_attribute_of_another_type_is_no_equal_one():
    graph = Graph((1, 16, 8, 8))
    graph.op("Concat", graph.input, graph.input, axis=1)
    with pytest.raises(ValueError, match=r"'axis' is 1\.0: expected an integer"):
        graph.op("Concat", graph.input, graph.input, axis=1.0)
