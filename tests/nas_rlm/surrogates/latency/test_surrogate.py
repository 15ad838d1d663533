from dataclasses import replace

import numpy as np
import pytest
import torch

from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.metrics import coverage, spearman
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, random_networks
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.latency.samples import LeaveOneOutEvidence
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.registry import from_saved

NAME, NUM_LABELS = "latency/mine", 25


@pytest.fixture(scope="module")
def cells():
    rows = random_networks("nasbench201", 200, seed=3)
    return graph_features_of_texts(texts_of_rows(rows), MAX_CHAIN_LENGTH, with_layers=True)


def of_mode(mode):
    """Return a device that executes the layers of a mode one after the other."""

    def latency(raw):
        terms = {"number": 0.02, "macs": 1e-8, "outputs": 1e-7}
        return 0.5 + sum(c * raw.get(f"{mode}/layers:{term}", 0.0) for term, c in terms.items())

    return latency


def in_parallel(raw):
    """Return the latency of a device that executes branches at the same time."""
    return 0.5 + 0.1 * raw.get("layers/most", 0.0) + 1e-8 * raw.get("live/layers:macs", 0.0)


DEVICES = {**{mode: of_mode(mode) for mode in ("all", "needed", "live", "fused")}, "parallel": in_parallel}


def fitted(cells, device, num_labels=NUM_LABELS, noise=0.02):
    rng = np.random.default_rng(0)
    values = np.array([DEVICES[device](raw) for raw in cells]) * np.exp(
        noise * rng.standard_normal(len(cells))
    )
    features = LatencyFeatures.fit(cells)
    inputs = features.transform(cells)
    surrogate = LatencySurrogate.fit(features, inputs[:num_labels], values[:num_labels], NAME)
    return surrogate, inputs[num_labels:], values[num_labels:]


def test_it_is_fitted_where_gradients_are_disabled(cells):
    surrogate, inputs, _ = fitted(cells, "live", num_labels=20)
    with torch.no_grad():
        same, _, _ = fitted(cells, "live", num_labels=20)
    assert np.array_equal(surrogate.predict(inputs, NAME).median, same.predict(inputs, NAME).median)


@pytest.mark.parametrize("device", DEVICES)
def test_devices_that_execute_networks_differently_are_predicted(cells, device):
    surrogate, inputs, true = fitted(cells, device)
    found = surrogate.predict(inputs, NAME)
    assert spearman(found.median, true) > 0.95
    assert np.abs(found.median / true - 1).mean() < 0.08
    assert 0.6 < coverage(*found.quantiles((0.1, 0.9)).T, true) <= 1


def test_evidence_is_close_to_the_error_on_other_networks(cells):
    surrogate, inputs, true = fitted(cells, "fused", num_labels=60)
    errors = np.abs(surrogate.predict(inputs, NAME).median / true - 1)
    evidence = surrogate.evidence
    assert evidence.labels == 60 and not evidence.is_weak
    assert evidence.relative_error == pytest.approx(errors.mean(), rel=0.6)
    assert evidence.spearman > 0.95 and evidence.relative_error < evidence.spread / 2
    assert str(evidence).startswith("leave-one-out on 60 networks: Spearman 0.9")


def test_noise_has_weak_evidence(cells):
    surrogate, inputs, _ = fitted(cells, "all", noise=1.5)
    assert surrogate.evidence.is_weak
    low, high = surrogate.predict(inputs, NAME).quantiles((0.1, 0.9)).T
    assert np.median(high / low) > 3


def test_left_out_labels_do_not_predict_themselves(cells):
    surrogate, _, _ = fitted(cells, "live", num_labels=12)
    values = surrogate.values.copy()
    values[0] *= 1.5
    changed = replace(surrogate, values=values)
    scale = values.mean() / surrogate.values.mean()
    gaussian = len(surrogate.gains)
    before, after = (np.exp(s._left_out_by_model[0][:gaussian, 0]) for s in (surrogate, changed))
    assert after == pytest.approx(before, rel=0.1 * abs(scale - 1) + 0.08)


def test_predictions_of_a_network_do_not_depend_on_the_others(cells):
    surrogate, inputs, _ = fitted(cells, "needed")
    whole = surrogate.predict(inputs, NAME)
    alone = surrogate.predict(inputs[5:6], NAME)
    assert alone.mean[0] == pytest.approx(whole.mean[5], rel=1e-9)
    assert alone.std[0] == pytest.approx(whole.std[5], rel=1e-6)


@pytest.fixture(scope="module")
def surrogate(cells):
    return fitted(cells, "fused")[0]


def test_a_saved_surrogate_predicts_the_same(surrogate, cells):
    restored = from_saved(surrogate.tensors(), surrogate.description())
    inputs = surrogate.graph_features.transform(cells)
    before, after = (s.predict(s.graph_features.transform(cells), NAME) for s in (surrogate, restored))
    assert after.mean == pytest.approx(before.mean, abs=1e-4) and len(inputs) == len(after.mean)
    assert after.std == pytest.approx(before.std, rel=1e-2)
    assert restored.evidence.spearman == pytest.approx(surrogate.evidence.spearman, abs=0.01)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gains", -1.0),
        ("noise", 0.0),
        ("prior", float("nan")),
        ("values", 0.0),
        ("std", 0.0),
        ("features", float("inf")),
        ("coefficients.all", float("nan")),
        ("held_out", float("nan")),
    ],
)
def test_saved_values_out_of_range_are_refused(surrogate, name, value):
    tensors = {k: v.clone() for k, v in surrogate.tensors().items()}
    tensors[name].view(-1)[0] = value
    with pytest.raises(ValueError, match=r"not above 0|not finite"):
        from_saved(tensors, surrogate.description())


@pytest.mark.parametrize("name", ["gains", "values", "features", "mean", "coefficients.all", "held_out"])
def test_missing_tensors_and_other_shapes_are_refused(surrogate, name):
    tensors = surrogate.tensors()
    for changed in ({k: v for k, v in tensors.items() if k != name}, {**tensors, name: torch.ones(2, 3, 4)}):
        with pytest.raises(ValueError):
            from_saved(changed, surrogate.description())


def test_descriptions_that_do_not_fit_are_refused(surrogate):
    description = surrogate.description()
    for changes in ({"features": [1]}, {"objective": 3}, {"temperatures": {NAME: 0.0}}):
        with pytest.raises(ValueError):
            from_saved(surrogate.tensors(), {**description, **changes})


def test_a_surrogate_without_its_objective_is_none(surrogate):
    assert surrogate.objectives == (NAME,)
    assert surrogate.without([NAME]) is None and surrogate.without(["latency/x"]) is surrogate


def test_evidence_of_perfect_and_constant_predictions():
    true = np.array([1.0, 2.0, 4.0])
    assert LeaveOneOutEvidence.of(true, true) == LeaveOneOutEvidence(
        3, 1.0, pytest.approx(1.0), 0.0, 1.0, 0.5
    )
    assert LeaveOneOutEvidence.of(np.full(3, 2.0), true).is_weak


def test_networks_of_other_spaces_are_predicted_by_sums_of_costs():
    cells_of = {
        name: graph_features_of_texts(
            texts_of_rows(random_networks(name, 60, seed=1)), MAX_CHAIN_LENGTH, True
        )
        for name in ("nasbench201", "nats_size")
    }
    surrogate, _, _ = fitted(cells_of["nasbench201"], "all", num_labels=40)
    true = np.array([DEVICES["all"](raw) for raw in cells_of["nats_size"]])
    inputs = surrogate.graph_features.transform(cells_of["nats_size"])
    alone = surrogate.for_other_networks
    found = alone.predict(inputs, NAME)
    assert spearman(found.median, true) > 0.9
    assert np.abs(np.log(found.median / true)).mean() < 0.5
    assert coverage(*found.quantiles((0.1, 0.9)).T, true) > 0.5
    assert len(alone.gains) == 0 and alone.network_temperatures[NAME] > 1e3 and surrogate.std_scale == 1
