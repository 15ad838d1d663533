from dataclasses import replace

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row, synthetic
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.fitting import fit_graph_surrogate, fit_graph_surrogates
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, graph_features_of_space
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.graphs.transfer import SourceSurrogate, is_source
from nas_rlm.surrogates.latency_fitting import fit_latency_surrogate
from nas_rlm.surrogates.source_selection import space_sources
from nas_rlm.surrogates.zero_label import source_labels


def rows(name, n, seed=0):
    """Return networks whose accuracy increases with the convolutions on their paths."""
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    drawn = [Row(name, str(space.sample(rng)), {}) for _ in range(n)]
    raw_features = synthetic.graph_features_of_texts(texts_of_rows(drawn))
    return [
        replace(r, targets={"accuracy": 50 + c.get("convs/mean", 0) + c.get("convs/most", 0) / 2})
        for r, c in zip(drawn, raw_features, strict=True)
    ]


@pytest.fixture(scope="module")
def existing():
    return {
        "nasbench101": [
            fit_graph_surrogate(
                graph_features_of_space("nasbench101"), rows("nasbench101", 150), ["accuracy"]
            )
        ]
    }


@pytest.fixture(scope="module")
def target():
    found = rows("nasbench201", 80, seed=1)
    return (
        found,
        synthetic.graph_features_of_texts(texts_of_rows(found), MAX_CHAIN_LENGTH),
        [r.targets["accuracy"] for r in found],
    )


def test_a_source_surrogate_ranks_another_space(existing, target):
    (one,) = space_sources("nasbench201", [], existing)
    _, raw_features, true = target
    assert spearman(one.predict(one.graph_features.transform(raw_features)).numpy(), np.array(true)) > 0.8
    usual = [row.targets for row in synthetic.random_table("nasbench201", 100, 0, MAX_CHAIN_LENGTH).rows]
    predictions = one.predict(one.graph_features.transform(usual))
    assert float(predictions.mean()) == pytest.approx(0, abs=1e-6)
    assert float(predictions.std()) == pytest.approx(1)


def test_sources_improve_predictions_from_few_labels(existing, target):
    few = rows("nasbench201", 10)
    target_rows, _, true = target
    with_sources = fit_graph_surrogates(few, ["accuracy"], existing)["nasbench201"][0]
    alone = fit_graph_surrogates(few, ["accuracy"])["nasbench201"][0]
    assert alone.graph_features.sources == ()
    ranked = [
        spearman(
            one.predict(one.graph_features.of_rows(target_rows), "accuracy").median,
            np.array(true),
        )
        for one in (with_sources, alone)
    ]
    assert ranked[0] > ranked[1]


def test_which_surrogates_are_sources(existing):
    few = rows("nasbench201", 12)
    latency = [replace(r, targets={"latency/a": r.targets["accuracy"]}) for r in few]
    assert fit_latency_surrogate("nasbench201", latency, "latency/a", existing).graph_features.sources == ()
    assert space_sources("nasbench101", [], existing) == ()
    assert space_sources("nasbench201", [], {"nasbench101": []}) == ()
    same = [replace(r, targets={"accuracy": 70.0}) for r in rows("nasbench101", 20)]
    constant = {
        "nasbench101": [fit_graph_surrogate(graph_features_of_space("nasbench101"), same, ["accuracy"])]
    }
    assert space_sources("nasbench201", [], constant) == ()
    assert space_sources("mine", [], existing) == ()
    nothing_varies = [{"flops": 1.0}, {"flops": 1.0}]
    known = existing["nasbench101"][0]
    assert known.source_for_space("accuracy", nothing_varies) is None


def test_a_model_is_saved_with_its_sources(existing, target, tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    rlm.surrogates = {
        **existing,
        **fit_graph_surrogates(rows("nasbench201", 12), ["accuracy"], existing),
    }
    archs = [row.arch_str for row in target[0]]
    before = rlm.predict("nasbench201", archs, ["accuracy"])
    rlm.save(tmp_path)
    again = RLM.load(tmp_path)
    assert len(again.surrogates["nasbench201"][0].graph_features.sources) == 1
    assert again.predict("nasbench201", archs, ["accuracy"]) == pytest.approx(before, rel=0.02)


def test_invalid_sources_are_refused(existing):
    (one,) = space_sources("nasbench201", [], existing)
    names = one.graph_features.names
    with pytest.raises(ValueError, match="offset missing"):
        SourceSurrogate.from_saved({k: v for k, v in one.tensors().items() if k != "offset"}, names)
    with pytest.raises(ValueError, match=r"mean is \(\d+,\), expected"):
        SourceSurrogate.from_saved(one.tensors(), names[1:])
    with pytest.raises(ValueError, match="a standard deviation or noise is not above 0"):
        SourceSurrogate.from_saved(
            {**one.tensors(), "hyperparameters": torch.zeros_like(one.hyperparameters)}, names
        )
    with pytest.raises(ValueError, match="are not all names"):
        SourceSurrogate.from_saved(one.tensors(), [*names[1:], 3])
    with pytest.raises(ValueError, match=r"alpha is torch\.int64, expected floating point"):
        SourceSurrogate.from_saved({**one.tensors(), "alpha": one.alpha.long()}, names)
    with_sources = fit_graph_surrogates(rows("nasbench201", 12), ["accuracy"], existing)["nasbench201"][0]
    with pytest.raises(ValueError, match="features is"):
        GraphSurrogate.from_saved(with_sources.tensors(), with_sources.description() | {"sources": []})


def test_accuracies_transfer_only_within_a_task(existing):
    (surrogates,) = [*existing.values()][:1]
    others = {"gpt_m": surrogates, "nasbench201": surrogates}
    assert source_labels("gpt_s", others, "accuracy").keys() == {"gpt_m"}
    assert source_labels("hiaml", others, "accuracy").keys() == {"nasbench201"}
    assert source_labels("", others, "accuracy/mydata").keys() == {"nasbench201"}
    assert is_source("gpt_m", "hiaml", "latency/pixel3")
