import numpy as np
import pytest

from nas_rlm.surrogates.latency.layer_calibration import (
    COVERED,
    MAX_LOG_STD,
    MAX_NOVELTY,
    MIN_STD,
    NOVEL_STD,
    FamilyEvidence,
    LeftOutPredictions,
    factor_weights,
    log_stds,
    predicted_stds,
    spread,
)

QUANTILE = 1.2816  # of a standard normal distribution at 0.9


def share_in_interval(errors, novelties, calibration):
    return (np.abs(errors) <= QUANTILE * np.exp(log_stds(novelties, *calibration))).mean()


@pytest.mark.parametrize("share_known", [0.0, 0.2])
def test_intervals_have_their_share_of_known_networks_and_of_other_families(share_known):
    rng = np.random.default_rng(0)
    novelties = np.where(rng.random(3000) < share_known, 0.8, np.exp(rng.uniform(0.8, 3, 3000)))
    errors = 0.05 * rng.standard_normal(3000) * np.sqrt(np.maximum(novelties, 1))
    known_novelties, known_errors = np.full(2000, 0.7), 0.02 * rng.standard_normal(2000)
    found = spread(errors, novelties, known_errors, known_novelties)
    assert COVERED <= share_in_interval(errors, novelties, found) < 0.83
    assert share_in_interval(known_errors, known_novelties, found) == pytest.approx(0.8, abs=0.13)
    assert found[0] >= found[2] >= 0.019


def test_a_device_that_is_predicted_exactly_has_the_narrowest_intervals():
    assert spread(np.zeros(5), np.full(5, 0.5), np.zeros(5), np.zeros(5))[2] == MIN_STD


def test_weights_and_widths_are_interpolated_between_known_and_unlike_networks():
    novelties = np.array([[0.5], [1.0], [1.5], [MAX_NOVELTY], [9.0]])
    weights = factor_weights(novelties, np.array([0.8]), np.array([0.4]))
    assert weights[:, 0] == pytest.approx([0.8, 0.8, 0.6, 0.4, 0.4])
    widths = np.exp(log_stds(novelties[:, 0], 0.16, 0.0, 0.04))
    assert widths == pytest.approx([0.04, 0.04, 0.08, 0.16, 0.16])
    assert np.exp(log_stds(np.array([9.0]), 0.16, 0.5, 0.04)) == pytest.approx([0.48])


def test_predicted_widths_are_bounded_for_networks_unlike_all_labelled_ones():
    novelties = np.array([[1.0, 1.0], [MAX_NOVELTY, 9.0], [9.0, 1e9]])
    found = predicted_stds(novelties, np.array([[0.16, 0.0, 0.04], [0.16, 0.5, 0.04]]))
    assert found == pytest.approx(np.array([[0.04, 0.04], [0.16, 0.48], [NOVEL_STD, MAX_LOG_STD]]))


@pytest.mark.parametrize(("helpful", "best"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_the_strength_for_unlike_networks_is_that_of_the_smallest_errors(helpful, best):
    rng = np.random.default_rng(0)
    latencies, factors = np.exp(rng.standard_normal((60, 2))), rng.standard_normal((60, 2))
    by_costs = np.log(latencies) - helpful * factors
    left_out = LeftOutPredictions(by_costs, by_costs + factors, np.full((60, 2), 5.0))
    families = np.arange(60) % 4
    assert left_out.best_strength(np.ones(2), latencies, families) == best
    assert left_out.errors(np.ones(2), best, latencies) == pytest.approx(0.0, abs=1e-12)


def test_one_family_with_large_errors_decides():
    latencies = np.ones((40, 1))
    factors = np.where(np.arange(40) < 10, 2.0, -0.2)[:, None]
    by_costs = np.where(np.arange(40) < 10, 0.0, 0.2)[:, None]
    left_out = LeftOutPredictions(by_costs, by_costs + factors, np.full((40, 1), 5.0))
    assert left_out.best_strength(np.ones(1), latencies, np.arange(40) // 10) == 0.0


def test_without_predictions_of_other_families_factors_do_not_count():
    empty = np.full((5, 1), np.nan)
    assert LeftOutPredictions(empty, empty, empty).best_strength(np.ones(1), empty, np.zeros(5, int)) == 0.0
    assert FamilyEvidence.of(empty[:, 0], np.arange(5)) == FamilyEvidence(5, 5)
