from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import distinct_architectures
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.fitting import fit_graph_surrogate, fit_graph_surrogates
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from nas_rlm.surrogates.graphs.network_sizes import NetworkSizes
from nas_rlm.text.declarations import with_input_batch
from tests.nas_rlm.stubs import counted_cells as rows
from tests.search_spaces.plain_space import PLAIN, DropoutSpace

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


@pytest.mark.parametrize(("effect", "max_few_labels"), [(5.0, 500), (15.0, 500), (5.0, 20)])
def test_a_gene_that_texts_do_not_show_keeps_its_effect(effect, max_few_labels, monkeypatch):
    monkeypatch.setattr("nas_rlm.surrogates.fitting.MAX_FEW_LABELS", max_few_labels)
    space = search_spaces.register(DropoutSpace())
    networks = [*distinct_architectures(PLAIN, 100)]

    def accuracy(network, word):
        return 50 + np.log(PLAIN.flops(PLAIN.parse(network))) - effect * (word == "drop")

    labelled = [(network, ("keep", "drop")[i % 2]) for i, network in enumerate(networks[:30])]
    rows = [Row(space.name, f"{word} {n}", {"accuracy": accuracy(n, word)}) for n, word in labelled]
    surrogate = fit_graph_surrogates(rows, ["accuracy"])[space.name][0]
    keep, drop = (
        surrogate.predict(
            surrogate.graph_features.of_rows([Row(space.name, f"{word} {n}", {}) for n in networks[30:]]),
            "accuracy",
        ).median
        for word in ("keep", "drop")
    )
    assert np.mean(keep - drop) == pytest.approx(effect, rel=0.2)
    assert spearman(keep, [accuracy(n, "keep") for n in networks[30:]]) > 0.8


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


def test_features_of_objectives_of_training_are_of_one_input():
    labelled = [
        Row("mine", "", {"loss": 1.0 + i % 5, "memory/box": 10.0 + i}, text)
        for i, text in enumerate(texts_of_rows(rows(20)))
    ]
    of_eight = [replace(row, input=with_input_batch(row.input, 8)) for row in labelled]
    one, eight = (fit_graph_surrogates(some, ["loss", "memory/box"])["mine"] for some in (labelled, of_eight))
    assert [s.objectives for s in one] == [s.objectives for s in eight] == [("loss",), ("memory/box",)]
    np.testing.assert_allclose(one[0].features, eight[0].features, atol=2e-3)
    assert np.log(8) == pytest.approx(
        (eight[1].graph_features.mean - one[1].graph_features.mean).max(), rel=0.01
    )
    assert one[0].sizes == NetworkSizes(32, 32, (10,))
