from dataclasses import dataclass, replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row, synthetic
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.graph.executed_layers import ALL, ANY
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.graphs.features import random_raw_features
from nas_rlm.surrogates.zero_label import zero_label_surrogate
from nas_rlm.surrogates.zero_label_latency import (
    LatencyCosts,
    ZeroLabelLatency,
    costs_of,
    zero_label_latency,
)

OVERHEAD, PER_MAC, PER_ELEMENT, PER_PARAMETER = 0.02, 4e-8, 2e-7, 1e-7


def latencies(raw_features):
    """Return milliseconds on a device with an overhead for each operator."""
    return costs_of(raw_features) @ np.array([0.1, OVERHEAD, PER_MAC, PER_ELEMENT, PER_PARAMETER])


@dataclass(frozen=True)
class Device:
    """A surrogate that knows the latencies of a space, in its own units."""

    unit: float = 1.0

    @property
    def graph_features(self):
        return self

    def transform(self, raw_features):
        return raw_features

    def predict(self, features, objective):
        return Predicted(self.unit * latencies(features))


@dataclass(frozen=True)
class Predicted:
    """A prediction."""

    median: np.ndarray


@pytest.fixture(scope="module")
def cells():
    return random_raw_features(search_spaces.get("nasbench201"), 40, with_layers=True)


def test_the_costs_are_sums_over_executed_operators():
    sums = {"number": 3.0, "inputs": 10.0, "outputs": 5.0, "macs": 100.0, "roots": 7.0, "params": 8.0}
    raw = {f"{ALL}/{ANY}:{term}": value for term, value in sums.items()}
    assert costs_of([raw]).tolist() == [[1, 3, 100, 15, 8]]
    with pytest.raises(ValueError, match="1 network without executed layers"):
        costs_of([{"flops": 1.0}])
    assert costs_of([]).shape == (0, 5)


def test_the_milliseconds_of_a_device_carry_over_to_another_space(cells):
    found = zero_label_latency({"fbnet": (Device(), "latency/a")}, "latency/a", [])
    assert found.spaces == ("fbnet",) and found.is_informative
    assert (found.graph_features.coefficients >= 0).all()
    predicted = found.predict(found.graph_features.transform(cells), "latency/a")
    true = latencies(cells)
    assert np.abs(np.log(predicted.median / true)).max() < 0.5
    assert spearman(predicted.median, true) > 0.99
    low, high = predicted.quantiles((0.1, 0.9)).T
    assert ((low < true) & (true < high)).all()


def test_spaces_count_alike_where_a_device_was_measured_in_different_units(cells):
    sources = {"fbnet": (Device(), "latency/a"), "nats_size": (Device(3.0), "latency/a")}
    found = zero_label_latency(sources, "latency/a", [])
    ratio = found.predict(found.graph_features.transform(cells), "latency/a").median / latencies(cells)
    assert 0.5 < np.median(ratio) < 3.5


def test_in_a_space_flops_count_in_the_order_and_the_spread_is_kept(cells):
    costs = zero_label_latency({"fbnet": (Device(), "latency/a")}, "latency/a", []).graph_features
    blended = costs.in_space(cells)
    alone, both = costs.transform(cells).numpy(), blended.transform(cells).numpy()
    flops = costs_of(cells)[:, 2]
    assert both.mean() == pytest.approx(alone.mean()) and both.std() == pytest.approx(alone.std())
    assert spearman(alone[:, 0], flops) < spearman(both[:, 0], flops) < 1
    assert blended.transform(cells[3:4]).numpy() == pytest.approx(both[3:4])
    assert blended.transform([]).shape == (0, 1)
    equal = LatencyCosts(costs.coefficients).in_space([cells[0]] * 3)
    assert equal.transform(cells[:1]).numpy() == pytest.approx(alone[:1])


def test_a_space_of_equal_networks_is_not_informative(cells):
    found = zero_label_latency({"fbnet": (Device(), "latency/a")}, "latency/a", [cells[0]] * 3)
    assert not found.is_informative


def test_spaces_that_are_not_registered_are_left_out():
    assert zero_label_latency({"unknown": (Device(), "latency/a")}, "latency/a", []) is None
    both = {"unknown": (Device(), "latency/a"), "fbnet": (Device(), "latency/a")}
    assert zero_label_latency(both, "latency/a", []).spaces == ("fbnet",)


def test_a_fitted_surrogate_is_a_source(cells):
    from nas_rlm.surrogates.fitting import fit_graph_surrogate
    from nas_rlm.surrogates.graphs.features import graph_features_of_space

    space, rng = search_spaces.get("fbnet"), np.random.default_rng(0)
    rows = [Row("fbnet", str(space.sample(rng)), {}) for _ in range(80)]
    raw = synthetic.graph_features_of_texts(texts_of_rows(rows), with_layers=True)
    labelled = [
        replace(row, targets={"latency/a": value}) for row, value in zip(rows, latencies(raw), strict=True)
    ]
    known = fit_graph_surrogate(graph_features_of_space("fbnet"), labelled, ["latency/a"])
    surrogate = zero_label_surrogate("nasbench201", cells, {"fbnet": [known]}, "latency/a")
    assert isinstance(surrogate, ZeroLabelLatency)
    predicted = surrogate.predict(surrogate.graph_features.transform(cells), "latency/a").median
    true = latencies(cells)
    assert np.abs(np.log(predicted / true)).max() < 0.7 and spearman(predicted, true) > 0.9
