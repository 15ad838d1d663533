"""Types of fields that pydantic checks, and one-line messages for values that it rejects."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral, Real
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from nas_rlm.utils.validation import suggest

NO_OTHER_KEYS = ConfigDict(extra="forbid")


def _python_number(value: object) -> object:
    """Return a number of another library, such as NumPy, as one of Python; other values as they are."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


# Strict, so that neither true nor "4" is taken for a number.
Int = Annotated[int, Field(strict=True), BeforeValidator(_python_number)]
Float = Annotated[float, Field(strict=True, allow_inf_nan=False), BeforeValidator(_python_number)]
PositiveInt = Annotated[Int, Field(ge=1)]
NonNegativeInt = Annotated[Int, Field(ge=0)]
PositiveFloat = Annotated[Float, Field(gt=0)]
NonNegativeFloat = Annotated[Float, Field(ge=0)]
Fraction = Annotated[Float, Field(ge=0, lt=1)]  # from 0 to below 1

UNKNOWN_KEY = "unexpected_keyword_argument"
MISSING_KEYS = ("missing", "missing_argument")
# What is right, in the terms of a YAML or JSON file, by pydantic's type of the error.
EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_type": "an integer",
    "invalid_key": "a text as the key",
    "less_than": "a number below {lt:g}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "string_type": "a text",
    "tuple_type": "a list",
}
MAX_VALUE_LENGTH = 80  # characters of a value in a message


def message(error: ValidationError, names: Collection[str] = ()) -> str:
    """Return one line on a rejected value: its key, the value and what would be right.

    An unknown key comes first, since a missing one is often the same key in another spelling.

    Args:
        error: error of a dataclass that pydantic checks.
        names: valid keys, from which similar ones are suggested for an unknown key; none to suggest nothing.
    """
    problems = error.errors(include_url=False)
    problem = next((p for p in problems if p["type"] == UNKNOWN_KEY), problems[0])
    key = _key_path(problem["loc"])
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == UNKNOWN_KEY:
        suggestion = f"; {suggest(str(problem['loc'][-1]), names)}" if names else ""
        return f"unknown key {key!r}{suggestion}"
    if kind in MISSING_KEYS:
        return f"{key} is missing"
    if kind == "json_invalid":
        return f"it is not JSON: {context['error']}"
    if kind == "value_error":  # of a check that several keys take part in
        return str(context["error"])
    expected = EXPECTED[kind].format(**context) if kind in EXPECTED else problem["msg"]
    return f"{key or 'it'} is {repr(problem['input'])[:MAX_VALUE_LENGTH]}: expected {expected}"


def _key_path(location: tuple[Any, ...]) -> str:
    """Return the path of a key, such as `tables[0].rows`."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location).removeprefix(".")
