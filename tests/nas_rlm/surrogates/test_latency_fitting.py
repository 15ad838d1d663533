from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.metrics import spearman
from nas_rlm.surrogates import latency_fitting
from nas_rlm.surrogates.fitting import fit_graph_surrogates, fit_surrogates
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.latency import layer_fitting, layer_network
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.programs.surrogate import ProgramSurrogate

SPACE = search_spaces.get("nasbench201")


def test_a_latency_with_few_labels_uses_other_devices(devices):
    existing, few, test_rows = devices
    (found,) = fit_surrogates(few, ["latency/c"], existing)["nasbench201"]
    (alone,) = fit_surrogates(few, ["latency/c"])["nasbench201"]
    assert isinstance(found, LatencySurrogate) and isinstance(alone, LatencySurrogate)
    assert (len(found.graph_features.sources), alone.graph_features.sources) == (2, ())
    raw_features = graph_features_of_texts(texts_of_rows(test_rows), MAX_CHAIN_LENGTH, with_layers=True)
    true = np.array([row.targets["latency/c"] for row in test_rows])
    for surrogate in (found, alone):
        predicted = surrogate.predict(surrogate.graph_features.transform(raw_features), "latency/c")
        assert spearman(predicted.median, true) > 0.95
        assert surrogate.evidence.spearman > 0.9


def test_a_latency_with_many_labels_uses_no_other_device(devices, monkeypatch):
    monkeypatch.setattr("nas_rlm.surrogates.latency_fitting.MAX_LATENCY_LABELS", 50)
    existing, few, test_rows = devices
    (found,) = fit_surrogates([*few, *test_rows], ["latency/c"], existing)["nasbench201"]
    assert isinstance(found, GraphSurrogate) and found.graph_features.sources == ()


def test_networks_without_a_space_have_surrogates_of_latencies_alone(devices):
    _, few, _ = devices
    texts = texts_of_rows(few)
    own = [
        Row("", "", {**row.targets, "accuracy": 50.0 + i}, text)
        for i, (row, text) in enumerate(zip(few, texts, strict=True))
    ]
    (found,) = fit_surrogates(own, ["latency/c", "accuracy"])[""]
    assert found.objectives == ("latency/c",)


@pytest.fixture
def at_most_20_labels(monkeypatch):
    monkeypatch.setattr(latency_fitting, "MAX_LATENCY_LABELS", 20)
    monkeypatch.setattr(layer_network, "MIN_STEPS", 2)
    monkeypatch.setattr(layer_fitting, "NUM_FOLDS", 2)


def without_space(networks, space):
    """Return the networks as rows of a space that is not registered, with their texts."""
    texts = texts_of_rows(networks)
    return [
        Row(space, "", {**row.targets, "accuracy": 50.0 + i}, text, group=f"family {i % 3}")
        for i, (row, text) in enumerate(zip(networks, texts, strict=True))
    ]


@pytest.mark.parametrize("space", ["", "mine"])
@pytest.mark.parametrize(("count", "kind"), [(20, LatencySurrogate), (21, LayerSurrogate)])
def test_many_latencies_of_networks_of_any_family(devices, at_most_20_labels, space, count, kind):
    own = without_space(devices[2][:count], space)
    existing = devices[0]
    (found,) = fit_surrogates(own, ["latency/c"], existing)[space]
    assert type(found) is kind and found.objectives == ("latency/c",)
    assert fit_graph_surrogates(own, ["latency/c"], existing) == {}
    if kind is LayerSurrogate:
        assert (found.evidence["latency/c"].networks, found.evidence["latency/c"].families) == (21, 3)


def test_each_latency_of_unknown_networks_has_the_surrogate_for_its_labels(devices, at_most_20_labels):
    own = without_space(devices[2][:40], "mine")
    own[15:] = [row.select(["latency/a", "latency/c"]) for row in own[15:]]
    unmeasured = replace(own[0], targets={"accuracy": 5.0})
    few, many = fit_surrogates([*own, unmeasured], ["latency/a", "latency/b", "latency/c"])["mine"]
    assert isinstance(few, LatencySurrogate) and few.objectives == ("latency/b",)
    assert isinstance(many, LayerSurrogate) and many.objectives == ("latency/a", "latency/c")
    assert many.evidence["latency/a"].networks == 40


def test_rows_without_a_group_are_families_of_their_own(devices, at_most_20_labels):
    own = without_space(devices[2][:21], "")
    own[3] = replace(own[3], group="")
    (found,) = fit_surrogates(own, ["latency/c"])[""]
    assert found.evidence["latency/c"].families == 21


def test_many_latencies_of_a_registered_space_have_no_layer_surrogate(devices, at_most_20_labels):
    registered, unknown = devices[2][:21], without_space(devices[2][:21], "")
    found = fit_surrogates([*registered, *unknown], ["latency/c"])
    assert [type(s) for s in found["nasbench201"]] == [GraphSurrogate]
    assert [type(s) for s in found[""]] == [LayerSurrogate]
    assert found[""][0].evidence["latency/c"].networks == 21


def test_programs_and_few_networks_have_no_layer_surrogate(at_most_20_labels):
    programs = [Row("mine", "", {"latency/c": 1.0 + i}, "x = n" + " * n" * i) for i in range(40)]
    (found,) = fit_surrogates(programs, ["latency/c"])["mine"]
    assert isinstance(found, ProgramSurrogate)
