from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.metrics import spearman
from nas_rlm.surrogates import fitting, layer_network, layer_surrogate
from nas_rlm.surrogates.features import MAX_CHAIN_LENGTH, graph_features_of_space
from nas_rlm.surrogates.fitting import fit_graph_surrogate, fit_graph_surrogates, fit_surrogates
from nas_rlm.surrogates.graph_surrogate import GraphSurrogate
from nas_rlm.surrogates.latency_surrogate import LatencySurrogate
from nas_rlm.surrogates.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.network_sizes import NetworkSizes
from nas_rlm.surrogates.program_surrogate import ProgramSurrogate
from nas_rlm.text.declarations import with_input_batch
from tests.nas_rlm.stubs import counted_cells as rows

SPACE = search_spaces.get("nasbench201")


def test_each_space_with_enough_labels_has_a_surrogate():
    program = Row("triton", "", {"accuracy": 2.0}, "def kernel(): pass")
    own = [
        Row("mine", "", row.targets, text)
        for row, text in zip(rows(12), texts_of_rows(rows(12)), strict=True)
    ]
    found = fit_graph_surrogates([*rows(20), *own, *[program] * 20], ["accuracy"])
    assert found.keys() == {"nasbench201", "mine"}
    assert fit_graph_surrogates(rows(9), ["accuracy"]) == {}


def test_of_many_rows_a_random_sample_is_used(monkeypatch):
    monkeypatch.setattr("nas_rlm.surrogates.fitting.MAX_LABELS", 20)
    many = [
        replace(r, targets={**r.targets, "latency/a": 1.0 + i} if i % 3 else r.targets)
        for i, r in enumerate(rows(90))
    ]
    found = fit_graph_surrogate(graph_features_of_space("nasbench201"), many, ["accuracy", "latency/a"])
    known = np.isfinite(found.values).sum(0)
    assert 20 <= known[0] <= 40 and 20 <= known[1] <= 40
    assert len(found.values) == len(found.features) <= 40
    assert np.nanmax(found.values[:, 1]) > 60


@pytest.fixture(scope="module")
def devices():
    """Return surrogates of two devices, 12 rows of a third one between them, and other rows of it."""
    found = []
    for row in rows(300):
        macs, convs = SPACE.flops(SPACE.parse(row.arch_str)) / 1e7, row.arch_str.count("conv")
        times = {"latency/a": 1 + macs, "latency/b": 1 + convs, "latency/c": 1 + macs + 2 * convs}
        found.append(replace(row, targets=times))
    known = [
        replace(r, targets={k: v for k, v in r.targets.items() if k != "latency/c"}) for r in found[:200]
    ]
    surrogate = fit_graph_surrogate(graph_features_of_space("nasbench201"), known, ["latency/a", "latency/b"])
    return {"nasbench201": [surrogate]}, found[200:212], found[212:]


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


def test_only_the_most_similar_devices_are_sources(devices, monkeypatch):
    monkeypatch.setattr("nas_rlm.surrogates.fitting.MAX_SOURCES", 1)
    made, make = [], GraphSurrogate.source_for_device
    monkeypatch.setattr(
        GraphSurrogate, "source_for_device", lambda self, *args: made.append(args[0]) or make(self, *args)
    )
    existing, few, _ = devices
    like_b = [
        replace(row, targets={"latency/c": row.targets["latency/c"] % 1 + row.arch_str.count("conv")})
        for row in few
    ]
    (found,) = fit_surrogates(like_b, ["latency/c"], existing)["nasbench201"]
    assert len(found.graph_features.sources) == 1
    assert made == ["latency/b"]


def test_a_latency_with_many_labels_uses_no_other_device(devices, monkeypatch):
    monkeypatch.setattr("nas_rlm.surrogates.fitting.MAX_LATENCY_LABELS", 50)
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
    monkeypatch.setattr(fitting, "MAX_LATENCY_LABELS", 20)
    monkeypatch.setattr(layer_network, "MIN_STEPS", 2)
    monkeypatch.setattr(layer_surrogate, "NUM_FOLDS", 2)


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
    programs = [Row("mine", "", {"latency/c": 1.0 + i}, f"x = [0] * {i}") for i in range(40)]
    (found,) = fit_surrogates(programs, ["latency/c"])["mine"]
    assert isinstance(found, ProgramSurrogate)


@pytest.fixture(scope="module")
def accuracies():
    """Return surrogates of accuracy in two spaces, 12 cells with `accuracy/mydata`, and other cells of it."""
    found = []
    for row in rows(150):
        name = row.arch_str
        value = 40 + 3.0 * name.count("conv_3x3") + 2.5 * name.count("conv_1x1") - 1.5 * name.count("none")
        found.append(replace(row, targets={"accuracy": value + 4 * ("skip_connect~0" in name)}))
    texts = texts_of_rows(found)
    foreign = [Row("mine", "", row.targets, text) for row, text in zip(found, texts, strict=True)]
    renamed = [replace(row, targets={"accuracy/mydata": row.targets["accuracy"] - 20}) for row in found]
    return fit_graph_surrogates([*found[:100], *foreign], ["accuracy"]), renamed[100:112], renamed[112:]


def test_the_accuracy_on_own_data_has_accuracy_in_all_spaces_as_sources(accuracies):
    existing, few, test_rows = accuracies
    (found,) = fit_graph_surrogates(few, ["accuracy/mydata"], existing)["nasbench201"]
    (alone,) = fit_graph_surrogates(few, ["accuracy/mydata"])["nasbench201"]
    assert (len(found.graph_features.sources), len(alone.graph_features.sources)) == (2, 0)
    true = np.array([row.targets["accuracy/mydata"] for row in test_rows])
    ranks = [
        spearman(s.predict(s.graph_features.of_rows(test_rows), "accuracy/mydata").median, true)
        for s in (found, alone)
    ]
    assert ranks[0] > max(0.9, ranks[1])


def test_the_same_accuracy_in_other_spaces_is_preferred_as_source(accuracies):
    existing, few, test_rows = accuracies
    texts = texts_of_rows(test_rows)
    foreign = [Row("mine", "", row.targets, text) for row, text in zip(test_rows, texts, strict=True)]
    same = fit_graph_surrogates(foreign, ["accuracy/mydata"])
    both = {**existing, "mine": [*existing["mine"], *same["mine"]]}
    names = ["accuracy/mydata", "latency/x"]
    labelled = [replace(r, targets={**r.targets, "latency/x": 1.0 + i}) for i, r in enumerate(few)]
    found, plain = fit_surrogates(labelled, names, both)["nasbench201"]
    assert (plain.objectives, plain.graph_features.sources) == (("latency/x",), ())
    assert found.objectives == ("accuracy/mydata",) and len(found.graph_features.sources) == 1


def test_features_of_objectives_of_training_are_of_one_input(accuracies):
    labelled = [
        Row("mine", "", {"loss": 1.0 + i % 5, "memory/box": 10.0 + i}, text)
        for i, text in enumerate(texts_of_rows(accuracies[2][:20]))
    ]
    of_eight = [replace(row, input=with_input_batch(row.input, 8)) for row in labelled]
    one, eight = (fit_graph_surrogates(rows, ["loss", "memory/box"])["mine"] for rows in (labelled, of_eight))
    assert [s.objectives for s in one] == [s.objectives for s in eight] == [("loss",), ("memory/box",)]
    np.testing.assert_allclose(one[0].features, eight[0].features, atol=2e-3)
    assert np.log(8) == pytest.approx(
        (eight[1].graph_features.mean - one[1].graph_features.mean).max(), rel=0.01
    )
    assert one[0].sizes == NetworkSizes(32, 32, (10,))
