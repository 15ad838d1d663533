"""Surrogates of networks of any family in a model; see `tests.nas_rlm.test_rlm` for all else."""

import re
import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.evaluation import QUANTILE_LEVELS, predict_rows
from nas_rlm.data import Row
from nas_rlm.graph.costs import compute_costs
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates import layer_network, layer_surrogate
from nas_rlm.surrogates.fitting import fit_graph_surrogates, fit_latency_surrogate
from nas_rlm.surrogates.graph_surrogate import FEW_LABELS_VIEWS
from nas_rlm.surrogates.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.surrogates.registry import (
    NoveltyWarning,
    predictive_distributions,
    surrogate_by_objective,
    without_novelty_warnings,
)
from nas_rlm.text import from_architectures
from nas_rlm.text.parser import parse_network
from tests.search_spaces.plain_space import PlainSpace

NAME, LEVELS = "latency/pixel3", (0.1, 0.5, 0.9)


def networks(name, count=5, seed=0):
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    drawn = [space.sample(rng) for _ in range(count)]
    return drawn, from_architectures(space, drawn)


def latencies_of(texts):
    return np.array([0.1 + 1e-8 * compute_costs(parse_network(text)).sums()[0] for text in texts])


@pytest.fixture(scope="module")
def surrogate():
    texts = [text for name in ("nasbench201", "ofa_mbv3") for text in networks(name, 15)[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_network, "MIN_STEPS", 5)
        patch.setattr(layer_surrogate, "NUM_FOLDS", 2)
        fitted = LayerSurrogate.fit(texts, {NAME: latencies_of(texts)})
    return replace(fitted, network_temperatures={NAME: WITHOUT_NETWORK})


@pytest.fixture(params=["", "mine"])
def rlm(request, surrogate, tiny_checkpoint):
    """Return a model that was trained on networks without a space, or on those of an unknown space."""
    loaded = RLM.load(tiny_checkpoint)
    loaded.trained_on = {request.param: TrainedOn(30, (NAME,))}
    loaded.surrogates = {request.param: [surrogate]}
    return loaded


@pytest.fixture
def no_warnings():
    """Turn warnings into errors, except those of networks unlike the labelled ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoveltyWarning)
        yield


@pytest.mark.parametrize("name", ["nasbench201", "fbnet", "nats_size", "gpt_s"])
def test_networks_of_any_space_are_predicted_without_a_warning(rlm, surrogate, name, no_warnings):
    architectures, texts = networks(name)
    expected = surrogate.predict(surrogate.transform(texts), NAME).quantiles(LEVELS)
    found = rlm.predict(name, architectures, [NAME], LEVELS)
    assert found[:, 0] == pytest.approx(expected, rel=1e-4)
    rlm.check_space("", [NAME])
    rlm.check_space(name, [NAME])
    assert rlm.predict_text(texts, [NAME], LEVELS) == pytest.approx(found, rel=1e-4)
    assert np.array_equal(rlm.predict_text(texts, [NAME], LEVELS, space=name), found)


def test_networks_unlike_the_labelled_ones_give_a_warning(rlm, surrogate):
    known, novel = networks("nasbench201", 3)[0], networks("gpt_s", 2)
    is_novel = (surrogate.transform(novel[1])[:, 0, 2] > 2).tolist()
    assert is_novel == [True, True]
    names = str(novel[0][0])[:40]
    for predict in (rlm.predict, rlm.sample):
        with pytest.warns(NoveltyWarning, match=f"{NAME} is like {re.escape(names)}") as caught:
            predict("gpt_s", novel[0], [NAME])
        assert len(caught) == 1
    with pytest.warns(NoveltyWarning, match=f"{NAME} is like text 0, text 1: .* intervals are wide"):
        rlm.predict_text(novel[1], [NAME])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rlm.predict("nasbench201", known, [NAME])
        with without_novelty_warnings():
            rlm.predict("gpt_s", novel[0], [NAME])


def test_sums_of_costs_of_another_space_say_where_they_were_learnt(tiny_checkpoint):
    architectures, texts = networks("nasbench201", 25)
    pairs = zip(architectures, latencies_of(texts), strict=True)
    rows = [Row("nasbench201", str(a), {NAME: value}) for a, value in pairs]
    rlm = RLM.load(tiny_checkpoint)
    rlm.surrogates = {"nasbench201": [fit_latency_surrogate("nasbench201", rows, NAME)]}
    rlm.trained_on = {"nasbench201": TrainedOn(25, (NAME,))}
    message = f"{NAME} was learnt from networks of nasbench201 alone: for fbnet it is a sum of the costs"
    with pytest.warns(NoveltyWarning, match=message) as caught:
        rlm.predict("fbnet", networks("fbnet", 2)[0], [NAME])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rlm.predict("nasbench201", architectures[:2], [NAME])


def test_accuracies_of_another_task_are_not_transferred(rlm, tmp_path):
    rlm.trained_on = {"nasbench201": TrainedOn(9, ("accuracy",))}
    message = "accuracy cannot be predicted for language modelling: .* for image classification alone"
    drawn, texts = networks("gpt_s", 1)
    with pytest.raises(ValueError, match=message):
        rlm.predict("gpt_s", drawn, ["accuracy"])
    onnx.save(search_spaces.get("gpt_s").to_onnx(drawn[0]), tmp_path / "gpt.onnx")
    for space in ("", "nasbench201"):
        with pytest.raises(ValueError, match=message):
            rlm.predict_onnx([tmp_path / "gpt.onnx"], ["accuracy"], space=space)
    rlm.predict_onnx([tmp_path / "gpt.onnx"], [NAME, "flops"])
    rlm.predict("fbnet", networks("fbnet", 1)[0], ["accuracy"])
    rlm.trained_on = {**rlm.trained_on, "gpt_m": TrainedOn(9, ("accuracy",))}
    rlm.check_task("gpt_s", ["accuracy"], texts)
    with pytest.raises(ValueError, match=message):
        rlm.check_task("nasbench201", ["accuracy"], texts)


def test_onnx_files_are_predicted_without_a_space(rlm, tmp_path, no_warnings):
    space = search_spaces.get("fbnet")
    drawn, texts = networks("fbnet", 2)
    paths = [tmp_path / f"{k}.onnx" for k in range(2)]
    for path, architecture in zip(paths, drawn, strict=True):
        onnx.save(space.to_onnx(architecture), path)
    found = rlm.predict_onnx(paths, [NAME], LEVELS)
    assert found == pytest.approx(rlm.predict_text(texts, [NAME], LEVELS), rel=1e-4)
    assert (np.diff(found) > 0).all()


def test_other_objectives_still_give_a_warning(rlm):
    with pytest.warns(UserWarning, match="no space is named"):
        rlm.check_space("", [NAME, "accuracy"])
    with pytest.warns(UserWarning, match="not trained on latency/eyeriss of fbnet"):
        rlm.check_space("fbnet", [NAME, "latency/eyeriss"])


def test_a_space_with_labels_of_its_own_keeps_its_surrogate(rlm, surrogate):
    architectures, texts = networks("nasbench201", 25)
    rows = [
        Row("nasbench201", str(a), {NAME: 1000 * value})
        for a, value in zip(architectures, latencies_of(texts), strict=True)
    ]
    own = fit_latency_surrogate("nasbench201", rows, NAME)
    own = replace(own, network_temperatures={NAME: WITHOUT_NETWORK})
    for order in (1, -1):
        rlm.surrogates = dict([*rlm.surrogates.items(), ("nasbench201", [own])][::order])
        assert surrogate_by_objective(rlm.surrogates_of("nasbench201"))[NAME] is own
        for space in ("", "mine", "fbnet"):
            assert surrogate_by_objective(rlm.surrogates_of(space))[NAME] is surrogate
        assert rlm.predict("nasbench201", architectures[:3], [NAME]).min() > 50
        assert rlm.predict("fbnet", networks("fbnet", 3)[0], [NAME]).max() < 50


def test_network_and_surrogate_are_combined(rlm, surrogate, no_warnings):
    rlm.surrogates = {space: [replace(surrogate, network_temperatures={})] for space in rlm.surrogates}
    architectures, texts = networks("ofa_mbv3", 3)
    found = rlm.predict("ofa_mbv3", architectures, [NAME], LEVELS)
    assert found == pytest.approx(rlm.predict_text(texts, [NAME], LEVELS), rel=0.05)
    samples = rlm.sample("ofa_mbv3", architectures, [NAME], 64)[:, :, 0]
    alone = surrogate.predict(surrogate.transform(texts), NAME).median
    assert np.median(samples, 1) == pytest.approx(alone, rel=0.3)


def test_texts_that_are_no_networks_are_refused_in_one_line(rlm):
    with pytest.raises(ValueError, match="is not canonical ONNX text"):
        rlm.predict_text(["def f(n):\n    return n\n"], [NAME])


class OwnSpace(PlainSpace):
    name = "own_plain"


OWN = OwnSpace()
LABEL = "accuracy/mine"


@pytest.fixture(scope="module")
def with_genome(tiny_checkpoint):
    """Return a model with 14 labels of a user's own space, which differ where the genome does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_spaces, "_registered", {OWN.name: OWN})
        rng = np.random.default_rng(0)
        cells = [OWN.sample(rng) for _ in range(14)]
        labels = [60.0 + 3 * OWN.encode(cell)[0] + OWN.encode(cell)[3] for cell in cells]
        rows = [Row(OWN.name, str(c), {LABEL: v}) for c, v in zip(cells, labels, strict=True)]
        yield RLM.load(tiny_checkpoint).fine_tune(rows, [LABEL], learn="none")


def test_the_genome_of_architectures_takes_part_and_is_saved(with_genome, tmp_path):
    (surrogate,) = with_genome.surrogates[OWN.name]
    assert {"gene/0", "gene/0=0", "gene/3=1"} <= {*surrogate.graph_features.names}
    assert len(surrogate.evidence[LABEL].weights) == len(FEW_LABELS_VIEWS) + 1
    cells = [OWN.sample(np.random.default_rng(k)) for k in range(20, 30)]
    with_genome.save(tmp_path / "saved")
    predicted = with_genome.predict(OWN, cells, [LABEL], LEVELS)
    again = RLM.load(tmp_path / "saved").predict(OWN, cells, [LABEL], LEVELS)
    assert again == pytest.approx(predicted, rel=1e-3)
    texts = from_architectures(OWN, cells)
    genomes = with_genome.genomes_of(OWN, cells)
    of_texts = with_genome.predict_text(texts, [LABEL], LEVELS, space=OWN.name, genomes=genomes)
    assert of_texts == pytest.approx(predicted)
    rows = [Row(OWN.name, str(cell), {}) for cell in cells]
    assert predict_rows(with_genome, rows, texts, [LABEL]) == pytest.approx(
        with_genome.predict(OWN, cells, [LABEL], QUANTILE_LEVELS)
    )


def test_files_are_predicted_without_the_genome(with_genome):
    cells = [OWN.sample(np.random.default_rng(k)) for k in range(40, 60)]
    texts = from_architectures(OWN, cells)
    by_file = with_genome.predict_onnx([OWN.to_onnx(cell) for cell in cells], [LABEL], LEVELS, space=OWN.name)
    of_texts = with_genome.predict_text(texts, [LABEL], LEVELS, space=OWN.name)
    assert by_file == pytest.approx(of_texts) and np.isfinite(by_file).all()
    with_all = with_genome.predict(OWN, cells, [LABEL], LEVELS)
    assert np.abs(with_all - of_texts).max() > 1e-3
    (surrogate,) = with_genome.surrogates[OWN.name]
    weights = surrogate.evidence[LABEL].weights[:-1]
    alone = replace(
        surrogate,
        hyperparameters={LABEL: surrogate.hyperparameters[LABEL][:-1]},
        alpha={LABEL: surrogate.alpha[LABEL][:-1]},
        evidence={LABEL: replace(surrogate.evidence[LABEL], weights=weights / weights.sum())},
    )
    (expected,) = predictive_distributions([alone], texts, [LABEL])
    assert of_texts[:, 0] == pytest.approx(expected.quantiles(LEVELS))
    assert not with_genome.genomes_of(search_spaces.get("nats_size"), [])


def test_files_without_a_space_are_predicted_by_the_surrogate_of_a_table_of_files(rlm, no_warnings):
    texts = networks("nasbench201", 24)[1]
    rows = [
        Row("files", "", {"accuracy/data": 50 + 10 * np.log10(value)}, text)
        for text, value in zip(texts, latencies_of(texts), strict=True)
    ]
    own = fit_graph_surrogates(rows, ["accuracy/data"])["files"]
    alone = [replace(s, network_temperatures={"accuracy/data": WITHOUT_NETWORK}) for s in own]
    tuned = rlm.with_objectives(["accuracy/data"])
    tuned.surrogates = {**rlm.surrogates, "files": alone}
    expected = tuned.predict_text(texts[:3], ["accuracy/data"], LEVELS, space="files")
    tuned.check_space("", ["accuracy/data"])
    assert np.array_equal(tuned.predict_text(texts[:3], ["accuracy/data"], LEVELS), expected)
    assert "accuracy/data" not in surrogate_by_objective(tuned.surrogates_of("fbnet"))


def test_the_shipped_model_refuses_what_it_cannot_know_of_a_file(shipped_rlm, tmp_path):
    gpt, cell = tmp_path / "gpt.onnx", tmp_path / "cell.onnx"
    for path, name in ((gpt, "gpt_s"), (cell, "nasbench201")):
        space = search_spaces.get(name)
        onnx.save(space.to_onnx(space.sample(np.random.default_rng(0))), path)
    for objective in ("accuracy", "accuracy/imagenet"):
        with pytest.raises(
            ValueError, match=f"{objective} cannot be predicted for a language model of no space"
        ):
            shipped_rlm.predict_onnx([gpt], [objective])
    for path in (gpt, cell):
        with pytest.raises(ValueError, match=r"learnt it for gpt_l, gpt_m, gpt_s alone|model of no space"):
            shipped_rlm.predict_onnx([path], ["perplexity"])
        with pytest.raises(ValueError, match="learnt it for gpt_l, gpt_m, gpt_s alone"):
            shipped_rlm.predict_onnx([path], ["memory/a100"])
