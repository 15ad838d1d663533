"""Proposals of `nas_rlm.search.acquisition.active_search.propose`, on cells whose values are made up."""

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.search.acquisition import active_search, candidate_pool
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.improvement_search import (
    PROBABILITIES,
    CostDistributions,
    cost_distributions,
    select_by_improvement_and_cost,
)
from nas_rlm.search.acquisition.training_costs import relative_training_costs
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.exact_constraints import ExactConstraints
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
RNG = np.random.default_rng(11)
NAMES = list(dict.fromkeys(str(SPACE.sample(RNG)) for _ in range(90)))
MINE = "latency/mine"


class Model(StubPredictor):
    """The stub, which does not know the objectives of `mine`."""

    def predict(self, space, architectures, objectives, quantiles=(0.5,)):
        if any(name.endswith("/mine") for name in objectives):
            raise ValueError("unknown objective")
        return np.sort(super().predict(space, architectures, objectives, quantiles), axis=-1)


PREDICTOR = CachedPredictor(Model(), SPACE)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", len(NAMES))


def rows(names, objectives):
    values = Model().medians(names, ["accuracy", "latency/pixel3", "flops"]).tolist()
    by_objective = dict(zip(("accuracy", MINE, "energy/mine"), np.array(values).T, strict=True))
    return [
        Row("nasbench201", name, {o: float(by_objective[o][i]) for o in objectives})
        for i, name in enumerate(names)
    ]


def surrogate_of(names, objectives=("accuracy", MINE)):
    surrogate = OnlineSurrogate(PREDICTOR, objectives, {})
    if names:
        surrogate.update(rows(names, objectives))
    return surrogate


def propose(surrogate, settings, count, pending=(), candidates=NAMES):
    space = TableSpace(SPACE, candidates)
    pool = CandidatePool(space, settings.seed, constraints=ExactConstraints(space, settings))
    return active_search.propose(surrogate, settings, count, pending, pool)


def settings_of(objectives=("accuracy", MINE), constraints=(), seed=0):
    return SearchSettings("nasbench201", objectives, constraints, seed=seed)


def test_candidates_outside_the_first_pool_are_found_by_their_genes(monkeypatch):
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 25)
    flops = {name: float(SPACE.flops(SPACE.parse(name))) for name in NAMES}
    settings = settings_of(("energy/mine",))
    first = list(CandidatePool(TableSpace(SPACE, NAMES), settings.seed).names)
    surrogate = OnlineSurrogate(PREDICTOR, ["energy/mine"], {})
    surrogate.update([Row("nasbench201", name, {"energy/mine": flops[name]}) for name in first[:20]])
    proposed = propose(surrogate, settings, 10)
    assert set(proposed) - set(first)
    others = [name for name in NAMES if name not in first[:20]]
    assert len(set(proposed) & set(sorted(others, key=flops.__getitem__)[:15])) >= 7


@pytest.mark.parametrize("num_labels", [0, 4, 14])
@pytest.mark.parametrize(
    "objectives", [("accuracy",), ("accuracy", MINE), ("accuracy", MINE, "energy/mine")], ids=len
)
def test_as_many_new_architectures_as_asked_for(objectives, num_labels):
    labelled, pending = NAMES[:num_labels], NAMES[50:55]
    surrogate = surrogate_of(labelled, objectives)
    names = propose(surrogate, settings_of(objectives), 7, pending, NAMES[:70])
    assert len(set(names)) == len(names) == 7
    assert set(names) <= set(NAMES[:70]) - {*labelled, *pending}
    again = surrogate_of(labelled, objectives)
    assert propose(again, settings_of(objectives), 7, pending, NAMES[:70]) == names


def test_the_seed_decides_the_random_half_of_the_first_design():
    surrogate = surrogate_of([])
    first, other = (set(propose(surrogate, settings_of(seed=seed), 10, candidates=NAMES)) for seed in (0, 1))
    assert first != other


def test_the_first_design_has_architectures_that_the_model_ranks_high():
    names = propose(surrogate_of([], ["accuracy"]), settings_of(("accuracy",)), 8, candidates=NAMES)
    accuracies = Model().medians(NAMES, ["accuracy"])[:, 0]
    best = [NAMES[i] for i in np.argsort(-accuracies)[:4]]
    assert set(names[:4]) == set(best)


def test_a_first_design_of_one_at_a_time_has_as_many_random_architectures():
    accuracies = Model().medians(NAMES, ["accuracy"])[:, 0]
    best_first = [NAMES[i] for i in np.argsort(-accuracies)]
    asked = {seed: [] for seed in (0, 1)}
    for seed, pending in asked.items():
        for _ in range(8):
            surrogate, settings = surrogate_of([], ["accuracy"]), settings_of(("accuracy",), seed=seed)
            pending += propose(surrogate, settings, 1, pending, NAMES)
    for pending in asked.values():
        for i in (0, 2, 4, 6):
            left = [name for name in best_first if name not in pending[:i]]
            assert pending[i] == left[0]
    assert asked[0][1::2] != asked[1][1::2]


def test_of_equal_improvements_that_of_the_cheaper_training_comes_first():
    samples = np.tile([[[1.0], [2.0]], [[2.0], [1.0]]], (2, 1, 1))
    certain = samples.repeat(len(PROBABILITIES), axis=2)
    predicted = CostDistributions(certain, samples[:, :, 0], np.ones(4), np.zeros(4))
    known = np.array([[3.0, 3.0]])
    assert predicted.rank(2, known, np.array([1.0, 3.0, 2.0, 0.5]))[:2] == [3, 0]
    assert predicted.rank(2, known, np.array([0.5, 3.0, 0.4, 2.0]))[:2] == [2, 3]


def test_the_root_of_training_costs_counts():
    surrogate, settings = surrogate_of(NAMES[:14]), settings_of()
    names = select_by_improvement_and_cost(surrogate, settings, NAMES[14:], 5)
    costs = relative_training_costs(PREDICTOR.raw_features(NAMES[14:]))
    known = [row.arch_str for row in surrogate.successful_rows]
    predicted = cost_distributions(surrogate, settings, [*NAMES[14:], *known])
    is_new = np.arange(len(predicted.medians)) < len(NAMES) - 14
    new, measured = predicted.subset(is_new), predicted.medians[~is_new]
    assert names == [NAMES[14 + i] for i in new.rank(5, measured, np.sqrt(costs))[:5]]
    assert names != [NAMES[14 + i] for i in new.rank(5, measured)[:5]]


def test_constraints_that_nothing_meets_are_approached():
    settings = settings_of(constraints=(f"{MINE}<=0.1",))
    names = propose(surrogate_of(NAMES[:14]), settings, 6, candidates=NAMES[:70])
    assert len(names) == 6
    latencies = [row.targets[MINE] for row in rows(names, [MINE])]
    assert np.mean(latencies) < np.median([row.targets[MINE] for row in rows(NAMES[14:70], [MINE])])


def test_a_constraint_is_met_with_high_probability():
    settings = settings_of(("accuracy",), (f"{MINE}<=10",))
    names = propose(surrogate_of(NAMES[:30]), settings, 6, candidates=NAMES)
    assert np.mean([row.targets[MINE] <= 10 for row in rows(names, [MINE])]) > 0.8


def test_an_exhausted_space_gives_what_is_left():
    surrogate = surrogate_of(NAMES[:14])
    left = propose(surrogate, settings_of(), 9, candidates=NAMES[:20])
    assert sorted(left) == sorted(NAMES[14:20])
    assert propose(surrogate, settings_of(), 9, pending=NAMES[14:20], candidates=NAMES[:20]) == []


def test_predictions_of_pending_architectures_count():
    surrogate = surrogate_of(NAMES[:14])
    first = propose(surrogate, settings_of(), 1, candidates=NAMES)
    second = propose(surrogate, settings_of(), 1, pending=first, candidates=NAMES)
    assert first != second
    assert list(surrogate.measurements) == NAMES[:14]


def test_failed_architectures_are_not_proposed_again():
    surrogate = surrogate_of(NAMES[:14])
    surrogate.update([Row("nasbench201", name, {}) for name in NAMES[14:20]])
    names = propose(surrogate, settings_of(), 20, candidates=NAMES[:40])
    assert set(names) == set(NAMES[20:40])


def test_architectures_that_probably_fail_are_not_proposed():
    """Networks whose features resemble those that failed, although these are the best ones."""
    objectives = ("accuracy",)
    failing = [name for name in NAMES if name.count("nor_conv_3x3") >= 2]
    surrogate = surrogate_of([name for name in NAMES[:45] if name not in failing], objectives)
    names = propose(surrogate, settings_of(objectives), 8, candidates=NAMES[45:])
    num_before = len({*names} & {*failing})
    surrogate.update([Row("nasbench201", name, {}) for name in NAMES[:45] if name in failing])
    names = propose(surrogate, settings_of(objectives), 8, candidates=NAMES[45:])
    assert len({*names} & {*failing}) <= 1 < 4 <= num_before


def test_it_learns_what_is_good():
    objectives = ("accuracy",)
    surrogate = surrogate_of(NAMES[:12], objectives)
    for _ in range(3):
        names = propose(surrogate, settings_of(objectives), 4, candidates=NAMES)
        surrogate.update(rows(names, objectives))
    everything, proposed = (
        [row.targets["accuracy"] for row in rows(some, objectives)]
        for some in (NAMES, list(surrogate.measurements)[12:])
    )
    assert np.median(proposed) > np.quantile(everything, 0.8)
    assert max(proposed) >= sorted(everything)[-3]


def test_architectures_that_break_exact_constraints_are_left_out():
    candidates = NAMES[:24]
    flops = {name: SPACE.flops(SPACE.parse(name)) for name in candidates}
    bound = sorted(flops.values())[4]
    allowed = {name for name, value in flops.items() if value <= bound}
    settings = settings_of(constraints=(f"flops<={bound}",))
    for num_labels in (0, 12, len(candidates)):
        labelled = candidates[:num_labels]
        names = propose(surrogate_of(labelled), settings, len(candidates), candidates=candidates)
        assert set(names) == allowed - set(labelled)
