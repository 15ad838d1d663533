import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.surrogates.target_transform import LINEAR, LOGARITHMIC, RANKS, SCALES, TargetTransform

VALUES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30)


@pytest.mark.parametrize("scale", SCALES)
@given(values=VALUES)
def test_scores_of_any_finite_values_are_finite_and_keep_their_order(scale, values):
    values = np.sort(np.array(values))
    transform = TargetTransform(values, scale)
    scores = transform.forward(values)
    assert np.isfinite(scores).all()
    assert (np.diff(scores) >= -1e-9).all()
    assert np.isfinite(transform.inverse(np.array([-50.0, 0.0, 50.0]))).all()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("factor", [1e-200, 1, 1e200])
def test_values_return_from_their_scores(scale, factor):
    values = factor * np.array([-5.0, -1.0, 0.0, 0.5, 2.0, 30.0])
    transform = TargetTransform(values, scale)
    np.testing.assert_allclose(
        transform.inverse(transform.forward(values)), values, rtol=1e-6, atol=1e-6 * factor
    )


def test_infinite_values_are_the_ends_of_the_ranks():
    values = np.array([-np.inf, *np.arange(7.0), np.inf, np.inf])
    transform = TargetTransform(values, RANKS)
    np.testing.assert_allclose(
        transform.inverse(transform.label_scores(values)), values, rtol=1e-6, atol=1e-6
    )
    low, high = transform.forward(np.array([-sys.float_info.max, sys.float_info.max]))
    assert transform.inverse(np.array([low - 0.01, high + 0.01])).tolist() == [-math.inf, math.inf]
    assert np.isfinite(transform.inverse(np.array([low + 0.01, high - 0.01]))).all()
    assert (np.diff(transform.forward(values)) >= 0).all()


def test_positive_values_stay_positive():
    transform = TargetTransform(np.array([1.0, 2.0, 3.0]), LINEAR)
    assert transform.inverse(np.array([-100.0])) == pytest.approx(0.15)


def test_a_transform_is_restored_from_what_is_saved():
    values = np.array([-np.inf, 1.0, 2.0, 7.0, np.inf])
    transform = TargetTransform(values, RANKS)
    restored = TargetTransform.from_saved(transform.finite, transform.description())
    scores = np.linspace(-3, 3, 20)
    np.testing.assert_array_equal(restored.inverse(scores), transform.inverse(scores))
    for broken in ({"scale": "cubic"}, {"infinite": {"minus": -1, "plus": 0}}):
        with pytest.raises(ValueError, match=r"expected one of|no values"):
            TargetTransform.from_saved(transform.finite, {**transform.description(), **broken})


@pytest.mark.parametrize("scale", [LINEAR, LOGARITHMIC])
@pytest.mark.parametrize(("count", "least"), [(2, 0.1), (5, 0.25), (10, 0.5), (40, 0.5)])
def test_the_fewer_positive_values_the_farther_below_them_others_may_be(scale, count, least):
    transform = TargetTransform(np.linspace(1, 2, count), scale)
    assert transform.inverse(np.array(-50.0)) == pytest.approx(least)
