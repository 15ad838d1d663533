"""Shared helpers for the notations of spaces: JSON of limited size, and integers in a range."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any, TypeGuard

MAX_CHARACTERS = 20_000  # of the text of an architecture


def read_json(text: str, expected: str, keys: Collection[str] | None = None) -> Any:
    """Parse the JSON text of an architecture.

    Examples:
        >>> read_json('{"d": [2, 3]}', "JSON with d")
        {'d': [2, 3]}

    Args:
        text: text of one architecture.
        expected: description of a valid text, for error messages.
        keys: allowed keys of objects, at any depth; None allows all.

    Raises:
        ValueError: the text is too long, nested too deeply or not JSON, or it has an infinite number or an
            unknown or duplicate key.
    """
    problems: list[str] = []

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        parsed: dict[str, Any] = {}
        for name, value in pairs:
            if name in parsed:
                problems.append(f"the duplicate key {name!r}")
            elif keys is not None and name not in keys:
                problems.append(f"the unknown key {name!r}, not one of {', '.join(keys)}")
            parsed[name] = value
        return parsed

    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError
        content = json.loads(
            text, parse_float=_parse_finite, parse_constant=_parse_finite, object_pairs_hook=unique_keys
        )
    except (ValueError, RecursionError):
        raise ValueError(f"{abbreviated(text)} is not {expected}") from None
    if problems:
        raise ValueError(f"{abbreviated(text)} has {problems[0]}; expected {expected}")
    return content


def abbreviated(text: str) -> str:
    """Return a text in quotes; of a long text, only its start and end."""
    return repr(text if len(text) <= 600 else f"{text[:400]} … {text[-100:]}")


def most_similar(name: object, names: Iterable[str]) -> str:
    """Return the name that is most similar to an unknown one, for error messages."""
    return get_close_matches(str(name), list(names), n=1, cutoff=0)[0]


def is_int_between(value: object, minimum: int, maximum: int) -> TypeGuard[int]:
    """Return True if a value is an integer in a range; booleans are no integers."""
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _parse_finite(text: str) -> float:
    """Return the number of a JSON literal; raise a ValueError if it is infinite or NaN."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value
