from itertools import chain

import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.search import METHODS, SETS, contest, draw, judged, means
from nas_rlm.data import Row, Table
from nas_rlm.search.lookup import TablePredictor
from nas_rlm.search.reference_points import published_reference_values
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
PAIR = SETS[0]


@pytest.fixture(scope="module")
def table():
    genomes = np.array(list(np.ndindex(*SPACE.genes)))
    cells = [SPACE.decode(genome) for genome in np.random.default_rng(0).permutation(genomes)[:5209]]
    values = StubPredictor().medians(cells, PAIR).tolist()
    rows = [
        Row("nasbench201", str(a), dict(zip(PAIR, v, strict=True)))
        for a, v in zip(cells, values, strict=True)
    ]
    return Table("third", rows)


def found_in(table, **changed):
    size = {"population": 40, "generations": 15, "seeds": [0], "sets": (PAIR,), **changed}
    return dict(contest(table, lambda rows, objectives, seed: StubPredictor(), **size))


def test_a_perfect_model_finds_nearly_the_best_and_more_with_more_evaluations(table):
    found = found_in(table)
    marks = [50, 100, 200, 500, 600]
    assert list(found) == [(" x ".join(PAIR), m, 0, mark) for m in METHODS for mark in marks]
    ends = {method: found[" x ".join(PAIR), method, 0, 600].share for method in METHODS}
    assert ends["model"] > 0.98
    assert ends["model"] > max(ends["model, random"], ends["random on truth"])
    for method in METHODS:
        of_method = [found[" x ".join(PAIR), method, 0, mark] for mark in marks]
        shares = [one.share for one in of_method]
        assert shares == sorted(shares)
        assert all(one.share <= one.share_shortlist <= 1 for one in of_method)


def test_a_model_that_ranks_the_wrong_way_finds_little(table):
    class Wrong(StubPredictor):
        def medians(self, architectures, objectives):
            return 100 - super().medians(architectures, objectives)

    found = dict(contest(table, lambda *_: Wrong(), sets=(PAIR,), population=40, generations=10, seeds=[0]))
    shares = {method: found[" x ".join(PAIR), method, 0, 400].share for method in METHODS}
    assert shares["model"] < 0.5 < shares["random on truth"]


def test_labels_are_random_rows_with_the_wanted_numbers_alone(table):
    given = []

    def model_of(rows, objectives, seed):
        given.append((rows, objectives, seed))
        return StubPredictor()

    size = {"labels": 30, "sets": (PAIR,), "population": 10, "generations": 6, "seeds": [0, 1]}
    found = dict(contest(table, model_of, **size))
    assert [(len(rows), objectives, seed) for rows, objectives, seed in given] == [
        (30, PAIR, 0),
        (30, PAIR, 1),
    ]
    assert given[0][0] != given[1][0]
    truth = TablePredictor(table, PAIR)
    assert all(list(row.targets.values()) == truth.values[row.arch_str] for row in given[0][0])
    again = dict(contest(table, model_of, **size, done=list(found)[:-1]))
    assert len(again) == 2 and len(given) == 2  # the last search alone, which asks no model
    with pytest.raises(ValueError, match="1 labels of 5,209 rows"):
        next(contest(table, model_of, labels=1, sets=(PAIR,)))


def test_labels_that_are_chosen_are_worth_more_and_count(table):
    given = []

    def model_of(rows, objectives, seed):
        given.append(rows)
        return Low()

    seeds = range(3)

    class Low(StubPredictor):
        def medians(self, architectures, objectives):
            return super().medians(architectures, objectives) - [40, 0]

    size = {"labels": 40, "sets": (PAIR,), "population": 30, "generations": 4, "seeds": seeds}
    found = [dict(contest(table, model_of, chosen=c, **size)) for c in (True, False)]
    unasked, chosen, drawn = given[0:6:2], given[1:6:2], given[6:]
    assert not any(unasked) and all(len(rows) == 40 for rows in drawn)
    assert all(40 >= len(rows) > 20 for rows in chosen)
    truth, corner = TablePredictor(table, PAIR), [published_reference_values("nasbench201")[name] for name in PAIR]
    assert all([row.targets[o] for o in PAIR] == truth.values[row.arch_str] for row in chain(*chosen))
    own = [
        [truth.relative_hypervolume([r.arch_str for r in rows], PAIR, corner) for rows in some] for some in (chosen, drawn)
    ]
    assert sum(own[0]) > sum(own[1])
    ends = [[one[" x ".join(PAIR), "model", seed, 120].share for seed in seeds] for one in found]
    assert ends[0] == pytest.approx(own[0], abs=0.02)  # whatever else the model tells is far behind them


def test_shares_are_of_the_whole_tables_hypervolume(table):
    truth = TablePredictor(table, PAIR)
    names = list(truth.values)
    values = np.repeat(truth.measured_values(names, PAIR)[:, :, None], 3, axis=2)
    settings = SearchSettings("nasbench201", PAIR)
    everything = judged(SearchResult(settings, names, values), truth, 2.0)
    assert (everything.share, everything.share_shortlist, everything.seconds) == (1, 1, 2)
    few = judged(SearchResult(settings, names[:50], values[:50]), truth, 1.0)
    assert 0 < few.share < 1


def test_a_panel_for_each_set_and_a_line_for_each_method(table):
    found = found_in(table, seeds=[0, 1], generations=3)
    (mean, deviation) = means(found, "share")[" x ".join(PAIR), "model", 100]
    shares = [found[" x ".join(PAIR), "model", seed, 100].share for seed in (0, 1)]
    assert (mean, deviation) == pytest.approx((np.mean(shares), np.std(shares)))
    (axis,) = draw(found).axes
    assert [line.get_label() for line in axis.lines] == list(METHODS)
    assert axis.lines[0].get_xdata().tolist() == [50, 100, 120]
