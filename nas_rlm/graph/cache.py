"""Shared caches for graph objects.

Equal graph objects are one object, so that comparing them is fast. All caches are therefore cleared together,
and only between two networks: otherwise equal parts of one network could become different objects, and its
text would change.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ParamSpec, TypeVar, cast

MAX_CACHED_RESULTS = 1 << 17

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_caches: list[Any] = []
_tables: list[dict[Any, Any]] = []


def memoized(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return the function with an unbounded cache of its results that `clear` empties."""
    cached: Any = cache(function)
    _caches.append(cached)
    return cast("Callable[_Arguments, _Result]", cached)


def cache_table() -> dict[Any, Any]:
    """Return a new dictionary for cached results that `clear` empties."""
    table: dict[Hashable, Any] = {}
    _tables.append(table)
    return table


def clear_if_large() -> None:
    """Clear all caches if they hold more than MAX_CACHED_RESULTS results; call it before each network."""
    if num_cached() > MAX_CACHED_RESULTS:
        clear()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector within a `with` block.

    Conversion to text creates many objects but no reference cycles, so that collecting only costs time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # moves the new objects to the oldest generation, which is rarely scanned
            gc.enable()


def num_cached() -> int:
    """Return the number of results in all caches."""
    return sum([c.cache_info().currsize for c in _caches]) + sum(map(len, _tables))


def clear() -> None:
    """Empty all caches."""
    for cached in _caches:
        cached.cache_clear()
    for table in _tables:
        table.clear()
