import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from nas_rlm.surrogates.predictive import NormalScoreTransform, PredictiveDistribution, RobustTransform


def test_interval_probabilities_are_those_of_the_normal_distribution():
    """Compare with the normal distribution between the scores of the edges."""
    transform = NormalScoreTransform(np.arange(1.0, 100.0))
    predicted = PredictiveDistribution(transform, np.array([0.5, -1.0]), np.array([0.8, 0.1]))
    edges = np.array([20.0, 40.0, 50.0, 60.0, 99.0])
    found = predicted.interval_probabilities(np.tile(edges, (2, 3, 1)))
    for row, mean, deviation in zip(found, predicted.mean, predicted.std, strict=True):
        mass = np.diff(norm.cdf((transform.forward(edges) - mean) / deviation))
        assert row == pytest.approx(np.tile(mass / mass.sum(), (3, 1)), abs=2e-3)
    assert found.sum(-1) == pytest.approx(1)
    far = PredictiveDistribution(transform, np.array([30.0]), np.array([0.1])).interval_probabilities(
        edges[None, None]
    )[0, 0]
    assert far.argmax() == 3
    nowhere = predicted.interval_probabilities(np.full((2, 1, 5), 7.0))
    assert np.isfinite(nowhere).all()


def test_the_transform_and_its_inverse():
    observed = np.array([93.0, 10.0, 91.0, 92.0, 93.0, 94.0])
    transform = NormalScoreTransform(observed, maximum=100.0)
    assert transform.inverse(transform.scores) == pytest.approx(observed)
    assert transform.forward(observed) == pytest.approx(transform.scores)
    beyond = transform.inverse(np.array([-9.0, 2.0, 2.5, 99.0]))
    assert beyond[0] == 5.0
    assert 94 < beyond[1] < beyond[2] < 100
    assert beyond[3] == 100.0
    assert transform.forward(beyond[1:3]) == pytest.approx([2.0, 2.5])
    assert NormalScoreTransform(np.array([3.0, 3.0])).inverse(np.array([-1.0, 1.0])) == pytest.approx(
        [3.0, 3.0]
    )


@pytest.mark.parametrize("minimum", [-np.inf, -9.0])
def test_values_below_zero_have_a_transform(minimum):
    observed = np.array([-2.5, -1.0, -0.5, 0.0, 0.25, 1.0])
    transform = NormalScoreTransform(observed, minimum=minimum)
    assert transform.inverse(transform.scores) == pytest.approx(observed)
    below = transform.inverse(np.array([-2.0, -9.0]))
    assert max(minimum, -100) <= below[1] < below[0] < -2.5
    assert NormalScoreTransform(np.array([0.0, 1.0]), minimum=0.0).inverse(np.array([-9.0])) == [0.0]


FINITE = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@given(st.lists(FINITE, min_size=1, max_size=30), st.floats(-3, 3))
def test_a_robust_transform_is_monotone_and_has_an_inverse(values, score):
    observed = np.array(values)
    transform = RobustTransform(observed)
    assert np.isfinite(transform.scores).all()
    assert transform.inverse(transform.scores) == pytest.approx(observed, rel=1e-6, abs=1e-6)
    order = np.argsort(observed, kind="stable")
    assert (np.diff(transform.scores[order]) >= 0).all()
    value = transform.inverse(np.array([score]))
    if value > transform._bounds[0]:
        assert transform.forward(value) == pytest.approx([score], rel=1e-6, abs=1e-6)


@given(st.lists(FINITE, min_size=1, max_size=30))
def test_scores_of_ranks_and_distances_are_between_those_of_each(values):
    observed = np.array(values)
    robust, ranks = RobustTransform(observed), NormalScoreTransform(observed)
    both = NormalScoreTransform(observed, distances=robust.scores)
    assert both.inverse(both.scores) == pytest.approx(observed, rel=1e-6, abs=1e-6)
    order = np.argsort(observed, kind="stable")
    assert (np.diff(both.scores[order]) >= 0).all()
    if len(np.unique(observed)) > 2:
        gaps = [np.diff(t.scores[order]) / t.scores.std() for t in (robust, ranks)]
        gap = np.diff(both.scores[order])
        scale = np.median(gap[gap > 0] / np.add(*gaps)[gap > 0])
        assert gap == pytest.approx(scale * np.add(*gaps), abs=1e-6)


def test_values_that_a_search_selected_keep_their_distances():
    """Above 30 nearly equal best values, a score means about the same distance as among the others."""
    accuracies = np.concatenate([np.linspace(86, 92, 30), np.linspace(92, 92.3, 30), [10.0] * 6])
    robust, ranks = RobustTransform(accuracies, 100.0), NormalScoreTransform(accuracies, 100.0)
    above = np.array([1.0])
    gains = [t.inverse(t.scores.max() + above)[0] - accuracies.max() for t in (robust, ranks)]
    assert gains[0] > 1 > 0.3 > gains[1]


def test_outliers_stay_apart_from_the_other_values_without_setting_the_scale():
    accuracies = np.array([10.0, 10.0, *np.linspace(88, 94, 20)])
    transform = RobustTransform(accuracies, 100.0)
    assert -7 < transform.scores[0] < transform.scores[2:].min() - 1
    assert np.ptp(transform.scores[2:]) > 1.5
    assert transform.inverse(np.array([-99.0, 99.0])) == pytest.approx([5.0, 100.0])
