"""Checks of the labels that a model is fine-tuned on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from nas_rlm.data.objective_kinds import LATENCY_PREFIX, expected_value, unit_warnings
from nas_rlm.data.omissions import is_valid_target
from nas_rlm.data.rows import Row
from nas_rlm.model.numbers import NumberScheme
from nas_rlm.utils.validation import listed, shown, suggest
from search_spaces.wording import counted

MAX_ROUNDING_ERROR = 0.1  # of the numbers that the model writes, in standard deviations of the values


class TooFewLabelsError(ValueError):
    """Objectives of spaces have too few labels to be learnt.

    Args:
        counts: numbers of labels, by space and objective.
        minimum: the number that is needed.
        reason: why, as the end of the message.
    """

    def __init__(self, counts: Mapping[tuple[str, str], int], minimum: int, reason: str = "") -> None:
        self.counts = dict(counts)
        found = [
            f"{counted(count, 'label')} of {name} for {space or 'networks without a space'}"
            for (space, name), count in self.counts.items()
        ]
        super().__init__(f"{listed(found)}: expected at least {minimum}{reason}")


def select_rows(rows: Sequence[Row], objectives: Sequence[str]) -> list[Row]:
    """Return the rows that have one of the objectives, without other objectives.

    Raises:
        ValueError: there are no rows, or none has one of the objectives.
    """
    if not rows:
        raise ValueError("there are no rows to learn from: expected one for each measured network")
    for row in rows:
        _check_values(row, objectives)
    measured = dict.fromkeys(name for row in rows for name in row.targets if row.is_measured(name))
    for name in objectives:
        is_latency = name.startswith(LATENCY_PREFIX)
        if name not in measured:
            raise ValueError(
                f"none of {counted(len(rows), 'row')} has a value for {name}"
                f"{' above 0 ms' if is_latency else ''}; {suggest(name, measured)}"
            )
        ignored = sum(name in row.targets and not row.is_measured(name) for row in rows)
        if ignored:
            warnings.warn(
                f"{ignored:,} of {counted(len(rows), 'value')} of {name} {'is' if ignored == 1 else 'are'}"
                f" left out: not finite{' or 0 ms; write more digits of rounded ones' if is_latency else ''}",
                stacklevel=4,
            )
    others = [name for name in objectives if not name.startswith(LATENCY_PREFIX)]  # see `check_plausible`
    columns = {name: [row.targets[name] for row in rows if row.is_measured(name)] for name in others}
    for message in unit_warnings(columns):
        warnings.warn(message, stacklevel=4)
    selected = [row.select(objectives) for row in rows]
    return [row for row in selected if any(row.is_measured(name) for name in row.targets)]


def _check_values(row: Row, objectives: Sequence[str]) -> None:
    """Refuse values that are no numbers, or out of the range of their objective.

    Raises:
        ValueError: a value is such a one.
    """
    for name in objectives:
        value = row.targets.get(name, math.nan)
        number = value.item() if isinstance(value, np.generic) else value
        is_infinite = isinstance(number, float) and math.isinf(number)
        if not is_infinite and not is_valid_target(name, number):
            raise ValueError(
                f"{name} of {shown(row.identifier or row.arch_str or row.input)} is {shown(value)}, expected"
                f" {expected_value(name)}"
            )


def check_representable(objective: str, rows: Sequence[Row], scheme: NumberScheme) -> None:
    """Refuse values that are too large for the model's numbers, or whose differences their digits lose.

    Args:
        objective: the objective.
        rows: labelled rows.
        scheme: the scheme in which the model writes numbers.

    Raises:
        ValueError: the values are too large, too small or too close to each other.
    """
    measured = [row for row in rows if row.is_measured(objective)]
    values = np.array([row.targets[objective] for row in measured])
    written = np.array([scheme.decode(scheme.encode(value)) for value in values])
    error = float(np.sqrt(np.mean(np.square(written - values))))
    if error <= MAX_ROUNDING_ERROR * values.std() or np.ptp(values) == 0:
        return
    largest = scheme.decode(scheme.encode(np.inf))
    if (count := int(np.sum(np.abs(values) > largest))) > 0:
        row = measured[np.argmax(np.abs(values))]
        raise ValueError(
            f"{counted(count, 'value')} of {objective} {'is' if count == 1 else 'are'} beyond {largest:g},"
            f" the largest number that the model writes, up to {row.targets[objective]:.10g} of"
            f" {shown(row.identifier or row.arch_str or row.input)}: expected another unit, or rows without"
            " wrong values"
        )
    smallest = 10.0 ** (scheme.mantissa_digits - 1 - scheme.max_exponent)
    raise ValueError(
        f"values of {objective} from {values.min():.10g} to {values.max():.10g} lose their differences"
        f" where they are rounded to {scheme.mantissa_digits} digits between {smallest:g} and"
        f" {largest:g}: subtract a constant or use another unit"
    )
