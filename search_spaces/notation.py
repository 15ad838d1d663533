"""What the notations of spaces have in common: JSON of a bounded size, and whole numbers in their bounds."""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard

LONGEST = 20_000  # characters of an architecture


def read_json(text: str, expected: str) -> Any:
    """What a text in JSON holds.

    >>> read_json('{"d": [2, 3]}', "JSON with d")
    {'d': [2, 3]}

    Raises:
        ValueError: it is too long, nested too deeply or not JSON, or it has a number that is not finite; the
            message says what was expected.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise ValueError(f"{shown(text)} is not {expected}") from None


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
