import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from nas_rlm.files import ASSETS
from nas_rlm.model.checkpoint import load, save
from tests.nas_rlm import checkpoint_files
from tests.nas_rlm.checkpoint_files import Constant


@pytest.fixture
def with_surrogates(tiny_checkpoint, tmp_path):
    """A checkpoint with two surrogates."""
    model = load(tiny_checkpoint, Constant.from_saved)
    surrogates = {"nasbench201": [Constant(torch.ones(2)), Constant(torch.zeros(3))]}
    save(tmp_path / "saved", replace(model, surrogates=surrogates))
    return tmp_path / "saved"


@pytest.mark.parametrize("name", ["model.safetensors", "surrogates.safetensors"])
def test_a_file_with_one_changed_value_is_rejected(with_surrogates, name):
    tensors = load_file(with_surrogates / name)
    next(iter(tensors.values())).view(-1)[0] += 1
    save_file(tensors, with_surrogates / name)
    with pytest.raises(ValueError, match=rf"{name} is truncated or damaged, or belongs to another .* again"):
        load(with_surrogates, Constant.from_saved)
    checkpoint_files.write(with_surrogates, checkpoint_files.read(with_surrogates))
    load(with_surrogates, Constant.from_saved)  # checkpoints of older versions have no hashes


@pytest.mark.parametrize("change", ["removed", "added", "other"])
def test_a_changed_configuration_is_rejected(with_surrogates, change):
    saved = json.loads((with_surrogates / "config.json").read_text())
    if change == "removed":
        del saved["temperatures"]
    elif change == "added":
        saved["surrogates"]["nasbench201"][0]["kept"] = True
    else:
        saved["trained_on"] = {"nasbench201": {"rows": 3, "objectives": ["accuracy"]}}
    checkpoint_files.write(with_surrogates, saved)
    with pytest.raises(ValueError, match=r"config\.json was changed after the checkpoint was saved"):
        load(with_surrogates, Constant.from_saved)


def test_the_layout_of_the_configuration_does_not_matter(with_surrogates):
    saved = json.loads((with_surrogates / "config.json").read_text())
    checkpoint_files.write(with_surrogates, dict(reversed(saved.items())))
    assert len(load(with_surrogates, Constant.from_saved).surrogates["nasbench201"]) == 2


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("network",), None, r"network is None: expected a mapping"),
        (("network", "vocab_size"), ..., r"network\.vocab_size is missing"),
        (("network", "relational"), "no", "relational is 'no': expected true or false"),
        (("network", "vocab_size"), True, "vocab_size is True: expected an integer"),
        (("tokenizer_sha256",), 5, "tokenizer_sha256 is 5: expected a text"),
        (("trained_on",), ..., "trained_on is missing"),
        (("trained_on", "fbnet"), {"rows": "9", "objectives": []}, r"trained_on\.fbnet\.rows is '9'"),
        (("trained_on", "fbnet"), {"rows": 9}, r"trained_on\.fbnet\.objectives is missing"),
        (
            ("temperatures", "fbnet"),
            {"accuracy": "hot"},
            r"temperatures\.fbnet\.accuracy is 'hot': .* number",
        ),
        (("temperatures", "fbnet"), {"accuracy": 0}, r"accuracy is 0: expected a number above 0"),
        (("surrogates",), ..., r"surrogates is missing, but there is a file surrogates\.safetensors"),
        (("surrogates", "nasbench201"), {}, r"surrogates\.nasbench201 is \{\}: expected a list"),
        (("surrogates", "nasbench201"), [{}], r"surrogates\['nasbench201'\]\[0\] has no 'kind'"),
        (("surrogates", "nasbench201"), [{"kind": 1}], r"surrogates\['nasbench201'\]\[0\]: kind is 1"),
        (("equal_tensors",), {"a": "b"}, "b missing"),
        (("maximised",), "accuracy", "maximised is 'accuracy': expected a list"),
    ],
)
def test_an_invalid_configuration_is_rejected_with_its_key(with_surrogates, keys, value, message):
    content = checkpoint_files.read(with_surrogates)
    *outer, last = keys
    target = content
    for key in outer:
        target = target[key]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    checkpoint_files.write(with_surrogates, content)
    with pytest.raises(ValueError, match=rf"config\.json.*{message}"):
        load(with_surrogates, Constant.from_saved)


@pytest.mark.parametrize("name", ["nas", "nas-fast", "pretrained", "programs"])
def test_shipped_models_have_hashes_of_their_files(name):
    hashes = json.loads((ASSETS / name / "config.json").read_text())["sha256"]
    assert {*hashes} == {file.name for file in (ASSETS / name).iterdir()} - {"tokenizer.model"}
