import numpy as np

import search_spaces
from nas_rlm.search.candidate_pool import CandidatePool
from nas_rlm.search.lookup import TableSpace

SPACE = search_spaces.get("nasbench201")


def draw(count):
    rng = np.random.default_rng(7)
    return list(dict.fromkeys(str(SPACE.sample(rng)) for _ in range(count)))


def test_random_architectures_are_new():
    excluded = draw(20)
    pool = CandidatePool(SPACE, excluded, np.random.default_rng(7))  # draws the excluded ones first
    pool.add_random(10)
    assert len(pool.names) == 10 and not set(excluded) & pool.names.keys()


def test_children_differ_from_a_parent_in_one_gene():
    parent = draw(1)[0]
    pool = CandidatePool(SPACE, [parent], np.random.default_rng(0))
    pool.add_children([parent], 8)
    genome = SPACE.encode(SPACE.parse(parent))
    assert len(pool.names) == 8
    assert all((SPACE.encode(SPACE.parse(name)) != genome).sum() == 1 for name in pool.names)


def test_missing_architectures_are_enumerated_until_none_is_left():
    names = draw(30)
    pool = CandidatePool(TableSpace(SPACE, names), names[:10], np.random.default_rng(0))
    pool.add_missing(5)
    assert list(pool.names) == names[10:15]
    pool.add_missing(100)
    assert list(pool.names) == names[10:]
    full = CandidatePool(SPACE, [], np.random.default_rng(0))
    full.add_missing(16_000)
    assert len(full.names) == SPACE.size


def test_architectures_outside_of_the_candidates_are_not_added():
    names = draw(12)
    pool = CandidatePool(TableSpace(SPACE, names[:6]), [names[0]], np.random.default_rng(0))
    pool.add(names)
    assert list(pool.names) == names[1:6]
