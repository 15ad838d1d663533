import json
import math

import numpy as np
import pytest

import search_spaces
from nas_rlm import inspect_network
from nas_rlm.data.synthetic import graph_features
from nas_rlm.graph.costs import compute_costs, operator_costs
from nas_rlm.graph.onnx_graphs.shapes import OperatorCall
from nas_rlm.graph.onnx_graphs.tensors import Tensor
from nas_rlm.text import from_onnx
from nas_rlm.text.parser import parse_network
from tests.nas_rlm.data.graph_features import features_of_architecture, features_of_cell
from tests.nas_rlm.graph.small_models import costs, integers, small_model


def test_costs_of_each_kind():
    """Stem, fifteen 1x1 convolutions, and two reductions of two 3x3 and a 1x1 convolution: by hand."""
    found = features_of_cell("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    places = (32 * 32, 16 * 16, 8 * 8)
    cells = [5 * c * c for c in (16, 32, 64)]
    shortcuts = [16 * 32, 32 * 64]
    assert found["pointwise/params"] == sum(cells) + sum(shortcuts)
    macs = [*(n * p for n, p in zip(cells, places, strict=True)), 16 * 32 * places[1], 32 * 64 * places[2]]
    assert found["pointwise/macs"] == sum(macs)
    assert found["pointwise/sides"] == 5 * (32 + 16 + 8) + 16 + 8
    assert found["convs/params"] == 9 * (3 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64)
    each = [16 * 16 * places[0]] * 5 + [32 * 32 * places[1]] * 5 + [64 * 64 * places[2]] * 5 + macs[3:]
    assert found["pointwise/roots"] == pytest.approx(sum(map(math.sqrt, each)))
    assert found["pointwise/logs"] == pytest.approx(sum(map(math.log2, each)))
    assert found["convs/macs"] + found["pointwise/macs"] + 64 * 10 == found["flops"]
    assert found["pools/activations"] == 16 * places[1] + 32 * places[2]
    assert (found["depthwise/macs"], found["pools/macs"], found["pools/logs"]) == (0, 0, 0)


def test_layers_by_kernel_and_stage():
    """By hand: at 32 pixels are the stem and a cell of five, at 16 two that reduce and five of the next."""
    space = search_spaces.get("nats_size")
    found = features_of_architecture(space, space.parse("8:16:24:32:40"), max_chain_length=1)
    assert found["Conv3x3@0:number"] == 1 + 5
    assert found["Conv3x3@1:activations"] == (2 * 16 + 5 * 24) * 16 * 16
    assert found["Conv3x3@0:macs"] == 32 * 32 * 9 * (3 * 8 + 5 * 8 * 8)
    assert found["Conv3x3@0:roots"] == pytest.approx(32 * 3 * (24**0.5 + 5 * 8))
    assert not any(":" in name for name in features_of_architecture(space, space.parse("8:16:24:32:40")))


def test_a_custom_operator_is_named():
    text = from_onnx(small_model("a = acme.Magic(x) y = Relu(a)", "float[2,8] x"))
    with pytest.raises(ValueError, match=r"acme\.Magic is a custom operator"):
        graph_features(text)
    inputs = "float[2,8] x, float[2,4] r, float[4,8,8] w"
    text = from_onnx(small_model("y = com.microsoft.MoE<k=1>(x, r, w, w)", inputs))
    with pytest.raises(ValueError, match=r"com\.microsoft\.MoE: its multiply-accumulates are not counted"):
        graph_features(text)


@pytest.mark.parametrize(
    "call",
    [
        "ai.onnx.ml.Scaler<offset=7, scale=[1.0]>(x)",
        "ai.onnx.ml.Scaler<offset=[1.0], scale=0.5>(x)",
        "ai.onnx.ml.LinearRegressor<coefficients=3>(x)",
        "ai.onnx.ml.SVMRegressor<coefficients=[1.0], rho=1.5>(x)",
        "ai.onnx.ml.TreeEnsembleRegressor<nodes_values=2>(x)",
        f"ai.onnx.ml.Scaler<offset=7, scale=[{','.join(['1.0'] * 70)}]>(x)",
    ],
)
def test_a_table_of_a_wrong_type_has_no_costs(call):
    text = from_onnx(small_model(f"y = {call}", "float[2,8] x"))
    with pytest.raises(ValueError, match="has attributes or inputs of a wrong type or number"):
        graph_features(text)


def test_an_operator_of_onnx_that_is_not_known_is_no_zero():
    call, output = OperatorCall("LaterOperator", {}, [Tensor(1, (1, 2, 3))], 1), Tensor(1, (1, 2, 3))
    assert "LaterOperator is not known" in operator_costs(call, output, {}).problem


def repeated(times):
    """A product in nested loops with these numbers of iterations, the innermost one first."""
    body, value = "p0 = MatMul(s0, w)", "p0"
    for k, number in enumerate(times):
        types = f"(int64 i{k}, bool c{k}, float[2,8] s{k}) => (bool d{k}, {value})"
        loop = f"Loop<body = b{k} {types} {{ d{k} = Identity(c{k}) {body} }}>"
        source = f"s{k + 1}" if k + 1 < len(times) else "x"
        body = f"n{k} = Constant<value_int={number}>() p{k + 1} = {loop}(n{k}, , {source})"
        value = f"p{k + 1}"
    return small_model(f"{body} y = Relu({value})", "float[2,8] x", {"w": (8, 8)})


@pytest.mark.parametrize(
    "times", [(3,), (2**53 + 1,), (2**62,), (2**62 + 1, 2**62 + 3), (1, 2**31) * 3, (2**53 + 1, 0)]
)
def test_sums_are_exact_integers(times):
    model = repeated(times)
    sums = compute_costs(parse_network(from_onnx(model))).sums()
    assert [type(total) for total in sums] == [int] * 3
    assert sums[:2] == (2 * 64 * math.prod(times), 64)
    report = inspect_network(model)
    assert (report.macs, report.params, report.activations) == sums
    assert json.loads(json.dumps(report.to_dict()))["macs"] == sums[0]


def test_costs_that_no_float_holds_are_not_known():
    text = from_onnx(repeated((2**62,) * 17))
    assert compute_costs(parse_network(text)).sums()[0] is None
    with pytest.raises(ValueError, match=r"the body of Loop runs so often that its costs exceed 10\^300"):
        graph_features(text)


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("y = Conv<pads=[1,1,1,1]>(x, w)", "float[1,3,H,W] x"),
        ("y = MatMul(x, v)", "float[1,T,8] x"),
        ("c = Conv(x, w) p = MaxPool<kernel_shape=[2,2]>(c) y = Conv(p, u)", "float[1,3,H,32] x"),
    ],
)
def test_open_sizes_are_named_and_can_be_given(body, inputs):
    model = small_model(body, inputs, {"w": (8, 3, 3, 3), "u": (8, 8, 3, 3), "v": (8, 5)})
    with pytest.raises(ValueError, match=r"depend on .*: give the shapes of the inputs"):
        graph_features(from_onnx(model))
    shape = [1, 3, 32, 32] if "Conv" in body else [1, 7, 8]
    assert graph_features(from_onnx(model, {"x": shape}))["flops"] > 0


def test_open_sizes_of_operators_that_do_not_multiply_do_not_matter():
    text = from_onnx(small_model("a = Relu(x) y = Softmax(a)", "float[1,T,8] x"))
    assert graph_features(text)["flops"] == 0


def test_sizes_that_depend_on_data_are_not_counted():
    body = "n = NonZero(x) t = Transpose(n) f = Cast<to=1>(t) y = MatMul(f, w)"
    text = from_onnx(small_model(body, "float[4,6] x", {"w": (2, 5)}))
    with pytest.raises(ValueError, match="of MatMul depend on a size that is known only when"):
        graph_features(text)


def test_a_batch_of_open_size_is_one_image():
    body, weights = "y = Conv(x, w)", {"w": (8, 3, 3, 3)}
    assert costs(small_model(body, "float[N,3,10,10] x", weights)) == (8 * 64 * 27, 216)


def test_quantized_network_costs_what_the_float_network_costs():
    """Weights, biases and activations in QDQ form; scales and zero points are no parameters."""
    scales = {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8), "i": np.array(0, np.int8)}
    weights = {"w": integers(16, 3, 3, 3), "b": integers(16, dtype=np.int32), "t": np.array(0, np.int32)}
    body = (
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear(w, s, i)"
        " f = DequantizeLinear(b, s, t) y = Conv(d, e, f)"
    )
    assert costs(small_model(body, "float[1,3,10,10] x", scales | weights)) == (16 * 64 * 27, 16 * 28)
    text = from_onnx(small_model(body, "float[1,3,10,10] x", scales | weights))
    changed = {n: np.asarray(v + 1, v.dtype) for n, v in (scales | weights).items()}
    assert from_onnx(small_model(body, "float[1,3,10,10] x", changed)) == text


def test_activations_are_the_elements_of_first_outputs():
    model = small_model("a = Relu(x) b, c = TopK(a, k) y = Sigmoid(b)", "float[2,8] x", {"k": np.array([3])})
    assert graph_features(from_onnx(model))["activations"] == 16 + 6 + 6
