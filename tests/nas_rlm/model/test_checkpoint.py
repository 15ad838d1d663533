import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import nas_rlm
import search_spaces
from nas_rlm import RLM
from nas_rlm.text import Tokenizer

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
    asked = cells, ["accuracy", "latency/pixel3"], (0.05, 0.5, 0.95)
    assert np.array_equal(again.predict(SPACE, *asked), rlm.predict(SPACE, *asked))
    assert again.objectives == rlm.objectives
    assert again.trained_on == rlm.trained_on
    saved = json.loads((tmp_path / "again" / "config.json").read_text())
    assert saved["package"].endswith(nas_rlm.__version__)


def test_no_such_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*nowhere"):
        RLM.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
def test_a_missing_file_is_named(checkpoint, name):
    (checkpoint / name).unlink()
    with pytest.raises(ValueError, match=f"{name} missing"):
        RLM.load(checkpoint)


@pytest.mark.parametrize("kept", [0, 5, 1000, -1])
def test_truncated_weights(checkpoint, kept):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"model\.safetensors is truncated or damaged"):
        RLM.load(checkpoint)


def test_a_foreign_tokenizer(checkpoint):
    Tokenizer.train(["another text\n"] * 9, vocab_size=800).save(checkpoint / "tokenizer.model")
    with pytest.raises(ValueError, match="is not this checkpoint's tokenizer"):
        RLM.load(checkpoint)


def test_a_damaged_tokenizer(checkpoint):
    (checkpoint / "tokenizer.model").write_bytes(b"no model")
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        RLM.load(checkpoint)


def test_weights_of_another_size(checkpoint):
    path = checkpoint / "config.json"
    saved = json.loads(path.read_text())
    saved["network"]["size"] = 2
    path.write_text(json.dumps(saved))
    with pytest.raises(ValueError, match=r"does not fit config\.json: .* expected \("):
        RLM.load(checkpoint)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"network": {"size": 1}, "tokenizer_sha256": ""}'])
def test_a_damaged_config(checkpoint, text):
    (checkpoint / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json (has no|is not what RLM)"):
        RLM.load(checkpoint)


def test_a_config_that_builds_no_network(checkpoint):
    path = checkpoint / "config.json"
    saved = json.loads(path.read_text())
    saved["network"]["size"] = 0
    path.write_text(json.dumps(saved))
    with pytest.raises(ValueError, match="size is 0: expected a whole number"):
        RLM.load(checkpoint)


def test_weights_that_are_no_numbers(checkpoint):
    weights = load_file(checkpoint / "model.safetensors")
    next(iter(weights.values()))[0] = float("nan")
    save_file(weights, checkpoint / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: .* not finite"):
        RLM.load(checkpoint)
