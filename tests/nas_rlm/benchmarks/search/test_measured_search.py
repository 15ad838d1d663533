import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.search.measured_search import (
    POLICIES,
    MeasuredSearchPlan,
    MeasuredSearchResult,
    TableDevice,
    mean_and_deviation,
    measured_search_benchmark,
)
from nas_rlm.data import Row, Table
from nas_rlm.search.acquisition import candidate_pool, selection
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.table_space import TableSpace
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
TARGET = "latency/pixel3"


class Model(StubPredictor):
    """The stub, with ascending quantiles."""

    def predict(self, *args, **kwargs):
        return np.sort(super().predict(*args, **kwargs), axis=-1)


@pytest.fixture(scope="module")
def model():
    """The stub model; its surrogate knows two similar devices, one of them the target."""
    model = Model()
    rng = np.random.default_rng(0)
    some = [str(SPACE.sample(rng)) for _ in range(40)]
    latencies = model.medians(some, [TARGET])[:, 0]
    rows = [
        Row("nasbench201", name, {TARGET: value, "latency/eyeriss": 2 * value})
        for name, value in zip(some, latencies, strict=True)
    ]
    known = fit_graph_surrogate(graph_features_of_space("nasbench201"), rows, [TARGET, "latency/eyeriss"])
    model.surrogates = {"nasbench201": [known]}
    return model


@pytest.fixture(scope="module")
def table(model):
    """Predictions of the stub for a part of the space, as true values."""
    rng = np.random.default_rng(1)
    names = sorted({str(SPACE.sample(rng)) for _ in range(1500)})
    values = model.medians(names, ["accuracy", TARGET])
    rows = [
        Row("nasbench201", name, {"accuracy": max(1.0, accuracy), TARGET: latency})
        for name, (accuracy, latency) in zip(names, values, strict=True)
    ]
    return Table("cells", rows)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(selection, "POOL_SIZE", 60)
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 60)


def test_each_policy_measures_networks_of_the_table_within_its_budget(model, table):
    found = list(measured_search_benchmark(model, table, MeasuredSearchPlan([TARGET], [12, 20], [0], 12, 3)))
    assert [(policy, budget) for (_, policy, budget, _), _ in found] == [
        (policy, budget) for budget in (12, 20) for policy in POLICIES
    ]
    for (_, policy, budget, _), result in found:
        assert result.num_measured <= budget
        assert result.num_measured == budget or policy != "random"
        assert 0 < result.num_confirmed <= result.front_size
        assert 0 < result.relative_hypervolume <= 1
        assert 0 < result.measured_hypervolume <= 1
    confirmed = {key[1]: r.num_confirmed / r.front_size for key, r in found if key[2] == 20}
    assert confirmed["active search"] > confirmed["random"]


def test_finished_results_are_skipped(model, table):
    finished = [(TARGET, policy, 12, 0) for policy in POLICIES[:2]]
    ((key, _),) = measured_search_benchmark(
        model, table, MeasuredSearchPlan([TARGET], [12], [0], 12, 2), finished
    )
    assert key == (TARGET, POLICIES[2], 12, 0)


def test_the_surrogate_of_the_target_is_not_used(model, table):
    space = TableSpace(SPACE, [row.arch_str for row in table.rows])
    others = [one for e in model.surrogates["nasbench201"] if (one := e.without([TARGET]))]
    device = TableDevice(CachedPredictor(model, space), table, TARGET, others)
    assert [one.objectives for one in device.surrogates["nasbench201"]] == [("latency/eyeriss",)]
    again = device.run("active search", 12, 3, 12, 2)
    assert again == device.run("active search", 12, 3, 12, 2)


def test_a_table_without_the_target_is_refused(model, table):
    with pytest.raises(ValueError, match="no two rows with accuracy, latency/none"):
        next(measured_search_benchmark(model, table, MeasuredSearchPlan(["latency/none"], [12], [0])))


def test_a_table_without_accurate_networks_is_refused(model, table):
    poor = [Row(row.space, row.arch_str, {**row.targets, "accuracy": 70.0}) for row in table.rows[:20]]
    with pytest.raises(ValueError, match="no network with an accuracy above 80"):
        next(measured_search_benchmark(model, Table("poor", poor), MeasuredSearchPlan([TARGET], [12], [0])))


def test_means_are_over_devices_and_deviations_over_seeds():
    found = {
        (device, policy, budget, seed): MeasuredSearchResult(10, 4, 2, share + seed / 10, share)
        for policy in POLICIES
        for budget in (10, 20)
        for device, share in (("latency/a", 0.5), ("latency/b", 0.7))
        for seed in (0, 1)
    }
    assert mean_and_deviation(found, "relative_hypervolume")["random", 20] == pytest.approx((0.65, 0.05))
    assert mean_and_deviation(found, "measured_hypervolume")["random", 20] == pytest.approx((0.6, 0.0))
