"""Texts with values of any targets: numbers, missing values, infinity and failures."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas_rlm.utils.faults import Faults
from nas_rlm.utils.validation import as_list, as_strings, check_objective_names, shown
from search_spaces.wording import counted

DEFAULT_OBJECTIVE = "y"
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")  # of files with texts and values
JSON_SUFFIX = ".json"  # of files that are refused, since JSON lines are meant
FAILURE_PREFIX = "failed/"  # of the objective that is 1 where a target failed and 0 where it has a value
# Words for a value that is not known, in lower case.
MISSING = ("", "na", "n/a", "nan", "none", "null", "-", "#n/a", "<na>")
MINUS_SIGNS = ("\N{MINUS SIGN}", "\N{EN DASH}")  # of typesetting, which no number has
FAILURES = (  # words for a value that cannot exist, in lower case
    *("failed", "failure", "fail", "error", "crash", "crashed", "timeout", "oom", "diverged", "invalid"),
)
BOOLEANS = {"true": 1.0, "false": 0.0}
MIN_ROWS = 2


@dataclass(frozen=True)
class TextData:
    """Texts with values of K objectives.

    Args:
        texts: N texts.
        values: value of each objective by name, float64 [N], NaN where a text has none; infinity is a value.
    """

    texts: list[str]
    values: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the objectives."""
        return tuple(self.values)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the objectives that are not failures of others."""
        return tuple(name for name in self.values if not name.startswith(FAILURE_PREFIX))

    def select(self, rows: Sequence[int] | np.ndarray) -> TextData:
        """Return some of the rows."""
        values = {name: column[rows] for name, column in self.values.items()}
        return TextData([self.texts[i] for i in rows], values)

    def labelled(self, name: str) -> np.ndarray:
        """Return the indices of the rows with a value of an objective."""
        return np.flatnonzero(~np.isnan(self.values[name]))


def text_data(texts: Iterable[str], values: Any, objectives: Sequence[str] = ()) -> TextData:
    """Check texts and values, and return the rows that have a value.

    A failed target adds the objective `failed/TARGET`, which is 1 where the target failed and 0 where it has
    a value.

    Examples:
        >>> data = text_data(["a", "b", "c", "d"], [1, "2.5", None, "failed"])
        >>> data.texts, data.values["y"].tolist(), data.values["failed/y"].tolist()
        (['a', 'b', 'd'], [1.0, 2.5, nan], [0.0, 0.0, 1.0])

    Args:
        texts: N strings.
        values: N values of one target, N rows of K values, a mapping from names to N values, or a data frame.
            A value is a number, also an infinite one; None, NaN or a word such as NA where it is missing; or
            a word such as failed, timeout or OOM.
        objectives: names of the K targets; by default those of the mapping, the frame or the series, or `y`.

    Returns:
        The rows with at least one value.

    Raises:
        ValueError: lengths differ, a text is no string, a value is no number, or there are too few values.
    """
    checked_texts = _check_texts(texts)
    columns = _columns(values, objectives, len(checked_texts))
    found: dict[str, np.ndarray] = {}
    for name, cells in columns.items():
        numbers, has_failed = _read_cells(name, cells)
        count = int((~np.isnan(numbers)).sum())
        if count < MIN_ROWS:
            distinct = list(dict.fromkeys(map(shown, cells)))[:3]
            raise ValueError(
                f"{count} of {counted(len(cells), 'value')} of {name!r}"
                f" {'is a number' if count == 1 else 'are numbers'}, such as {', '.join(distinct)}:"
                f" expected at least {MIN_ROWS}, or leave the target out"
            )
        found[name] = numbers
        if has_failed.any():
            found[FAILURE_PREFIX + name] = np.where(
                has_failed, 1.0, np.where(np.isnan(numbers), math.nan, 0.0)
            )
    rows = np.flatnonzero(~np.all([np.isnan(column) for column in found.values()], axis=0))
    return TextData(checked_texts, found).select(rows)


def _check_texts(texts: Iterable[str]) -> list[str]:
    """Return texts as a list of strings."""
    checked = as_strings(texts, "texts")
    if not checked:
        raise ValueError("texts is empty: expected at least two strings")
    return checked


def _columns(values: Any, objectives: Sequence[str], count: int) -> dict[str, list[Any]]:
    """Return the values of each target, each as a list of N cells."""
    is_frame = isinstance(values, Mapping) or hasattr(values, "columns")
    if isinstance(values, set | frozenset):
        raise ValueError("values is a set, which has no order: expected a list")
    if isinstance(values, str | bytes) or not (is_frame or isinstance(values, Iterable)):
        raise ValueError(f"values is {shown(values)}: expected a list of numbers, or one list for each name")
    if isinstance(objectives, str):
        raise ValueError(f"objectives is the string {objectives!r}: expected a list of names")
    names = list(objectives)
    if names:
        check_objective_names(names)
    if is_frame:
        keys = list(values.columns if hasattr(values, "columns") else values)
        if unnamed := [key for key in keys if not isinstance(key, str | int | np.integer)]:
            raise ValueError(
                f"values has the column {shown(unnamed[0])}: expected names of columns, as in to_pydict() of"
                " a table of Arrow"
            )
        if repeated := next((key for key in keys if keys.count(key) > 1), None):
            raise ValueError(f"values has two columns {repeated!r}: expected different names")
        if missing := [name for name in names if name not in keys]:
            raise ValueError(f"values has no {missing[0]!r}: expected one of {', '.join(map(repr, keys))}")
        columns = {
            str(name) if isinstance(name, int | np.integer) else name: as_list(
                values[name], f"values of {name!r}"
            )
            for name in names or keys
        }
    else:
        rows = [row.tolist() if hasattr(row, "tolist") else row for row in values]
        has_rows = any(isinstance(row, list | tuple) for row in rows)
        if not has_rows:
            rows = [[row] for row in rows]
        width = len(rows[0]) if rows and isinstance(rows[0], list | tuple) else 1
        own_name = getattr(values, "name", None)  # of a column of a data frame
        if not names and width == 1 and isinstance(own_name, str) and own_name:
            names = [own_name]
        if not names:
            names = [DEFAULT_OBJECTIVE] if width == 1 else [f"{DEFAULT_OBJECTIVE}{k}" for k in range(width)]
        for i, row in enumerate(rows):
            if not isinstance(row, list | tuple) or len(row) != len(names):
                raise ValueError(
                    f"row {i} of values is {shown(row)}: expected {counted(len(names), 'value')}, of"
                    f" {', '.join(names)}"
                )
        columns = {name: [row[k] for row in rows] for k, name in enumerate(names)}
    if not columns:
        raise ValueError("values has no targets: expected numbers of at least one")
    check_objective_names(list(columns))
    for name, cells in columns.items():
        if name.startswith(FAILURE_PREFIX):
            raise ValueError(f"{name!r} is the name of a failure: expected another name of a target")
        if len(cells) != count:
            raise ValueError(
                f"{counted(count, 'text')} and {counted(len(cells), 'value')} of {name!r}: expected as many"
            )
    return columns


def _read_cells(name: str, cells: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of cells, float64 [N], NaN where there is none, and which have failed, bool [N]."""
    numbers, has_failed = np.full(len(cells), math.nan), np.zeros(len(cells), dtype=bool)
    faults = Faults()
    for i, cell in enumerate(cells):
        number = read_value(cell)
        if number is None:
            faults.add(f"value {i} of {name!r} is {shown(cell)}: expected {expected_cell(cell)}")
            continue
        has_failed[i] = number is FAILED
        numbers[i] = math.nan if number is FAILED else number
    faults.check()
    return numbers, has_failed


class _Failed(float):
    """The value of a target that has failed."""


FAILED = _Failed("nan")


def read_value(cell: Any) -> float | None:
    """Return the number in a cell: NaN where it is missing, `FAILED` for a failure, None for anything else.

    Examples:
        >>> [read_value(cell) for cell in (3, "1e5", "-inf", "NA", None)], read_value("OOM") is FAILED
        ([3.0, 100000.0, -inf, nan, nan], True)
        >>> read_value("red") is None
        True
    """
    if cell is None:
        return math.nan
    if isinstance(cell, str):
        return _read_word(cell.strip().lower())
    if isinstance(cell, np.complexfloating):  # of which float() ignores a part
        return None
    try:
        return float(cell)
    except OverflowError:  # an integer
        return None
    except (TypeError, ValueError):
        return math.nan if type(cell).__name__ in ("NAType", "NaTType") else None


def expected_cell(cell: Any) -> str:
    """Return what would be right instead of a cell that is no value, for an error message.

    Examples:
        >>> expected_cell("2024-01-31")
        'a number, such as the days or seconds since a date'
        >>> expected_cell("3,911"), expected_cell("12 ms")
        ('a number with a decimal point and without separators of thousands', 'a number alone, such as 12')

    Args:
        cell: the cell.
    """
    word = cell.strip() if isinstance(cell, str) else ""
    if isinstance(cell, int) or re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", word):
        return f"a number of at most {sys.float_info.max:.2g}, or inf for infinity"
    if word.startswith(MINUS_SIGNS) and read_value(f"-{word[1:]}") is not None:
        return f"the sign -, as in -{word[1:]}"
    if re.fullmatch(r"[+-]?\d[\d.,' ]*", word):
        return "a number with a decimal point and without separators of thousands"
    if found := re.fullmatch(
        r"([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*[^\W\d]+(?:/\w+)?|([+-]?\d+(?:\.\d+)?)\s*%", word
    ):
        return f"a number alone, such as {found[1] or found[2]}"
    if re.match(r"\d{4}-\d\d-\d\d", word) or hasattr(cell, "isoformat"):
        return "a number, such as the days or seconds since a date"
    if failure := next((name for name in FAILURES if word.lower().startswith(name)), ""):
        return f"the word {failure} alone"
    return f"a number, nothing, or a word such as NA or {FAILURES[0]}"


def _read_word(word: str) -> float | None:
    """Return the number in a word of lower case, see `read_value`."""
    if word in MISSING:
        return math.nan
    if word in FAILURES:
        return FAILED
    if word in BOOLEANS:
        return BOOLEANS[word]
    try:
        number = float(word)
    except ValueError:
        return None
    is_too_large = math.isinf(number) and "inf" not in word
    return None if is_too_large or "_" in word else number
