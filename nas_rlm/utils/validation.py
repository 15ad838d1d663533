"""Argument checks: lists, objective names, quantile levels; suggestions for unknown names."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

MEDIAN = (0.5,)
MIN_QUANTILE_LEVEL = 0.001  # rarer events are not learned from the training data
MAX_LISTED_NAMES = 6
MAX_SHOWN_CHARACTERS = 60  # of a value in a message


def as_list(values: Iterable[Any], argument: str) -> list[Any]:
    """Return values as a list.

    Args:
        values: iterable of values.
        argument: name of the argument, for the error message.

    Raises:
        ValueError: values is a string, a set, a table or not iterable.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{argument} is {shown(values)}: expected a list")
    if isinstance(values, set | frozenset):
        raise ValueError(f"{argument} is a set, which has no order: expected a list")
    if hasattr(values, "columns"):
        names = ", ".join(map(repr, values.columns))
        raise ValueError(f"{argument} is a table with the columns {names}: expected a list, or one column")
    return list(values)


def as_strings(values: Iterable[str], argument: str) -> list[str]:
    """Return strings as a list.

    Args:
        values: iterable of strings.
        argument: name of the argument, for the error message.

    Raises:
        ValueError: values is a string or not iterable, or a value is no string.
    """
    found = as_list(values, argument)
    for i, value in enumerate(found):
        if not isinstance(value, str):
            kind = type(value).__name__
            raise ValueError(
                f"{argument}[{i}] is {shown(value)}, of type {kind}: expected a string, such as"
                f" {_as_string(value)}"
            )
    return [str(value) for value in found]


def _as_string(value: object) -> str:
    """Return an expression of a string that a value may be replaced by, for an error message."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "'' for none"
    return "its decode()" if isinstance(value, bytes) else "json.dumps(...) of it"


def is_whole_number(value: object) -> bool:
    """Return whether a value is an integer of Python or NumPy, and not a truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_objective_name(name: str) -> bool:
    """Return whether a name can be given on a command line, such as accuracy or latency/pixel3.

    Args:
        name: the name, of words between slashes, without commas and spaces.
    """
    return all(name.split("/")) and "," not in name and not any(map(str.isspace, name))


def check_objective_names(objectives: Sequence[str]) -> None:
    """Check that objectives are a non-empty list of distinct names.

    Raises:
        ValueError: the list is empty, or a name is repeated, empty or not a string.
    """
    if isinstance(objectives, str):
        raise ValueError(
            f"objectives is the string {objectives!r}: expected a list of names, [{objectives!r}]"
        )
    if not isinstance(objectives, Sequence | np.ndarray):
        raise ValueError(f"objectives is {objectives!r}: expected a list of names")
    if len(objectives) == 0:
        raise ValueError("objectives is empty: expected names such as accuracy, latency/pixel3")
    if not all(isinstance(name, str) for name in objectives):
        raise ValueError(f"objectives is {objectives!r}: expected a list of names")
    if not all(map(str.strip, objectives)):
        raise ValueError(f"objectives is {objectives!r}, of which a name is empty")
    for name in objectives:
        if list(objectives).count(name) > 1:
            raise ValueError(f"objective {name!r} is given more than once")


def check_model_objectives(objectives: Sequence[str], model_objectives: Collection[str]) -> None:
    """Check that objectives are distinct names that a model can predict.

    Args:
        objectives: the requested objectives.
        model_objectives: objectives of the model.

    Raises:
        ValueError: a name is repeated or unknown, or there are none.
    """
    check_objective_names(objectives)
    for name in objectives:
        if name not in model_objectives:
            raise ValueError(
                f"the model does not know the objective {name!r}; {suggest(name, model_objectives)}"
            )


def quantile_levels(quantiles: Sequence[float] | None) -> tuple[float, ...]:
    """Return quantile levels as floats; only that of the median, 0.5, for None.

    Raises:
        ValueError: a level is not a number from 0.001 to 0.999, or the sequence is empty.
    """
    try:
        levels = tuple(float(q) for q in quantiles) if quantiles is not None else MEDIAN
    except (TypeError, ValueError):
        levels = ()
    if not levels or not all(MIN_QUANTILE_LEVEL <= q <= 1 - MIN_QUANTILE_LEVEL for q in levels):
        raise ValueError(
            f"quantiles is {quantiles}: expected levels from {MIN_QUANTILE_LEVEL} to"
            f" {1 - MIN_QUANTILE_LEVEL}, such as 0.1, 0.5, 0.9"
        )
    return levels


def shown(value: object, max_characters: int = MAX_SHOWN_CHARACTERS) -> str:
    """Return the start of a value's representation in one line, for a message.

    Examples:
        >>> shown("a"), shown([1, 2, 3], 4)
        ("'a'", '[1, …')

    Args:
        value: the value.
        max_characters: largest number of characters before the ellipsis.
    """
    try:
        text = repr(value)
    except Exception:  # of a user's class, whose own method may raise anything
        text = object.__repr__(value)
    text = " ".join(line.strip() for line in text.splitlines())
    return text if len(text) <= max_characters else f"{text[:max_characters]}…"


def printable(text: str) -> str:
    r"""Return a text whose control characters and line ends are blanks.

    Examples:
        >>> printable("a\x1b[31m")
        'a [31m'
    """
    return "".join(character if character.isprintable() else " " for character in text)


def listed(names: Collection[str]) -> str:
    """Return names, of many the first ones, separated by commas."""
    ellipsis = ", …" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(list(names)[:MAX_LISTED_NAMES]) + ellipsis


def suggest(name: str, valid: Collection[str]) -> str:
    """Return the end of an error message on an unknown name, which suggests similar valid names.

    Without similar ones, it lists a few valid names.

    Examples:
        >>> suggest("latency/pixel4", ["accuracy", "latency/pixel3"])
        'did you mean latency/pixel3?'
    """
    names = [known for known in dict.fromkeys(valid) if known]
    similar = get_close_matches(name, names, n=3, cutoff=0.4)
    if similar:
        return f"did you mean {', '.join(similar)}?"
    return f"known: {listed(names) or 'none'}"
