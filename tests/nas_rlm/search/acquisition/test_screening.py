import numpy as np
import pytest

import search_spaces
from nas_rlm.search.acquisition.screening import screen
from nas_rlm.search.table_space import TableSpace

SPACE = search_spaces.get("nats_size")


@pytest.fixture(scope="module")
def candidates():
    rng = np.random.default_rng(0)
    return TableSpace(SPACE, [*{str(SPACE.sample(rng)): None for _ in range(450)}][:400])


def widths(names):
    return np.array([list(map(int, name.split(":"))) for name in names], dtype=float)


def test_the_candidates_with_the_smallest_costs_are_found(candidates):
    known = candidates.names[:80]
    cost = widths(known) @ [1, 2, 3, 4, 5]
    found = screen(candidates, known, cost[:, None], np.zeros(80), 10)
    others = candidates.names[80:]
    best = sorted(others, key=lambda name: widths([name])[0] @ [1, 2, 3, 4, 5])
    assert len(found) == 10 and not set(found) & set(known)
    assert len(set(found) & set(best[:20])) >= 8


def test_with_two_costs_the_candidates_are_between_both_extremes(candidates):
    known = candidates.names[:80]
    first, second = widths(known)[:, 0], widths(known)[:, 1]
    found = widths(screen(candidates, known, np.column_stack([-first, second]), np.zeros(80), 15))
    everything = widths(candidates.names)
    assert found[:, 0].mean() > everything[:, 0].mean() + 10
    assert found[:, 1].mean() < everything[:, 1].mean() - 10


def test_candidates_like_those_that_break_constraints_come_last(candidates):
    known = candidates.names[:120]
    wide = widths(known)[:, 4]
    found = screen(candidates, known, -wide[:, None], (wide - 32).clip(min=0), 10)
    assert widths(found)[:, 4].max() <= 40


def test_excluded_and_known_candidates_are_not_returned(candidates):
    known, excluded = candidates.names[:50], candidates.names[50:390]
    costs = np.arange(50.0)[:, None]
    found = screen(candidates, known, costs, np.zeros(50), 30, excluded)
    assert sorted(found) == sorted(candidates.names[390:])
    assert screen(candidates, candidates.names, np.zeros((400, 1)), np.zeros(400), 5) == []


def test_candidates_that_all_violate_constraints_and_equal_ones_are_screened(candidates):
    known = candidates.names[:20]
    assert len(screen(candidates, known, np.ones((20, 2)), np.ones(20), 3)) == 3
    one = TableSpace(SPACE, candidates.names[:1])
    assert screen(one, one.names, np.ones((1, 1)), np.zeros(1), 3) == []
