from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from nas_rlm.surrogates.graphs.surrogate import MAX_FEW_LABELS, GraphSurrogate
from nas_rlm.text import from_architectures
from tests.nas_rlm import checkpoint_files
from tests.nas_rlm.stubs import counted_cells as rows

SPACE = search_spaces.get("nasbench201")


@pytest.fixture(scope="module")
def graph_features():
    return graph_features_of_space("nasbench201")


def test_predictions_for_new_networks(graph_features):
    few, others = fit_graph_surrogate(graph_features, rows(60), ["accuracy"]), rows(50, seed=2)
    predicted = few.predict(graph_features.of_rows(others), "accuracy")
    true = np.array([row.targets["accuracy"] for row in others])
    assert spearman(predicted.median, true) > 0.95
    drawn = np.stack([predicted.sample(np.random.default_rng(i)) for i in range(20)])
    assert spearman(np.median(drawn, 0), true) > 0.95
    assert (drawn.std(0) > 0).all()


def test_with_distances_better_networks_than_all_labelled_ones_are_expected(graph_features):
    """As in a search, most of the labels are nearly equal; the best networks of the space are beyond them."""
    ordered = sorted(rows(300), key=lambda row: row.targets["accuracy"])
    labelled, better = ordered[:180:12] + ordered[180:220], ordered[240:]
    values = np.array([[row.targets["accuracy"]] for row in labelled])
    features, inputs = graph_features.of_rows(labelled), graph_features.of_rows(better)
    true = np.array([row.targets["accuracy"] for row in better])
    ranks, distances = (
        GraphSurrogate.fit(graph_features, features, values, ["accuracy"], distance_weight=weight)
        for weight in (0.0, 1.0)
    )
    high = [found.predict(inputs, "accuracy").quantiles([0.9])[:, 0] for found in (ranks, distances)]
    assert (high[0] < true).all()
    assert (high[1] > true).mean() > 0.8
    restored = GraphSurrogate.from_saved(distances.tensors(), distances.description())
    assert restored.distance_weight == 1
    assert restored.predict(inputs, "accuracy").median == pytest.approx(
        distances.predict(inputs, "accuracy").median, rel=1e-4
    )


@pytest.mark.parametrize(("labels", "weight"), [(60, 1.0), (MAX_FEW_LABELS + 10, 0.5)])
def test_few_labels_keep_distances_and_many_ranks_too(graph_features, labels, weight):
    found = fit_graph_surrogate(graph_features, rows(labels), ["accuracy"])
    assert found.distance_weight == weight
    restored = GraphSurrogate.from_saved(found.tensors(), found.description())
    assert restored.transforms["accuracy"].scores == pytest.approx(found.transforms["accuracy"].scores)


def test_a_surrogate_without_some_objectives(graph_features):
    both = [replace(r, targets={**r.targets, "latency/a": 1.0 + i}) for i, r in enumerate(rows(30))]
    found = fit_graph_surrogate(graph_features, both, ["accuracy", "latency/a"])
    found = replace(found, temperatures={"accuracy": 2.0, "latency/a": 3.0})
    assert found.without(["latency/b"]) is found
    assert found.without(["accuracy", "latency/a"]) is None
    left, texts = found.without(["accuracy"]), graph_features.of_rows(rows(5, seed=2))
    assert left.objectives == ("latency/a",)
    predicted = left.predict(texts, "latency/a")
    assert (predicted.mean == found.predict(texts, "latency/a").mean).all()
    assert predicted.temperature == 3.0


def test_a_model_with_a_surrogate_follows_it_and_is_saved_with_it(graph_features, tiny_checkpoint, tmp_path):
    rlm, others = RLM.load(tiny_checkpoint), rows(40, seed=2)
    true = np.array([row.targets["accuracy"] for row in others])
    archs = [row.arch_str for row in others]
    before = rlm.predict(SPACE, archs, ["accuracy"])[:, 0]
    rlm.surrogates = {
        "nasbench201": [
            replace(
                fit_graph_surrogate(graph_features, rows(60), ["accuracy"]), temperatures={"accuracy": 1.2}
            )
        ]
    }
    found = rlm.predict(SPACE, archs, ["accuracy"], [0.1, 0.5, 0.9])[:, 0]
    assert spearman(found[:, 1], true) > 0.9 > spearman(before, true)
    assert (found[:, 0] <= found[:, 1]).all() and (found[:, 1] <= found[:, 2]).all()
    drawn = np.median(rlm.sample(SPACE, archs, ["accuracy"], 64)[:, :, 0], 1)
    assert spearman(drawn, true) > 0.9
    rlm.save(tmp_path / "saved")
    again = RLM.load(tmp_path / "saved")
    assert again.surrogates["nasbench201"][0].objectives == ("accuracy",)
    assert again.surrogates["nasbench201"][0].temperatures == {"accuracy": 1.2}
    assert again.predict(SPACE, archs, ["accuracy"])[:, 0] == pytest.approx(found[:, 1], rel=0.02)
    again.save(tmp_path / "again")
    same = RLM.load(tmp_path / "again").predict(SPACE, archs, ["accuracy"])
    assert (same == again.predict(SPACE, archs, ["accuracy"])).all()
    assert (
        rlm.predict_text(from_architectures(SPACE, map(SPACE.parse, archs)), ["accuracy"])[:, 0] == before
    ).all()


def test_a_checkpoint_with_missing_or_damaged_surrogates(graph_features, tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    rlm.surrogates = {"nasbench201": [fit_graph_surrogate(graph_features, rows(20), ["accuracy"])]}
    rlm.save(tmp_path)
    path = tmp_path / "surrogates.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"surrogates\.safetensors is truncated or damaged"):
        RLM.load(tmp_path)
    path.unlink()
    with pytest.raises(
        ValueError, match=r"surrogates\.safetensors is missing: config\.json has surrogates of nasbench201"
    ):
        RLM.load(tmp_path)
    path.write_bytes(whole)
    config = checkpoint_files.read(tmp_path)
    config["surrogates"]["nasbench201"][0]["features"].remove("flops")
    checkpoint_files.write(tmp_path, config)
    with pytest.raises(ValueError, match=r"mean is \(\d+,\), expected"):
        RLM.load(tmp_path)
