import re
import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.model import batching
from nas_rlm.model.batching import TruncationWarning, chunk_size
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.model.network import Config, Network
from nas_rlm.surrogates.ensemble import ensemble
from nas_rlm.text import Tokenizer, from_architecture, from_onnx
from nas_rlm.training.recipe import Recipe, TableRecipe
from tests.nas_rlm.onnx_models import with_batch

SPACE = search_spaces.get("nasbench201")
OBJECTIVES = ["accuracy", "latency/pixel3"]
LEVELS = (0.1, 0.5, 0.9)


def architectures(n: int) -> list:
    rng = np.random.default_rng(1)
    return [SPACE.sample(rng) for _ in range(n)]


@pytest.fixture(scope="module")
def rlm(tiny_checkpoint) -> RLM:
    return RLM.load(tiny_checkpoint)


def trained_on(texts: list[str], values: np.ndarray, size: int, epochs: int) -> RLM:
    """A model trained on texts and their values alone."""
    tokenizer = Tokenizer.train(texts, vocab_size=800, longest_piece=4)
    torch.manual_seed(0)
    fresh = RLM(Network(Config(tokenizer.vocab_size, ("y",), size=size), tokenizer.kinds()), tokenizer)
    rows = [Row("text", "", {"y": float(v)}, text) for text, v in zip(texts, values, strict=True)]
    recipe = Recipe((TableRecipe(""),), epochs=epochs, learning_rate=1e-3, warmup=20, ema=0.9)
    return fresh.fine_tune(rows, ["y"], recipe)


def test_results_do_not_depend_on_the_defaults_of_torch(tiny_checkpoint, change_torch):
    archs, texts = architectures(8), [f"width={w}" for w in range(80)]
    rows = [Row(SPACE.name, str(a), {"accuracy": 80.0 + i}) for i, a in enumerate(archs)]

    def results() -> list[np.ndarray]:
        rlm = RLM.load(tiny_checkpoint)
        tuned = rlm.fine_tune(rows, ["accuracy"], Recipe((TableRecipe(""),), epochs=1))
        fitted = RLM.fit(texts, [*range(80)], source="surrogate", progress=False)
        return [
            rlm.predict(SPACE, archs, OBJECTIVES, LEVELS),
            rlm.predict("fbnet", ["_".join("38" * 11)], ["accuracy"]),
            rlm.sample(SPACE, archs[:2], OBJECTIVES, 4),
            rlm.log_prob(["v0=Relu(v1)"], 70.0),
            tuned.predict(SPACE, archs, ["accuracy"]),
            fitted.predict_text(texts),
        ]

    expected = results()
    change_torch()
    with torch.inference_mode():
        found = results()
    assert torch.ones(1).device.type == "meta" and torch.ones(1).dtype == torch.float64
    for values, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(values, other)


def test_it_learns_to_copy_a_number():
    values = np.random.default_rng(0).permutation(np.arange(100, 1000))
    texts = [f"x={' '.join(str(v))}\n" for v in values]
    model = trained_on(texts[:800], values[:800], size=2, epochs=20)
    assert spearman(model.predict_text(texts[800:], ["y"])[:, 0], values[800:]) > 0.95


def test_it_learns_the_cost_of_a_text():
    rng = np.random.default_rng(0)
    chosen = [rng.choice(["Relu", "Conv", "Pool"], rng.integers(1, 6)) for _ in range(1000)]
    texts = ["".join(f"v{i + 1}={op}(v{i})\n" for i, op in enumerate(ops)) for ops in chosen]
    cost = {"Relu": 1.0, "Conv": 7.5, "Pool": 2.5}
    values = np.array([sum(cost[op] for op in ops) for ops in chosen])
    model = trained_on(texts[:800], values[:800], size=2, epochs=12)
    held = model.predict_text(texts[800:], ["y"], quantiles=(0.1, 0.5, 0.9))[:, 0]
    assert spearman(held[:, 1], values[800:]) > 0.95
    assert (held[:, 0] <= held[:, 1]).all() and (held[:, 1] <= held[:, 2]).all()


def test_shapes(rlm):
    archs = architectures(3)
    assert rlm.predict(SPACE, archs, OBJECTIVES).shape == (3, 2)
    assert rlm.predict(SPACE, archs, OBJECTIVES, quantiles=(0.1, 0.5, 0.9)).shape == (3, 2, 3)
    assert rlm.sample(SPACE, archs, OBJECTIVES, num_samples=4).shape == (3, 4, 2)
    assert rlm.predict(SPACE, [], OBJECTIVES).shape == (0, 2)


def test_predictions_for_architectures_strings_texts_and_files_are_equal(rlm, tmp_path):
    archs = architectures(3)
    found = rlm.predict(SPACE, archs, OBJECTIVES)
    path = tmp_path / "network.onnx"
    path.write_bytes(SPACE.to_onnx(archs[0]).SerializeToString())
    assert np.array_equal(rlm.predict("nasbench201", [str(a) for a in archs], OBJECTIVES), found)
    assert np.array_equal(rlm.predict_text([from_architecture(SPACE, a) for a in archs], OBJECTIVES), found)
    with pytest.warns(UserWarning, match="no space is named: .* are unreliable"):
        assert np.array_equal(rlm.predict_onnx([path, SPACE.to_onnx(archs[1])], OBJECTIVES), found[:2])
    assert rlm.predict_onnx([path], OBJECTIVES, space="nasbench201") == pytest.approx(found[:1], rel=1e-3)
    with pytest.raises(ValueError, match="there is no space 'nasbench210'; did you mean nasbench201"):
        rlm.predict_onnx([path], OBJECTIVES, space="nasbench210")


@pytest.mark.parametrize("objectives", [["flops"], ["accuracy"], ["accuracy", "flops", "params"]])
@pytest.mark.parametrize("models", [[], ()])
def test_no_models_have_no_predictions(rlm, objectives, models):
    found = rlm.predict_onnx(models, objectives, space="nasbench201", shapes={"x": (1, 3, 8, 8)})
    assert found.shape == (0, len(objectives)) and found.dtype == np.float64
    found = rlm.predict_onnx(models, objectives, (0.1, 0.5), space="nasbench201")
    assert found.shape == (0, len(objectives), 2)


def test_models_may_be_any_iterable(rlm):
    models = [SPACE.to_onnx(a) for a in architectures(2)]
    expected = rlm.predict_onnx(models, ["flops"])
    assert np.array_equal(rlm.predict_onnx(iter(models), ["flops"]), expected)
    for other in (None, 3):
        with pytest.raises(ValueError, match=f"models is {other}: expected a list of models or paths"):
            rlm.predict_onnx(other, ["flops"])
    content = models[0].SerializeToString()
    with pytest.raises(ValueError, match="models is a single one"):
        rlm.predict_onnx(content, ["flops"])
    with pytest.raises(ValueError, match="a bytes is not an ONNX model"):
        rlm.predict_onnx([content], ["flops"])


def test_order_duplicates_and_batches_do_not_matter(tiny_checkpoint):
    rlm = RLM.load(tiny_checkpoint)
    rlm.network.double()  # an untrained model's later digits hang on the last bits
    archs = architectures(6)
    found = rlm.predict(SPACE, archs, OBJECTIVES)
    shuffled = [4, 0, 0, 5, 2, 4]
    again = rlm.predict(SPACE, [archs[i] for i in shuffled], OBJECTIVES, batch_size=2)
    assert np.array_equal(again, found[shuffled])


def test_distinct_architectures_are_predicted_in_chunks(rlm, monkeypatch):
    archs = [SPACE.sample(np.random.default_rng(i % 7)) for i in range(12)]
    texts = []
    made = ensemble.from_architectures
    monkeypatch.setattr(batching, "MIN_CHUNK_SIZE", 3)
    monkeypatch.setattr(ensemble, "from_architectures", lambda *a: texts.append(made(*a)) or texts[-1])
    found = rlm.predict(SPACE, archs, OBJECTIVES, batch_size=1)
    assert [chunk_size(count) for count in (0, 7, 80, 1001, 4600, 9999)] == [1, 4, 10, 126, 288, 417]
    assert [len(some) for some in texts] == [4, 3]
    assert np.array_equal(found, np.concatenate([rlm.predict(SPACE, [a], OBJECTIVES) for a in archs]))


def test_the_median_is_the_quantile_at_one_half(rlm):
    archs = architectures(4)
    three = rlm.predict(SPACE, archs, OBJECTIVES, quantiles=(0.1, 0.5, 0.9))
    assert np.array_equal(three[:, :, 1], rlm.predict(SPACE, archs, OBJECTIVES))


def test_samples_depend_on_the_seed_alone(rlm):
    archs = architectures(2)
    first, second, other = (rlm.sample(SPACE, archs, OBJECTIVES, 8, seed=s) for s in (0, 0, 1))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_texts_are_truncated_to_the_maximum_length():
    tokenizer = Tokenizer.train(["v1=Relu(v0)\n"] * 9, vocab_size=800)
    torch.manual_seed(0)
    config = Config(tokenizer.vocab_size, ("accuracy",), size=1, max_length=4)
    short = RLM(Network(config, tokenizer.kinds()), tokenizer)
    assert len(short.token_ids("v1=Relu(v0)\n" * 3)) == 4
    texts = ["v1=Relu(v0)\n" * 3, "v1=Relu(v0)\n" * 8]
    with pytest.warns(TruncationWarning, match=r"first 4 tokens of text 0 \(15 .*, text 1 \(40 tokens\)$"):
        same = short.predict_text(texts, ["accuracy"])
    assert same[0] == same[1]
    with (
        batching.named_texts(["a", "b"]),
        pytest.warns(TruncationWarning, match=r"first 4 tokens of a \(15 tokens\), b \(40 tokens\)$"),
    ):
        short.sample_text(texts, ["accuracy"], 2)
    for compute in (short.predict, short.sample):
        with pytest.warns(TruncationWarning, match=r"first 4 tokens of (text 0 \(|\|nor_conv)"):
            compute(SPACE, architectures(2), ["accuracy"])


def test_onnx_models_whose_texts_are_truncated_are_named(tiny_checkpoint, tmp_path):
    rlm, model = RLM.load(tiny_checkpoint), SPACE.to_onnx(architectures(1)[0])
    rlm.network.config = replace(rlm.network.config, max_length=20)
    onnx.save(model, tmp_path / "a.onnx")
    models = [model, tmp_path / "a.onnx"]
    with pytest.warns(TruncationWarning, match=r"of model 0 \(.* tokens\), .*a\.onnx \(.* tokens\)$"):
        assert rlm.predict_onnx(models, OBJECTIVES, space="nasbench201").shape == (2, 2)


def test_the_whole_of_a_long_text_is_read(rlm):
    start = "v1=Relu(v0)\n" * 1000
    texts = [start + end for end in ("v2=Add(v0,v1)\n", "v2=Mul(v1,v1)\n")]
    length = len(rlm.token_ids(texts[0]))
    assert 2048 < length == len(rlm.tokenizer.encode(texts[0])) < 8192
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictions = rlm.predict_text(texts, OBJECTIVES)
    assert not np.array_equal(predictions[0], predictions[1])


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
        ([], "objectives is empty"),
        (["accuracy", "latency/pixel3", "accuracy"], "'accuracy' is given more than once"),
        ("accuracy", r"expected a list of names, \['accuracy'\]"),
        ([None], r"objectives is \[None\]: expected a list of names"),
        ((name for name in ["accuracy"]), "expected a list of names"),
    ],
)
def test_invalid_objectives(rlm, objectives, message):
    with pytest.raises(ValueError, match=message):
        rlm.predict_text(["v1=Relu(v0)\n"], objectives)


@pytest.mark.parametrize("quantiles", [(0.0,), (0.5, 1.0), (), 0.5, ("many",), (1e-9,)])
def test_quantiles_out_of_range(rlm, quantiles):
    with pytest.raises(ValueError, match=r"expected levels from 0\.001 to 0\.999"):
        rlm.predict_text(["v1=Relu(v0)\n"], ["accuracy"], quantiles)


def test_an_empty_text_is_refused(rlm):
    with pytest.raises(ValueError, match="text 1 is empty"):
        rlm.predict_text(["v1=Relu(v0)\n", ""], ["accuracy"])


def test_a_number_of_samples_below_one_is_refused(rlm):
    with pytest.raises(ValueError, match="num_samples is 0"):
        rlm.sample_text(["v1=Relu(v0)\n"], ["accuracy"], num_samples=0)


def test_the_median_of_the_shipped_model_is_that_of_its_samples(shipped_rlm):
    archs = architectures(6)
    medians = shipped_rlm.predict(SPACE, archs, ["accuracy"])[:, 0]
    drawn = shipped_rlm.sample(SPACE, archs, ["accuracy"], num_samples=800, seed=1)[:, :, 0]
    for median, draws in zip(medians, drawn, strict=True):
        assert np.mean(draws < median) < 0.56
        assert np.mean(draws <= median) > 0.44


def test_the_shipped_model_ranks_good_cells_above_bad_ones(shipped_rlm):
    best = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    poor = best.replace("nor_conv_3x3", "avg_pool_3x3")
    cut = "|none~0|+|none~0|nor_conv_3x3~1|+|none~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    found = shipped_rlm.predict(SPACE, [best, poor, cut], OBJECTIVES)
    assert found[0, 0] > 93 > found[1, 0] > 20 > found[2, 0]
    assert found[0, 1] > found[1, 1] > 0


def test_the_order_of_objectives_does_not_matter(rlm):
    archs = architectures(5)
    forwards = rlm.predict(SPACE, archs, OBJECTIVES, quantiles=(0.1, 0.9))
    backwards = rlm.predict(SPACE, archs, OBJECTIVES[::-1], quantiles=(0.1, 0.9))
    assert np.array_equal(forwards, backwards[:, ::-1])
    draws = rlm.sample(SPACE, archs, OBJECTIVES, 4, seed=3)
    assert np.array_equal(draws, rlm.sample(SPACE, archs, OBJECTIVES[::-1], 4, seed=3)[:, :, ::-1])


def test_objectives_without_training_in_a_space_give_a_warning(rlm, recwarn):
    trained = RLM(rlm.network, rlm.tokenizer, {"nasbench201": TrainedOn(10, ("accuracy",))})
    trained.predict(SPACE, architectures(2), ["accuracy"])
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"not trained on latency/pixel3 of nasbench201"):
        trained.predict(SPACE, architectures(2), OBJECTIVES)
    other = search_spaces.get("nats_size")
    with pytest.warns(UserWarning, match=r"not trained on accuracy of nats_size"):
        trained.sample(other, [other.sample(np.random.default_rng(0))], ["accuracy"], 2)


def test_fine_tuning_adds_to_the_training_record(rlm):
    rows = [Row("nasbench201", str(a), {"latency/new": 5.0, "accuracy": 9.0}) for a in architectures(4)]
    trained = RLM(rlm.network, rlm.tokenizer, {"nasbench201": TrainedOn(10, ("accuracy",))})
    grown = trained.fine_tune(rows, ["latency/new"], Recipe((TableRecipe(""),), epochs=1, batch_size=4))
    task = search_spaces.IMAGE_CLASSIFICATION
    assert grown.trained_on == {"nasbench201": TrainedOn(14, ("accuracy", "latency/new"), task)}
    assert trained.trained_on == {"nasbench201": TrainedOn(10, ("accuracy",))}


def test_a_single_architecture_is_refused(rlm):
    with pytest.raises(ValueError, match="expected a list"):
        rlm.predict(SPACE, str(architectures(1)[0]), ["accuracy"])


def test_the_shipped_model_has_its_training_record(shipped_rlm):
    spaces = {"nasbench101", "nasbench201", "nats_size", "fbnet", "ofa_mbv3", "nds_darts"}
    spaces |= {"gpt_s", "gpt_m", "gpt_l", "timm"}
    assert set(shipped_rlm.trained_on) == spaces
    assert "latency/pixel3" in shipped_rlm.trained_on["nasbench201"].objectives
    assert "latency/pixel3" not in shipped_rlm.trained_on["nats_size"].objectives


@pytest.mark.parametrize("foreign", [None, 7, (1, 2), type(SPACE.sample(np.random.default_rng(0)))("abcdef")])
def test_architectures_of_another_space_are_refused(rlm, foreign):
    with pytest.raises(ValueError, match=r"'(None|7|\(1, 2\))' has 1 node|unknown operator 'a'"):
        rlm.predict(SPACE, [foreign], ["accuracy"])


def test_containers_that_are_not_lists_of_texts_are_refused(rlm):
    text = "v1=Relu(v0)\n"
    for one in (text, None, 5):
        with pytest.raises(ValueError, match="expected a list"):
            rlm.predict_text(one, ["accuracy"])
    expected = rlm.predict_text([text, text], ["accuracy"])
    assert np.array_equal(rlm.predict_text((t for t in [text, text]), ["accuracy"]), expected)
    assert np.array_equal(rlm.predict_text(np.array([text, text]), ["accuracy"]), expected)
    with pytest.raises(ValueError, match="batch_size is -1: expected an integer of at least 1"):
        rlm.predict_text([text], ["accuracy"], batch_size=-1)
    with pytest.raises(ValueError, match="expected a list of models or paths"):
        rlm.predict_onnx("one.onnx", ["accuracy"])
    assert rlm.sample_text([text], ["accuracy"], 2, seed=np.int64(3)).shape == (1, 2, 1)


def test_predictions_are_conditioned_on_given_numbers(rlm):
    archs, given = architectures(4), {"latency/pixel3": [1.0, 30.0, np.nan, 2.0]}
    levels = [0.1, 0.5, 0.9]
    without = rlm.predict(SPACE, archs, ["accuracy", "latency/eyeriss"], levels)
    found = rlm.predict(SPACE, archs, ["accuracy", "latency/eyeriss"], levels, given=given)
    assert found[2] == pytest.approx(without[2], rel=1e-3)  # of which no number is given
    assert (found[[0, 1, 3]] != without[[0, 1, 3]]).any(2).all()
    assert (np.diff(found, axis=2) >= 0).all()
    twice = rlm.predict(
        SPACE, [archs[0]] * 2, ["latency/eyeriss"], levels, given={"latency/pixel3": [1.0, 30.0]}
    )
    assert not np.array_equal(twice[0], twice[1])
    with pytest.raises(ValueError, match="latency/pixel3 is given and queried"):
        rlm.predict(SPACE, archs, ["latency/pixel3"], given=given)


def test_samples_are_conditioned_on_given_numbers(rlm):
    archs, given = architectures(2), {"latency/pixel3": 2.5}
    drawn = rlm.sample(SPACE, archs, ["latency/eyeriss", "accuracy"], 5, given=given)
    assert drawn.shape == (2, 5, 2)
    assert np.array_equal(drawn, rlm.sample(SPACE, archs, ["latency/eyeriss", "accuracy"], 5, given=given))
    without = rlm.sample(SPACE, archs, ["latency/eyeriss", "accuracy"], 5)
    assert not np.array_equal(drawn, without)
    missing = rlm.sample(SPACE, archs, ["latency/eyeriss", "accuracy"], 5, given={"latency/pixel3": np.nan})
    assert np.array_equal(missing, without)


def test_an_accuracy_does_not_depend_on_the_batch_of_a_file(shipped_rlm):
    ofa = search_spaces.get("ofa_mbv3")
    model = ofa.to_onnx(ofa.sample(np.random.default_rng(0)))
    models = [model, with_batch(model, 8), with_batch(model, 3)]
    of_file = shipped_rlm.predict_onnx(models, ["accuracy/imagenet", "latency/cortexA76cpu"], LEVELS)
    np.testing.assert_allclose(of_file[1:, 0], of_file[[0, 0], 0], rtol=1e-5)
    assert (of_file[1, 1] > 4 * of_file[0, 1]).all()  # of eight images
    of_space = shipped_rlm.predict_onnx(models, ["accuracy", "flops"], LEVELS, space="ofa_mbv3")
    np.testing.assert_allclose(of_space[1:, 0], of_space[[0, 0], 0], rtol=1e-3)  # the fourth digit
    assert of_space[1, 1, 0] == 8 * of_space[0, 1, 0]
    samples = shipped_rlm.sample_text(
        [from_onnx(m) for m in models[:2]], ["accuracy"], 8, seed=1, space="ofa_mbv3"
    )
    np.testing.assert_allclose(samples[0], samples[1], rtol=0.2)


def test_an_accuracy_on_images_is_refused_for_networks_that_read_none(shipped_rlm):
    keywords = helper.make_model(
        helper.make_graph(
            [helper.make_node("Gemm", ["x", "w"], ["y"])],
            "keywords",
            [helper.make_tensor_value_info("x", 1, [1, 400])],
            [helper.make_tensor_value_info("y", 1, [1, 1000])],
            [numpy_helper.from_array(np.ones((400, 1000), np.float32), "w")],
        )
    )
    with pytest.raises(ValueError, match="accuracy/imagenet cannot be predicted for a network that reads no"):
        shipped_rlm.predict_onnx([keywords], ["accuracy/imagenet"])
    assert (shipped_rlm.predict_onnx([keywords], ["flops", "latency/cortexA76cpu"]) > 0).all()


def test_files_unlike_the_labelled_networks_of_an_accuracy_are_named(shipped_rlm, tmp_path, recwarn):
    file = tmp_path / "cell.onnx"
    onnx.save(SPACE.to_onnx(SPACE.sample(np.random.default_rng(0))), file)
    shipped_rlm.predict_onnx([file], ["accuracy/imagenet"])
    expected = (
        r"accuracy/imagenet of .*cell.onnx is unreliable: it was learnt from other networks \(images of"
    )
    assert any(
        re.match(expected + r" 32x32 pixels instead of 106 to 576, 10 cl", str(w.message)) for w in recwarn
    )
