import numpy as np
import pytest

import search_spaces
from nas_rlm.search.acquisition import candidate_pool
from nas_rlm.search.acquisition.candidate_pool import (
    CHILDREN_PER_ARCHITECTURE,
    MIN_CHILDREN,
    NUM_RANDOM,
    CandidatePool,
)
from nas_rlm.search.table_space import TableSpace
from tests.search_spaces.plain_space import PlainSpace

SPACE = search_spaces.get("nasbench201")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    monkeypatch.setattr(candidate_pool, "MAX_POOL_SIZE", 50)


def draw(count):
    rng = np.random.default_rng(7)
    return list(dict.fromkeys(str(SPACE.sample(rng)) for _ in range(count)))


def test_a_pool_starts_with_random_architectures_of_its_seed():
    first, again, other = (list(CandidatePool(SPACE, seed).names) for seed in (0, 0, 1))
    assert first == again != other
    assert len(set(first)) == 40


def test_children_differ_from_a_parent_in_one_gene():
    parent, pool = draw(1)[0], CandidatePool(SPACE)
    pool.add_children([parent], 3)
    genome = SPACE.encode(SPACE.parse(parent))
    assert len(pool.added) == MIN_CHILDREN + 3 * CHILDREN_PER_ARCHITECTURE
    assert all((SPACE.encode(SPACE.parse(name)) != genome).sum() == 1 for name in pool.added)


def test_a_pool_that_is_made_again_grows_in_the_same_way():
    parents, once = draw(3), CandidatePool(SPACE, 5)
    again = CandidatePool(SPACE, 5)
    for _ in range(4):
        for pool in (once, again):
            pool.grow()
            pool.add_children(parents, 1)
        again = CandidatePool(SPACE, 5, again.added)
    assert once.added == again.added
    assert len(once.added) == 4 * (NUM_RANDOM + MIN_CHILDREN + CHILDREN_PER_ARCHITECTURE)


def test_excluded_architectures_are_no_candidates_and_the_last_ones_are_kept():
    pool = CandidatePool(SPACE)
    first = list(pool.names)
    assert pool.candidates(first[:10], 5) == first[10:]
    added = [name for name in draw(90) if name not in pool.names][:40]
    pool.add(added)
    assert pool.candidates(added[:1], 5) == [*first[-11:], *added[1:]]


def test_nothing_is_drawn_of_a_table_whose_architectures_are_all_known(monkeypatch):
    names = draw(30)
    pool = CandidatePool(TableSpace(SPACE, names))
    assert set(pool.names) == set(names)
    drawn = []
    monkeypatch.setattr(TableSpace, "sample", lambda *_: drawn.append("sample"))
    monkeypatch.setattr(TableSpace, "mutate", lambda *_: drawn.append("mutation"))
    pool.grow()
    pool.add_children(names[:3], 4)
    assert not drawn and set(pool.names) == set(names)


def test_missing_architectures_are_enumerated_until_none_is_left():
    names = draw(60)
    pool = CandidatePool(TableSpace(SPACE, names))
    assert len(pool.candidates(names[:50], 8)) == 8
    assert sorted(pool.candidates(names[:50], 100)) == sorted(names[50:])
    assert pool.candidates(names, 5) == []
    assert len(CandidatePool(SPACE).candidates([], 16_000)) == SPACE.size


def test_texts_are_parsed_once_to_check_their_networks(monkeypatch):
    parse, parsed = PlainSpace.parse, []
    monkeypatch.setattr(PlainSpace, "parse", lambda self, text: parsed.append(text) or parse(self, text))
    pool = CandidatePool(PlainSpace(), names=["1x16 1x16 5x64"])
    assert "1x16 1x16 5x64" in pool.candidates((), 1) == pool.candidates((), 1)
    assert parsed in ([], ["1x16 1x16 5x64"])  # those that were drawn are not parsed
