import csv
import runpy

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import load_file

from nas_rlm.graph.torch_module import to_torch
from nas_rlm.study.report import front_files
from nas_rlm.study.report.front_files import command_line, with_weights
from search_spaces import blocks
from search_spaces.graph import Constant, Graph
from tests.nas_rlm.study.conftest import accuracy


def trained(trial):
    """Random weights instead of trained ones, also of batch normalization."""
    network = trial.network()
    with torch.no_grad():
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) * 0.1)
            else:
                tensor += 1  # batches that a batch norm has seen
    weights = network.state_dict()
    return accuracy(trial), {"w": torch.zeros(1)} if trial.number == 1 else weights


def test_each_network_of_the_front_is_usable(open_study):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    study = open_study()
    study.optimize(trained, trials=4)
    study.optimize(accuracy, trials=6)
    front = study.directory / "front"
    stems = {f"{trial.number:05d}" for trial in study.front}
    assert {path.stem for path in front.glob("*.onnx")} == stems == {p.stem for p in front.glob("*.py")}
    # The weights of trial 1 are of another module.
    usable = next(trial for trial in study.front if trial.number in (0, 2, 3))
    for trial in study.front:
        path = front / f"{trial.number:05d}"
        module = runpy.run_path(str(path.with_suffix(".py")))
        assert "nas-rlm retrain" in module["__doc__"] and f"--trial {trial.number}" in module["__doc__"]
        assert path.with_suffix(".safetensors").is_file() == (trial.number < 4)
    network = runpy.run_path(str(front / f"{usable.number:05d}.py"))["network"]().eval()
    session = onnxruntime.InferenceSession(front / f"{usable.number:05d}.onnx")
    x = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    (output,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.allclose(network(x), torch.from_numpy(output), atol=1e-5)
    weights = load_file(front / f"{usable.number:05d}.safetensors")
    assert weights.keys() == network.state_dict().keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in network.named_parameters())
    with open(study.directory / "front.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["number"]) for row in rows] == [trial.number for trial in study.front]
    assert all(row["command"].startswith("nas-rlm retrain") for row in rows)
    with open(study.directory / "trials.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 6


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
    monkeypatch.setattr(front_files, "MARKS", 50)  # several passes
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


def test_the_command_of_a_trial_without_a_known_function_names_the_option(open_study):
    study = open_study()
    study.optimize(accuracy, trials=1)
    asked = study.ask()
    study.tell(asked, 90.0)
    first = study.trials[0]
    assert command_line(study.directory, first).endswith("--trial 0")
    assert command_line(study.directory, asked).endswith("--trial 1 --train FILE.py:FUNCTION")
    with pytest.raises(
        ValueError, match=r"function of trial 1 is not known: .* such as --train mine\.py:train"
    ):
        study.retrain(asked)
