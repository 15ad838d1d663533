import gc
import weakref
from itertools import pairwise

import numpy as np
import pytest

import search_spaces
from nas_rlm.graph import cache
from nas_rlm.text import from_architecture


def test_a_result_is_one_object_until_all_are_forgotten():
    known = cache.table()

    @cache.remembered
    def pair(a, b):
        return [a, b]

    first = pair(1, 2)
    assert pair(1, 2) is first
    known["a"] = 1
    cache.forget()
    assert pair(1, 2) is not first
    assert known == {}


@pytest.mark.parametrize("name", ["nasbench101", "nasbench201", "nats_size", "nds_darts"])
def test_a_text_does_not_depend_on_what_is_remembered(name, monkeypatch):
    space, rng = search_spaces.get(name), np.random.default_rng(7)
    architectures = [space.sample(rng) for _ in range(40 if name != "nds_darts" else 4)]
    alone = []
    for a in architectures:
        cache.forget()
        alone.append(from_architecture(space, a))
    assert [from_architecture(space, a) for a in architectures] == alone
    for most in (0, 300, 1000):
        monkeypatch.setattr(cache, "MOST", most)
        assert [from_architecture(space, a) for a in reversed(architectures)] == alone[::-1]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(cache, "MOST", 1000)
    space, rng = search_spaces.get("nasbench201"), np.random.default_rng(8)
    sizes = []
    for _ in range(60):
        from_architecture(space, space.sample(rng))
        sizes.append(cache.size())
    assert max(sizes) < 3000
    assert any(b < a for a, b in pairwise(sizes))


def test_the_garbage_collector_pauses_within_and_stays_as_it_was():
    with cache.undisturbed():
        with cache.undisturbed():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_made_before_is_still_collected_and_nothing_is_frozen():
    class Loop:
        pass

    one = Loop()
    one.itself, gone = one, weakref.ref(one)
    del one
    with cache.undisturbed():
        pass
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gone() is None


def test_what_a_user_froze_stays_frozen():
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with cache.undisturbed():
            pass
        assert gc.get_freeze_count() > before // 2
    finally:
        gc.unfreeze()
