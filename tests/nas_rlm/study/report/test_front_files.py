import csv
import runpy

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import load_file

from nas_rlm.study.report.front_files import command_line
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


def test_a_file_of_a_trained_network_without_its_weights_fails(open_study, tmp_path):
    study = open_study()
    study.optimize(trained, trials=1)
    source = (study.directory / "front" / "00000.py").read_text()
    (tmp_path / "alone.py").write_text(source)
    network = runpy.run_path(str(tmp_path / "alone.py"))["network"]
    with pytest.raises(FileNotFoundError, match=r"alone\.safetensors"):
        network()
    assert network(trained=False)


def test_weights_of_a_compiled_network_are_those_of_the_network(open_study):
    def compiled(trial):
        network = trial.network()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.fill_(0.01)
        return accuracy(trial), torch.compile(network).state_dict()

    study = open_study()
    study.optimize(compiled, trials=1)
    path = study.directory / "front" / "00000"
    network = runpy.run_path(str(path.with_suffix(".py")))["network"]()
    assert all((parameter == 0.01).all() for parameter in network.parameters())
    model = onnx.load(path.with_suffix(".onnx"))
    values = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.dims]
    assert any((array == np.float32(0.01)).all() for array in values if array.dtype == np.float32)


def test_weights_of_another_module_are_warned_of_and_not_loaded(open_study):
    study = open_study()
    with pytest.warns(UserWarning) as caught:
        study.optimize(lambda trial: (accuracy(trial), {"w": torch.zeros(1)}), trials=1)
    messages = [str(warning.message) for warning in caught]
    assert "the weights that trial 0 gave are not those of trial.network()" in messages[0]
    assert "the ONNX files of trials 0 have initial weights" in messages[1]
    path = study.directory / "front" / "00000"
    assert load_file(path.with_suffix(".safetensors")).keys() == {"w"}
    network = runpy.run_path(str(path.with_suffix(".py")))["network"]
    with pytest.raises(ValueError, match="has weights of another module"):
        network()
    initial = study.trials[0].network().state_dict()
    assert all(torch.equal(v, initial[k]) for k, v in network(trained=False).state_dict().items())


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
