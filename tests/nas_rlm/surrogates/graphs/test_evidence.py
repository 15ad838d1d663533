from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from nas_rlm.metrics import coverage, spearman
from nas_rlm.surrogates import fitting
from nas_rlm.surrogates.fitting import fit_features
from nas_rlm.surrogates.gaussian_process import fit_to_subsets
from nas_rlm.surrogates.graphs.evidence import (
    HeldOutErrors,
    MixtureWeights,
    cross_validate,
    pseudo_bma_weights,
    training_folds,
    weights_of_errors,
)
from nas_rlm.surrogates.graphs.features import GraphFeatures
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.graphs.views import FEW_LABELS_VIEWS
from nas_rlm.surrogates.predictive import NormalScoreTransform


def test_weights_follow_the_errors():
    rng = np.random.default_rng(0)
    small, large = rng.normal(size=40) * 0.3, rng.normal(size=40)
    weights = pseudo_bma_weights(np.stack([small, large]))
    assert weights.sum() == pytest.approx(1) and weights[0] > 0.95
    assert pseudo_bma_weights(np.stack([small, small])) == pytest.approx([0.5, 0.5])
    assert pseudo_bma_weights(np.zeros((3, 10))) == pytest.approx([1 / 3] * 3)


def test_a_mixture_of_one_is_unchanged_and_disagreement_adds_variance():
    means, variances = np.array([[1.0, 2.0]]), np.array([[4.0, 9.0]])
    mean, std = MixtureWeights.equal(1).mixture(means, variances)
    assert mean.tolist() == [1, 2] and std.tolist() == [2, 3]
    _, wider = MixtureWeights.equal(2).mixture(np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]))
    assert wider == pytest.approx([2**0.5])
    _, scaled = MixtureWeights(np.array([1.0]), 1.5).mixture(means, variances)
    assert scaled.tolist() == [3, 4.5]


def linear(n, seed, noise=0.0):
    """Return features [N, 4] and scores that depend on the first two."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = x[:, 0] + 0.5 * x[:, 1] + noise * rng.normal(size=n)
    return torch.from_numpy(x), torch.from_numpy((y - y.mean()) / y.std())


def test_cross_validation_prefers_useful_features():
    x, y = linear(40, 0)

    transform = NormalScoreTransform(y.numpy())
    folds = training_folds(40)
    assert (folds.sum(0) == 4).all() and (folds.sum(1) == 32).all()

    def masked(*used):
        found = torch.full((5, 5), 1e-3, dtype=torch.float64)
        found[:, [*used, 4]] = fit_to_subsets(x[:, [*used]], [len(used)], y, folds)
        return found

    evidence = cross_validate(x, transform, torch.stack([masked(0, 1), masked(2, 3)]), 0)
    assert evidence.weights.sum() == pytest.approx(1)
    assert evidence.weights[0] > 0.98  # the other one does not explain the labels
    assert 0.2 < evidence.std_factor < 5
    held_out = evidence.held_out
    assert held_out.labels == 40 and held_out.spearman > 0.9 and not held_out.is_weak
    assert held_out.error < 0.3 < held_out.spread
    useless = cross_validate(x, transform, masked(2, 3)[None], 0).held_out
    assert useless.is_weak and useless.labels == 40


def test_models_with_similar_errors_share_the_weight():
    errors = np.random.default_rng(0).normal(size=(3, 100)) * np.array([[1.0], [1.15], [4.0]])
    weights = weights_of_errors(errors)
    assert weights.sum() == pytest.approx(1)
    assert 0.1 < weights[1] < weights[0] and weights[2] < 0.01
    assert weights_of_errors(np.zeros((2, 9))).tolist() == [0.5, 0.5]


def test_errors_of_held_out_networks():
    measured = np.array([70.0, 80.0, 90.0])
    exact = HeldOutErrors.of(measured, measured)
    assert (exact.spearman, exact.error, exact.is_weak) == (1.0, 0.0, False)
    assert exact.spread == pytest.approx(20 / 3)
    assert str(exact) == (
        "5-fold cross-validation on 3 networks: Spearman 1.000, mean error 0, 6.67 if the median is predicted"
        " for each"
    )
    for predicted in (np.full(3, 80.0), measured[::-1]):
        assert HeldOutErrors.of(predicted, measured).is_weak
    equal = HeldOutErrors.of(measured, np.full(3, 80.0))
    assert equal.spearman == 0 and "no ranks, since all values are equal, mean error" in str(equal)


def test_unusable_gaussian_processes_take_no_part():
    means, variances = np.array([[1.0, 1.0], [3.0, np.nan]]), np.ones((2, 2))
    evidence = MixtureWeights(np.array([0.5, 0.5]))
    mean, std = evidence.mixture(np.nan_to_num(means), variances, np.array([[True, True], [True, False]]))
    assert mean.tolist() == [2, 1] and std[1] == 1 < std[0]


FEATURES = GraphFeatures(("flops", "params", "paths", "convs-convs"), np.zeros(4), np.ones(4))


@cache
def fitted(n=30, noise=0.3, seed=0):
    x, y = linear(n, seed, noise)
    return fit_features(FEATURES, x, 50 + 5 * y.numpy()[:, None], ["accuracy"])


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_few_labels_are_learned_with_calibrated_intervals(noise):
    covered, correlations = [], []
    for seed in range(3):
        x, y = linear(330, seed, noise)
        values = 50 + 5 * y.numpy()
        surrogate = fit_features(FEATURES, x[:30], values[:30, None], ["accuracy"])
        found = surrogate.predict(x[30:], "accuracy")
        low, high = found.quantiles((0.1, 0.9)).T
        covered.append(coverage(low, high, values[30:]))
        correlations.append(spearman(found.median, values[30:]))
    assert 0.6 < np.mean(covered) < 0.97
    assert np.mean(correlations) > {0.0: 0.95, 1.0: 0.6}[noise]


def test_views_are_for_few_labels_only(monkeypatch):
    few = fitted()
    assert few.hyperparameters["accuracy"].shape[0] == len(FEW_LABELS_VIEWS)
    assert few.evidence["accuracy"].weights.shape == (len(FEW_LABELS_VIEWS),)
    monkeypatch.setattr(fitting, "MAX_FEW_LABELS", 29)
    many = fitted.__wrapped__()
    assert many.hyperparameters["accuracy"].shape[0] == 1 and not many.evidence


def test_a_saved_surrogate_predicts_the_same():
    surrogate = fitted()
    x, _ = linear(20, 7)
    again = GraphSurrogate.from_saved(surrogate.tensors(), surrogate.description())
    before, after = surrogate.predict(x, "accuracy"), again.predict(x, "accuracy")
    assert after.mean == pytest.approx(before.mean, abs=1e-4)
    assert after.std == pytest.approx(before.std, rel=1e-3)
    renamed = surrogate.renamed({"accuracy": "accuracy before"})
    assert renamed.predict(x, "accuracy before").mean == pytest.approx(before.mean)
    both = replace(surrogate, evidence={})
    assert both.predict(x, "accuracy").mean != pytest.approx(before.mean, abs=1e-6)


@pytest.mark.parametrize(
    "evidence",
    [
        {"weights": [1.0], "std_factor": 1.0},
        {"weights": [0.5, 0.7, -0.2], "std_factor": 1.0},
        {"weights": [0.5, 0.25, 0.25], "std_factor": 0.0},
        {"weights": [0.5, 0.25, float("nan")], "std_factor": 1.0},
    ],
)
def test_damaged_evidence_is_refused(evidence):
    surrogate = fitted()
    description = surrogate.description() | {"evidence": {"accuracy": evidence}}
    with pytest.raises(ValueError, match="evidence of accuracy is not 3 weights and a factor above 0"):
        GraphSurrogate.from_saved(surrogate.tensors(), description)


def test_checkpoints_without_evidence_have_equal_weights():
    surrogate = fitted()
    description = {k: v for k, v in surrogate.description().items() if k != "evidence"}
    again = GraphSurrogate.from_saved(surrogate.tensors(), description)
    assert not again.evidence
    assert again.predict(linear(5, 3)[0], "accuracy").mean.shape == (5,)
