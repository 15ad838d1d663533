import numpy as np
import pytest

from nas_rlm.surrogates.latency.nonnegative import RELATIVE_SPREAD, fit_nonnegative, predict_held_out

SEPARATE = [["a"], ["b"], ["c"], ["d"]]


def random_costs(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((count, 4)) * [1, 1e9, 1e-6, 0]


def test_coefficients_of_any_scale_are_found():
    costs = random_costs(500)
    latencies = 0.5 + costs @ [2.0, 3e-9, 5e6, 0]
    found = fit_nonnegative(costs, latencies, SEPARATE)
    assert found == pytest.approx(np.array([0.5, 2.0, 3e-9, 5e6, 0]), rel=1e-2)
    assert predict_held_out(costs, latencies, SEPARATE) == pytest.approx(latencies, rel=1e-2)


def test_coefficients_are_not_negative():
    costs = random_costs(50)
    found = fit_nonnegative(costs, 10 + costs @ [-5.0, 1e-9, 0, 0], SEPARATE)
    assert found.min() == 0 < found.max()


def test_a_cost_that_no_network_has_takes_the_coefficient_of_its_group():
    costs = np.random.default_rng(0).random((40, 3)) * [1, 1, 0]
    groups = [["conv"], ["conv"], ["conv"]]
    found = fit_nonnegative(costs, costs @ [2.0, 2.0, 0.0] + 1, groups)
    assert found == pytest.approx(np.array([1.0, 2.0, 2.0, 2.0]), rel=0.02)


def test_a_group_without_labels_takes_the_coefficient_of_its_wider_group():
    costs = np.random.default_rng(0).random((40, 3)) * [1, 1, 0]
    groups = [["conv", "compute"], ["conv", "compute"], ["product", "compute"]]
    found = fit_nonnegative(costs, costs @ [2.0, 2.0, 0.0] + 1, groups)
    assert 0.3 < found[3] <= 2.05


def test_many_labels_outweigh_the_group():
    costs = np.random.default_rng(0).random((2000, 2))
    found = fit_nonnegative(costs, 1 + costs @ [1.0, 10.0], [["conv"], ["conv"]])
    assert found == pytest.approx(np.array([1.0, 1.0, 10.0]), rel=0.05)


def test_few_labels_do_not():
    costs = np.array([[1.0, 0.01], [2.0, 0.0], [3.0, 0.02], [5.0, 0.01]])
    found = fit_nonnegative(costs, costs @ [1.0, 40.0], [["conv"], ["conv"]])
    assert found[2] < found[1] * (1 + 4 * RELATIVE_SPREAD)


@pytest.mark.parametrize("count", [9, 57])
def test_predictions_of_held_out_labels_do_not_depend_on_them(count):
    costs, rng = random_costs(count), np.random.default_rng(1)
    latencies = 1 + costs[:, 0] + 0.1 * rng.random(count)
    changed = latencies.copy()
    changed[3] *= 2
    before, after = (predict_held_out(costs, values, SEPARATE) for values in (latencies, changed))
    assert after[3] == before[3]
