"""Probabilities of success in an own space, by rules that networks fail by."""

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.search import success_probability
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.fidelity_surrogate import FidelitySurrogate, level_name
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from tests.nas_rlm.stubs import StubPredictor
from tests.search_spaces.plain_space import PlainSpace

SPACE = PlainSpace()
RNG = np.random.default_rng(0)
NAMES = list(dict.fromkeys(str(SPACE.sample(RNG)) for _ in range(150)))[:100]
BUDGETS = (1, 4)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(search_spaces, "_registered", {SPACE.name: SPACE})


def gene(name):
    """The last kernel is 5."""
    return SPACE.parse(name).stages[2][0] == 5


def memory(name):
    """Networks that are too large."""
    return SPACE.flops(SPACE.parse(name)) > np.quantile([SPACE.flops(SPACE.parse(n)) for n in NAMES], 0.7)


def row(name, fails):
    return Row(SPACE.name, name, {} if fails(name) else {"accuracy": 50.0 + len(name)})


def surrogate_of(names, fails):
    surrogate = OnlineSurrogate(CachedPredictor(StubPredictor(), SPACE), ["accuracy"], {})
    surrogate.update([row(name, fails) for name in names])
    return surrogate


@pytest.mark.parametrize("fails", [gene, memory])
def test_networks_that_fail_by_a_rule_become_unlikely(fails):
    known, new = NAMES[:30], NAMES[30:]
    surrogate = surrogate_of(known, fails)
    probabilities = surrogate.success_probabilities([*known, *new])
    assert probabilities[:30].tolist() == [float(not fails(name)) for name in known]
    is_right = (probabilities[30:] < 0.5) == [fails(name) for name in new]
    assert is_right.mean() > 0.85


def test_an_objective_may_have_the_name_of_the_probability():
    surrogate = OnlineSurrogate(CachedPredictor(StubPredictor(), SPACE), ["success"], {})
    rows = [
        Row(SPACE.name, n, {} if gene(n) else {"success": float(len(n) + i)})
        for i, n in enumerate(NAMES[:30])
    ]
    surrogate.update(rows)
    assert surrogate.predict_names(NAMES[30:], ["success"]).shape == (70, 1, 3)
    assert surrogate.success_probabilities(NAMES[30:]).shape == (70,)


def test_all_networks_are_certain_to_succeed_while_none_failed():
    assert surrogate_of(NAMES[:20], lambda name: False).success_probabilities(NAMES).tolist() == [1] * 100


def test_rare_failures_by_chance_exclude_few_networks():
    failed = set(RNG.choice(NAMES[:40], 4, replace=False))
    probabilities = surrogate_of(NAMES[:40], failed.__contains__).success_probabilities(NAMES[40:])
    assert (probabilities > 0.5).mean() > 0.9


def test_probabilities_depend_on_outcomes_and_not_on_when_they_are_needed(monkeypatch):
    fits = []
    original = GraphSurrogate.fit.__func__

    def counted(cls, graph_features, features, labels, *args):
        fits.append(len(labels))
        return original(cls, graph_features, features, labels, *args)

    monkeypatch.setattr(success_probability.GraphSurrogate, "fit", classmethod(counted))
    used = surrogate_of(NAMES[:12], gene)
    for name in NAMES[12:40]:
        used.success_probabilities(NAMES[40:])
        used.update([row(name, gene)])
    num_failures = sum(map(gene, NAMES[:40]))
    assert 1 < len(fits) < num_failures
    expected = surrogate_of(NAMES[:40], gene).success_probabilities(NAMES[40:])
    np.testing.assert_array_equal(used.success_probabilities(NAMES[40:]), expected)


def test_budgets_at_which_trainings_fail_are_told_apart():
    """Trainings of large networks fail with the first budget, those of the last kernel 5 with the second."""

    def rows(name):
        values = {level_name("accuracy", BUDGETS, level): 50.0 + level for level in range(2)}
        first = {key: values[key] for key in [*values][:1]}
        if memory(name):
            return [Row(SPACE.name, name, {})]
        return [Row(SPACE.name, name, first), Row(SPACE.name, name, {} if gene(name) else values)]

    surrogate = FidelitySurrogate(
        CachedPredictor(StubPredictor(), SPACE), ["accuracy"], {}, ["accuracy"], BUDGETS
    )
    surrogate.update([r for name in NAMES[:40] for r in rows(name)])
    paused = NAMES[40:50]
    surrogate.update([rows(name)[0] for name in paused])
    probabilities = dict(zip(NAMES, surrogate.success_probabilities(NAMES), strict=True))
    of_paused = [name for name in paused if not memory(name)]
    right = [(probabilities[name] < 0.5) == gene(name) for name in of_paused]
    right += [(probabilities[name] < 0.5) == (gene(name) or memory(name)) for name in NAMES[50:]]
    assert np.mean(right) > 0.8
    assert [probabilities[name] for name in NAMES[:40]] == [not (gene(n) or memory(n)) for n in NAMES[:40]]
    complete = next(name for name in NAMES[:40] if not (gene(name) or memory(name)))
    surrogate.update([Row(SPACE.name, complete, {})])  # such as of a second trial
    assert surrogate.success_probabilities([complete]).tolist() == [1]


def test_trainings_that_have_not_failed_count_while_all_others_fail_with_a_budget():
    """With the second budget all trainings of the last kernel 5 fail, and no other one was continued."""
    first, second = (level_name("accuracy", BUDGETS, level) for level in range(2))
    surrogate = FidelitySurrogate(
        CachedPredictor(StubPredictor(), SPACE), ["accuracy"], {}, ["accuracy"], BUDGETS
    )
    surrogate.update([Row(SPACE.name, name, {first: 50.0}) for name in NAMES[:40]])
    failed = [name for name in NAMES[:40] if gene(name)][:8]
    surrogate.update([Row(SPACE.name, name, {}) for name in failed])
    others = [name for name in NAMES if name not in failed]
    probabilities = dict(zip(others, surrogate.success_probabilities(others), strict=True))
    of_rule, without = (
        [p for name, p in probabilities.items() if gene(name) == kind] for kind in (True, False)
    )
    assert np.mean(of_rule) + 0.1 < np.mean(without)
    succeeded = next(name for name in others if not gene(name))
    surrogate.update([Row(SPACE.name, succeeded, {first: 50.0, second: 60.0})])
    assert surrogate.success_probabilities([succeeded, failed[0]]).tolist() == [1, 0]
