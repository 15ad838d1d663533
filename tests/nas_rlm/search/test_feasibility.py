import numpy as np
import pytest

import search_spaces
from nas_rlm.search.feasibility import estimate_feasibility
from nas_rlm.search.settings import SearchSettings
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
PAIR = ("accuracy", "latency/pixel3")


def test_ranges_and_constraint_rates_are_those_of_random_architectures():
    predictor = StubPredictor()
    settings = SearchSettings("nasbench201", PAIR, ("latency/pixel3<=8", "latency/eyeriss@0.9<=5"))
    feasibility = estimate_feasibility(SPACE, predictor, settings, 100)
    assert feasibility.num_architectures == len(set(predictor.predicted)) == 100
    values = predictor.predict(
        SPACE, [SPACE.parse(name) for name in predictor.predicted], settings.all_objectives, (0.5, 0.9)
    )
    low, high = values[:, :, 0].min(0), values[:, :, 0].max(0)
    assert feasibility.ranges == {
        name: (low[k], np.median(values[:, k, 0]), high[k]) for k, name in enumerate(settings.all_objectives)
    }
    is_met = np.stack([values[:, 1, 0] <= 8, values[:, 2, 1] <= 5], 1)
    assert feasibility.constraint_rates == {
        "latency/pixel3 ≤ 8": is_met[:, 0].mean(),
        "latency/eyeriss@0.9 ≤ 5": is_met[:, 1].mean(),
    }
    assert feasibility.feasible_rate == is_met.all(1).mean()
    assert str(feasibility).splitlines()[0].split()[-3:] == ["min", "median", "max"]
    assert str(feasibility).splitlines()[-1].startswith("all constraints")


def test_an_infeasible_constraint_on_a_quantile_is_named_with_its_level():
    impossible = SearchSettings("nasbench201", PAIR, ("latency/pixel3@0.9<=0.01",))
    with pytest.raises(ValueError, match=r"the nearest has latency/pixel3@0\.9 \d"):
        estimate_feasibility(SPACE, StubPredictor(), impossible, 20)


def test_infeasible_constraints_are_refused_and_rarely_met_ones_are_not():
    rare = SearchSettings("nasbench201", PAIR, ("latency/pixel3<=2.5", "accuracy>=80"))
    assert estimate_feasibility(SPACE, StubPredictor(), rare, 20).feasible_rate == 0
    impossible = SearchSettings("nasbench201", PAIR, ("latency/pixel3<=0.01", "accuracy>=90"))
    with pytest.raises(
        ValueError,
        match=r"none of 520 architectures of nasbench201 meets latency/pixel3 ≤ 0.01 and accuracy ≥ 90:"
        r" the nearest has latency/pixel3 \d.*, accuracy \d",
    ):
        estimate_feasibility(SPACE, StubPredictor(), impossible, 20)


def test_a_small_space_is_evaluated_completely():
    class Few:
        name, size, genes = "few", 3, (3,)

        def sample(self, rng):
            return int(rng.integers(3))

    class Predictor:
        def predict(self, space, architectures, objectives, quantiles):
            return np.array([[[float(a)] * len(quantiles)] for a in architectures])

    feasibility = estimate_feasibility(Few(), Predictor(), SearchSettings("few", ("latency/a",)), 100)
    assert feasibility.ranges == {"latency/a": (0, 1, 2)}
