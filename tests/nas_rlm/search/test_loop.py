import subprocess
import sys
import zlib

import numpy as np
import pytest

import search_spaces
from nas_rlm.search.loop import search
from nas_rlm.search.settings import SearchSettings
from tests.nas_rlm.stubs import StubPredictor

PAIR = ("accuracy", "latency/pixel3")
REFERENCE = (80.0, 40.0)
SPACE = search_spaces.get("nasbench201")


def run(predictor=None, **changed):
    settings = SearchSettings(
        **{"space": "nasbench201", "objectives": PAIR, "population": 20, "generations": 6, **changed}
    )
    return search(SPACE, predictor or StubPredictor(), settings)


class NamePredictor:
    """Judges an architecture of any space by a number that follows from its name."""

    def predict(self, space, architectures, objectives, quantiles):
        numbers = [zlib.crc32(str(a).encode()) for a in architectures]
        return np.array([[[number / 1e9] * len(quantiles)] * len(objectives) for number in numbers])


@pytest.mark.parametrize("name", search_spaces.names())
def test_every_space_can_be_searched(name):
    settings = SearchSettings(name, PAIR, population=6, generations=3)
    first, again = (search(search_spaces.get(name), NamePredictor(), settings) for _ in range(2))
    assert first.architectures == again.architectures
    assert len(set(first.architectures)) == 18
    assert all(str(search_spaces.get(name).parse(a)) == a for a in first.architectures)


def test_global_random_state_does_not_matter():
    np.random.seed(0)  # noqa: NPY002
    first = run()
    np.random.seed(1)  # noqa: NPY002
    assert run().architectures == first.architectures


def test_the_front_is_non_dominated_among_all_evaluated():
    result = run(objectives=("accuracy", "latency/pixel3", "latency/eyeriss"))
    costs = result.medians * [-1, 1, 1]
    beaten = [any((o <= c).all() and (o < c).any() for o in costs) for c in costs]
    front = set(result.front)
    assert {tuple(costs[i]) for i in front} == {tuple(c) for c, b in zip(costs, beaten, strict=True) if not b}
    assert len(front) == len({tuple(costs[i]) for i in front})
    accuracies = result.medians[result.front, 0]
    assert (np.diff(accuracies) <= 0).all()


def test_constraints_hold_on_the_front_and_guide_the_search():
    free, bound = run(), run(constraints=("latency/pixel3<=8", "accuracy>=90"))
    medians = bound.medians[bound.front]
    assert len(medians)
    assert (medians[:, 1] <= 8).all()
    assert (medians[:, 0] >= 90).all()
    assert bound.feasible.sum() > ((free.medians[:, 1] <= 8) & (free.medians[:, 0] >= 90)).sum()


def test_a_constraint_may_name_an_objective_that_is_not_optimised():
    result = run(constraints=("latency/eyeriss<=4",))
    assert result.settings.all_objectives == (*PAIR, "latency/eyeriss")
    assert result.values.shape == (120, 3, 3)
    assert (result.medians[result.front, 2] <= 4).all()


def test_infeasible_constraints_leave_an_empty_front():
    result = run(constraints=("latency/pixel3<=0.01",))
    assert result.front.tolist() == []
    assert not result.feasible.any()


def test_the_front_of_one_objective_is_its_best_architecture():
    result = run(objectives=("accuracy",))
    assert len(result.front) == 1
    assert result.medians[result.front[0], 0] == result.medians.max()


def test_searching_does_not_need_torch():
    code = "import sys, nas_rlm.search.loop, nas_rlm.plotting.front; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
