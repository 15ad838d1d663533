import numpy as np
import pytest

import search_spaces
from nas_rlm.search.acquisition import candidate_pool
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.exact_constraints import ExactConstraints, exact_values
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace

SPACE = search_spaces.get("nasbench201")
RNG = np.random.default_rng(7)
NAMES = list(dict.fromkeys(str(SPACE.sample(RNG)) for _ in range(40)))
FLOPS = {name: SPACE.flops(SPACE.parse(name)) for name in NAMES}


def constraints(*texts, space=SPACE):
    return ExactConstraints(space, SearchSettings("nasbench201", ("accuracy",), texts))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    monkeypatch.setattr(candidate_pool, "MIN_ALLOWED", 20)
    monkeypatch.setattr(candidate_pool, "MAX_CHECKED", 150)


def test_a_constraint_is_met_where_the_exact_value_is():
    bound = float(np.median(list(FLOPS.values())))
    upper, lower = constraints(f"flops<={bound}"), constraints(f"flops@0.9>={bound}")
    assert [upper.is_met(name) for name in NAMES] == [FLOPS[name] <= bound for name in NAMES]
    assert [lower.is_met(name) for name in NAMES] == [FLOPS[name] >= bound for name in NAMES]
    assert upper.violation(max(NAMES, key=FLOPS.get)) == max(FLOPS.values()) / bound - 1
    assert not constraints("accuracy>=60", "latency/pixel3<=3") and upper
    cell = SPACE.parse(NAMES[0])
    assert exact_values(SPACE, cell, ["accuracy", "params"]) == {"params": SPACE.params(cell)}


def test_a_refusal_names_the_constraint_and_the_best_value_that_was_seen():
    for text, extreme, word in (("flops<=1", min, "smallest"), ("flops>=1e12", max, "largest")):
        unmet = constraints(text)
        assert not any(map(unmet.is_met, NAMES))
        assert unmet.refusal() == (
            f"none of {len(NAMES)} architectures of nasbench201 that were examined meets {unmet}: the {word}"
            f" flops is {extreme(FLOPS.values()):,}"
        )
    both = constraints(f"flops<={min(FLOPS.values())}", "params>=8e5")
    assert not any(map(both.is_met, NAMES))
    assert "each is met alone, and the nearest one to all has flops " in both.refusal()


@pytest.mark.parametrize("texts", [["flops<=1.2e7"], ["flops<=1.5e7", "params>=8e4"], ["params>=1e6"]])
def test_a_pool_has_architectures_that_meet_constraints_alone(texts):
    allowed = constraints(*texts)
    pool = CandidatePool(SPACE, 3, constraints=allowed)
    first = list(pool.names)
    assert first and all(map(allowed.is_met, first))
    found = pool.candidates(first[:-1], 4)
    pool.grow()
    pool.add_children(first, 2)
    assert found and all(map(allowed.is_met, [*found, *pool.names]))
    again = CandidatePool(SPACE, 3, pool.added, constraints(*texts))
    assert list(again.names) == list(pool.names)


def test_the_first_of_given_architectures_that_meet_constraints_are_added(monkeypatch):
    monkeypatch.setattr("nas_rlm.search.acquisition.candidate_pool.FIRST_POOL_SIZE", 1)
    allowed = constraints(f"flops<={sorted(FLOPS.values())[len(FLOPS) // 2]}")
    pool = CandidatePool(TableSpace(SPACE, NAMES), constraints=allowed)
    first = list(pool.names)
    pool.add_allowed(NAMES, 4)
    assert [*pool.names][len(first) :] == [n for n in NAMES if allowed.is_met(n) and n not in first][
        : len(pool.added)
    ]
    assert 3 <= len(pool.added) <= 4


def test_given_candidates_that_meet_constraints_are_all_found():
    allowed = constraints(f"flops<={sorted(FLOPS.values())[4]}")
    pool = CandidatePool(TableSpace(SPACE, NAMES), constraints=allowed)
    expected = [name for name in NAMES if allowed.is_met(name)]
    assert 5 <= len(expected) < 10
    assert sorted(pool.candidates((), 30)) == sorted(expected)
    assert not CandidatePool(TableSpace(SPACE, NAMES), constraints=constraints("flops<=1")).candidates((), 1)


def test_the_search_for_architectures_that_meet_constraints_ends():
    unmet = constraints("flops<=1")
    pool = CandidatePool(SPACE, constraints=unmet)
    assert pool.candidates((), 1) == [] and not pool.names
    pool.grow()
    pool.add_children(NAMES[:3], 2)
    assert not pool.names
