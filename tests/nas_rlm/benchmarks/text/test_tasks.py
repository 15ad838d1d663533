import numpy as np
import pytest

from nas_rlm.benchmarks.text.tasks import TASKS, roman_numeral


@pytest.mark.parametrize("task", TASKS)
def test_tasks_are_drawn_with_a_seed(task):
    first, again, other = (TASKS[task](40, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.texts == again.texts != other.texts
    np.testing.assert_array_equal(first.values, again.values)
    assert len(first.texts) == len(first.values) == 40
    assert np.isfinite(first.values).all() and np.ptp(first.values) > 0
    if first.columns is not None:
        assert first.columns.shape == (40, len(first.categories))


@pytest.mark.parametrize(("seed", "text", "value"), [(1, "MDCCCXCII", 1892), (4, "MMCMV", 2905)])
def test_roman_numerals_have_their_values(seed, text, value):
    assert roman_numeral(np.random.default_rng(seed)) == (text, value)
