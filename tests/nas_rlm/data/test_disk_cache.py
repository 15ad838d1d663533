import pytest

from nas_rlm.data.disk_cache import MIN_CACHED_ITEMS, cached_strings


@pytest.fixture(autouse=True)
def cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("NAS_RLM_CACHE", str(tmp_path))


def test_a_long_list_is_computed_once_for_each_key():
    calls = []

    def compute():
        calls.append(None)
        return [f"item {i}" for i in range(MIN_CACHED_ITEMS)]

    first, again = (cached_strings("item", (1, "a"), MIN_CACHED_ITEMS, compute) for _ in range(2))
    assert first == again and len(calls) == 1
    cached_strings("item", (1, "b"), MIN_CACHED_ITEMS, compute)
    assert len(calls) == 2


def test_a_short_list_is_not_stored(tmp_path):
    assert cached_strings("item", 1, 2, lambda: ["a", "b"]) == ["a", "b"]
    assert not list(tmp_path.iterdir())
