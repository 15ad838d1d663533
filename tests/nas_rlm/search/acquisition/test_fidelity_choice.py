import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.fidelity_choice import choose_next
from nas_rlm.search.acquisition.improvement_search import CostDistributions
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from tests.nas_rlm.search.test_fidelity_surrogate import NAMES, row, surrogate_of, value
from tests.nas_rlm.stubs import CELLS

SETTINGS = SearchSettings("nasbench201", ("accuracy",))
pytestmark = pytest.mark.usefixtures("whole_fits")


def test_new_architectures_come_first():
    surrogate = surrogate_of(*(row(name, 0) for name in NAMES[:3]))
    assert choose_next(surrogate, SETTINGS, [NAMES[20]]) not in NAMES[:3]


def test_successive_halving_needs_no_surrogate():
    surrogate = surrogate_of(*(row(name, 0) for name in NAMES[:4]))
    assert not surrogate.is_ready
    assert choose_next(surrogate, SETTINGS) == max(NAMES[:4], key=lambda name: value(name, 1))


def test_trainings_with_the_full_budget_at_once_are_learned_and_are_in_no_rung():
    added = [Row("nasbench201", name, {"accuracy": value(name, 16)}) for name in NAMES[20:40]]
    surrogate = surrogate_of(*(row(name, 0) for name in NAMES[:12]), *added[:9])
    assert choose_next(surrogate, SETTINGS) in NAMES[:12]
    surrogate.update(added[9:])
    assert surrogate.predicts_full_budget
    assert choose_next(surrogate, SETTINGS) not in NAMES[20:40]


def test_successive_halving_continues_the_best_share_of_each_budget():
    names = sorted(NAMES[:16], key=lambda name: -value(name, 1))
    surrogate = surrogate_of(*(row(name, 0) for name in names))
    chosen = []
    for _ in range(4):  # a quarter of 16
        chosen.append(choose_next(surrogate, SETTINGS))
        surrogate.update([row(chosen[-1], 1)])
    assert set(chosen[:4]) == set(names[:4])
    best = max(chosen, key=lambda name: value(name, 4))
    assert choose_next(surrogate, SETTINGS) == best  # one of four goes on to the full budget
    assert choose_next(surrogate, SETTINGS, [best]) not in names
    surrogate.update([row(best, 2)])
    assert choose_next(surrogate, SETTINGS) not in names


def test_the_largest_expected_improvement_for_the_remaining_cost_is_continued():
    best, *others = sorted(NAMES, key=lambda name: -value(name, 16))
    complete, paused = others[1::3], [best, *others[::3]]
    surrogate = surrogate_of(*(row(name, 2) for name in complete), *(row(name, 1) for name in paused))
    assert choose_next(surrogate, SETTINGS) == best
    assert choose_next(surrogate, SETTINGS, [best]) != best
    surrogate.update([Row("nasbench201", best, {})])
    assert choose_next(surrogate, SETTINGS) != best


def test_bad_paused_architectures_are_left_for_new_ones():
    ranked = sorted(NAMES[:50], key=lambda name: -value(name, 16))
    surrogate = surrogate_of(*(row(name, 2) for name in ranked[:20]), *(row(name, 1) for name in ranked[20:]))
    assert choose_next(surrogate, SETTINGS) not in ranked


def test_new_architectures_are_tried_where_no_improvement_is_expected(monkeypatch):
    monkeypatch.setattr(CostDistributions, "improvement", lambda self, *_: np.zeros(len(self.medians)))
    surrogate = surrogate_of(*(row(name, 2) for name in NAMES[:20]), *(row(name, 1) for name in NAMES[20:40]))
    paused, *_, new = sorted(NAMES[40:], key=lambda name: value(name, 16))
    surrogate.update([Row("nasbench201", paused, {"accuracy/budget1": 99.0})])
    pool = CandidatePool(TableSpace(CELLS, [*NAMES[:40], paused, new]))
    assert choose_next(surrogate, SETTINGS, pool=pool) == new


def test_several_objectives_are_ranked_by_hypervolume():
    settings = SearchSettings("nasbench201", ("accuracy", "flops"))
    surrogate = surrogate_of(*(row(name, 0) for name in NAMES[:16]))
    first = choose_next(surrogate, settings)
    assert first in NAMES[:16]
    surrogate.update([row(first, 1)])
    second = choose_next(surrogate, settings)
    assert second in NAMES[:16] and second != first
    costs = np.array(
        [[-value(n, 1), surrogate.cached_predictor.raw_features([n])[0]["flops"]] for n in NAMES[:16]]
    )
    dominated = [(costs <= c).all(1).sum() > 1 for c in costs]
    assert not dominated[NAMES.index(first)] and not dominated[NAMES.index(second)]


def test_paused_architectures_go_on_where_there_is_no_new_one():
    names = sorted(NAMES[:4], key=lambda name: -value(name, 1))
    surrogate, pool = surrogate_of(*(row(name, 0) for name in names)), CandidatePool(TableSpace(CELLS, names))
    finished = []
    while chosen := choose_next(surrogate, SETTINGS, pool=pool):
        surrogate.update([row(chosen, surrogate.levels[chosen] + 1)])
        finished += [chosen] if surrogate.levels[chosen] == 2 else []
    assert sorted(finished) == sorted(names)
    assert finished[0] == names[0]


def test_only_given_paused_architectures_are_continued():
    surrogate = surrogate_of(*(row(name, 0) for name in NAMES[:8]))
    pool = CandidatePool(TableSpace(CELLS, NAMES[:2]))
    chosen = choose_next(surrogate, SETTINGS, pool=pool, among=NAMES[:2])
    assert chosen in NAMES[:2]
    assert choose_next(surrogate, SETTINGS, NAMES[:2], pool, NAMES[:2]) is None
