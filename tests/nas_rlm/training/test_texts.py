import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas_rlm import RLM
from nas_rlm.data.text_data import text_data
from nas_rlm.metrics import coverage
from nas_rlm.model.onnx_export import export_model
from nas_rlm.training import texts as texts_module
from nas_rlm.training.text_network import learn_tokenizer, number_scheme
from nas_rlm.training.texts import split_texts

RNG = np.random.default_rng(0)
X, KINDS = RNG.random(90).round(3), RNG.choice(["relu", "tanh"], 90)
TEXTS = [f"x={x}, kind={kind}" for x, kind in zip(X, KINDS, strict=True)]
VALUES = 3 * X + 2 * (KINDS == "tanh")
NETWORK = {"progress": False, "source": "both", "epochs": 1, "size": 1, "refit": False}
QUICK = {"progress": False, "source": "surrogate"}


@pytest.fixture(scope="module")
def rlm():
    return RLM.fit(
        TEXTS, {"y": VALUES, "cost": [None if i % 3 else v for i, v in enumerate(-VALUES)]}, **QUICK
    )


@pytest.fixture(scope="module")
def trained():
    """A model whose network, with the surrogate, predicts."""
    return RLM.fit(TEXTS, VALUES, **NETWORK)


@settings(max_examples=50)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_the_scheme_of_any_values_writes_them(values):
    scheme = number_scheme([np.array(values)])
    written = np.array([scheme.decode(scheme.encode(value)) for value in values])
    assert (np.isinf(written) == np.isinf(values)).all()
    finite = np.array([v for v in values if math.isfinite(v)])
    np.testing.assert_allclose(written[np.isfinite(written)], finite, rtol=1e-3)


def test_close_values_keep_their_differences():
    values = 1e9 + np.arange(50) * 1e-3
    scheme = number_scheme([values])
    written = np.array([scheme.decode(scheme.encode(value)) for value in values])
    np.testing.assert_allclose(np.diff(written), 1e-3, rtol=0.1)


@pytest.mark.parametrize("texts", [["", ""], ["日本語", "\ud800\0"], ["x" * 10**5, "\n\t"]])
def test_a_tokenizer_is_learnt_from_any_texts_and_splits_digits(texts):
    tokenizer = learn_tokenizer(texts)
    assert tokenizer.decode(tokenizer.encode("a 3.25 日本")) == "a 3.25 日本"
    assert len(tokenizer.encode("12345")) == 5


def test_it_learns_and_its_intervals_hold_new_values(rlm):
    new = RNG.random(60).round(3)
    texts, true = [f"x={x}, kind=tanh" for x in new], 3 * new + 2
    low, median, high = rlm.predict_text(texts, ["y"], (0.1, 0.5, 0.9))[:, 0].T
    np.testing.assert_allclose(median, true, atol=0.15)
    assert coverage(low, high, true) > 0.6
    assert rlm.fit_report.metrics["y"]["rlm"].spearman > 0.98
    assert rlm.fit_report.metrics["y"]["ngrams"].spearman < rlm.fit_report.metrics["y"]["rlm"].spearman


def test_missing_values_of_one_target_leave_the_others(rlm):
    assert rlm.fit_report.labels == {"y": 90, "cost": 30}
    np.testing.assert_allclose(rlm.predict_text(["x=0.5, kind=relu"]), [[1.5, -1.5]], atol=0.3)


@pytest.mark.parametrize("model", ["rlm", "trained"])
def test_a_saved_model_is_the_same(model, request, tmp_path):
    fitted = request.getfixturevalue(model)
    fitted.save(tmp_path / "model")
    loaded = RLM.load(tmp_path / "model")
    assert loaded.fingerprint == fitted.fingerprint
    for predict in (
        lambda r: r.predict_text(TEXTS[:5], quantiles=(0.1, 0.9)),
        lambda r: r.sample_text(TEXTS[:2], num_samples=3, seed=1),
        lambda r: r.log_prob(TEXTS[:2], VALUES[:2]),
    ):
        np.testing.assert_array_equal(predict(loaded), predict(fitted))


def test_a_model_of_texts_is_not_exported(rlm, tmp_path):
    with pytest.raises(ValueError, match="the model was fitted to texts"):
        export_model(rlm, tmp_path / "exported")


def test_the_same_seed_gives_the_same_model(trained):
    assert RLM.fit(TEXTS, VALUES, **NETWORK).fingerprint == trained.fingerprint


def test_another_seed_gives_another_model(rlm):
    other = RLM.fit(TEXTS, VALUES, **QUICK, seed=1)
    assert other.fit_report.metrics["y"]["rlm"].mae != rlm.fit_report.metrics["y"]["rlm"].mae


def test_the_log_probability_is_highest_at_the_true_value(trained):
    logs = trained.log_prob([TEXTS[0]] * 3, [VALUES[0], VALUES[0] + 2, VALUES[0] - 2])
    assert logs.argmax() == 0
    assert trained.log_prob(TEXTS[0], VALUES[0]) == pytest.approx(logs[0])
    with pytest.raises(ValueError, match=r"values is 'red': expected a number for each of 1 text$"):
        trained.log_prob(TEXTS[0], "red")


@pytest.mark.parametrize("values", [[1.5, -1.5], [[1.5, -1.5]]])
def test_values_of_several_targets_are_refused_with_the_way_to_choose_one(rlm, values):
    message = r"expected a number for each of 1 text, a value of 'y'; objective= chooses another: cost$"
    with pytest.raises(ValueError, match=message):
        rlm.log_prob(TEXTS[0], values)
    of_cost = rlm.log_prob([TEXTS[0]] * 2, [-VALUES[0], VALUES[0] + 5], objective="cost")
    assert of_cost[0] > of_cost[1]


@pytest.mark.filterwarnings("ignore:.*too few to hold any out")
@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        -1e5 * VALUES,
        np.where(X > 0.7, VALUES, 0.0),
        np.where(X > 0.8, np.inf, VALUES),
        np.full(len(X), 7.25),
        10 ** (600 * X - 300),
    ],
)
def test_samples_and_log_probabilities_of_a_surrogate_alone_are_those_of_its_quantiles(values):
    rlm, levels = RLM.fit(TEXTS[:50], values[:50], **QUICK), (0.1, 0.5, 0.9)
    for text, quantiles in zip(TEXTS[:3], rlm.predict_text(TEXTS[:3], quantiles=levels)[:, 0], strict=True):
        drawn = rlm.sample_text([text], num_samples=2000)[0, :, 0]
        rounded = np.float64([float(f"{q:.3e}") for q in quantiles])  # as samples are
        for level, quantile in zip(levels, rounded, strict=True):
            assert (drawn < quantile).mean() - 0.03 < level < (drawn <= quantile).mean() + 0.03
        assert values.min() >= 0 or (drawn < 0).all()
        assert (drawn >= min(0, values.min() * 2)).all()  # none is of another magnitude
        for value in np.unique(rounded):
            share = (drawn == value).mean()
            assert math.exp(rlm.log_prob(text, value)) == pytest.approx(share, abs=0.05)


def test_the_network_is_trained_with_callbacks_and_stops_early():
    reports = []
    RLM.fit(
        TEXTS,
        VALUES,
        source="network",
        epochs=5,
        size=1,
        refit=False,
        progress=False,
        on_epoch=lambda report: reports.append(report) or report.epoch == 2,
    )
    assert [report.epoch for report in reports] == [1, 2]
    assert all(math.isfinite(report.loss) for report in reports)


def test_a_fitted_network_is_trained_further_on_other_texts_and_targets(trained):
    rlm = RLM.fit(
        ["a b", "c d"] * 40, {"z": np.arange(80.0)}, start=trained, epochs=1, progress=False, refit=False
    )
    assert rlm.objectives == ("y", "z")
    assert rlm.tokenizer.sha256 == trained.tokenizer.sha256
    assert np.isfinite(rlm.predict_text(["a b"], ["z"])).all()
    with pytest.raises(ValueError, match="the start model writes numbers of 4 digits"):
        RLM.fit(TEXTS, 1e9 + VALUES, start=trained)
    with pytest.raises(ValueError, match="start has no effect on the source surrogate"):
        RLM.fit(TEXTS, VALUES, start=trained, source="surrogate")


def test_infinite_values_and_failures_are_learnt():
    values = [
        math.inf if x > 0.8 else "OOM" if kind == "tanh" else x for x, kind in zip(X, KINDS, strict=True)
    ]
    rlm = RLM.fit(TEXTS, values, **QUICK)
    assert rlm.objectives == ("y", "failed/y")
    assert rlm.predict_text(["x=0.95, kind=relu"], ["y"]) == math.inf
    low, high = rlm.failure_probability(["x=0.3, kind=relu", "x=0.3, kind=tanh"])
    assert low < 0.3 < 0.7 < high
    with pytest.raises(ValueError, match="learnt no failures of 'z'"):
        rlm.failure_probability(TEXTS, "z")


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["a", "b"], [1, 2]),
        (["", "", "x"], [1, 1, 1]),
        ([f"{i}" for i in range(70)], [10.0 ** (8 * i - 290) for i in range(70)]),
        ([f"{i} \ud800" for i in range(12)], [5] * 12),
    ],
    ids=["two rows", "empty and constant", "many magnitudes", "invalid Unicode"],
)
@pytest.mark.filterwarnings("ignore:.*too few to hold any out")
def test_unusual_texts_and_values_are_learnt(texts, values):
    rlm = RLM.fit(texts, values, progress=False, epochs=1, size=1, refit=False)
    assert not np.isnan(rlm.predict_text([*texts[:2], ""])).any()


def test_too_few_rows_for_a_holdout_are_said():
    with pytest.warns(UserWarning, match=r"12 distinct texts are too few to hold any out \(at least 60\)"):
        rlm = RLM.fit(TEXTS[:12], VALUES[:12], **QUICK)
    assert rlm.fit_report.metrics == {}


def test_a_network_that_is_worse_after_a_training_on_all_rows_is_not_used(monkeypatch):
    train, trained_rows = texts_module.train_network, []

    def first_only(model, data, recipe, held_out=None, *others):
        trained_rows.append(len(data))
        return train(model, data, recipe, held_out, *others) if held_out is not None else recipe.epochs

    monkeypatch.setattr(texts_module, "train_network", first_only)
    rlm = RLM.fit(TEXTS, VALUES, **{**NETWORK, "source": "network", "epochs": 8, "refit": True})
    assert trained_rows[0] < trained_rows[1] == len(TEXTS)
    assert any("trained on a part of the rows" in note for note in rlm.fit_report.notes)
    monkeypatch.undo()
    whole = RLM.fit(TEXTS, VALUES, **{**NETWORK, "source": "network", "epochs": 8})
    np.testing.assert_array_equal(rlm.predict_text(TEXTS, ["y"]), whole.predict_text(TEXTS, ["y"]))


@pytest.mark.filterwarnings("ignore:.*too few to hold any out")
def test_five_texts_teach_a_number_of_the_text():
    x = np.random.default_rng(1).uniform(-100, 100, 105).round(1)
    texts = [f"width {value} of a network" for value in x]
    rlm = RLM.fit(texts[:5], 3 * x[:5], **QUICK)
    assert rlm.fit_report.sources == {"y": "surrogate"}
    low, median, high = rlm.predict_text(texts[5:], ["y"], (0.1, 0.5, 0.9))[:, 0].T
    assert np.abs(median - 3 * x[5:]).mean() < 0.3 * np.abs(np.median(3 * x[:5]) - 3 * x[5:]).mean()
    assert np.mean((low <= 3 * x[5:]) & (3 * x[5:] <= high)) > 0.5


def test_equal_texts_are_in_one_part_of_a_split():
    data = text_data([f"{i % 70}" for i in range(200)], RNG.normal(size=200))
    parts = split_texts(data, 0.2, 0)
    assert sum(map(len, parts)) == 200
    assert all(not set(a.texts) & set(b.texts) for a, b in pairwise(parts))
    assert len(set(parts[2].texts)) == 14


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"holdout": 0.9}, "holdout is 0.9: expected a share from 0 to 0.5"),
        ({"size": 0}, "size is 0: expected an integer of at least 1"),
        ({"source": "trees"}, "source is 'trees': expected network, surrogate, both or None"),
        ({"seed": -1}, "seed is -1"),
        ({"maximise": ["z"]}, "maximise has 'z'"),
        ({"tokenizer": "no/such"}, "no/such"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises((ValueError, OSError), match=message):
        RLM.fit(TEXTS, VALUES, **{"progress": False, **settings})


def test_wrong_arguments_of_a_model_of_texts_are_refused(rlm):
    few = np.where(np.isin(VALUES, VALUES[[1, 4]]), VALUES, np.nan)  # one of them is held out
    for call, message in (
        (lambda: rlm.predict_text([None]), r"texts\[0\] is None, of type NoneType: expected a string"),
        (lambda: rlm.sample_text(np.zeros((2, 2))), r"texts\[0\] is .*, of type ndarray: expected a string"),
        (lambda: rlm.sample_text(["a"], num_samples=1.5), "num_samples is 1.5: expected an integer"),
        (lambda: rlm.failure_probability(["a"], ["y"]), "expected the name of a target"),
        (lambda: rlm.predict_onnx(["a.onnx"], ["y"]), "was fitted to texts, and reads no ONNX models"),
        (lambda: rlm.fine_tune([], ["y"]), r"RLM.fit\(..., start=model\) trains it further"),
        (lambda: RLM.fit(TEXTS, VALUES, start="runs/mine"), "start is 'runs/mine': expected a model"),
        (lambda: RLM.fit(TEXTS, VALUES, on_epoch=3), "on_epoch is 3: expected a function"),
        (lambda: RLM.fit(TEXTS, VALUES, maximise="y"), "maximise is the string 'y'"),
        (lambda: RLM.fit(TEXTS, {"y": VALUES, "z": few}, **QUICK), "1 row has 'z': the Gaussian process"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
