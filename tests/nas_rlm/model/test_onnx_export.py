import json
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.metrics import spearman
from nas_rlm.model.batching import TruncationWarning
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.model.network import Config, Network
from nas_rlm.model.onnx_export import export_model
from nas_rlm.model.onnx_runtime import DECODER_FILE, OnnxPredictor

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

SPACE = search_spaces.get("nasbench201")
LEVELS = (0.1, 0.5, 0.9)
SMALLEST = (1, 0)  # size and number of statement layers
smallest = pytest.mark.parametrize("rlm", [SMALLEST], indirect=True)


@pytest.fixture(scope="module", params=[SMALLEST, (4, 0), (6, 0), (2, 1), (4, 2)])
def rlm(request, tiny_checkpoint):
    """Networks without and with special heads, with one and two decoder layers, and with statement layers."""
    size, statement_layers = request.param
    tokenizer = RLM.load(tiny_checkpoint).tokenizer
    torch.manual_seed(size)
    config = Config(
        tokenizer.vocab_size, ("accuracy", "latency/a", "latency/b"), size, statement_layers=statement_layers
    )
    trained_on = {"nasbench201": TrainedOn(9, ("accuracy", "latency/a", "latency/b"))}
    temperatures = {"nasbench201": {"accuracy": 0.7, "latency/a": 1.6}, "fbnet": {"latency/a": 3.0}}
    network = Network(config, tokenizer.kinds()).eval()
    with torch.no_grad():
        network.digits.weight.mul_(20)  # else the digits of an untrained model depend on rounding
    return RLM(network, tokenizer, trained_on, temperatures)


@pytest.fixture(scope="module")
def exported(rlm, tmp_path_factory):
    directory = tmp_path_factory.mktemp("predictor") / "model"
    export_model(rlm, directory)
    return directory


@pytest.fixture(scope="module")
def predictor(exported):
    return OnnxPredictor.load(exported)


def cells(count):
    return [SPACE.sample(np.random.default_rng(i)) for i in range(count)]


def test_an_exported_model_predicts_as_its_network(rlm, predictor, monkeypatch):
    monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: False)
    archs = [*cells(9), cells(1)[0]]
    expected = rlm.predict(SPACE, archs, rlm.objectives, LEVELS)
    predictions = predictor.predict(
        "nasbench201", list(map(str, archs)), rlm.objectives, LEVELS, batch_size=4
    )
    assert (
        np.isclose(predictions, expected, rtol=2e-3).mean() > 0.95
    )  # rounding can move a quantile by a digit
    assert np.array_equal(predictor.predict(SPACE, archs, ["accuracy"]), predictions[:, :1, 1])


def test_truncated_architectures_and_texts_are_named(predictor):
    short, archs = replace(predictor, max_length=8), cells(2)
    with pytest.warns(TruncationWarning, match="first 8 tokens") as caught:
        short.predict(SPACE, archs, ["accuracy"])
    assert all(f"{cell} (" in str(caught[0].message) for cell in archs)
    with pytest.warns(TruncationWarning, match=r"text 1 \(\d+ tokens\)$"):
        short.predict_text(["v1=Relu(v0)\n", "v1=Relu(v0)\n" * 20], ["accuracy"])


def test_an_exported_model_reads_long_texts(rlm, predictor, monkeypatch):
    monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: False)
    text = "".join(f"v{i % 7 + 1}=Relu(v{i % 5})\n" for i in range(600))
    assert len(rlm.token_ids(text)) == len(rlm.tokenizer.encode(text)) > 2048
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictions = predictor.predict_text([text], ["accuracy"], LEVELS)
    assert np.allclose(predictions, rlm.predict_text([text], ["accuracy"], LEVELS), rtol=2e-3)


def test_temperatures_are_those_of_the_space_or_the_mean_over_spaces(rlm, predictor):
    for space in ("", "nasbench201", "pixels"):
        temperatures = predictor.temperatures.get(space, predictor.temperatures[""])
        assert list(temperatures) == pytest.approx(rlm.network_temperatures(space, rlm.objectives))


def test_the_shipped_network_in_float32_and_int8(shipped_rlm, tmp_path, monkeypatch):
    monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: False)
    no_surrogates = RLM(
        shipped_rlm.network, shipped_rlm.tokenizer, shipped_rlm.trained_on, shipped_rlm.temperatures
    )
    archs, names = cells(60), ["accuracy", "latency/pixel3"]
    expected = no_surrogates.predict(SPACE, archs, names, LEVELS)
    for directory, int8 in (("float32", False), ("int8", True)):
        export_model(shipped_rlm, tmp_path / directory, int8)
        predictions = OnnxPredictor.load(tmp_path / directory).predict(SPACE, archs, names, LEVELS)
        if not int8:
            assert np.isclose(predictions, expected, rtol=1e-3).mean() > 0.98
        assert all(spearman(predictions[:, k, 1], expected[:, k, 1]) > 0.98 for k in range(2))
    sizes = [sum(f.stat().st_size for f in (tmp_path / name).glob("*.onnx")) for name in ("float32", "int8")]
    assert sizes[1] < 0.7 * sizes[0]


def test_arguments_are_checked(predictor):
    with pytest.raises(ValueError, match="does not know the objective 'latency/c'; did you mean"):
        predictor.predict(SPACE, cells(1), ["latency/c"])
    with pytest.warns(UserWarning, match="was not trained on accuracy of nats_size"):
        predictor.predict("nats_size", ["8:8:8:8:8"], ["accuracy"])
    with pytest.raises(ValueError, match="batch_size is 0"):
        predictor.predict(SPACE, cells(1), ["accuracy"], batch_size=0)


@smallest
def test_directories_without_an_exported_model_are_rejected(rlm, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        OnnxPredictor.load(tmp_path)
    directory = tmp_path / "model"
    export_model(rlm, directory)
    with pytest.raises(ValueError, match="is not empty"):
        export_model(rlm, directory)
    with pytest.raises(ValueError, match="is an exported model: only predict and rank read it"):
        RLM.load(directory)
    decoder = (directory / DECODER_FILE).read_bytes()
    (directory / DECODER_FILE).write_bytes(decoder[:-1] + b"?")
    with pytest.raises(ValueError, match=r"decoder\.onnx is damaged or of another model"):
        OnnxPredictor.load(directory)
    (directory / DECODER_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=r"model has no decoder\.onnx"):
        OnnxPredictor.load(directory)


@smallest
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperatures", {"": []}, "expected a positive number for each"),
        ("temperatures", {}, "expected a positive number for each objective"),
        ("temperatures", {"": [1.0, float("nan"), 1.0]}, "expected a positive number for each"),
        ("max_length", 0, "max_length is 0, expected an integer of at least 1"),
        ("mantissa_digits", -1, "mantissa_digits is -1"),
        ("seen", {"nasbench201": ["accuracy"]}, "an older version of nas-rlm wrote it"),
        ("trained_on", None, r"config\.json has no 'trained_on'"),
    ],
)
def test_an_invalid_configuration_is_rejected(predictor, exported, tmp_path, name, value, message):
    shutil.copytree(exported, tmp_path / "model")
    saved = {**json.loads((exported / "config.json").read_text()), name: value}
    saved = {key: content for key, content in saved.items() if content is not None}
    (tmp_path / "model" / "config.json").write_text(json.dumps(saved))
    with pytest.raises(ValueError, match=message):
        OnnxPredictor.load(tmp_path / "model")


@pytest.mark.parametrize("rlm", [SMALLEST, (2, 1)], indirect=True)
def test_an_exported_model_needs_no_torch(rlm, tmp_path):
    export_model(rlm, tmp_path / "model")
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from nas_rlm.model.onnx_runtime import OnnxPredictor\n"
        f"predictor = OnnxPredictor.load({str(tmp_path / 'model')!r})\n"
        f"print(predictor.predict('nasbench201', [{str(cells(1)[0])!r}], ['accuracy']))\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-1500:]
