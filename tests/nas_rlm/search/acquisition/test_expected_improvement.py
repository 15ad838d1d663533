import moocore
import numpy as np
import pytest
from scipy import stats

from nas_rlm.search.acquisition.expected_improvement import expected_improvement
from nas_rlm.search.acquisition.improvement_search import PROBABILITIES, SCORES


@pytest.mark.parametrize("num_objectives", [2, 3, 4])
def test_the_improvement_of_a_certain_candidate_is_the_hypervolume_that_it_adds(num_objectives):
    rng = np.random.default_rng(num_objectives)
    front, reference = rng.random((12, num_objectives)), np.ones(num_objectives)
    candidates = 1.2 * rng.random((30, num_objectives))
    before = moocore.hypervolume(front, ref=reference)
    added = [moocore.hypervolume(np.vstack([front, c]), ref=reference) - before for c in candidates]
    assert max(added) > 0.01
    assert np.allclose(expected_improvement(front, reference, candidates[:, :, None], np.ones(1)), added)


def test_with_one_objective_it_is_the_expected_improvement_over_the_best():
    costs = np.array([[[1.0, 3.0, 5.0]], [[2.0, 2.0, 2.0]], [[0.0, 9.0, 9.0]]])
    improvement = expected_improvement(
        np.array([[2.5], [4.0]]), np.array([10.0]), costs, np.array([0.5, 0.25, 0.25])
    )
    assert np.allclose(improvement, [1.5 / 2, 0.5, 2.5 / 2])


def test_it_is_the_mean_over_independent_values_of_the_objectives():
    rng = np.random.default_rng(0)
    front, reference, costs = rng.random((5, 2)), np.ones(2), rng.random((1, 2, 4))
    pairs = np.array([[costs[0, 0, i], costs[0, 1, j]] for i in range(4) for j in range(4)])
    mean = expected_improvement(front, reference, pairs[:, :, None], np.ones(1)).mean()
    assert np.isclose(expected_improvement(front, reference, costs, np.full(4, 0.25))[0], mean)


def test_without_a_front_it_is_the_volume_below_the_reference_point():
    costs = np.array([[[1.0], [1.0]], [[3.0], [0.0]], [[np.inf], [0.0]]])
    found = expected_improvement(np.empty((0, 2)), np.array([2.0, 3.0]), costs, np.ones(1))
    assert found.tolist() == [2, 0, 0]


def test_the_quantiles_give_the_expected_improvement_of_a_normal_distribution_far_into_its_tail():
    for best in (0.5, 0.0, -1.0, -2.0, -3.0):
        exact = best * stats.norm.cdf(best) + stats.norm.pdf(best)
        costs = SCORES[None, None, :]
        found = expected_improvement(np.array([[best]]), np.array([10.0]), costs, PROBABILITIES)[0]
        assert found == pytest.approx(exact, rel=0.15)
