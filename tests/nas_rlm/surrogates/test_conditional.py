from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.metrics import kendall
from nas_rlm.surrogates import conditional, gaussian_process
from nas_rlm.surrogates.conditional import ConditionalSurrogate, CorrectedSurrogate, conditional_surrogate
from nas_rlm.surrogates.fitting import fit_graph_surrogate, fit_surrogates
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, graph_features_of_space
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.latency_fitting import fit_latency_surrogate
from tests.nas_rlm.stubs import counted_cells

SPACE = search_spaces.get("nasbench201")
EARLY = "accuracy/cifar10_4ep"


@pytest.fixture(scope="module", autouse=True)
def fewer_steps():
    """Fit hyperparameters in fewer steps, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian_process, "ADAM_STEPS", 25)
        yield


def with_early(count, seed=0, noise=0.05):
    """Return cells with a part of their accuracy that the graph does not show, and an early accuracy."""
    rng, rows = np.random.default_rng(seed), counted_cells(count, seed=seed)
    found = []
    for row in rows:
        accuracy = row.targets["accuracy"] + rng.normal()
        early = 0.8 * accuracy + noise * rng.normal()
        found.append(replace(row, targets={"accuracy": accuracy, EARLY: early}))
    return found


def columns(rows):
    return {name: np.array([row.targets.get(name, np.nan) for row in rows]) for name in ("accuracy", EARLY)}


@pytest.fixture(scope="module")
def graph_features():
    return graph_features_of_space("nasbench201")


@pytest.fixture(scope="module")
def surrogate(graph_features):
    return fit_graph_surrogate(graph_features, with_early(40), ["accuracy", EARLY])


@pytest.fixture(scope="module")
def others():
    return with_early(80, seed=2)


def test_few_labels_rank_better_with_a_related_number(graph_features, surrogate, others):
    features, values = graph_features.of_rows(others), columns(others)
    fitted = conditional_surrogate(surrogate, "accuracy", [EARLY])
    assert isinstance(fitted, ConditionalSurrogate)
    without, found = surrogate.predict(features, "accuracy"), fitted.predict(features, {EARLY: values[EARLY]})
    assert kendall(found.mean, values["accuracy"]) > kendall(without.mean, values["accuracy"]) + 0.1
    assert found.std.mean() < without.std.mean()
    higher = fitted.predict(features, {EARLY: values[EARLY] + 1.0})
    assert (higher.mean > found.mean).mean() > 0.9


def test_many_labels_are_corrected_by_the_residual_of_the_number(
    graph_features, surrogate, others, monkeypatch
):
    monkeypatch.setattr(conditional, "MAX_FEW_LABELS", 30)
    features, values = graph_features.of_rows(others), columns(others)
    fitted = conditional_surrogate(surrogate, "accuracy", [EARLY])
    assert isinstance(fitted, CorrectedSurrogate)
    assert fitted.coefficients[EARLY] > 0.2
    without, found = surrogate.predict(features, "accuracy"), fitted.predict(features, {EARLY: values[EARLY]})
    assert kendall(found.mean, values["accuracy"]) > kendall(without.mean, values["accuracy"]) + 0.05
    assert (found.std < without.std).all()
    as_predicted = surrogate.predict(features, EARLY).median
    assert fitted.predict(features, {EARLY: as_predicted}).mean == pytest.approx(without.mean, abs=0.2)


def test_an_unrelated_number_corrects_nothing(graph_features, monkeypatch):
    monkeypatch.setattr(conditional, "MAX_FEW_LABELS", 30)
    rng = np.random.default_rng(0)
    rows = [replace(row, targets={**row.targets, EARLY: 50 + 5 * rng.random()}) for row in counted_cells(60)]
    surrogate = fit_graph_surrogate(graph_features, rows, ["accuracy", EARLY])
    fitted = conditional_surrogate(surrogate, "accuracy", [EARLY])
    assert abs(fitted.coefficients[EARLY]) < 0.05


def test_more_labels_of_the_number_help_as_well(graph_features):
    rows = with_early(60)
    rows = [*rows[:20], *(row.select([EARLY]) for row in rows[20:])]
    surrogate = fit_graph_surrogate(graph_features, rows, ["accuracy", EARLY])
    fitted = conditional_surrogate(surrogate, "accuracy", [EARLY])
    assert list(fitted.predicted) == [EARLY]
    features = graph_features.of_rows(rows[:3])
    assert fitted.predict(features, {EARLY: np.array([60.0, 70.0, 80.0])}).mean.shape == (3,)


def test_a_latency_is_predicted_from_that_of_another_device():
    rng = np.random.default_rng(0)
    rows = [
        replace(row, targets={"latency/a": 2 + hidden, "latency/b": 1 + 3 * hidden})
        for row in counted_cells(24)
        for hidden in [rng.random() + 0.1]
    ]
    names = ["latency/a", "latency/b"]
    surrogate = fit_latency_surrogate("nasbench201", rows[:16], "latency/a", measured=names)
    fitted = conditional_surrogate(surrogate, "latency/a", ["latency/b"])
    raw_features = graph_features_of_texts(texts_of_rows(rows[16:]), MAX_CHAIN_LENGTH, True)
    given = {"latency/b": np.array([row.targets["latency/b"] for row in rows[16:]])}
    predicted = fitted.predict(surrogate.graph_features.transform(raw_features), given).median
    assert predicted == pytest.approx([row.targets["latency/a"] for row in rows[16:]], rel=0.1)


def test_too_few_networks_with_both_are_refused(graph_features):
    rows = with_early(30)
    rows = [
        *rows[:5],
        *(row.select(["accuracy"]) for row in rows[5:15]),
        *(r.select([EARLY]) for r in rows[15:]),
    ]
    surrogate = fit_graph_surrogate(graph_features, rows, ["accuracy", EARLY])
    with pytest.raises(
        ValueError, match=f"5 labelled networks have accuracy and {EARLY}: expected at least 10"
    ):
        conditional_surrogate(surrogate, "accuracy", [EARLY])
    with pytest.raises(ValueError, match="0 labelled networks have accuracy and loss"):
        conditional_surrogate(surrogate, "accuracy", ["loss"])


def test_labels_of_other_surrogates_are_saved(graph_features, tiny_checkpoint, tmp_path, others):
    rows = with_early(30)
    surrogate = fit_graph_surrogate(graph_features, rows, ["accuracy"], ["accuracy", EARLY])
    assert list(surrogate.others) == [EARLY]
    again = GraphSurrogate.from_saved(surrogate.tensors(), surrogate.description())
    assert again.others[EARLY].tolist() == surrogate.others[EARLY].tolist()
    rlm = RLM.load(tiny_checkpoint).with_objectives([EARLY])
    rlm.surrogates = {"nasbench201": [surrogate]}
    rlm.save(tmp_path / "saved")
    archs, given = [row.arch_str for row in others[:9]], {EARLY: columns(others[:9])[EARLY]}
    found = rlm.predict(SPACE, archs, ["accuracy"], given=given)
    assert RLM.load(tmp_path / "saved").predict(SPACE, archs, ["accuracy"], given=given) == pytest.approx(
        found, rel=0.02
    )


def test_surrogates_of_a_table_know_its_other_numbers():
    rows = [
        replace(row, targets={**row.targets, "latency/a": 2 + 0.1 * i})
        for i, row in enumerate(with_early(16))
    ]
    fitted = fit_surrogates(rows, ["accuracy", EARLY, "latency/a"])["nasbench201"]
    for found in fitted:
        assert set(found.labels) == {"accuracy", EARLY, "latency/a"}
