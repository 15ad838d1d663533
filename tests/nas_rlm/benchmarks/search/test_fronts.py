from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.search.fronts import (
    METHODS,
    OBJECTIVE_SETS,
    SearchPlan,
    evaluate_result,
    mean_and_deviation,
    search_benchmark,
)
from nas_rlm.data import Row, Table
from nas_rlm.search.acquisition import candidate_pool, selection
from nas_rlm.search.lookup import TablePredictor
from nas_rlm.search.reference_points import published_reference_values
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
PAIR = OBJECTIVE_SETS[0]


@pytest.fixture(scope="module")
def table():
    genomes = np.array(list(np.ndindex(*SPACE.genes)))
    cells = [SPACE.decode(genome) for genome in np.random.default_rng(0).permutation(genomes)[:5209]]
    values = StubPredictor().medians(cells, PAIR).tolist()
    rows = [
        Row("nasbench201", str(a), {**dict(zip(PAIR, v, strict=True)), "params": v[0], "flops": v[1]})
        for a, v in zip(cells, values, strict=True)
    ]
    return Table("third", rows)


def found_in(table, **changed):
    size = {"population": 40, "generations": 15, "seeds": [0], "objective_sets": (PAIR,), **changed}
    return dict(search_benchmark(table, lambda rows, objectives, seed: StubPredictor(), SearchPlan(**size)))


def test_a_perfect_model_finds_nearly_the_best_front(table):
    found = found_in(table)
    counts = [50, 100, 200, 500, 600]
    assert list(found) == [(" x ".join(PAIR), m, 0, count) for m in METHODS for count in counts]
    ends = {method: found[" x ".join(PAIR), method, 0, 600].relative_hypervolume for method in METHODS}
    assert ends["model"] > 0.98
    assert ends["model"] > max(ends["model, random"], ends["random on true values"])
    for method in METHODS:
        evaluations = [found[" x ".join(PAIR), method, 0, count] for count in counts]
        shares = [one.relative_hypervolume for one in evaluations]
        assert shares == sorted(shares)
        assert all(one.relative_hypervolume <= one.shortlist_hypervolume <= 1 for one in evaluations)


def test_costs_alone_are_compared_and_variation_can_be_left_out(table):
    targets = [{**row.targets, "params": -row.targets[PAIR[0]]} for row in table.rows]
    rows = [replace(row, targets=own) for row, own in zip(table.rows, targets, strict=True)]
    found = found_in(Table("reverse", rows), generations=5, is_sampled=True)
    shares = {method: r.relative_hypervolume for (_, method, _, count), r in found.items() if count == 200}
    assert list(shares) == [
        "model, random",
        "parameters and MACs, random",
        "random on true values",
    ]
    assert shares["parameters and MACs, random"] < shares["model, random"]


def test_a_model_that_ranks_in_reverse_finds_little(table):
    class Wrong(StubPredictor):
        def medians(self, architectures, objectives):
            return 100 - super().medians(architectures, objectives)

    plan = SearchPlan(objective_sets=(PAIR,), population=40, generations=10, seeds=[0])
    found = dict(search_benchmark(table, lambda *_: Wrong(), plan))
    shares = {method: found[" x ".join(PAIR), method, 0, 400].relative_hypervolume for method in METHODS}
    assert shares["model"] < 0.5 < shares["random on true values"]


def test_labels_are_random_rows_with_only_the_objectives(table):
    calls = []

    def make_model(rows, objectives, seed):
        calls.append((rows, objectives, seed))
        return StubPredictor()

    size = {"num_labels": 30, "objective_sets": (PAIR,), "population": 10, "generations": 6, "seeds": [0, 1]}
    plan = SearchPlan(**size)
    found = dict(search_benchmark(table, make_model, plan))
    assert [(len(rows), objectives, seed) for rows, objectives, seed in calls] == [
        (30, PAIR, 0),
        (30, PAIR, 1),
    ]
    assert calls[0][0] != calls[1][0]
    true_values = TablePredictor(table, PAIR)
    assert all(list(row.targets.values()) == true_values.values[row.arch_str] for row in calls[0][0])
    again = dict(search_benchmark(table, make_model, plan, finished=list(found)[:-1]))
    assert len(again) == 2 and len(calls) == 2  # only the last search, which uses no model
    with pytest.raises(ValueError, match="1 label of 5,209 rows"):
        next(search_benchmark(table, make_model, SearchPlan(num_labels=1, objective_sets=(PAIR,))))


def test_chosen_labels_improve_the_front_and_replace_predictions(table, monkeypatch):
    monkeypatch.setattr(selection, "POOL_SIZE", 60)
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 60)
    calls = []

    def make_model(rows, objectives, seed):
        calls.append(rows)
        return Low()

    seeds = range(2)

    class Low(StubPredictor):
        def medians(self, architectures, objectives):
            return super().medians(architectures, objectives) - [40, 0]

    size = {"num_labels": 24, "objective_sets": (PAIR,), "population": 30, "generations": 4, "seeds": seeds}
    found = [
        dict(search_benchmark(table, make_model, SearchPlan(is_chosen=c, **size))) for c in (True, False)
    ]
    first, chosen, drawn = calls[0:4:2], calls[1:4:2], calls[4:]
    assert not any(first) and all(len(rows) == 24 for rows in drawn)
    assert all(24 >= len(rows) > 12 for rows in chosen)
    true_values, reference_point = (
        TablePredictor(table, PAIR),
        [published_reference_values("nasbench201")[name] for name in PAIR],
    )
    assert all([row.targets[o] for o in PAIR] == true_values.values[row.arch_str] for row in chain(*chosen))
    own = [
        [true_values.relative_hypervolume([r.arch_str for r in rows], PAIR, reference_point) for rows in some]
        for some in (chosen, drawn)
    ]
    assert sum(own[0]) > sum(own[1])
    ends = [
        [one[" x ".join(PAIR), "model", seed, 120].relative_hypervolume for seed in seeds] for one in found
    ]
    assert all(end > value - 0.02 for end, value in zip(ends[0], own[0], strict=True))


def test_hypervolumes_are_relative_to_the_full_table(table):
    true_values = TablePredictor(table, PAIR)
    names = list(true_values.values)
    values = np.repeat(true_values.measured_values(names, PAIR)[:, :, None], 3, axis=2)
    settings = SearchSettings("nasbench201", PAIR)
    everything = evaluate_result(SearchResult(settings, names, values), true_values, 2.0)
    assert (everything.relative_hypervolume, everything.shortlist_hypervolume, everything.seconds) == (
        1,
        1,
        2,
    )
    few = evaluate_result(SearchResult(settings, names[:50], values[:50]), true_values, 1.0)
    assert 0 < few.relative_hypervolume < 1


def test_mean_and_deviation_are_over_seeds(table):
    found = found_in(table, seeds=[0, 1], generations=3)
    (mean, deviation) = mean_and_deviation(found, "relative_hypervolume")[" x ".join(PAIR), "model", 100]
    shares = [found[" x ".join(PAIR), "model", seed, 100].relative_hypervolume for seed in (0, 1)]
    assert (mean, deviation) == pytest.approx((np.mean(shares), np.std(shares)))
