import numpy as np
import pytest

from nas_rlm.surrogates.nonnegative import fit_nonnegative, predict_held_out


def random_costs(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((count, 4)) * [1, 1e9, 1e-6, 0]


def test_coefficients_of_any_scale_are_found():
    costs = random_costs(50)
    latencies = costs @ [2.0, 3e-9, 5e6, 0]
    found = fit_nonnegative(costs, latencies)
    assert found == pytest.approx(np.array([2.0, 3e-9, 5e6, 0]), rel=1e-6)
    assert predict_held_out(costs, latencies) == pytest.approx(latencies, rel=1e-6)


def test_coefficients_are_not_negative():
    costs = random_costs(50)
    found = fit_nonnegative(costs, 10 + costs @ [-5.0, 1e-9, 0, 0])
    assert found.min() == 0 < found.max()


@pytest.mark.parametrize("count", [10, 57])
def test_predictions_of_held_out_labels_do_not_depend_on_them(count):
    costs, rng = random_costs(count), np.random.default_rng(1)
    latencies = 1 + costs[:, 0] + 0.1 * rng.random(count)
    changed = latencies.copy()
    changed[3] *= 2
    assert predict_held_out(costs, changed)[3] == predict_held_out(costs, latencies)[3]
