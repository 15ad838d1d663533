"""Values that an evaluation gave: those of its objectives, and additional numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from nas_rlm.data.objective_kinds import LATENCY_PREFIX, expected_value
from nas_rlm.data.omissions import is_storable, is_valid_target, to_number
from nas_rlm.utils.validation import is_whole_number, shown

if TYPE_CHECKING:
    from nas_rlm.study.settings import StudySettings

MIN_SIMILARITY = 0.4  # of a name that may be meant as an objective
MAX_SHOWN_CHARACTERS = 200  # of all values in a message


class NotFiniteError(ValueError):
    """A value is infinite or NaN, as of a training that diverged."""


class WrongValuesError(ValueError):
    """An evaluation gave something other than a number for each objective: its function is wrong."""


@dataclass(frozen=True)
class GivenValues:
    """Values that an evaluation gave.

    Args:
        objectives: value of each objective that it has to give.
        additional: further finite numbers by name, which are kept and are no objectives.
        ignored: names of further values that are not kept.
    """

    objectives: dict[str, float] = field(default_factory=dict)
    additional: dict[str, float] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> dict[str, float]:
        """All numbers by name."""
        return {**self.objectives, **self.additional}


def given_values(
    settings: StudySettings, values: object, complete: bool, source: str = "the evaluation"
) -> GivenValues:
    """Return values that an evaluation gave, as numbers by name.

    Args:
        settings: settings of the study.
        values: a mapping from names to numbers, or a number where there is a single objective to give.
        complete: whether all objectives of `settings.evaluated` have to be there.
        source: what gave the values, for messages.

    Raises:
        WrongValuesError: an objective is missing, or a value of one is not a number.
        NotFiniteError: a value of an objective is infinite or NaN.
        ValueError: a number is not in the range of its objective.
    """
    names = settings.evaluated
    if not isinstance(values, Mapping):
        if len(names) != 1:
            expected = f"a mapping with {' and '.join(names)}" if names else "no value"
            raise WrongValuesError(f"{source} gave {shown(values)}, expected {expected}")
        values = {names[0]: values}
    given = f"{source} gave {shown(dict(values), MAX_SHOWN_CHARACTERS)}"
    if complete and (missing := [name for name in names if name not in values]):
        raise WrongValuesError(
            f"{given}, expected {' and '.join(names)}:"
            f" {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            + _renaming(missing, [str(name) for name in values if name not in names])
        )
    objectives = {
        name: checked_value(name, values[name], f"{given}, and ") for name in names if name in values
    }
    others = {str(name): value for name, value in values.items() if name not in objectives}
    additional = {
        name: number
        for name, value in others.items()
        if name not in settings.search.all_objectives
        and is_storable(name)
        and (number := to_number(value)) is not None
    }
    ignored = [name for name in others if name not in additional]
    return GivenValues(objectives, additional, ignored)


def step_values(settings: StudySettings, step: int, values: object) -> tuple[int, dict[str, float]]:
    """Return a step that an evaluation reports, and its values as numbers by name.

    Raises:
        WrongValuesError: a value of an objective is not a number.
        ValueError: the step is not a whole number, or a value is infinite, NaN or out of range.
    """
    if not is_whole_number(step):
        raise ValueError(f"step is {step!r}, expected a whole number")
    return int(step), given_values(settings, values, complete=False, source="trial.report").numbers


def _renaming(missing: list[str], given: list[str]) -> str:
    """The end of a message that says which names are near to missing ones; empty if none is."""
    pairs = [(name, get_close_matches(name, given, 1, MIN_SIMILARITY)) for name in missing]
    renamed = [f"rename {near[0]!r} to {name!r}" for name, near in pairs if near]
    return f"; {', '.join(renamed)}" if renamed else ""


def checked_value(objective: str, value: object, prefix: str = "") -> float:
    """Return a value of an objective as a number.

    Args:
        objective: name of the objective.
        value: the value.
        prefix: start of the message about a value that is no number.

    Raises:
        WrongValuesError: it is not a number.
        NotFiniteError: it is infinite or NaN.
        ValueError: it is not in the range of the objective.
    """
    number = to_number(value)
    reason = f"{objective} is {shown(value)}, expected {expected_value(objective)}"
    if number is None:
        raise NotFiniteError(reason) if _is_not_finite(value) else WrongValuesError(prefix + reason)
    if not is_valid_target(objective, number):
        raise ValueError(reason)
    check_latency(objective, number)
    return number


def check_latency(objective: str, value: float) -> None:
    """Refuse a latency of zero, which tables and surrogates take for a value that is missing.

    Raises:
        ValueError: the value is one.
    """
    if objective.startswith(LATENCY_PREFIX) and value <= 0:
        raise ValueError(f"{objective} is {value:.3g} ms, which counts as not measured: expected one above 0")


def _is_not_finite(value: object) -> bool:
    """Whether a value is a number, but infinite or NaN."""
    try:
        return not math.isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False
