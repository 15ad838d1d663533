import json
from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.surrogates.programs.prior import MAX_SCORE, ProgramPrior
from nas_rlm.surrogates.registry import from_saved
from tests.nas_rlm.surrogates.programs.test_fitting import predictions, programs


@pytest.fixture(scope="module")
def judge():
    """Surrogates of a table in two languages."""
    return fit_surrogates(programs(300), ["memory"])


def of_another_table(count, seed):
    return [replace(row, space="mine") for row in programs(count, seed) if row.space == "Judge/Python"]


@pytest.fixture(scope="module")
def fitted(judge):
    return fit_surrogates(of_another_table(40, 1), ["memory"], judge)["mine"][0]


def test_another_table_helps_where_labels_are_few(judge, fitted):
    (alone,) = fit_surrogates(of_another_table(40, 1), ["memory"])["mine"]
    assert set(fitted.priors) == {"memory"} and not alone.priors
    rows = of_another_table(300, 2)
    true = np.array([row.targets["memory"] for row in rows])
    ours, without = (spearman(predictions(s, rows).median, true) for s in (fitted, alone))
    assert ours > max(without, 0.5)


def test_the_source_is_of_the_language_with_the_most_similar_structure(judge, fitted):
    (source,) = fitted.priors["memory"].sources
    assert (source.structure_scaling == judge["Judge/Python"][0].structure_scaling).all()


def test_the_own_table_and_other_objectives_are_no_sources(judge):
    again = fit_surrogates(programs(60, 1), ["memory"], judge)
    assert not again["Judge/Python"][0].priors
    times = [replace(row, targets={"time": row.targets["memory"]}) for row in of_another_table(60, 1)]
    assert not fit_surrogates(times, ["time"], judge)["mine"][0].priors


def test_many_labels_need_no_sources(judge, monkeypatch):
    rows = of_another_table(60, 1)
    for count, is_prior in ((len(rows), True), (len(rows) - 1, False)):
        monkeypatch.setattr("nas_rlm.surrogates.programs.sources.MAX_LABELS", count)
        assert bool(fit_surrogates(rows, ["memory"], judge)["mine"][0].priors) == is_prior


def test_a_source_is_used_without_its_own_sources(judge, fitted):
    rows = [replace(row, space="third") for row in of_another_table(40, 3)]
    (again,) = fit_surrogates(rows, ["memory"], {**judge, "mine": [fitted]})["third"]
    assert len(again.priors["memory"].sources) == 2
    assert not any(source.priors for source in again.priors["memory"].sources)


def test_programs_unlike_alike_ones_are_within_the_labels(judge):
    sizes = range(1000, 21000, 500)
    squares = [
        Row("mine", "", {"memory": 40.0 * n}, f"x = [j * j for j in range({n})]  # {'-' * k}\n", str(n))
        for k, n in enumerate(sizes)
    ]
    (surrogate,) = fit_surrogates(squares, ["memory"], judge)["mine"]
    prior = surrogate.priors["memory"]
    others = [row.input for row in of_another_table(60, 2)]
    far = [
        (source.predict(source.transform(others), "memory").mean - mean) / std
        for source, mean, std in zip(prior.sources, *prior.scaling, strict=True)
    ]
    assert max(np.abs(far[0])) > 2 * MAX_SCORE  # the labelled programs are alike
    assert max(np.abs(prior.scores(others))) <= MAX_SCORE


def test_it_is_saved(fitted):
    saved = from_saved(fitted.tensors(), json.loads(json.dumps(fitted.description())))
    rows = of_another_table(50, 2)
    first, second = (predictions(surrogate, rows) for surrogate in (fitted, saved))
    assert (first.mean == second.mean).all() and (first.std == second.std).all()
    description = fitted.priors["memory"].description()
    with pytest.raises(ValueError, match="out of range"):
        ProgramPrior.from_saved(
            fitted.priors["memory"].tensors(),
            description | {"weights": [-1.0, 0.4]},
            type(fitted).from_saved,
        )
    nested = description["sources"][0] | {"priors": {"memory": description}}
    with pytest.raises(ValueError, match="has sources itself"):
        ProgramPrior.from_saved({}, description | {"sources": [nested]}, type(fitted).from_saved)
