from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.fitting import fit_graph_surrogates, fit_surrogates
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from tests.nas_rlm.stubs import counted_cells as rows

SPACE = search_spaces.get("nasbench201")


@pytest.fixture(scope="module")
def accuracies():
    """Return surrogates of accuracy in two spaces, 12 cells with `accuracy/mydata`, and other cells of it."""
    found = []
    for row in rows(110):
        name = row.arch_str
        value = 40 + 3.0 * name.count("conv_3x3") + 2.5 * name.count("conv_1x1") - 1.5 * name.count("none")
        found.append(replace(row, targets={"accuracy": value + 4 * ("skip_connect~0" in name)}))
    texts = texts_of_rows(found)
    foreign = [Row("mine", "", row.targets, text) for row, text in zip(found, texts, strict=True)]
    renamed = [replace(row, targets={"accuracy/mydata": row.targets["accuracy"] - 20}) for row in found]
    return fit_graph_surrogates([*found[:60], *foreign], ["accuracy"]), renamed[60:72], renamed[72:]


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


def test_only_the_most_similar_devices_are_sources(devices, monkeypatch):
    monkeypatch.setattr("nas_rlm.surrogates.source_selection.MAX_SOURCES", 1)
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
