from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.data import Row, synthetic
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, graph_features_of_space
from nas_rlm.surrogates.latency import layer_fitting, layer_network
from nas_rlm.surrogates.latency.layer_fitting import fit_layers_of_texts
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.latency_fitting import fit_latency_surrogate
from nas_rlm.surrogates.programs.ngrams import NgramSurrogate
from nas_rlm.surrogates.registry import (
    KINDS,
    from_saved,
    graph_surrogates,
    novelties,
    novelty_messages,
    predictive_distributions,
    surrogate_by_objective,
    transferable,
)
from nas_rlm.text import from_onnx
from tests.nas_rlm.conftest import LAYER_OBJECTIVES
from tests.nas_rlm.onnx_models import residual_network
from tests.nas_rlm.stubs import counted_cells as rows


@pytest.fixture(scope="module")
def graph_features():
    return graph_features_of_space("nasbench201")


@pytest.fixture(scope="module")
def ngram_surrogate():
    programs = [f"x = [0] * {i}" for i in range(20)]
    return NgramSurrogate.fit(programs, {"memory": 1.0 + np.arange(20)})


@pytest.fixture(scope="module")
def layers_surrogate():
    texts = texts_of_rows(rows(20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_network, "MIN_STEPS", 2)
        patch.setattr(layer_fitting, "NUM_FOLDS", 2)
        latencies = {f"latency/{k}": 1.0 + k + np.arange(20) for k in range(2)}
        return fit_layers_of_texts(texts, latencies)


def test_features_of_each_text_are_computed_once(graph_features, monkeypatch):
    both = [replace(r, targets={**r.targets, "latency/a": 1.0 + i}) for i, r in enumerate(rows(30))]
    surrogates = [
        fit_graph_surrogate(graph_features, both, ["accuracy", "latency/a"]),
        fit_graph_surrogate(graph_features, rows(30), ["accuracy"]),
    ]
    texts_with_features, graph_features_of_text = [], synthetic.graph_features
    texts = texts_of_rows(rows(5, seed=2))

    def recorded(text, *arguments):
        texts_with_features.append(text)
        return graph_features_of_text(text, *arguments)

    monkeypatch.setattr(synthetic, "graph_features", recorded)
    predictive_distributions(surrogates, texts, ["accuracy", "latency/a", "latency/none"])
    assert texts_with_features == texts
    predictive_distributions(surrogates, texts, ["latency/none"])
    assert texts_with_features == texts


def test_of_two_surrogates_the_last_one_predicts(graph_features):
    first, second = (fit_graph_surrogate(graph_features, rows(30, seed), ["accuracy"]) for seed in (0, 1))
    texts = texts_of_rows(rows(5, seed=2))
    found, none = predictive_distributions([first, second], texts, ["accuracy", "latency/mine"])
    assert none is None
    features = graph_features.transform(synthetic.graph_features_of_texts(texts, MAX_CHAIN_LENGTH))
    assert (found.mean == second.predict(features, "accuracy").mean).all()


def test_layers_of_each_text_are_read_once_for_all_devices(graph_features, layers_surrogate, monkeypatch):
    accuracy = fit_graph_surrogate(graph_features, rows(30), ["accuracy"])
    texts, calls = texts_of_rows(rows(5, seed=2)), []
    transform = LayerSurrogate.transform

    def recorded(surrogate, given):
        calls.append(list(given))
        return transform(surrogate, given)

    monkeypatch.setattr(LayerSurrogate, "transform", recorded)
    names = ["latency/1", "accuracy", "latency/0", "latency/none"]
    found = predictive_distributions([accuracy, layers_surrogate], texts, names)
    assert calls == [texts]
    features = transform(layers_surrogate, texts)
    for k in (0, 2):
        assert (found[k].mean == layers_surrogate.predict(features, names[k]).mean).all()
    assert found[1] is not None and found[3] is None


def test_each_kind_is_restored_and_others_are_refused(graph_features, ngram_surrogate, layers_surrogate):
    graph_surrogate = fit_graph_surrogate(graph_features, rows(30), ["accuracy"])
    latencies = [Row(r.space, r.arch_str, {"latency/a": 1.0 + i}) for i, r in enumerate(rows(30))]
    latency_surrogate = fit_latency_surrogate("nasbench201", latencies, "latency/a")
    for surrogate in (graph_surrogate, latency_surrogate, layers_surrogate, ngram_surrogate):
        restored = from_saved(surrogate.tensors(), surrogate.description())
        assert type(restored) is type(surrogate)
        assert restored.objectives == surrogate.objectives
        assert KINDS[surrogate.description()["kind"]] is type(surrogate)
    kinds = "graph, latency, device transfer, layers, ngrams"
    with pytest.raises(ValueError, match=f"kind is 'forest': expected one of {kinds}"):
        from_saved({}, {"kind": "forest"})


def test_surrogates_by_kind_and_objective(graph_features, ngram_surrogate, layers_surrogate):
    graph_surrogate = fit_graph_surrogate(graph_features, rows(30), ["accuracy"])
    by_space = {"a": [graph_surrogate, ngram_surrogate], "b": [ngram_surrogate, layers_surrogate]}
    assert graph_surrogates(by_space) == {"a": [graph_surrogate], "b": []}
    assert surrogate_by_objective([graph_surrogate, layers_surrogate, ngram_surrogate]) == {
        "accuracy": graph_surrogate,
        "latency/0": layers_surrogate,
        "latency/1": layers_surrogate,
        "memory": ngram_surrogate,
    }


def test_accuracies_transfer_to_spaces_of_the_same_task_only(graph_features):
    labelled = [replace(r, targets={**r.targets, "latency/a": 1.0 + i}) for i, r in enumerate(rows(30))]
    surrogate = fit_graph_surrogate(graph_features, labelled, ["accuracy", "latency/a"])
    existing = {"nasbench201": [surrogate], "gpt_m": [surrogate], "mine": [surrogate]}
    found = {space: [s.objectives for s in group] for space, group in transferable(existing, "gpt_s").items()}
    both = [("accuracy", "latency/a")]
    assert found == {"nasbench201": [("latency/a",)], "gpt_m": both, "mine": both}
    assert transferable(existing, "unknown") == existing


def test_novelties_are_those_of_layer_surrogates(layer_rlm, cell_files):
    texts = [*map(from_onnx, cell_files), from_onnx(residual_network(2))]
    surrogates = layer_rlm.surrogates_of("")
    names = ["accuracy", LAYER_OBJECTIVES[1], "latency/pixel3"]
    found = novelties(predictive_distributions(surrogates, texts, names), len(texts))
    assert np.isnan(found[:, [0, 2]]).all()
    assert np.array_equal(found[:, 1], surrogates[0].transform(texts)[:, 1, 2])
    assert (found[:, 1] > 2).tolist() == [False, False, True]


def test_a_line_for_the_networks_that_are_unlike_those_of_the_same_devices():
    found = {"latency/a": np.array([3, 1, 2.1, 2, 9.0]), "latency/b": np.array([3, 1, 1, 9, 2.5])}
    assert novelty_messages(found, ["v", "w", "x", "y", "z"]) == [
        "nothing with a label of latency/a, latency/b is like v, z: the predicted intervals are wide",
        "nothing with a label of latency/a is like x: the predicted interval is wide",
        "nothing with a label of latency/b is like y: the predicted interval is wide",
    ]
    many = {"latency/a": np.full(8, 3.0)}
    assert "is like 0, 1, 2, 3, 4 and 3 more: " in novelty_messages(many, [*map(str, range(8))])[0]
    assert novelty_messages({}, ["v"]) == []
    assert novelty_messages({"accuracy": np.array([np.nan])}, ["v"]) == []
    assert (
        f"is like {'x' * 40}…{'x' * 40}: " in novelty_messages({"latency/a": np.array([3.0])}, ["x" * 200])[0]
    )
