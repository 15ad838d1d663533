import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm import rlm as faces
from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.model import batching
from nas_rlm.model.checkpoint import Seen
from nas_rlm.model.network import Config, Network
from nas_rlm.surrogates.ensemble import pieces_of
from nas_rlm.text import Tokenizer, from_architecture
from nas_rlm.training.recipe import Recipe, TableRecipe

SPACE = search_spaces.get("nasbench201")
OBJECTIVES = ["accuracy", "latency/pixel3"]


def architectures(n: int) -> list:
    rng = np.random.default_rng(1)
    return [SPACE.sample(rng) for _ in range(n)]


@pytest.fixture(scope="module")
def rlm(tiny_checkpoint) -> RLM:
    return RLM.load(tiny_checkpoint)


def learnt(texts: list[str], values: np.ndarray, size: int, epochs: int) -> RLM:
    """A model trained on texts and their values alone."""
    tokenizer = Tokenizer.train(texts, vocab_size=800, longest_piece=4)
    torch.manual_seed(0)
    fresh = RLM(Network(Config(tokenizer.vocab_size, ("y",), size=size), tokenizer.kinds()), tokenizer)
    rows = [Row("text", "", {"y": float(v)}, text) for text, v in zip(texts, values, strict=True)]
    recipe = Recipe((TableRecipe(""),), epochs=epochs, learning_rate=1e-3, warmup=20, ema=0.9)
    return fresh.fine_tune(rows, ["y"], recipe)


def test_it_learns_to_copy_a_number():
    values = np.random.default_rng(0).permutation(np.arange(100, 1000))
    texts = [f"x={' '.join(str(v))}\n" for v in values]
    model = learnt(texts[:800], values[:800], size=2, epochs=20)
    assert spearman(model.predict_text(texts[800:], ["y"])[:, 0], values[800:]) > 0.95


def test_it_learns_what_a_text_does():
    rng = np.random.default_rng(0)
    chosen = [rng.choice(["Relu", "Conv", "Pool"], rng.integers(1, 6)) for _ in range(1000)]
    texts = ["".join(f"v{i + 1}={op}(v{i})\n" for i, op in enumerate(ops)) for ops in chosen]
    cost = {"Relu": 1.0, "Conv": 7.5, "Pool": 2.5}
    values = np.array([sum(cost[op] for op in ops) for ops in chosen])
    model = learnt(texts[:800], values[:800], size=3, epochs=12)
    held = model.predict_text(texts[800:], ["y"], quantiles=(0.1, 0.5, 0.9))[:, 0]
    assert spearman(held[:, 1], values[800:]) > 0.95
    assert (held[:, 0] <= held[:, 1]).all() and (held[:, 1] <= held[:, 2]).all()


def test_shapes(rlm):
    archs = architectures(3)
    assert rlm.predict(SPACE, archs, OBJECTIVES).shape == (3, 2)
    assert rlm.predict(SPACE, archs, OBJECTIVES, quantiles=(0.1, 0.5, 0.9)).shape == (3, 2, 3)
    assert rlm.sample(SPACE, archs, OBJECTIVES, num_samples=4).shape == (3, 4, 2)
    assert rlm.predict(SPACE, [], OBJECTIVES).shape == (0, 2)


def test_every_way_of_naming_a_network_gives_the_same_numbers(rlm, tmp_path):
    archs = architectures(3)
    found = rlm.predict(SPACE, archs, OBJECTIVES)
    path = tmp_path / "network.onnx"
    path.write_bytes(SPACE.to_onnx(archs[0]).SerializeToString())
    assert np.array_equal(rlm.predict("nasbench201", [str(a) for a in archs], OBJECTIVES), found)
    assert np.array_equal(rlm.predict_text([from_architecture(SPACE, a) for a in archs], OBJECTIVES), found)
    with pytest.warns(UserWarning, match="no space is named: .* is a guess"):
        assert np.array_equal(rlm.predict_onnx([path, SPACE.to_onnx(archs[1])], OBJECTIVES), found[:2])
    assert rlm.predict_onnx([path], OBJECTIVES, space="nasbench201") == pytest.approx(found[:1], rel=1e-3)
    with pytest.raises(ValueError, match="there is no space 'nasbench210'; did you mean nasbench201"):
        rlm.predict_onnx([path], OBJECTIVES, space="nasbench210")


def test_order_duplicates_and_batches_do_not_matter(tiny_checkpoint):
    rlm = RLM.load(tiny_checkpoint)
    rlm.network.double()  # an untrained model's later digits hang on the last bits
    archs = architectures(6)
    found = rlm.predict(SPACE, archs, OBJECTIVES)
    shuffled = [4, 0, 0, 5, 2, 4]
    again = rlm.predict(SPACE, [archs[i] for i in shuffled], OBJECTIVES, batch_size=2)
    assert np.array_equal(again, found[shuffled])


def test_many_architectures_are_read_some_at_a_time_and_each_once(rlm, monkeypatch):
    archs = [SPACE.sample(np.random.default_rng(i % 7)) for i in range(12)]
    texts = []
    made = faces.from_architectures
    monkeypatch.setattr(faces, "FEWEST", 3)
    monkeypatch.setattr(faces, "from_architectures", lambda *a: texts.append(made(*a)) or texts[-1])
    found = rlm.predict(SPACE, archs, OBJECTIVES, batch_size=1)
    assert [pieces_of(count) for count in (0, 7, 80, 1001, 4600, 9999)] == [1, 4, 10, 126, 288, 417]
    assert [len(some) for some in texts] == [4, 3]
    assert np.array_equal(found, np.concatenate([rlm.predict(SPACE, [a], OBJECTIVES) for a in archs]))


def test_a_batch_has_as_many_tokens_as_memory_is_meant_for(rlm, monkeypatch):
    monkeypatch.setattr(batching, "TOKENS", 100)
    batches = rlm.in_batches([f"v{i}" * (i + 1) for i in range(60)], 8)
    for batch in batches:
        assert len(batch) == 1 or (len(batch) <= 8 and len(batch) * len(batch[-1][1]) <= 100)
    lengths = [len(ids) for batch in batches for _, ids in batch]
    assert len(lengths) == 60
    assert lengths == sorted(lengths)


def test_a_text_is_encoded_once_however_often_it_is_given(rlm, monkeypatch):
    encoded = []
    encode = Network.encode
    monkeypatch.setattr(Network, "encode", lambda net, ids: encoded.append(len(ids)) or encode(net, ids))
    rlm.predict_text(["v1=Relu(v0)\n"] * 5 + ["v1=Add(v0,v0)\n"], ["accuracy"])
    assert sum(encoded) == 2


def test_the_median_is_the_middle_quantile(rlm):
    archs = architectures(4)
    three = rlm.predict(SPACE, archs, OBJECTIVES, quantiles=(0.1, 0.5, 0.9))
    assert np.array_equal(three[:, :, 1], rlm.predict(SPACE, archs, OBJECTIVES))


def test_samples_depend_on_the_seed_alone(rlm):
    archs = architectures(2)
    first, second, other = (rlm.sample(SPACE, archs, OBJECTIVES, 8, seed=s) for s in (0, 0, 1))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_texts_are_cropped_to_what_the_network_reads():
    tokenizer = Tokenizer.train(["v1=Relu(v0)\n"] * 9, vocab_size=800)
    torch.manual_seed(0)
    config = Config(tokenizer.vocab_size, ("accuracy",), size=1, max_length=4)
    short = RLM(Network(config, tokenizer.kinds()), tokenizer)
    assert len(short.token_ids("v1=Relu(v0)\n" * 3)) == 4
    with pytest.warns(UserWarning, match="has 40 tokens, of which the model reads the first 4"):
        same = short.predict_text(["v1=Relu(v0)\n" * 3, "v1=Relu(v0)\n" * 8], ["accuracy"])
    assert same[0] == same[1]


def test_fine_tuning_adds_an_objective_and_leaves_the_model_as_it_was(rlm):
    archs = architectures(6)
    before = rlm.predict(SPACE, archs, OBJECTIVES)
    rows = [Row("nasbench201", str(a), {"latency/new": 5.0}) for a in archs]
    grown = rlm.fine_tune(rows, ["latency/new"], Recipe((TableRecipe(""),), epochs=1, batch_size=4))
    assert grown.objectives == (*rlm.objectives, "latency/new")
    assert grown.predict(SPACE, archs, ["latency/new"]).shape == (6, 1)
    assert np.array_equal(rlm.predict(SPACE, archs, OBJECTIVES), before)


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        (["latency/pixel2"], r"'latency/pixel2'; did you mean latency/pixel3"),
        (["zzz"], "does not know the objective 'zzz'; known: accuracy"),
        ([], "no objectives"),
        (["accuracy", "latency/pixel3", "accuracy"], "'accuracy' is given more than once"),
        ("accuracy", r"expected a list of names, \['accuracy'\]"),
        ([None], r"objectives is \[None\]: expected a list of names"),
        ((name for name in ["accuracy"]), "expected a list of names"),
    ],
)
def test_objectives_that_cannot_be_answered(rlm, objectives, message):
    with pytest.raises(ValueError, match=message):
        rlm.predict_text(["v1=Relu(v0)\n"], objectives)


@pytest.mark.parametrize("quantiles", [(0.0,), (0.5, 1.0), (), 0.5, ("many",), (1e-9,)])
def test_quantiles_out_of_range(rlm, quantiles):
    with pytest.raises(ValueError, match=r"are not levels between 0\.001 and 0\.999"):
        rlm.predict_text(["v1=Relu(v0)\n"], ["accuracy"], quantiles)


def test_an_empty_text_is_refused(rlm):
    with pytest.raises(ValueError, match="text 1 is empty"):
        rlm.predict_text(["v1=Relu(v0)\n", ""], ["accuracy"])


def test_no_samples(rlm):
    with pytest.raises(ValueError, match="0 samples"):
        rlm.sample_text(["v1=Relu(v0)\n"], ["accuracy"], num_samples=0)


def test_the_shipped_median_is_the_middle_of_many_samples(shipped_rlm):
    archs = architectures(6)
    medians = shipped_rlm.predict(SPACE, archs, ["accuracy"])[:, 0]
    drawn = shipped_rlm.sample(SPACE, archs, ["accuracy"], num_samples=800, seed=1)[:, :, 0]
    for median, draws in zip(medians, drawn, strict=True):
        assert np.mean(draws < median) < 0.56
        assert np.mean(draws <= median) > 0.44


def test_the_shipped_model_knows_good_cells_from_bad_ones(shipped_rlm):
    best = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    poor = best.replace("nor_conv_3x3", "avg_pool_3x3")
    cut = "|none~0|+|none~0|nor_conv_3x3~1|+|none~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    found = shipped_rlm.predict(SPACE, [best, poor, cut], OBJECTIVES)
    assert found[0, 0] > 93 > found[1, 0] > 20 > found[2, 0]
    assert found[0, 1] > found[1, 1] > 0


def test_the_order_of_the_request_changes_nothing(rlm):
    archs = architectures(5)
    forwards = rlm.predict(SPACE, archs, OBJECTIVES, quantiles=(0.1, 0.9))
    backwards = rlm.predict(SPACE, archs, OBJECTIVES[::-1], quantiles=(0.1, 0.9))
    assert np.array_equal(forwards, backwards[:, ::-1])
    draws = rlm.sample(SPACE, archs, OBJECTIVES, 4, seed=3)
    assert np.array_equal(draws, rlm.sample(SPACE, archs, OBJECTIVES[::-1], 4, seed=3)[:, :, ::-1])


def test_what_was_never_seen_of_a_space_is_said(rlm, recwarn):
    knowing = RLM(rlm.network, rlm.tokenizer, {"nasbench201": Seen(10, ("accuracy",))})
    knowing.predict(SPACE, architectures(2), ["accuracy"])
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"never seen latency/pixel3 of nasbench201"):
        knowing.predict(SPACE, architectures(2), OBJECTIVES)
    other = search_spaces.get("nats_size")
    with pytest.warns(UserWarning, match=r"never seen accuracy of nats_size"):
        knowing.sample(other, [other.sample(np.random.default_rng(0))], ["accuracy"], 2)


def test_fine_tuning_adds_to_what_was_seen(rlm):
    rows = [Row("nasbench201", str(a), {"latency/new": 5.0, "accuracy": 9.0}) for a in architectures(4)]
    knowing = RLM(rlm.network, rlm.tokenizer, {"nasbench201": Seen(10, ("accuracy",))})
    grown = knowing.fine_tune(rows, ["latency/new"], Recipe((TableRecipe(""),), epochs=1, batch_size=4))
    assert grown.trained_on == {"nasbench201": Seen(14, ("accuracy", "latency/new"))}
    assert knowing.trained_on == {"nasbench201": Seen(10, ("accuracy",))}


def test_one_architecture_is_no_list(rlm):
    with pytest.raises(ValueError, match="expected a list of them"):
        rlm.predict(SPACE, str(architectures(1)[0]), ["accuracy"])


def test_the_shipped_model_says_what_it_saw(shipped_rlm):
    spaces = {"nasbench101", "nasbench201", "nats_size", "fbnet", "ofa_mbv3", "nds_darts"}
    assert set(shipped_rlm.trained_on) == spaces
    assert "latency/pixel3" in shipped_rlm.trained_on["nasbench201"].objectives
    assert "latency/pixel3" not in shipped_rlm.trained_on["nats_size"].objectives


@pytest.mark.parametrize("foreign", [None, 7, (1, 2), type(SPACE.sample(np.random.default_rng(0)))("abcdef")])
def test_what_is_no_architecture_of_the_space(rlm, foreign):
    with pytest.raises(ValueError, match=r"'(None|7|\(1, 2\))' has 1 nodes|unknown operator 'a'"):
        rlm.predict(SPACE, [foreign], ["accuracy"])


def test_containers_that_are_no_lists_of_texts(rlm):
    text = "v1=Relu(v0)\n"
    for one in (text, None, 5):
        with pytest.raises(ValueError, match="expected a list of them"):
            rlm.predict_text(one, ["accuracy"])
    expected = rlm.predict_text([text, text], ["accuracy"])
    assert np.array_equal(rlm.predict_text((t for t in [text, text]), ["accuracy"]), expected)
    assert np.array_equal(rlm.predict_text(np.array([text, text]), ["accuracy"]), expected)
    with pytest.raises(ValueError, match="batch_size is -1: expected a whole number from 1 on"):
        rlm.predict_text([text], ["accuracy"], batch_size=-1)
    with pytest.raises(ValueError, match="expected a list of models or paths"):
        rlm.predict_onnx("one.onnx", ["accuracy"])
    assert rlm.sample_text([text], ["accuracy"], 2, seed=np.int64(3)).shape == (1, 2, 1)
