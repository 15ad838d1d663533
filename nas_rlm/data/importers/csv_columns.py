"""CSV files of one's own: lines, objectives by the names of columns, numbers in cells, and repeated lines."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from nas_rlm.data.importers.column_hints import column_hint, is_unnamed_latency
from nas_rlm.data.objective_kinds import VALID_NAME, expected_value, is_known_kind, kind_of
from nas_rlm.data.omissions import is_valid_target
from nas_rlm.data.rows import Row
from nas_rlm.data.tables import METADATA_PREFIXES
from nas_rlm.data.text_data import MINUS_SIGNS, MISSING
from nas_rlm.files import NO_CSV_SUFFIXES, read_text
from nas_rlm.utils.faults import Faults
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

SEPARATORS = (",", ";", "\t", "|")
SPACE_COLUMN = "space"
IDENTIFIER_COLUMNS = ("identifier", "name", "id")
MAX_CELL = 2**31 - 1  # characters
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WITH_COMMA = re.compile(r"(?=.*,)[+-]?\d[\d.,]*([eE][+-]?\d+)?")  # for decimals or thousands
MAX_LISTED = 3  # lines in a report
MAX_SHOWN = 40  # characters of a line in an error message
REPEATED_ROWS = "models learn from all, and a search takes the last one"

Content = TypeVar("Content")


@dataclass(frozen=True)
class Line:
    """A line of the file: its number and its cells by column."""

    number: int
    cells: Mapping[str, str]


@dataclass(frozen=True)
class CsvTable:
    """The content of a CSV file.

    Args:
        rows: a row for each network, or several where lines contradict each other.
        columns: name of the column of each objective.
        summary: lines on what was read and what was left out.
        warnings: lines on what may be wrong: names of columns, and costs that are not those of the networks.
    """

    rows: list[Row]
    columns: dict[str, str]
    summary: list[str]
    warnings: list[str]


def read_lines(path: str | os.PathLike[str], keep_blanks: bool = False) -> tuple[list[str], list[Line]]:
    """Return the names of the columns, and the lines that are not empty.

    Args:
        path: the file, separated by commas, semicolons, tabs or vertical bars.
        keep_blanks: keep blanks at the start and end of cells.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a CSV file with a header and at least one line.
    """
    if Path(path).suffix.lower() in NO_CSV_SUFFIXES:
        raise ValueError(f"{str(path)!r} is of another format: expected a CSV file with named columns")
    csv.field_size_limit(MAX_CELL)
    text = read_text(path, "a CSV file with named columns")
    header = re.sub(r'"[^"]*"', "", next((line for line in text.splitlines() if line.strip()), ""))
    separator = max(SEPARATORS, key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: list[str] = []
    lines: list[Line] = []
    faults, last_number, largest_width = Faults(), 0, 0
    try:
        for cells in reader:
            last_number, largest_width = reader.line_num, max(largest_width, len(cells))
            stripped = [cell.strip() for cell in cells]
            if not any(stripped):
                continue
            if not columns:
                columns = [name or f"column {i}" for i, name in enumerate(stripped, 1)]
                if repeated := next((name for name in columns if columns.count(name) > 1), ""):
                    raise ValueError(f"two columns have the name {repeated!r}: expected different names")
                continue
            if len(stripped) != len(columns):
                first = stripped[0][:MAX_SHOWN]
                faults.add(
                    f"line {last_number}: {counted(len(stripped), 'cell')}, of which the first is {first!r}"
                )
                continue
            kept = cells if keep_blanks else stripped
            lines.append(Line(last_number, dict(zip(columns, kept, strict=True))))
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise ValueError(
                f'{str(path)!r} line {last_number + 1}: a cell that starts with " has no second one'
            ) from None
        reason = str(error)
        if "expected after" in reason:
            reason = 'a cell goes on after its second ": expected a " within a cell twice, as ""'
        raise ValueError(f"{str(path)!r} line {reader.line_num}: {reason}") from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} line {reader.line_num}: {error}") from None
    example = f"expected {len(columns)}, as in the header, {separator.join(columns)[:MAX_SHOWN]!r}"
    if separator == "," and largest_width > len(columns):
        example += '. Commas in a text need a cell in ", and a decimal comma separates cells too'
    faults.check(f"{str(path)!r} ", f": {example}")
    if not lines:
        found = "only a header" if columns else "no lines"
        raise ValueError(f"{str(path)!r} has {found}: expected a header and at least one line")
    return columns, lines


def read_each(
    path: str | os.PathLike[str], lines: Iterable[Line], read: Callable[[Line], Content]
) -> list[Content]:
    """Return the content of each line.

    Args:
        path: the file.
        lines: its lines.
        read: a function that reads a line.

    Raises:
        ValueError: `read` refuses lines; the message names the file and the lines.
    """
    faults, contents = Faults(), []
    for line in lines:
        with faults.collect():
            contents.append(read(line))
    faults.check(f"{str(path)!r} ")
    return contents


def read_cell(line: Line, column: str, read: Callable[[str], Content]) -> Content:
    """Return the content of a cell.

    Args:
        line: the line.
        column: the column.
        read: a function that converts the text of the cell.

    Raises:
        ValueError: `read` refuses the text; the message names the line and the column.
    """
    try:
        return read(line.cells[column])
    except ValueError as error:
        raise ValueError(f"line {line.number}, column {column}: {error}") from None


def find_column(columns: Sequence[str], names: Sequence[str], used: Collection[str] = ()) -> str:
    """Return the column that has the first of some names, in upper or lower case; empty if there is none.

    Examples:
        >>> find_column(["Arch", "Accuracy"], ("architecture", "arch"))
        'Arch'

    Args:
        columns: the columns of a file.
        names: names in lower case.
        used: columns with other content.
    """
    by_lower = {column.lower(): column for column in reversed(columns)}
    found = (by_lower[name] for name in names if name in by_lower)
    return next((column for column in found if column not in used), "")


def check_columns(path: str | os.PathLike[str], columns: Sequence[str], named: Mapping[str, str]) -> None:
    """Refuse names of columns that a file does not have.

    Args:
        path: the file.
        columns: its columns.
        named: the column of each content, such as `the architecture` or an objective; empty for none.

    Raises:
        ValueError: the file has no such column.
    """
    for content, column in named.items():
        if column and column not in columns:
            raise ValueError(
                f"{str(path)!r} has no column {column!r} for {content}; {suggest(column, columns)}"
            )


def find_objectives(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    lines: Sequence[Line],
    given: Mapping[str, str],
    used: Collection[str],
    of_programs: bool = False,
) -> dict[str, str]:
    """Return the column of each objective: the given ones, and those whose names are objectives.

    Args:
        path: the file, for error messages.
        columns: its columns.
        lines: its lines.
        given: columns of objectives that have other names.
        used: columns with other content.
        of_programs: whether times are those of programs, not latencies of a device.

    Raises:
        ValueError: a name cannot be that of an objective, two columns are one objective, or there is none.
    """
    for name in given:
        if not VALID_NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of an objective: expected for example loss/val")
    found = dict(given)
    free = [name for name in columns if name not in used and name not in given.values()]
    for column in free:
        objective = objective_of_column(column)
        if objective and objective not in given and has_numbers(lines, column):
            if objective in found:
                raise ValueError(
                    f"{str(path)!r}: the columns {found[objective]} and {column} are both {objective}:"
                    " expected an objective for one of them"
                )
            found[objective] = column
    if not found:
        example = "memory or time" if of_programs else "accuracy or latency/mybox"
        hints = [f"; {hint}" for column in free if (hint := column_hint(column, of_programs))]
        raise ValueError(
            f"{str(path)!r} has no column of numbers whose name is an objective, such as {example}:"
            f" expected the objective of one of the columns {', '.join(columns)}{''.join(hints)}"
        )
    return found


def objective_of_column(column: str) -> str:
    """Return the objective that a column's name stands for; empty if there is none.

    Examples:
        >>> [objective_of_column(c) for c in ("Accuracy", "lat_pixel3", "loss/val", "val_accuracy", "seed")]
        ['accuracy', 'latency/pixel3', 'loss/val', 'accuracy', '']
    """
    if column.lower() == "val_accuracy":
        return "accuracy"
    if is_unnamed_latency(column):
        return ""
    prefix, _, suffix = column.partition("_")
    if prefix.lower() in METADATA_PREFIXES and suffix:
        column = f"{METADATA_PREFIXES[prefix.lower()]}/{suffix}"
    kind, slash, suffix = column.partition("/")
    is_objective = is_known_kind(column) and VALID_NAME.fullmatch(column)
    return kind.lower() + slash + suffix if is_objective else ""


def has_numbers(lines: Sequence[Line], column: str) -> bool:
    """Return whether a column has at least one number, also if it is written in another way."""
    return any(re.match(r"[+-]?\.?\d", line.cells[column]) for line in lines)


def read_targets(line: Line, objectives: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of a line that are not missing, by objective.

    Args:
        line: the line.
        objectives: column of each objective.

    Raises:
        ValueError: a cell is no number, or not valid for the objective.
    """
    cells = {
        name: read_cell(line, column, partial(_number, objective=name)) for name, column in objectives.items()
    }
    return {name: value for name, value in cells.items() if value is not None}


def _number(cell: str, objective: str) -> float | None:
    """Return the number in a cell, None where it is missing.

    Raises:
        ValueError: the cell is no number, or not valid for the objective.
    """
    if cell.lower() in MISSING:
        return None
    if WITH_COMMA.fullmatch(cell):
        is_decimal = "." not in cell and cell.count(",") == 1
        example = f", such as {cell.replace(',', '.')}" if is_decimal else ""
        raise ValueError(f"{cell!r} has a comma: expected a number with a decimal point{example}")
    if cell.startswith(MINUS_SIGNS):
        raise ValueError(f"{cell!r} has another sign than -: expected {'-' + cell[1:]!r}")
    value = float(cell) if NUMBER.fullmatch(cell) else math.nan
    if math.isnan(value) or not is_valid_target(objective, value):
        raise ValueError(
            f"{cell!r} is not valid for {objective}: expected {expected_value(objective)}, or an empty cell"
        )
    return value


def value_summary(rows: Sequence[Row], columns: Mapping[str, str]) -> list[str]:
    """Return a line for each objective: its column, its number of values, and what is missing.

    Args:
        rows: the rows.
        columns: by objective, its column.
    """
    summary = []
    for name, column in columns.items():
        values = [row.targets[name] for row in rows if name in row.targets]
        line = f"{name} from column {column}: {counted(len(values), 'value')}"
        line += f" from {min(values):g} to {max(values):g}" if values else ""
        line += f", {len(rows) - len(values):,} missing" if len(values) < len(rows) else ""
        if kind_of(name).unit:
            line += f", in {kind_of(name).unit}"
        ignored = sum(name in row.targets and not row.is_measured(name) for row in rows)
        if ignored:
            line += f"; {counted(ignored, 'is', 'are')} 0, which models do not learn"
        summary.append(line)
    return summary


def unused_columns(columns: Sequence[str], used: Collection[str]) -> list[str]:
    """Return a line of the summary on the columns that are not used; none if all are."""
    unused = [name for name in columns if name not in used]
    return [f"columns that are not used: {', '.join(unused)}"] if unused else []


def column_hints(
    columns: Sequence[str], lines: Sequence[Line], used: Collection[str], of_programs: bool = False
) -> list[str]:
    """Return a warning of each unused column of numbers whose name is nearly that of an objective.

    Args:
        columns: columns of the file.
        lines: its lines.
        used: columns that are used.
        of_programs: whether times are those of programs, not latencies of a device.
    """
    unused = [name for name in columns if name not in used and has_numbers(lines, name)]
    return [hint for name in unused if (hint := column_hint(name, of_programs))]


def merge_rows(
    lines: Sequence[Line], rows: Sequence[Row], keys: Sequence[Hashable], kind: str
) -> tuple[list[Row], list[str]]:
    """Merge the rows of a network that do not contradict each other.

    Args:
        lines: the lines of the rows.
        rows: the rows.
        keys: equal for rows of one network.
        kind: what repeated lines repeat, for the report, such as `architecture`.

    Returns:
        The rows, and reports on those that are merged and on those that contradict each other.
    """
    merged: dict[Hashable, list[tuple[int, Row]]] = {}
    num_merged, conflicts = 0, []
    for line, row, key in zip(lines, rows, keys, strict=True):
        group = merged.setdefault(key, [])
        differences = [
            f"{name} of {row.arch_str or row.identifier} is {other.targets[name]:g} in line {number} and"
            f" {value:g} in line {line.number}"
            for number, other in group
            for name, value in row.targets.items()
            if other.targets.get(name, value) != value
        ]
        if differences:
            conflicts.append(differences[0])
            group.append((line.number, row))
        elif group:
            number, first = group[0]
            group[0] = (number, replace(first, targets={**first.targets, **row.targets}))
            num_merged += 1
        else:
            group.append((line.number, row))
    reports = []
    if num_merged:
        article = "an" if kind[0] in "aeiou" else "a"
        reports.append(f"lines that repeat {article} {kind} without contradiction: {num_merged:,}, merged")
    if conflicts:
        reports.append(
            f"lines that contradict an earlier line: {len(conflicts):,}, each kept as a row; {REPEATED_ROWS}."
            f" The first {'one' if len(conflicts) == 1 else 'ones'}: {'; '.join(conflicts[:MAX_LISTED])}"
        )
    return [row for group in merged.values() for _, row in group], reports


def repeated_rows(rows: Sequence[Row]) -> list[str]:
    """Return a line of the summary on rows of one network or program; none if there is one row of each."""
    distinct = {(row.space, row.uid, row.arch_str or row.input) for row in rows}
    if len(distinct) == len(rows):
        return []
    return [
        f"rows that repeat the network or program of an earlier row: {len(rows) - len(distinct):,}, each"
        f" kept; {REPEATED_ROWS}"
    ]
