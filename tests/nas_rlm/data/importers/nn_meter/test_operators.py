"""Conversion of nn-Meter's graphs: costs by hand, values against NumPy, and mistakes of the graphs."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from nas_rlm.data.importers.nn_meter.operators import to_onnx
from nas_rlm.graph.costs import compute_costs
from nas_rlm.text import from_onnx
from nas_rlm.text.parser import parse_network
from tests.nas_rlm.data.importers.nn_meter.graphs import Graph, small_network


def costs_of(graph):
    model = to_onnx(graph.nodes)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    macs, params, _ = compute_costs(parse_network(from_onnx(model))).sums()
    return macs, params


def run(graph, x):
    """The output of a graph without weights for an input with channels last, also with channels last."""
    (y,) = ReferenceEvaluator(to_onnx(graph.nodes)).run(None, {"input0": np.transpose(x, (0, 3, 1, 2))})
    return np.transpose(y, (0, 2, 3, 1)) if y.ndim == 4 else y


def image(height=5, width=4, channels=6):
    return np.random.default_rng(0).normal(size=(1, height, width, channels)).astype(np.float32)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "output"),
    [
        (224, 7, 4, "VALID", 55),
        (224, 3, 2, "SAME", 112),
        (15, 3, 2, "SAME", 8),
        (15, 1, 2, "SAME", 8),
        (14, 5, 3, "SAME", 5),
        (14, 2, 3, "VALID", 5),
        (7, 7, 1, "VALID", 1),
        (2, 7, 1, "SAME", 2),
    ],
)
def test_sizes_follow_the_kind_of_padding_and_not_the_stated_shapes(size, kernel, stride, padding, output):
    graph = Graph(1, size, size, 3)
    graph.classifier(graph.conv("conv", "input_im_0", kernel, 3, 8, stride, padding), 8)
    macs, params = 3 * 8 * kernel**2 * output**2 + 8 * 10, 3 * 8 * kernel**2 + 8 * 10
    assert costs_of(graph) == (macs, params)


@pytest.mark.parametrize(("size", "pads"), [(14, [0, 0, 1, 1]), (15, [1, 1, 1, 1])])
def test_padding_is_larger_at_the_end(size, pads):
    graph = Graph(1, size, size, 3)
    graph.conv("conv", "input_im_0", 3, 3, 8, 2)
    (conv,) = to_onnx(graph.nodes).graph.node
    assert {a.name: list(a.ints) for a in conv.attribute if a.name in ("pads", "strides")} == {
        "pads": pads,
        "strides": [2, 2],
    }


def test_dilated_kernels_are_padded_by_their_extent():
    graph = Graph(1, 9, 9, 3)
    name = graph.conv("conv", "input_im_0", 3, 3, 8)
    graph.nodes[name]["attr"]["attr"]["dilations"] = [1, 2, 2, 1]
    (conv,) = to_onnx(graph.nodes).graph.node
    assert {a.name: list(a.ints) for a in conv.attribute if a.name in ("pads", "dilations")} == {
        "pads": [2, 2, 2, 2],
        "dilations": [2, 2],
    }


def test_costs_of_a_depthwise_and_of_a_grouped_convolution():
    macs, params = costs_of(small_network())
    assert macs == 64 * (27 * 8 + 25 * 8) + 80
    assert params == 27 * 8 + 2 * 8 + 25 * 8 + 80
    graph = Graph(1, 8, 8, 12)
    graph.conv("conv", "input_im_0", 3, 4, 6)
    assert costs_of(graph) == (64 * 9 * 4 * 6, 9 * 4 * 6)


def test_weights_that_are_part_of_the_graph_are_no_tensors():
    graph = Graph(1, 8, 8, 3)
    conv = graph.conv("conv", "input_im_0", 1, 3, 4)
    graph.add("mean", "Const", [], [[4]], tensor_shape=[4])
    graph.add("mean/read", "Identity", ["mean"], [[4]])
    graph.add("var/read", "Identity", ["var"], [[4]])
    graph.add("bn", "FusedBatchNormV3", [conv, "mean/read", "var/read"], [[1, 8, 8, 4]])
    assert costs_of(graph) == (64 * 12, 12 + 8)


def test_biases_are_inputs_of_their_layers_unless_another_node_reads_the_layer():
    graph = Graph(1, 8, 8, 3)
    conv = graph.conv("conv", "input_im_0", 1, 3, 4)
    graph.unary("conv/BiasAdd", "BiasAdd", conv)
    model = to_onnx(graph.nodes)
    assert [node.op_type for node in model.graph.node] == ["Conv"] and len(model.graph.node[0].input) == 3
    graph.add("sum", "Add", ["conv/BiasAdd", conv], [[1, 8, 8, 4]])
    model = to_onnx(graph.nodes)
    assert [node.op_type for node in model.graph.node] == ["Conv", "Add", "Add"]
    assert costs_of(graph)[1] == 12 + 4


@pytest.mark.parametrize("size", [14, 15])
@pytest.mark.parametrize(
    ("kind", "padding"), [("MaxPool", "SAME"), ("AvgPool", "SAME"), ("MaxPool", "VALID")]
)
def test_pools_do_not_count_padding(kind, padding, size):
    graph, x = Graph(1, size, size, 6), image(size, size)
    graph.pool("pool", kind, "input_im_0", 3, 2, padding)
    count = -(-size // 2) if padding == "SAME" else (size - 3) // 2 + 1
    begin = max((count - 1) * 2 + 3 - size, 0) // 2 if padding == "SAME" else 0
    reduce = np.max if kind == "MaxPool" else np.mean
    expected = np.empty((1, count, count, 6))
    for i in range(count):
        for j in range(count):
            rows, columns = (slice(max(2 * k - begin, 0), 2 * k - begin + 3) for k in (i, j))
            expected[:, i, j] = reduce(x[:, rows, columns], axis=(1, 2))
    assert np.allclose(run(graph, x), expected, atol=1e-6)


def test_an_average_over_the_image_is_a_global_pool():
    graph, x = Graph(1, 7, 7, 6), image(7, 7)
    graph.pool("pool", "AvgPool", "input_im_0", 7, 1, "VALID")
    assert np.allclose(run(graph, x), x.mean((1, 2), keepdims=True), atol=1e-6)
    assert to_onnx(graph.nodes).graph.node[0].op_type == "GlobalAveragePool"


def test_channel_shuffle_with_a_packed_shape():
    graph, x = Graph(1, 5, 4, 6), image()
    graph.channel_shuffle("shuffle", "input_im_0", 5, 4, 6)
    expected = x.reshape(1, 5, 4, 2, 3).transpose(0, 1, 2, 4, 3).reshape(x.shape)
    assert np.array_equal(run(graph, x), expected)


def test_channel_shuffle_without_the_batch():
    graph, x = Graph(1, 5, 4, 6), image()
    y = graph.add("r0", "Reshape", ["input_im_0"], [[]], shape=[5, 4, 6])
    y = graph.add("r1", "Reshape", [y, graph.constant("c1", 5, 4, 2, 3)], [[]])
    y = graph.add("t", "Transpose", [y, graph.constant("p", 0, 1, 3, 2)], [[]])
    y = graph.add("r2", "Reshape", [y], [[]], shape=[5, 4, -1])
    graph.add("r3", "Reshape", [y], [[]], shape=[1, 5, 4, 6])
    expected = x.reshape(1, 5, 4, 2, 3).transpose(0, 1, 2, 4, 3).reshape(x.shape)
    assert np.array_equal(run(graph, x), expected)


@pytest.mark.parametrize("named", [False, True])
def test_the_readers_of_a_split_read_its_parts_in_order(named):
    graph, x = Graph(1, 5, 4, 6), image()
    graph.add("split", "Split", ["input_im_0"], [[1, 5, 4, 3]] * 2, split_dim=[3])
    graph.unary("relu", "Relu", "split")
    inbounds = ["relu", "split:1"] if named else ["relu", "split"]
    graph.add("concat", "ConcatV2", inbounds, [[1, 5, 4, 6]], axis=[-1])
    if named:
        graph.nodes["split"]["outbounds"].append("concat")
    assert np.array_equal(run(graph, x), np.concatenate([np.maximum(x[..., :3], 0), x[..., 3:]], -1))


def test_concatenation_along_height():
    graph, x = Graph(1, 5, 4, 6), image()
    graph.add("concat", "Concat", ["input_im_0", "input_im_0"], [[]], axis=[1])
    assert np.array_equal(run(graph, x), np.concatenate([x, x], 1))


def test_activations_and_arithmetic():
    graph, x = Graph(1, 5, 4, 6), 4 * image()
    gate = graph.hard_sigmoid("gate", "input_im_0")
    hard_swish = graph.add("hswish", "Mul", ["input_im_0", gate], [[]])
    sigmoid = graph.unary("sigmoid", "Sigmoid", "input_im_0")
    swish = graph.add("swish", "Mul", ["input_im_0", sigmoid], [[]])
    total = graph.add("AddN", "AddN", [hard_swish, swish, "input_im_0"], [[]])
    mean = graph.pool("pool", "AvgPool", total, 5, 1, "VALID")
    graph.nodes[mean]["attr"]["attr"]["ksize"] = [1, 5, 4, 1]
    scaled = graph.add("scaled", "Mul", [mean, total], [[]])
    reverse = graph.add("sub", "Sub", [graph.constant("one", 1.0), scaled], [[]])
    graph.unary("relu6", "Relu6", reverse)
    expected = x * np.clip(x + 3, 0, 6) / 6 + x / (1 + np.exp(-x)) + x
    expected = np.clip(1 - expected * expected.mean((1, 2), keepdims=True), 0, 6)
    assert np.allclose(run(graph, x), expected, atol=1e-4)
    kinds = [node.op_type for node in to_onnx(graph.nodes).graph.node]
    assert kinds.count("HardSigmoid") == 1 and kinds.count("Clip") == 1


def test_hard_swish_has_the_text_of_the_operator():
    graph = Graph(1, 8, 8, 4)
    conv = graph.conv("conv", "input_im_0", 1, 4, 4)
    graph.add("hswish", "Mul", [conv, graph.hard_sigmoid("gate", conv)], [[]])
    assert "HardSwish" in from_onnx(to_onnx(graph.nodes))


def test_multiplication_by_zero_stays_in_the_network():
    graph = Graph(1, 8, 8, 4)
    zero = graph.with_number("zero", "Mul", graph.conv("conv", "input_im_0", 3, 4, 4), 0.0)
    graph.add("sum", "Add", ["input_im_0", zero], [[]])
    assert "value_float=0.0" in from_onnx(to_onnx(graph.nodes))


@pytest.mark.parametrize("flattened", [True, False])
def test_linear_layers_flatten_a_mean(flattened):
    graph = Graph(1, 8, 8, 4)
    mean = graph.unary("Mean", "Mean", "input_im_0", reduction_indices=[-3, -2])
    source = graph.unary("Squeeze", "Squeeze", mean) if flattened else mean
    graph.linear("fc", source, 7)
    assert costs_of(graph) == (28, 28)


def test_vectors_of_an_image_keep_their_number_of_elements():
    graph = Graph(1, 3, 3, 4)
    flat = graph.add("Reshape", "Reshape", ["input_im_0"], [[]], shape=[-1, 36])
    graph.linear("fc", flat, 7)
    assert costs_of(graph) == (36 * 7, 36 * 7)


def test_nodes_may_be_in_any_order():
    graph = small_network()
    nodes = dict(reversed(graph.nodes.items()))
    assert from_onnx(to_onnx(nodes)) == from_onnx(to_onnx(graph.nodes))


def test_an_open_batch_is_one_image():
    graph = small_network()
    graph.nodes["input_im_0"]["attr"]["attr"]["shape"][0] = -1
    assert costs_of(graph) == costs_of(small_network())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n: n["relu"]["attr"].update(type="Erf"), "relu, Erf: the operator is not supported"),
        (lambda n: n["relu"].update(inbounds=[]), "relu, Relu: it has 0 inputs: expected 1"),
        (lambda n: n["relu"].update(inbounds=["fc/MatMul"]), "depends on itself"),
        (lambda n: n["conv1/Conv2D"]["attr"]["attr"].pop("strides"), "Conv2D: 'strides' is missing"),
        (lambda n: n["conv1/Conv2D"]["attr"]["attr"].update(strides=[0, 1]), "expected positive numbers"),
        (lambda n: n["conv1/Conv2D"]["attr"]["attr"].update(padding="FULL"), "expected SAME or VALID"),
        (lambda n: n["conv1/Conv2D"]["attr"]["attr"].update(weight_shape=[3, 3, 3]), "unpack"),
        (lambda n: n["conv1/Conv2D"]["attr"]["attr"].update(weight_shape=[3, 3, 2, 8]), "for 2 channels"),
        (lambda n: n["conv1/Conv2D"]["attr"]["attr"].update(weight_shape=[3, 3, 3, -8]), "positive sizes"),
        (lambda n: n["Mean"]["attr"]["attr"].update(reduction_indices=[3]), "expected height and width"),
        (lambda n: n["Reshape"]["attr"]["attr"].update(shape=[-1, 7]), "cannot become"),
        (lambda n: n["Reshape"]["attr"]["attr"].pop("shape"), "its shape is missing"),
        (lambda n: n["input_im_0"]["attr"]["attr"].update(shape=[1, 0, 5, 3]), "expected positive sizes"),
        (lambda n: n.pop("input_im_0"), "0 inputs"),
        (lambda n: n.clear(), "no path from a Placeholder"),
    ],
)
def test_graphs_that_are_not_consistent_are_refused(change, message):
    nodes = small_network().nodes
    change(nodes)
    with pytest.raises(ValueError, match=message):
        to_onnx(nodes)


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda g: g.add("y", "Reshape", ["input_im_0"], [[]], shape=[1, 4, 5, 6]), "mixes height or width"),
        (lambda g: g.add("y", "Split", ["input_im_0"], [[]] * 4, split_dim=[3]), "cannot be split into 4"),
        (lambda g: g.add("y", "Split", ["input_im_0"], [[]] * 2, split_dim=[4]), "there is no axis 4"),
        (lambda g: g.conv("y", "input_im_0", 7, 6, 6, 1, "VALID"), "larger than the input"),
        (lambda g: g.add("y", "Transpose", ["input_im_0", g.constant("p", 0, 2, 1, 3)], [[]]), "width after"),
        (lambda g: g.add("y", "Transpose", ["input_im_0", g.constant("p", 0, 1)], [[]]), "order of the axes"),
        (lambda g: g.add("y", "Add", ["input_im_0", g.constant("c", 1.0, 2.0)], [[]]), "expected one number"),
        (
            lambda g: g.add("y", "Add", ["input_im_0", g.conv("c", "input_im_0", 1, 6, 5)], [[]]),
            "fit together",
        ),
    ],
)
def test_operators_that_do_not_fit_their_inputs_are_refused(add, message):
    graph = Graph(1, 5, 4, 6)
    add(graph)
    with pytest.raises(ValueError, match=message):
        to_onnx(graph.nodes)
