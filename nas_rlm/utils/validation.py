"""Checks of arguments: lists, objective names, quantile levels; suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

MEDIAN = (0.5,)
LEAST_LEVEL = 0.001  # what is rarer than that, no training tells
SHOWN = 6


def listed(values: Iterable[Any], what: str) -> list[Any]:
    """Values as a list, unless they are a text or a single thing."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{what} is {str(values)[:60]!r}: expected a list of them")
    return list(values)


def check_names(objectives: Sequence[str]) -> None:
    """Refuse what is no list of different names."""
    if isinstance(objectives, str):
        raise ValueError(f"objectives is the text {objectives!r}: expected a list of names, [{objectives!r}]")
    if not objectives:
        raise ValueError("no objectives asked for: expected names such as accuracy, latency/pixel3")
    if not isinstance(objectives, Sequence) or not all(isinstance(name, str) for name in objectives):
        raise ValueError(f"objectives is {objectives!r}: expected a list of names")
    for name in objectives:
        if list(objectives).count(name) > 1:
            raise ValueError(f"objective {name!r} is given more than once")


def levels_of(quantiles: Sequence[float] | None) -> tuple[float, ...]:
    """Levels that are asked for, the median alone if there are none."""
    try:
        levels = tuple(float(q) for q in quantiles) if quantiles is not None else MEDIAN
    except (TypeError, ValueError):
        levels = ()
    if not levels or not all(LEAST_LEVEL <= q <= 1 - LEAST_LEVEL for q in levels):
        raise ValueError(
            f"quantiles {quantiles} are not levels between {LEAST_LEVEL} and {1 - LEAST_LEVEL}:"
            " expected levels such as 0.1, 0.5, 0.9"
        )
    return levels


def hint(name: str, known: Collection[str]) -> str:
    """The nearest known names, or else some of them.

    >>> hint("latency/pixel4", ["accuracy", "latency/pixel3"])
    'did you mean latency/pixel3?'
    """
    known = dict.fromkeys(known)
    near = get_close_matches(name, known, n=3, cutoff=0.4)
    if near:
        return f"did you mean {', '.join(near)}?"
    more = ", …" if len(known) > SHOWN else ""
    return f"known: {', '.join(list(known)[:SHOWN]) or 'none'}{more}"
