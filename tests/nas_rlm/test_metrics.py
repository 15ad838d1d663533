import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.metrics import coverage, kendall, partial_spearman, spearman

VALUES = st.lists(st.integers(-50, 50), min_size=3, max_size=30).filter(lambda v: len(set(v)) > 1)


@given(VALUES)
def test_rank_correlations_are_invariant_to_monotone_transforms(values):
    true = np.array(values, dtype=float)
    for measure in (spearman, kendall):
        assert measure(np.exp(true / 20), true) == pytest.approx(1)
        assert measure(-true, true) == pytest.approx(-1)


def test_rank_correlations_equal_those_computed_by_hand():
    predicted, true = np.array([1.0, 3, 2, 4]), np.array([1.0, 2, 3, 4])
    assert kendall(predicted, true) == pytest.approx((5 - 1) / 6)
    assert spearman(predicted, true) == pytest.approx(1 - 6 * 2 / (4 * 15))


def test_a_constant_prediction_has_rank_correlation_0():
    assert spearman(np.ones(5), np.arange(5.0)) == kendall(np.ones(5), np.arange(5.0)) == 0


def test_coverage_includes_the_bounds():
    assert coverage(np.zeros(4), np.ones(4), np.array([0.0, 1.0, 1.1, -0.1])) == 0.5


def test_partial_correlation_is_that_of_what_a_known_quantity_does_not_explain():
    rng = np.random.default_rng(0)
    size, rest = rng.standard_normal((2, 2000))
    true = 3 * size + rest
    assert partial_spearman(size, true, size) == 0
    assert abs(partial_spearman(size + 0.01 * rng.standard_normal(2000), true, size)) < 0.1
    assert partial_spearman(3 * size + rest, true, size) == pytest.approx(1)
    assert partial_spearman(3 * size - rest, true, size) < -0.8
