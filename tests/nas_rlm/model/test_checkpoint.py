import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import nas_rlm
import search_spaces
from nas_rlm import RLM
from nas_rlm.model.checkpoint import load, save
from nas_rlm.text import Tokenizer
from tests.nas_rlm import checkpoint_files
from tests.nas_rlm.checkpoint_files import Constant

SPACE = search_spaces.get("nasbench201")


@pytest.fixture
def checkpoint(tiny_checkpoint, tmp_path):
    """A copy to damage."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "copy")


def test_a_saved_model_predicts_as_before(tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    rlm.save(tmp_path / "again")
    again = RLM.load(tmp_path / "again")
    cells = [SPACE.sample(np.random.default_rng(i)) for i in range(5)]
    arguments = SPACE, cells, ["accuracy", "latency/pixel3"], (0.05, 0.5, 0.95)
    assert np.array_equal(again.predict(*arguments), rlm.predict(*arguments))
    assert again.objectives == rlm.objectives
    assert again.trained_on == rlm.trained_on
    saved = json.loads((tmp_path / "again" / "config.json").read_text())
    assert saved["package"].endswith(nas_rlm.__version__)


def test_a_checkpoint_with_the_names_of_older_versions_loads(tiny_checkpoint, tmp_path):
    model = load(tiny_checkpoint, Constant.from_saved)
    model = replace(model, surrogates={"nasbench201": [Constant(torch.ones(2)), Constant(torch.zeros(3))]})
    save(tmp_path, model)
    text = json.dumps(checkpoint_files.read(tmp_path))
    for new, old in (
        ("surrogates", "experts"),
        ("max_numbers", "numbers"),
        ("statement_layers", "statements"),
    ):
        text = text.replace(f'"{new}"', f'"{old}"')
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "surrogates.safetensors").rename(tmp_path / "experts.safetensors")
    again = load(tmp_path, Constant.from_saved)
    assert again.network.config == model.network.config
    assert [s.value.tolist() for s in again.surrogates["nasbench201"]] == [[1, 1], [0, 0, 0]]
    save(tmp_path, again)
    names = {"config.json", "model.safetensors", "surrogates.safetensors", "tokenizer.model"}
    assert {file.name for file in tmp_path.iterdir()} == names
    save(tmp_path, replace(again, surrogates={}))
    assert not (tmp_path / "surrogates.safetensors").exists()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.0),
        torch.empty(0, 4),
        torch.arange(12.0).reshape(3, 4)[:, 1],
        torch.arange(12.0).reshape(3, 4)[:1, 1],
        torch.arange(12).reshape(3, 4).T,
        torch.ones(2, dtype=torch.float16),
    ],
    ids=["a number", "empty", "a column", "one of a column", "transposed", "half"],
)
def test_surrogates_keep_tensors_of_any_shape_and_stride(tensor, tiny_checkpoint, tmp_path):
    model = load(tiny_checkpoint, Constant.from_saved)
    saved = [Constant(tensor), Constant(tensor.clone()), Constant(torch.full((2,), 7.0))]
    save(tmp_path, replace(model, surrogates={"nasbench201": saved[:1], "fbnet": saved[1:]}))
    again = load(tmp_path, Constant.from_saved).surrogates
    for before, after in zip(saved, again["nasbench201"] + again["fbnet"], strict=True):
        assert before.value.dtype == after.value.dtype
        assert torch.equal(before.value, after.value)


@pytest.mark.parametrize(
    ("saved", "loaded"), [(2048, 8192), (8192, 8192), (512, 512), (2047, 2047), (4096, 4096)]
)
def test_the_former_maximum_length_is_raised(checkpoint, saved, loaded):
    content = checkpoint_files.read(checkpoint)
    content["network"]["max_length"] = saved
    checkpoint_files.write(checkpoint, content)
    assert RLM.load(checkpoint).network.config.max_length == loaded


@pytest.mark.parametrize("name", ["nas", "nas-fast", "pretrained", "programs"])
def test_shipped_models_read_8192_tokens(name):
    assert RLM.load(name).network.config.max_length == 8192


def test_no_such_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*nowhere"):
        RLM.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
def test_a_missing_file_is_named(checkpoint, name):
    (checkpoint / name).unlink()
    with pytest.raises(ValueError, match=f"{name} missing"):
        RLM.load(checkpoint)


@pytest.mark.parametrize("end", [0, 5, 1000, -1])
def test_truncated_weights_are_rejected(checkpoint, end):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(ValueError, match=r"model\.safetensors is truncated or damaged"):
        RLM.load(checkpoint)


def test_the_tokenizer_of_another_model_is_rejected(checkpoint):
    Tokenizer.train(["another text\n"] * 9, vocab_size=800).save(checkpoint / "tokenizer.model")
    with pytest.raises(ValueError, match="is not this checkpoint's tokenizer"):
        RLM.load(checkpoint)


def test_a_damaged_tokenizer_is_rejected(checkpoint):
    (checkpoint / "tokenizer.model").write_bytes(b"no model")
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        RLM.load(checkpoint)


def test_weights_of_another_size_are_rejected(checkpoint):
    saved = checkpoint_files.read(checkpoint)
    saved["network"]["size"] = 2
    checkpoint_files.write(checkpoint, saved)
    with pytest.raises(ValueError, match=r"does not fit config\.json: .* expected \("):
        RLM.load(checkpoint)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"network": {"size": 1}, "tokenizer_sha256": ""}'])
def test_a_damaged_config_is_rejected(checkpoint, text):
    (checkpoint / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json is not a file that RLM\.save wrote"):
        RLM.load(checkpoint)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("size", 0, "size is 0: expected an integer"),
        ("objectives", None, "objectives is None: expected a list of names"),
        ("objectives", ["accuracy", 3], "expected a list of names"),
    ],
)
def test_a_config_with_an_invalid_value_is_rejected(checkpoint, name, value, message):
    saved = checkpoint_files.read(checkpoint)
    saved["network"][name] = value
    checkpoint_files.write(checkpoint, saved)
    with pytest.raises(ValueError, match=message):
        RLM.load(checkpoint)


def test_weights_with_nan_are_rejected(checkpoint):
    checkpoint_files.write(checkpoint, checkpoint_files.read(checkpoint))
    weights = load_file(checkpoint / "model.safetensors")
    next(iter(weights.values()))[0] = float("nan")
    save_file(weights, checkpoint / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: .* not finite"):
        RLM.load(checkpoint)
