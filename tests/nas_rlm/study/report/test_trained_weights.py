import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from nas_rlm.graph.torch_module import to_torch
from nas_rlm.study.report import trained_weights
from nas_rlm.study.report.trained_weights import matching_weights, with_weights
from search_spaces import blocks
from search_spaces.graph import Constant, Graph


def test_constants_of_a_module_are_no_weights():
    graph = Graph((1, 3, 8, 8), weights=True)
    x = blocks.conv_norm(graph, graph.input, 16, norm="group")
    model = graph.build(blocks.classifier(graph, x, 4))
    weights = {
        key: torch.full_like(tensor, 0.25 + k)
        for k, (key, tensor) in enumerate(to_torch(model).named_parameters())
    }
    constants = {key: value for key, value in to_torch(model).state_dict().items() if key not in weights}
    assert constants  # ones and zeros of the normalization, which are numbers of initialisers as well
    trained = with_weights(model, {**weights, **constants})
    stored = [numpy_helper.to_array(tensor) for tensor in trained.graph.initializer if tensor.dims]
    assert sorted(float(array.flat[0]) for array in stored if array.dtype == np.float32) == [
        float(tensor.flatten()[0]) for tensor in weights.values()
    ]


@pytest.mark.parametrize(
    ("kind", "gates", "options"),
    [("RNN", 1, {}), ("LSTM", 4, {}), ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1})],
)
def test_weights_of_recurrent_layers_which_torch_orders_otherwise_are_taken(
    monkeypatch, kind, gates, options
):
    monkeypatch.setattr(trained_weights, "MARKS", 50)  # several passes
    w, r, b = ([1, gates * 4, 6], [1, gates * 4, 4], [1, gates * 8])
    names = [("w", w), ("r", r), ("b", b)]
    weights = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in names]
    node = onnx.helper.make_node(kind, ["x", "w", "r", "b"], ["y"], hidden_size=4, **options)
    x, y = (
        onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [5, 1, 6]), ("y", None))
    )
    graph = onnx.helper.make_graph([node], "g", [x], [y], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    module = to_torch(model)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-1, 1)
    trained = with_weights(model, module.state_dict())
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    inputs = torch.randn(5, 1, 6)
    (found,) = onnxruntime.InferenceSession(trained.SerializeToString()).run(None, {"x": inputs.numpy()})
    assert torch.from_numpy(found).abs().max() > 0.1
    assert torch.allclose(module(inputs), torch.from_numpy(found), atol=1e-5)


def test_large_constants_are_no_weights_and_a_model_may_have_none():
    graph = Graph((1, 8), weights=True)
    x = graph.op("Slice", graph.input, Constant((0,)), Constant((2**62,)), Constant((1,)))
    x = graph.op("Clip", x, Constant(-1e9), Constant(5e6))
    model = graph.build(blocks.linear(graph, x, 3))
    weights = {key: tensor + 1 for key, tensor in to_torch(model).state_dict().items()}
    weights |= {k: v - 1 for k, v in weights.items() if k not in dict(to_torch(model).named_parameters())}
    trained = to_torch(with_weights(model, weights)).state_dict()
    assert all(torch.equal(trained[key], weights[key]) for key in weights)
    empty = Graph((1, 8), weights=True)
    assert with_weights(empty.build(empty.op("Relu", empty.input)), {}) is None


def test_weights_of_another_module_are_not_taken(open_study):
    trial = open_study().ask()
    weights = trial.network().state_dict()
    assert with_weights(trial.onnx(), weights) is not None
    name = next(iter(weights))
    assert with_weights(trial.onnx(), {**weights, name: torch.zeros(3)}) is None
    assert with_weights(trial.onnx(), {"w": torch.zeros(1)}) is None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda network: torch.compile(network).state_dict(),
        lambda network: torch.nn.DataParallel(network).state_dict(),
        lambda network: torch.optim.swa_utils.AveragedModel(network).state_dict(),
        lambda network: torch.nn.DataParallel(torch.compile(network)).state_dict(),
        lambda network: {**network.state_dict(), "average": torch.zeros(3)},
    ],
)
def test_names_of_wrappers_and_further_tensors_are_left_out(wrap):
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    expected = network.state_dict()
    found = matching_weights(wrap(network), expected)
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_weights_that_lack_one_or_have_another_shape_do_not_match():
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    expected = network.state_dict()
    assert matching_weights(dict(network.named_parameters()), expected) is None  # no running mean
    assert matching_weights({**expected, "0.bias": torch.zeros(3)}, expected) is None
    assert matching_weights({}, expected) is None
