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
from nas_rlm.surrogates.graphs.views import FEW_LABELS_VIEWS, GENOME_VIEWS
from nas_rlm.surrogates.registry import (
    NoveltyWarning,
    novelty_warnings_once,
    predictive_distributions,
    without_novelty_warnings,
)
from nas_rlm.text import from_architectures
from tests.nas_rlm.surrogates.ensemble.layer_networks import LEVELS, NAME, networks
from tests.search_spaces.plain_space import PlainSpace


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
    with warnings.catch_warnings(record=True) as caught, novelty_warnings_once():
        warnings.simplefilter("always")
        for architecture in novel[0]:
            rlm.predict("gpt_s", [architecture], [NAME])
    assert len(caught) == 1


def test_onnx_files_are_predicted_without_a_space(rlm, tmp_path, no_warnings):
    space = search_spaces.get("fbnet")
    drawn, texts = networks("fbnet", 2)
    paths = [tmp_path / f"{k}.onnx" for k in range(2)]
    for path, architecture in zip(paths, drawn, strict=True):
        onnx.save(space.to_onnx(architecture), path)
    found = rlm.predict_onnx(paths, [NAME], LEVELS)
    assert found == pytest.approx(rlm.predict_text(texts, [NAME], LEVELS), rel=1e-4)
    assert (np.diff(found) > 0).all()


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
    assert len(surrogate.evidence[LABEL].weights) == len(FEW_LABELS_VIEWS) + len(GENOME_VIEWS)
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
