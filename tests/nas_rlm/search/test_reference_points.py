import json

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import read
from nas_rlm.search.reference_points import (
    PUBLISHED,
    propose_reference_values,
    published_reference_values,
    reference_point,
)
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")


def test_every_space_has_a_reference_point_for_its_costs():
    for name in search_spaces.names():
        space = search_spaces.get(name)
        sampled = [space.sample(np.random.default_rng(seed)) for seed in range(5)]
        assert max(map(space.flops, sampled)) < published_reference_values(name)["flops"]
        assert max(map(space.params, sampled)) < published_reference_values(name)["params"]
    assert published_reference_values("mine") == {}
    assert all(
        value > 0 for of_space in json.loads(PUBLISHED.read_text()).values() for value in of_space.values()
    )


def test_few_cells_of_the_benchmark_are_worse_than_the_reference(shared_data):
    table = read(shared_data / "architectures" / "nasbench201.parquet")
    for name, worst in published_reference_values("nasbench201").items():
        if name.startswith("latency/"):
            true = np.array([row.targets[name] for row in table.rows if name in row.targets])
            assert (true > worst).mean() < 0.01
            assert true.max() > 0.6 * worst


def test_unpublished_reference_values_are_the_worst_of_random_architectures():
    ranges = {"accuracy": (10.0, 80.0, 95.0), "energy": (1.0, 2.0, 3.0), "skips": (0.0, 1.0, 5.0)}
    names = ("accuracy", "energy", "skips")
    assert reference_point("nasbench201", names, ranges, ("skips",)) == [80, 3, 0]
    assert reference_point("mine", names, ranges) == [10, 3, 5]
    assert reference_point("nasbench201", ("accuracy", "latency/box"), {}) is None


def test_proposed_values_are_rounded_to_the_worse():
    names = ("accuracy", "latency/pixel3")
    values = propose_reference_values(SPACE, StubPredictor(), names, 200)
    rng = np.random.default_rng(0)
    medians = StubPredictor().medians([SPACE.sample(rng) for _ in range(200)], names)
    assert values["accuracy"] == np.floor(np.percentile(medians[:, 0], 5))
    maximum = 1.1 * medians[:, 1].max()
    assert maximum <= values["latency/pixel3"] < 1.1 * maximum
    assert float(f"{values['latency/pixel3']:.2g}") == values["latency/pixel3"]


@pytest.mark.parametrize(
    ("maximum", "rounded"),
    [(10.0, 11.0), (123.0, 140.0), (0.0123, 0.014), (1e9, 1.1e9), (-10.0, -9.0), (0.0, 0.0)],
)
def test_proposed_costs_are_rounded_up_to_two_digits(maximum, rounded):
    class Constant:
        def predict(self, space, architectures, objectives, quantiles):
            return np.full((len(architectures), 1, 1), maximum)

    assert propose_reference_values(SPACE, Constant(), ("flops",), 2) == {"flops": pytest.approx(rounded)}
