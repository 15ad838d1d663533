import numpy as np
import pytest

import search_spaces
from nas_rlm.plotting.hypervolume import draw_hypervolume, hypervolume_curve
from nas_rlm.search.loop import search
from nas_rlm.search.pareto import hypervolume
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
PAIR = ("accuracy", "latency/pixel3")


def test_the_hypervolume_grows_to_that_of_the_front():
    settings = SearchSettings("nasbench201", PAIR, ("accuracy>=85",), population=12, generations=5)
    result = search(SPACE, StubPredictor(), settings)
    curve = hypervolume_curve(result, (80.0, 40.0))
    assert [evaluations for evaluations, _ in curve] == [12, 24, 36, 48, 60]
    volumes = [volume for _, volume in curve]
    assert volumes == sorted(volumes)
    medians = result.medians[(result.medians[:, 0] >= 85)]
    assert volumes[-1] == pytest.approx(hypervolume(medians, PAIR, (80.0, 40.0)))
    first = result.medians[:12]
    assert volumes[0] == pytest.approx(hypervolume(first[first[:, 0] >= 85], PAIR, (80.0, 40.0)))
    line = draw_hypervolume(curve, "title").axes[0].lines[0]
    assert line.get_xydata().tolist() == [list(map(float, point)) for point in curve]


def test_a_last_generation_may_be_smaller():
    names = [str(SPACE.sample(np.random.default_rng(i))) for i in range(5)]
    values = np.linspace(81, 90, 5)[:, None, None] * np.ones((5, 1, 3))
    result = SearchResult(SearchSettings("nasbench201", ("accuracy",), population=2), names, values)
    np.testing.assert_allclose(hypervolume_curve(result, (80.0,)), [(2, 3.25), (4, 7.75), (5, 10)])
