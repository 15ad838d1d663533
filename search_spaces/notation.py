"""What the notations of spaces have in common: JSON of a bounded size, and whole numbers in their bounds."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Any, TypeGuard

LONGEST = 20_000  # characters of an architecture


def read_json(text: str, expected: str, keys: Collection[str] | None = None) -> Any:
    """What a text in JSON holds.

    >>> read_json('{"d": [2, 3]}', "JSON with d")
    {'d': [2, 3]}

    Args:
        text: of one architecture.
        expected: what it should be, for messages.
        keys: what its objects may hold, at any depth; None for anything.

    Raises:
        ValueError: it is too long, nested too deeply or not JSON, it has a number that is not finite, or a
            key that is unknown or there twice; the message says what was expected.
    """
    strange: list[str] = []

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                strange.append(f"{name!r} twice")
            elif keys is not None and name not in keys:
                strange.append(f"{name!r}, where only {', '.join(keys)} are known")
            found[name] = value
        return found

    try:
        if len(text) > LONGEST:
            raise ValueError
        content = json.loads(text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=checked)
    except (ValueError, RecursionError):
        raise ValueError(f"{shown(text)} is not {expected}") from None
    if strange:
        raise ValueError(f"{shown(text)} has {strange[0]}; expected {expected}")
    return content


def shown(text: str) -> str:
    """A text in quotes, its middle left out where it is long."""
    return repr(text if len(text) <= 600 else f"{text[:400]} … {text[-100:]}")


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Whether a value is an integer in its bounds; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value
