"""What networks have in common is made once and remembered.

Equal parts of graphs are one object, so that comparing them is quick. What is remembered is therefore
forgotten all at once and between two networks: were some of it dropped alone, equal parts of a network could
be different objects, and its text another one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ParamSpec, TypeVar, cast

MOST = 1 << 17  # results

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_caches: list[Any] = []
_tables: list[dict[Any, Any]] = []


def remembered(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The same function, whose results are kept by its arguments."""
    cached: Any = cache(function)
    _caches.append(cached)
    return cast("Callable[_Arguments, _Result]", cached)


def table() -> dict[Any, Any]:
    """A dictionary that is forgotten with the rest."""
    made: dict[Hashable, Any] = {}
    _tables.append(made)
    return made


def tidy() -> None:
    """Forget everything, if it has become much; to be called before a network is looked at."""
    if size() > MOST:
        forget()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within it the garbage collector pauses: texts make many objects, none of which refers to itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # what was made is old at once, so that it is not looked at again and again
            gc.enable()


def size() -> int:
    """So many results are remembered."""
    return sum([c.cache_info().currsize for c in _caches]) + sum(map(len, _tables))


def forget() -> None:
    """Forget everything."""
    for cached in _caches:
        cached.cache_clear()
    for known in _tables:
        known.clear()
