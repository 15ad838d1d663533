import numpy as np
import pytest

from nas_rlm.surrogates.latency.layer_costs import choose_free_share, fit_coefficients

TYPES = ("Conv1x1", "Conv3x3")
NUM_TERMS = 6


def costs_of(numbers):
    """Sums over layers that have only a number, of two types."""
    costs = np.zeros((len(numbers), len(TYPES) * NUM_TERMS))
    costs[:, [0, NUM_TERMS]] = numbers
    return costs


def test_a_type_without_labels_has_the_coefficient_of_similar_types():
    costs = costs_of(np.column_stack([np.arange(1, 21), np.zeros(20)]))
    coefficients = fit_coefficients(costs, 2 + 3 * costs[:, 0], TYPES)
    assert coefficients[[1, 1 + NUM_TERMS]] == pytest.approx([3, 3], rel=0.1)


def test_coefficients_are_free_where_similar_types_differ_thirty_times():
    costs = costs_of(np.random.default_rng(0).integers(1, 20, (60, 2)))
    latencies = costs[:, 0] + 30 * costs[:, NUM_TERMS]
    families = np.arange(60) % 6
    assert choose_free_share(costs, latencies, TYPES, families, families) == 0.5


def test_coefficients_are_not_free_where_a_family_has_a_type_that_no_other_has():
    numbers = np.random.default_rng(0).integers(1, 20, (60, 2)) * np.repeat(np.eye(2, dtype=int), 30, 0)
    costs, families = costs_of(numbers), np.repeat([0, 1], 30)
    latencies = 1 + 2 * costs.sum(1)
    assert choose_free_share(costs, latencies, TYPES, families, families) == 0


def test_without_families_to_leave_out_coefficients_are_those_of_similar_types():
    costs, families = costs_of(np.ones((5, 2))), np.zeros(5, int)
    assert choose_free_share(costs, np.ones(5), TYPES, families, families) == 0
