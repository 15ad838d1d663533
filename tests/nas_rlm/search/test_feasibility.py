import numpy as np
import pytest

import search_spaces
from nas_rlm.search.feasibility import feasibility
from nas_rlm.search.settings import Settings
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
PAIR = ("accuracy", "latency/pixel3")


def test_how_objectives_range_and_who_meets_constraints():
    predictor = StubPredictor()
    settings = Settings("nasbench201", PAIR, ("latency/pixel3<=8", "latency/eyeriss@0.9<=5"))
    found = feasibility(SPACE, predictor, settings, 100)
    assert found.architectures == len(set(predictor.predicted)) == 100
    values = predictor.predict(
        SPACE, [SPACE.parse(name) for name in predictor.predicted], settings.predicted, (0.5, 0.9)
    )
    low, high = values[:, :, 0].min(0), values[:, :, 0].max(0)
    assert found.ranges == {
        name: (low[k], np.median(values[:, k, 0]), high[k]) for k, name in enumerate(settings.predicted)
    }
    met = np.stack([values[:, 1, 0] <= 8, values[:, 2, 1] <= 5], 1)
    assert found.shares == {
        "latency/pixel3 ≤ 8": met[:, 0].mean(),
        "latency/eyeriss@0.9 ≤ 5": met[:, 1].mean(),
    }
    assert found.share == met.all(1).mean()
    assert str(found).splitlines()[0].split()[-3:] == ["least", "median", "most"]
    assert str(found).splitlines()[-1].startswith("all constraints")


def test_a_quantile_that_nothing_meets_is_told_as_one():
    impossible = Settings("nasbench201", PAIR, ("latency/pixel3@0.9<=0.01",))
    with pytest.raises(ValueError, match=r"the nearest has latency/pixel3@0\.9 \d"):
        feasibility(SPACE, StubPredictor(), impossible, 20)


def test_what_nothing_meets_is_refused_and_what_is_rare_is_not():
    rare = Settings("nasbench201", PAIR, ("latency/pixel3<=2.5", "accuracy>=80"))
    assert feasibility(SPACE, StubPredictor(), rare, 20).share == 0
    impossible = Settings("nasbench201", PAIR, ("latency/pixel3<=0.01", "accuracy>=90"))
    with pytest.raises(
        ValueError,
        match=r"none of 520 architectures of nasbench201 meets latency/pixel3 ≤ 0.01 and accuracy ≥ 90:"
        r" the nearest has latency/pixel3 \d.*, accuracy \d",
    ):
        feasibility(SPACE, StubPredictor(), impossible, 20)


def test_a_small_space_is_asked_as_a_whole():
    class Few:
        name, size, genes = "few", 3, (3,)

        def sample(self, rng):
            return int(rng.integers(3))

    class Predictor:
        def predict(self, space, architectures, objectives, quantiles):
            return np.array([[[float(a)] * len(quantiles)] for a in architectures])

    found = feasibility(Few(), Predictor(), Settings("few", ("latency/a",)), 100)
    assert found.ranges == {"latency/a": (0, 1, 2)}
