"""Entries of a benchmark's file that are not valid: they are left out, counted and reported."""

from __future__ import annotations

import math
import pickle
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from nas_rlm.data.objective_kinds import VALID_NAME, kind_of
from nas_rlm.utils.faults import MAX_LISTED
from search_spaces.wording import counted

MAX_VALUE = 1e300  # magnitude of a number
MAX_MESSAGES = 10  # kinds of omissions that are reported one by one
MAX_REASON_CHARACTERS = 300
# What readers raise if a file or an entry of it is damaged or of another format.
READ_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError, OSError),
    *(RecursionError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError, struct.error),
)


@dataclass
class Omissions:
    """Counts of entries that were left out, with the reasons of the first ones of each kind.

    A kind is the objective whose number was left out, or the empty text for whole entries.

    Examples:
        >>> omissions = Omissions()
        >>> omissions.targets({"latency/phone": 3.5, "latency/tpu": -1}, "cell 7")
        {'latency/phone': 3.5}
        >>> omissions.messages()
        ['1 entry of latency/tpu is not valid and was left out: cell 7: -1']
    """

    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, name: str, reason: str, objective: str = "", count: int = 1) -> None:
        """Count entries that are left out.

        Args:
            name: name of the first entry.
            reason: why it is not valid.
            objective: the objective whose number is left out; empty for the whole entry.
            count: number of entries.
        """
        self.counts[objective] = self.counts.get(objective, 0) + count
        reasons = self.reasons.setdefault(objective, [])
        if len(reasons) < MAX_LISTED:
            reasons.append(_one_line(f"{name}: {reason}"))

    @contextmanager
    def skip(self, name: str, objective: str = "") -> Iterator[None]:
        """Leave out the entry that the block converts if the block raises one of `READ_ERRORS`."""
        try:
            yield
        except READ_ERRORS as error:
            self.add(name, describe_error(error), objective)

    def targets(self, values: Mapping[str, object], name: str) -> dict[str, float]:
        """Return the values that are valid, and count the others.

        Args:
            values: value of each objective in the file.
            name: name of the entry.
        """
        targets = {}
        for objective, value in values.items():
            number = to_number(value)
            is_missing = number == 0 and kind_of(objective).zero_is_missing
            if not is_storable(objective):
                self.add(name, f"{objective!r} cannot be the name of an objective", objective)
            elif number is not None and not is_missing and is_valid_target(objective, number):
                targets[objective] = number
            else:
                self.add(name, repr(value), objective)
        return targets

    def messages(self) -> list[str]:
        """Return a line for each kind of omission; the last line sums up those beyond `MAX_MESSAGES`."""
        lines = [_message(kind, count, self.reasons[kind]) for kind, count in self.counts.items()]
        if len(lines) <= MAX_MESSAGES:
            return lines
        others = list(self.counts.items())[MAX_MESSAGES:]
        total = sum(count for _, count in others)
        return [
            *lines[:MAX_MESSAGES],
            f"left out: {counted(total, 'entry', 'entries')} of {counted(len(others), 'other objective')}",
        ]

    def warn(self, stacklevel: int = 2) -> None:
        """Issue a warning for each kind of omission.

        Args:
            stacklevel: stack level of the warnings, counted from this method.
        """
        for message in self.messages():
            warnings.warn(message, stacklevel=stacklevel + 1)

    @property
    def first_reason(self) -> str:
        """The reason of the first omission; empty if there is none."""
        return next((reasons[0] for reasons in self.reasons.values()), "")


def is_storable(objective: str) -> bool:
    """Return whether a table can have an objective of this name."""
    return VALID_NAME.fullmatch(objective) is not None


def is_valid_target(objective: str, value: object) -> bool:
    """Return whether a value is a number in the objective's range, or NaN, which stands for missing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    kind = kind_of(objective)
    maximum = min(kind.maximum, kind.max_plausible, MAX_VALUE)
    return value != value or max(kind.minimum, -MAX_VALUE) <= value <= maximum


def to_number(value: object) -> float | None:
    """Return a finite number, also of a NumPy scalar or a tensor with one element; None for others."""
    if hasattr(value, "item"):
        try:
            value = value.item()
        except (RuntimeError, TypeError, ValueError):  # several elements
            return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):  # too large, or a signalling Decimal
        return None
    return number if math.isfinite(number) else None


def describe_error(error: BaseException) -> str:
    """Return the first line of an error's message, or what is missing, or the name of its type."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # of a class of a user
        lines = []
    if not lines:
        return type(error).__name__
    return f"{lines[0]} is missing" if isinstance(error, KeyError) else lines[0]


def _message(kind: str, count: int, reasons: Sequence[str]) -> str:
    """Return the line that reports the omissions of one kind."""
    of_kind = f" of {_one_line(kind)}" if kind else ""
    number = (
        f"1 entry{of_kind} is not valid and was"
        if count == 1
        else f"{count:,} entries{of_kind} are not valid and were"
    )
    num_others = count - len(reasons)
    more = f"; and {num_others:,} more" if num_others else ""
    return f"{number} left out: {'; '.join(reasons)}{more}"


def _one_line(text: str) -> str:
    """Return a text in one line of limited length."""
    line = " ".join(text.split())
    if len(line) <= MAX_REASON_CHARACTERS:
        return line
    half = MAX_REASON_CHARACTERS // 2
    return f"{line[:half]} … {line[-half:]}"
