import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.data.row_texts import keys_of_rows, texts_of_rows
from nas_rlm.devices.known import known_devices
from nas_rlm.metrics import spearman
from nas_rlm.model.batching import TruncationWarning
from nas_rlm.reports.comparison import default_objectives
from nas_rlm.surrogates import calibration
from nas_rlm.surrogates.latency.device_transfer import DeviceTransfer
from nas_rlm.surrogates.predictive import DEFAULT_NETWORK_TEMPERATURE
from nas_rlm.text import from_architectures
from nas_rlm.training import finetune
from nas_rlm.training.recipe import Recipe, TableRecipe

SPACE = search_spaces.get("nasbench201")
QUICK = Recipe((TableRecipe(""),), epochs=1, batch_size=16, warmup=1)


def rows(n):
    rng = np.random.default_rng(0)
    return [
        Row(
            "nasbench201",
            str(SPACE.sample(rng)),
            {"accuracy": 50 + 40 * rng.random(), "latency/mine": rng.random() + 1, "latency/other": 0.0},
        )
        for _ in range(n)
    ]


@pytest.fixture
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


@pytest.fixture
def trainings(monkeypatch):
    """The rows, the epochs and the held-out rows of each training; none takes more than three epochs."""
    monkeypatch.setattr(finetune, "MAX_EPOCHS", 3)
    found, tuned = [], finetune._train

    def recorded(rlm, some, objectives, recipe, learn, held=None):
        found.append((some, recipe.epochs, held.rows if held else []))
        return tuned(rlm, some, objectives, recipe, learn, held)

    monkeypatch.setattr(finetune, "_train", recorded)
    return found


def test_a_new_objective_is_added_and_the_original_model_is_unchanged(rlm):
    before = {k: v.clone() for k, v in rlm.network.state_dict().items()}
    tuned = rlm.fine_tune(rows(20), ["latency/mine"], QUICK)
    assert tuned.objectives == (*rlm.objectives, "latency/mine")
    assert all((before[k] == v).all() for k, v in rlm.network.state_dict().items())
    assert tuned.predict(SPACE, [SPACE.sample(np.random.default_rng(0))], ["latency/mine"]).shape == (1, 1)


def test_a_new_objective_starts_at_the_known_one_with_the_most_similar_ranks(rlm):
    some = rows(20)
    predictions = rlm.predict("nasbench201", [row.arch_str for row in some], ["latency/eyeriss"])[:, 0]
    for row, value in zip(some, predictions, strict=True):
        row.targets["latency/mine"] = 7 * value + 1
    assert finetune.similar_objectives(rlm, some, ["latency/mine", "accuracy"]) == {
        "latency/mine": "latency/eyeriss"
    }
    assert finetune.similar_objectives(rlm, some[:1], ["latency/mine"]) == {}
    assert finetune.similar_objectives(rlm, some, ["memory/mine"]) == {}
    grown = rlm.with_objectives(["latency/mine"], {"latency/mine": "latency/eyeriss"})
    first, second = grown.network.config.objective_ids(["latency/mine", "latency/eyeriss"])
    tokens = grown.network.tokens.weight
    assert (tokens[first] == tokens[second]).all()
    mean = rlm.with_objectives(["latency/mine"]).network.tokens.weight[first]
    assert not torch.allclose(tokens[first], mean)


@pytest.mark.long
def test_the_epochs_are_those_that_rank_held_out_rows_best(rlm, trainings, monkeypatch):
    heights = iter([0.2, 0.6, 0.4])
    monkeypatch.setattr(finetune, "validate", lambda *_: {"rows:accuracy": {"spearman": next(heights)}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned = rlm.fine_tune(rows(120), ["accuracy"], seed=1)
    (some, most, held), (everything, epochs, none) = trainings
    assert (most, epochs, none) == (3, 2, [])
    assert len(everything) == len(some) + len(held) == 120
    assert 10 < len(held) < 40
    assert not set(keys_of_rows(some)) & set(keys_of_rows(held))
    assert tuned.temperatures["nasbench201"].keys() == {"accuracy"}
    assert tuned.surrogates["nasbench201"][0].temperatures.keys() == {"accuracy"}
    assert tuned.trained_on["nasbench201"].rows == 120


@pytest.mark.long
def test_training_stops_after_epochs_without_improvement(rlm, trainings, monkeypatch):
    monkeypatch.setattr(finetune, "PATIENCE_EPOCHS", 1)
    monkeypatch.setattr(finetune, "PATIENCE_STEPS", 1)
    heights = iter([0.6, 0.4])  # a third epoch would find none
    monkeypatch.setattr(finetune, "validate", lambda *_: {"rows:accuracy": {"spearman": next(heights)}})
    rlm.fine_tune(rows(120), ["accuracy"], seed=1)
    assert [epochs for _, epochs, _ in trainings] == [3, 1]
    monkeypatch.setattr(finetune, "PATIENCE_STEPS", 12)  # steps of two epochs
    heights = iter([0.6, 0.4, 0.5])
    rlm.fine_tune(rows(120), ["accuracy"], seed=1)
    assert next(heights, None) is None  # one epoch more


def test_too_few_rows_for_validation(rlm, trainings):
    with pytest.warns(UserWarning, match=r"12 rows are too few for validation"):
        tuned = rlm.fine_tune(rows(12), ["accuracy"])
    assert [(len(some), held) for some, _, held in trainings] == [(12, [])]
    assert tuned.temperatures == {"nasbench201": {"accuracy": calibration.DEFAULT_TEMPERATURE}}
    (surrogate,) = tuned.surrogates["nasbench201"]
    assert surrogate.temperatures == {}
    assert surrogate.network_temperatures == {"accuracy": DEFAULT_NETWORK_TEMPERATURE}
    assert tuned.network_temperatures("nasbench201", ["accuracy"]) == [DEFAULT_NETWORK_TEMPERATURE]
    assert tuned.network_temperatures("", ["accuracy"]) == [pytest.approx(calibration.DEFAULT_TEMPERATURE)]
    again = tuned.fine_tune(rows(12), ["accuracy"], QUICK)
    assert again.network_temperatures("nasbench201", ["accuracy"]) == [calibration.DEFAULT_TEMPERATURE]


@pytest.fixture
def fitted_rows(monkeypatch):
    """The rows of each fit of surrogates."""
    found, fit_surrogates = [], finetune.fit_surrogates

    def recorded(some, *arguments):
        found.append(some)
        return fit_surrogates(some, *arguments)

    monkeypatch.setattr(finetune, "fit_surrogates", recorded)
    return found


def test_surrogates_are_fitted_to_the_rows_of_the_network(rlm, trainings, fitted_rows):
    tuned = rlm.fine_tune(rows(120), ["accuracy"], seed=1)
    (surrogate,) = tuned.surrogates["nasbench201"]
    assert surrogate.objectives == ("accuracy",)
    (some, _, held), _ = trainings
    assert {
        keys_of_rows(part) == keys_of_rows(other)
        for part, other in zip(fitted_rows, (some, some), strict=True)
    } == {
        True,
        False,
    }
    everything, rest = fitted_rows
    assert len(everything) == len(surrogate.values) == 120
    assert not set(keys_of_rows(rest)) & set(keys_of_rows(held))


def test_surrogates_of_other_objectives_and_spaces_stay(rlm):
    first = rlm.fine_tune(rows(30), ["accuracy", "latency/mine"], QUICK)
    first.temperatures = {"nasbench201": {"accuracy": 2.5}, "fbnet": {"accuracy": 3.0}}
    second = first.fine_tune(rows(20), ["latency/mine"], QUICK)
    assert [e.objectives for e in second.surrogates["nasbench201"]] == [("accuracy",), ("latency/mine",)]
    defaults = {"accuracy": 2.5, "latency/mine": calibration.DEFAULT_TEMPERATURE}
    assert second.temperatures == {"nasbench201": defaults, "fbnet": {"accuracy": 3.0}}
    with pytest.raises(
        ValueError, match="5 labels of accuracy for nasbench201: expected at least 10, or the"
    ):
        second.fine_tune(rows(5), ["accuracy"], QUICK)
    alone = rlm.fine_tune(rows(5), ["accuracy"], QUICK)
    assert alone.temperatures == {"nasbench201": {"accuracy": calibration.DEFAULT_TEMPERATURE}}
    assert second.fine_tune(rows(20), ["accuracy"], QUICK, surrogates=False).surrogates == {}


def test_too_few_held_out_rows_for_calibration(rlm, trainings):
    with pytest.warns(UserWarning, match="held-out rows are too few for calibration"):
        rlm.fine_tune(rows(60), ["accuracy"])


def test_objectives_that_are_not_a_list_of_names(rlm):
    for objectives, message in (
        ("accuracy", "objectives is the string 'accuracy'"),
        ([], "objectives is empty"),
        (["accuracy", "accuracy"], "'accuracy' is given more than once"),
    ):
        with pytest.raises(ValueError, match=message):
            rlm.fine_tune(rows(3), objectives)


def test_training_with_a_recipe_has_no_validation(rlm, trainings):
    rlm.fine_tune(rows(60), ["accuracy"], QUICK)
    assert [(len(some), epochs, held) for some, epochs, held in trainings] == [(60, 1, [])]


def test_the_more_rows_the_fewer_epochs():
    epochs = [finetune.default_recipe(n).epochs for n in (0, 20, 1000, 5000, 20000, 10**6)]
    assert epochs == sorted(epochs, reverse=True)
    assert (epochs[1], epochs[-1]) == (finetune.MAX_EPOCHS, finetune.MIN_EPOCHS)


def test_the_longer_the_texts_the_fewer_epochs():
    epochs = [finetune.default_recipe(100, length).epochs for length in (90, 200, 1000, 10**6)]
    assert epochs == [finetune.MAX_EPOCHS, finetune.MAX_EPOCHS, finetune.MAX_EPOCHS // 5, finetune.MIN_EPOCHS]


@pytest.mark.parametrize(("count", "recipe"), [(20, QUICK), (9, None), (40, None)])
def test_truncated_rows_are_reported_once(rlm, trainings, count, recipe):
    some = rows(count)
    lengths = [len(rlm.token_ids(text)) for text in texts_of_rows(some)]
    limit = int(np.median(lengths))
    rlm.network.config = replace(rlm.network.config, max_length=limit)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rlm.fine_tune(some, ["latency/mine"], recipe)
    messages = [str(warning.message) for warning in caught if warning.category is TruncationWarning]
    num_truncated = sum(length > limit for length in lengths)
    assert messages == [
        f"training reads only the first {limit:,} tokens of {num_truncated} of the {count} texts"
    ]


def test_surrogates_alone_read_whole_texts(rlm):
    rlm.network.config = replace(rlm.network.config, max_length=8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rlm.fine_tune(rows(20), ["latency/mine"], learn="none")
    assert not [warning for warning in caught if warning.category is TruncationWarning]


def test_rows_without_a_number_to_learn(rlm):
    with pytest.raises(ValueError, match="none of 3 rows has a value for latency/none"):
        rlm.fine_tune(rows(3), ["latency/none"])
    with pytest.raises(ValueError, match=r"none of 3 rows has a value for latency/other above 0 ms"):
        rlm.fine_tune(rows(3), ["latency/other"])


@pytest.mark.parametrize(("learn", "moved"), [("token", ["tokens"]), ("decoder", ["decoder", "tokens"])])
def test_a_part_of_the_network_learns(rlm, learn, moved):
    some = rows(40)
    tuned = rlm.fine_tune(some, ["latency/mine"], QUICK, surrogates=False, learn=learn)
    before, after = rlm.with_objectives(["latency/mine"]).network, tuned.network
    parts = {
        name.split(".")[0]
        for name, weight in after.named_parameters()
        if not torch.equal(weight, before.get_parameter(name))
    }
    assert parts == set(moved)
    assert all(p.requires_grad for p in after.parameters())
    assert after.kept_states is None
    if learn == "token":
        changed = (after.tokens.weight != before.tokens.weight).any(1).nonzero().flatten().tolist()
        assert changed == after.config.objective_ids(["latency/mine"])
        archs = [row.arch_str for row in some]
        predictions = [
            model.predict("nasbench201", archs, ["accuracy"], (0.1, 0.9)) for model in (rlm, tuned)
        ]
        np.testing.assert_array_equal(*predictions)
    with pytest.raises(ValueError, match="no part 'tokens' of a network; did you mean token"):
        rlm.fine_tune(some, ["latency/mine"], learn="tokens")


def convolutions(count, noise=0.01, seed=0):
    """Return measured cells whose latency is a sum over their convolutions."""
    rng = np.random.default_rng(seed)
    cells = {str(SPACE.sample(rng)) for _ in range(2 * count)}
    return [
        Row(
            "nasbench201", name, {"latency/mine": (1 + name.count("conv_3x3")) * np.exp(noise * rng.normal())}
        )
        for name in sorted(cells)[:count]
    ]


def test_surrogates_alone_learn_a_latency_without_training(rlm, tmp_path):
    before = [p.clone() for p in rlm.network.parameters()]
    tuned = rlm.fine_tune(convolutions(40), ["latency/mine"], learn="none")
    assert all(map(torch.equal, before, rlm.network.parameters()))
    unlabelled = convolutions(60, seed=1)
    archs = [row.arch_str for row in unlabelled]
    true = np.array([row.targets["latency/mine"] for row in unlabelled])
    predicted = tuned.predict("nasbench201", archs, ["accuracy", "latency/mine"], (0.1, 0.5, 0.9))
    assert spearman(predicted[:, 1, 1], true) > 0.8
    accuracy = rlm.predict("nasbench201", archs, ["accuracy"], (0.1, 0.5, 0.9))
    np.testing.assert_array_equal(predicted[:, 0], accuracy[:, 0])
    alone = tuned.predict("nasbench201", archs, ["latency/mine"], (0.1, 0.5, 0.9))
    np.testing.assert_array_equal(predicted[:, 1], alone[:, 0])
    samples = tuned.sample("nasbench201", archs[:3], ["latency/mine"], 64)[:, :, 0]
    assert np.median(samples, 1) == pytest.approx(alone[:3, 0, 1], rel=0.3)
    tuned.save(tmp_path / "tuned")
    again = RLM.load(tmp_path / "tuned").predict("nasbench201", archs, ["latency/mine"], (0.1, 0.5, 0.9))
    np.testing.assert_allclose(again, alone, rtol=1e-2)


def test_surrogates_alone_keep_those_of_other_spaces(rlm):
    first = rlm.fine_tune(convolutions(20), ["latency/mine"], learn="none")
    others = [replace(row, space="files", input=text, arch_str="") for row, text in with_texts(20)]
    second = first.fine_tune(others, ["latency/mine"], learn="none")
    assert second.surrogates["nasbench201"] == first.surrogates["nasbench201"]
    assert [s.objectives for s in second.surrogates["files"]] == [("latency/mine",)]


def with_texts(count):
    found = convolutions(count)
    return list(zip(found, texts_of_rows(found), strict=True))


def test_networks_without_a_space_have_surrogates(rlm):
    cells = convolutions(40)
    texts = texts_of_rows(cells)
    own = [Row("", "", row.targets, text) for row, text in zip(cells, texts, strict=True)]
    tuned = rlm.fine_tune(own, ["latency/mine"], learn="none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned.check_space("", ["latency/mine"])
    predicted = tuned.predict_text(texts, ["latency/mine"])[:, 0]
    true = np.array([row.targets["latency/mine"] for row in own])
    assert np.median(np.abs(predicted / true - 1)) < 0.05
    assert tuned.predict_text([], ["latency/mine"]).shape == (0, 1)


def test_a_new_device_like_a_known_one_is_learned_from_few_networks(shipped_rlm, tmp_path):
    known = "latency/rtx3090_amp_nchw_pt240"
    space, rng = search_spaces.get("ofa_mbv3"), np.random.default_rng(0)
    texts = from_architectures(space, [space.sample(rng) for _ in range(30)])
    true = 1.7 * shipped_rlm.predict_text(texts, [known])[:, 0]
    measured = [
        Row("", "", {"latency/mine": value}, text) for text, value in zip(texts[:12], true, strict=False)
    ]
    tuned = shipped_rlm.fine_tune(measured, ["latency/mine"], learn="none")
    (surrogate,) = (s for s in tuned.surrogates[""] if "latency/mine" in s.objectives)
    assert isinstance(surrogate, DeviceTransfer)
    assert surrogate.most_similar[1] > 0.9
    tuned.save(tmp_path)
    again = RLM.load(tmp_path)
    predicted = again.predict_text(texts[12:], ["latency/mine"], quantiles=(0.1, 0.5, 0.9))[:, 0]
    assert np.abs(predicted[:, 1] / true[12:] - 1).max() < 0.1
    assert np.allclose(
        predicted, tuned.predict_text(texts[12:], ["latency/mine"], quantiles=(0.1, 0.5, 0.9))[:, 0]
    )
    (device,) = (d for d in known_devices(again) if d.objective == "latency/mine")
    assert device.sources[0].labels == 12
    assert device.any_network
    assert "latency/mine" in default_objectives(again)
    assert device.sources[0].relative_error < 0.1
    assert known in again.objectives


def test_surrogates_alone_need_enough_labels_that_say_something(rlm):
    with pytest.raises(ValueError, match="9 labels of latency/mine for nasbench201: expected at least 10"):
        rlm.fine_tune(convolutions(9), ["latency/mine"], learn="none")
    with pytest.warns(UserWarning, match=r"12 networks explain latency/mine badly .* measure more networks"):
        random = [
            replace(row, targets={"latency/mine": value})
            for row, value in zip(convolutions(12), np.random.default_rng(2).random(12) + 0.5, strict=True)
        ]
        rlm.fine_tune(random, ["latency/mine"], learn="none")
    for options in ({"surrogates": False}, {"recipe": QUICK}):
        with pytest.raises(ValueError, match="nothing is to be trained"):
            rlm.fine_tune(convolutions(12), ["latency/mine"], learn="none", **options)


SIZES = search_spaces.get("nats_size")


def widths(n, accuracy, high=8, seed=0):
    """Return rows of random widths, among the first `high` choices, with the accuracy of their genomes."""
    rng = np.random.default_rng(seed)
    genomes = [rng.integers(0, high, 5) for _ in range(n)]
    return [Row("nats_size", str(SIZES.decode(g)), {"accuracy": float(accuracy(g))}) for g in genomes]


def by_width(genome):
    return 60 + 3 * np.sqrt(genome).sum()


@pytest.fixture(scope="module")
def unlabelled():
    return widths(60, by_width, seed=1)


def predicted_medians(tuned, unlabelled):
    archs = [row.arch_str for row in unlabelled]
    return tuned.predict("nats_size", archs, ["accuracy"], (0.1, 0.5, 0.9))[:, 0]


def test_accuracies_may_be_fractions(rlm, unlabelled, recwarn):
    tuned = rlm.fine_tune(widths(20, lambda g: by_width(g) / 100), ["accuracy"], learn="none")
    predicted = predicted_medians(tuned, unlabelled)
    true = [row.targets["accuracy"] for row in unlabelled]
    assert predicted.min() > 0.6 and predicted.max() <= 1
    assert spearman(predicted[:, 1], np.array(true)) > 0.8
    assert not [w for w in recwarn.list if "labelled networks" in str(w.message)]


def test_equal_labels_are_said_to_rank_nothing(rlm, unlabelled):
    with pytest.warns(UserWarning, match="12 labelled networks of accuracy have equal values: predictions"):
        tuned = rlm.fine_tune(widths(12, lambda g: 70), ["accuracy"], learn="none")
    assert predicted_medians(tuned, unlabelled) == pytest.approx(70, abs=0.1)


def test_ten_labels_are_learned(rlm, unlabelled):
    tuned = rlm.fine_tune(widths(10, by_width, seed=3), ["accuracy"], learn="none")
    assert np.isfinite(predicted_medians(tuned, unlabelled)).all()


def test_contradicting_labels_of_one_network_widen_the_intervals(rlm, unlabelled):
    rng = np.random.default_rng(2)
    rows = widths(20, by_width)
    others = [replace(row, targets={"accuracy": 70 + 15 * rng.random()}) for row in rows]
    sure = predicted_medians(rlm.fine_tune(rows, ["accuracy"], learn="none"), unlabelled)
    with pytest.warns(UserWarning, match="40 labelled networks of accuracy explain it badly"):
        tuned = rlm.fine_tune([*rows, *others], ["accuracy"], learn="none")
    unsure = predicted_medians(tuned, unlabelled)
    assert np.mean(unsure[:, 2] - unsure[:, 0]) > 1.5 * np.mean(sure[:, 2] - sure[:, 0])


def test_labels_from_one_corner_of_the_space_are_reported(rlm):
    with pytest.warns(UserWarning, match="20 labelled networks of accuracy are from one corner of the space"):
        rlm.fine_tune(widths(20, by_width, high=2), ["accuracy"], learn="none")


@pytest.mark.parametrize("objective", ["loss/val", "log_likelihood"])
def test_negative_values_and_zero_are_learned(rlm, objective):
    some = [replace(row, targets={objective: row.arch_str.count("conv") / 4 - 2.0}) for row in rows(60)]
    assert any(row.targets[objective] == -1.0 for row in some)
    tuned = rlm.fine_tune(some, [objective], replace(QUICK, epochs=12, learning_rate=3e-3))
    cells = [row.arch_str for row in some]
    predicted = tuned.predict("nasbench201", cells, [objective])[:, 0]
    true = np.array([row.targets[objective] for row in some])
    assert np.median(np.abs(predicted - true)) < 0.3 and predicted.min() < -1


def test_directions_that_a_table_declares_are_kept_in_the_checkpoint(rlm, tmp_path):
    some = [replace(row, targets={"score": -row.targets["accuracy"]}) for row in rows(20)]
    tuned = rlm.fine_tune(some, ["score"], QUICK, surrogates=False, maximise=["score", "absent"])
    tuned.save(tmp_path / "tuned")
    assert RLM.load(tmp_path / "tuned").maximised == ("score",)
    again = RLM.load(tmp_path / "tuned").fine_tune(rows(20), ["accuracy"], QUICK, surrogates=False)
    assert again.maximised == ("score",)
    assert rlm.maximised == ()


def test_labels_are_checked_before_training(rlm):
    some = [replace(row, targets={"latency/mine": float(i > 2)}) for i, row in enumerate(rows(20))]
    with pytest.warns(UserWarning, match="3 of 20 values of latency/mine are left out"):
        rlm.fine_tune(some, ["latency/mine"], QUICK, surrogates=False)
    some = [replace(row, targets={"loss": 1e6 + row.targets["latency/mine"]}) for row in rows(20)]
    with pytest.raises(ValueError, match=r"values of loss from .* lose their differences"):
        rlm.fine_tune(some, ["loss"], QUICK)
