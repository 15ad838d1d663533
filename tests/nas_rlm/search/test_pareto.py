import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nas_rlm.search import pareto

PAIR = ("accuracy", "latency/pixel3")
points = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 30), st.just(2)), elements=st.integers(0, 8).map(float)
)


def dominates(a: np.ndarray, b: np.ndarray) -> bool:
    return a[0] >= b[0] and a[1] <= b[1] and tuple(a) != tuple(b)


@given(points)
def test_nondominated_is_what_the_definition_says(values):
    mask = pareto.nondominated(values, PAIR)
    for i, point in enumerate(values):
        beaten = any(dominates(other, point) for other in values)
        repeated = any(tuple(other) == tuple(point) for other in values[:i])
        assert mask[i] == (not beaten and not repeated)


@given(points)
def test_dominated_points_add_no_volume(values):
    reference = (-1.0, 9.0)
    front = values[pareto.nondominated(values, PAIR)]
    assert pareto.hypervolume(values, PAIR, reference) == pytest.approx(
        pareto.hypervolume(front, PAIR, reference)
    )


def test_hypervolume_of_a_staircase():
    values = np.array([[90.0, 10.0], [85.0, 5.0], [70.0, 1.0]])
    assert pareto.hypervolume(values, PAIR, (80.0, 40.0)) == pytest.approx(10 * 30 + 5 * 5)
    skips = np.array([[2.0, 10.0]])
    assert pareto.hypervolume(skips, ("skips", "flops"), (1.0, 15.0), ("skips",)) == pytest.approx(5)


def test_hypervolume_of_nothing_is_zero():
    assert pareto.hypervolume(np.empty((0, 2)), PAIR, (80.0, 40.0)) == 0.0
    assert pareto.nondominated(np.empty((0, 2)), PAIR).tolist() == []


def test_signs_are_undone_by_themselves():
    values = np.array([[94.0, 3.0, 7.0]])
    names = ("accuracy/cifar100", "flops", "latency/eyeriss")
    assert pareto.minimised(values, names).tolist() == [[-94.0, 3.0, 7.0]]
    assert np.array_equal(pareto.minimised(pareto.minimised(values, names), names), values)


def test_directions_are_those_of_the_kinds_and_of_declarations():
    names = ("throughput/box", "loss/val", "score")
    values = np.array([[10.0, -1.0, 5.0], [9.0, -2.0, 4.0], [9.0, -1.0, 6.0], [9.0, -1.0, 4.0]])
    assert pareto.nondominated(values, names).tolist() == [True, True, False, False]
    assert pareto.nondominated(values, names, ["score"]).tolist() == [True, True, True, False]


@given(points)
def test_fronts_follow_each_other_in_the_pareto_order(values):
    order = pareto.pareto_order(pareto.minimised(values, PAIR))
    assert sorted(order.tolist()) == list(range(len(values)))
    ordered = values[order]
    for i, later in enumerate(ordered):
        assert not any(dominates(later, earlier) for earlier in ordered[:i])
    costs = pareto.minimised(values, PAIR)
    for count in (0, 1, len(values) + 1):
        assert pareto.pareto_order(costs, count).tolist() == order[:count].tolist()
