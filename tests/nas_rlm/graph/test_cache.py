import gc
import weakref
from itertools import pairwise

import numpy as np
import pytest

import search_spaces
from nas_rlm.graph import cache
from nas_rlm.text import from_architecture


def test_equal_results_are_one_object_until_caches_are_cleared():
    table = cache.cache_table()

    @cache.memoized
    def pair(a, b):
        return [a, b]

    first = pair(1, 2)
    assert pair(1, 2) is first
    table["a"] = 1
    cache.clear()
    assert pair(1, 2) is not first
    assert table == {}


@pytest.mark.parametrize("name", ["nasbench101", "nasbench201", "nats_size", "nds_darts"])
def test_text_does_not_depend_on_cached_results(name, monkeypatch):
    space, rng = search_spaces.get(name), np.random.default_rng(7)
    architectures = [space.sample(rng) for _ in range(12 if name != "nds_darts" else 4)]
    alone = []
    for a in architectures:
        cache.clear()
        alone.append(from_architecture(space, a))
    assert [from_architecture(space, a) for a in architectures] == alone
    for max_results in (0, 300, 500):
        monkeypatch.setattr(cache, "MAX_CACHED_RESULTS", max_results)
        assert [from_architecture(space, a) for a in reversed(architectures)] == alone[::-1]


def test_size_of_caches_is_bounded(monkeypatch):
    monkeypatch.setattr(cache, "MAX_CACHED_RESULTS", 1000)
    space, rng = search_spaces.get("nasbench201"), np.random.default_rng(8)
    sizes = []
    for _ in range(60):
        from_architecture(space, space.sample(rng))
        sizes.append(cache.num_cached())
    assert max(sizes) < 3000
    assert any(b < a for a, b in pairwise(sizes))


def test_garbage_collector_is_paused_and_restored():
    with cache.gc_paused():
        with cache.gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_earlier_objects_are_collected_and_nothing_is_frozen():
    class Loop:
        pass

    one = Loop()
    one.itself, gone = one, weakref.ref(one)
    del one
    with cache.gc_paused():
        pass
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gone() is None


def test_objects_frozen_by_the_user_stay_frozen():
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with cache.gc_paused():
            pass
        assert gc.get_freeze_count() > before // 2
    finally:
        gc.unfreeze()
