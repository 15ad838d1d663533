import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.metrics import spearman
from nas_rlm.model.checkpoint import Seen
from nas_rlm.model.network import Config, Network
from nas_rlm.model.onnx_export import export_model
from nas_rlm.model.onnx_runtime import DECODER, Lite

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

SPACE = search_spaces.get("nasbench201")
LEVELS = (0.1, 0.5, 0.9)


@pytest.fixture(scope="module", params=[(1, 0), (4, 0), (8, 0), (2, 1), (4, 2)])
def rlm(request, tiny_checkpoint):
    """Networks without and with special heads, of one and of two decoder layers, and such of statements."""
    size, statements = request.param
    tokenizer = RLM.load(tiny_checkpoint).tokenizer
    torch.manual_seed(size)
    config = Config(tokenizer.vocab_size, ("accuracy", "latency/a", "latency/b"), size, statements=statements)
    seen = {"nasbench201": Seen(9, ("accuracy", "latency/a", "latency/b"))}
    temperatures = {"nasbench201": {"accuracy": 0.7, "latency/a": 1.6}, "fbnet": {"latency/a": 3.0}}
    network = Network(config, tokenizer.kinds()).eval()
    with torch.no_grad():
        network.digits.weight.mul_(20)  # an untrained model's digits hang on the last bits
    return RLM(network, tokenizer, seen, temperatures)


@pytest.fixture(scope="module")
def exported(rlm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lite") / "model"
    export_model(rlm, folder)
    return folder


@pytest.fixture(scope="module")
def lite(exported):
    return Lite.load(exported)


def cells(count):
    return [SPACE.sample(np.random.default_rng(i)) for i in range(count)]


def test_an_exported_model_tells_what_its_network_does(rlm, lite, monkeypatch):
    monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: False)
    archs = [*cells(9), cells(1)[0]]
    expected = rlm.predict(SPACE, archs, rlm.objectives, LEVELS)
    found = lite.predict("nasbench201", list(map(str, archs)), rlm.objectives, LEVELS, batch_size=4)
    assert np.isclose(found, expected, rtol=2e-3).mean() > 0.95  # else a level falls between two digits
    assert np.array_equal(lite.predict(SPACE, archs, ["accuracy"]), found[:, :1, 1])


def test_temperatures_are_those_of_the_space_or_of_others(rlm, lite):
    for space in ("", "nasbench201", "pixels"):
        known = lite.temperatures.get(space, lite.temperatures[""])
        assert list(known) == pytest.approx(rlm.temperatures_of(space, rlm.objectives))


def test_the_shipped_network_and_in_eight_bits(shipped_rlm, tmp_path, monkeypatch):
    monkeypatch.setattr("nas_rlm.model.network.has_bfloat16", lambda: False)
    alone = RLM(shipped_rlm.network, shipped_rlm.tokenizer, shipped_rlm.trained_on, shipped_rlm.temperatures)
    archs, names = cells(60), ["accuracy", "latency/pixel3"]
    expected = alone.predict(SPACE, archs, names, LEVELS)
    for folder, int8 in (("whole", False), ("small", True)):
        export_model(shipped_rlm, tmp_path / folder, int8)
        found = Lite.load(tmp_path / folder).predict(SPACE, archs, names, LEVELS)
        if not int8:
            assert np.isclose(found, expected, rtol=1e-3).mean() > 0.98
        assert all(spearman(found[:, k, 1], expected[:, k, 1]) > 0.98 for k in range(2))
    sizes = [sum(f.stat().st_size for f in (tmp_path / name).glob("*.onnx")) for name in ("whole", "small")]
    assert sizes[1] < 0.7 * sizes[0]


def test_what_is_asked_is_checked(lite):
    with pytest.raises(ValueError, match="does not know the objective 'latency/c'; did you mean"):
        lite.predict(SPACE, cells(1), ["latency/c"])
    with pytest.warns(UserWarning, match="has never seen accuracy of nats_size"):
        lite.predict("nats_size", ["8:8:8:8:8"], ["accuracy"])
    with pytest.raises(ValueError, match="batch_size is 0"):
        lite.predict(SPACE, cells(1), ["accuracy"], batch_size=0)


def test_folders_that_hold_no_exported_model(rlm, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        Lite.load(tmp_path)
    folder = tmp_path / "model"
    export_model(rlm, folder)
    with pytest.raises(ValueError, match="is not empty"):
        export_model(rlm, folder)
    with pytest.raises(ValueError, match="is an exported model, which predict and rank alone read"):
        RLM.load(folder)
    decoder = (folder / DECODER).read_bytes()
    (folder / DECODER).write_bytes(decoder[:-1] + b"?")
    with pytest.raises(ValueError, match=r"decoder\.onnx is damaged, or another model's"):
        Lite.load(folder)
    (folder / DECODER).unlink()
    with pytest.raises(FileNotFoundError, match=r"model has no decoder\.onnx"):
        Lite.load(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperatures", {"": []}, "not one above 0 for each"),
        ("temperatures", {}, "not one above 0 for each objective, of ''"),
        ("temperatures", {"": [1.0, float("nan"), 1.0]}, "not one above 0 for each"),
        ("max_length", 0, "max_length is 0, expected a whole number from 1 on"),
        ("mantissa_digits", -1, "mantissa_digits is -1"),
        ("seen", None, "config.json has no 'seen'"),
    ],
)
def test_a_wrong_configuration_is_refused(lite, exported, tmp_path, name, value, message):
    shutil.copytree(exported, tmp_path / "model")
    told = {**json.loads((exported / "config.json").read_text()), name: value}
    told = {key: content for key, content in told.items() if content is not None}
    (tmp_path / "model" / "config.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=message):
        Lite.load(tmp_path / "model")


def test_no_torch_is_needed(rlm, tmp_path):
    export_model(rlm, tmp_path / "model")
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from nas_rlm.model.onnx_runtime import Lite\n"
        f"lite = Lite.load({str(tmp_path / 'model')!r})\n"
        f"print(lite.predict('nasbench201', [{str(cells(1)[0])!r}], ['accuracy']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
