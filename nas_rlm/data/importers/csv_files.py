"""CSV files with named columns: an architecture and numbers in each line."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

import search_spaces
from nas_rlm.data.objective_kinds import KINDS, VALID_NAME, expected_value, is_known_kind, kind_of
from nas_rlm.data.omissions import is_valid_target
from nas_rlm.data.tables import EXACT_OBJECTIVES, METADATA_PREFIXES, MIN_LATENCY_MS, SPACE_NAMES, Row
from nas_rlm.data.text_data import MISSING
from nas_rlm.files import read_text
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import suggest
from search_spaces import SearchSpace

SEPARATORS = (",", ";", "\t")
ARCHITECTURE_COLUMNS = ("architecture", "arch", "arch_str")
IDENTIFIER_COLUMNS = ("identifier", "name", "id")
SPACE_COLUMN = "space"
MIN_SIMILARITY = 0.75  # of a column's name and the kind of an objective that it may mean
LATENCY_WORDS = ("ms", "milliseconds", "time", "time_ms", "runtime", "lat", "latency", "latency_ms")
MAX_CHECKED, COST_TOLERANCE = 1000, 0.01  # rows whose costs are counted, and the relative difference allowed
MAX_LISTED_LINES = 5
MAX_CELL = 2**31 - 1  # characters
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WITH_COMMA = re.compile(r"(?=.*,)[+-]?\d[\d.,]*([eE][+-]?\d+)?")  # for decimals or thousands


@dataclass(frozen=True)
class CsvTable:
    """The content of a CSV file.

    Args:
        rows: a row for each architecture, or several where lines contradict each other.
        columns: name of the column of each objective.
        summary: lines on what was read and what was left out.
        warnings: lines on what may be wrong: names of columns, and costs that are not those of the networks.
    """

    rows: list[Row]
    columns: dict[str, str]
    summary: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class Line:
    """A line of the file: its number and its cells by column."""

    number: int
    cells: Mapping[str, str]


def read_csv(
    path: str | os.PathLike[str],
    space: str = "",
    architecture: str = "",
    objectives: Mapping[str, str] | None = None,
) -> CsvTable:
    """Read a CSV file of measured architectures, separated by commas, semicolons or tabs.

    Columns whose names are objectives, such as `accuracy`, `latency/mybox`, `acc_cifar100` or `flops`, need
    not be given. Empty cells, NA and nan are missing values.

    Examples:
        >>> table = read_csv("results.csv", "nasbench201", objectives={"accuracy": "top1"})  # doctest: +SKIP

    Args:
        path: the file, in UTF-8.
        space: the search space of all lines; by default the column `space` names it.
        architecture: column of the architectures in the notation of the space; by default `architecture`,
            `arch` or `arch_str`.
        objectives: column of each objective whose column has another name.

    Returns:
        The rows. Lines of one architecture that do not contradict each other are one row.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not such a CSV file, a column is missing, or a cell is not valid; the message
            names the line and the column.
    """
    columns, lines = read_lines(path)
    roles = _Roles.find(path, columns, lines, space, architecture, objectives or {})
    spaces: dict[str, SearchSpace[Any]] = {}
    bar = progress_bar(lines, "architectures", unit="line", delay=2)
    rows = [_row(path, line, roles, space, spaces) for line in bar]
    unused = [name for name in columns if name not in roles.used]
    summary = value_summary(rows, roles.objectives)
    if unused:
        summary.append(f"columns that are not used: {', '.join(unused)}")
    merged, reports = _merge(lines, rows)
    warnings = [hint for name in unused if _has_numbers(lines, name) and (hint := _column_hint(name))]
    warnings += _wrong_costs(lines, rows, spaces)
    return CsvTable(merged, roles.objectives, summary + reports, warnings)


def objective_of_column(column: str) -> str:
    """Return the objective that a column's name stands for; empty if there is none.

    Examples:
        >>> [objective_of_column(c) for c in ("Accuracy", "lat_pixel3", "loss/val", "val_accuracy", "seed")]
        ['accuracy', 'latency/pixel3', 'loss/val', 'accuracy', '']
    """
    if column.lower() == "val_accuracy":
        return "accuracy"
    prefix, _, suffix = column.partition("_")
    if prefix.lower() in METADATA_PREFIXES and suffix:
        column = f"{METADATA_PREFIXES[prefix.lower()]}/{suffix}"
    kind, slash, suffix = column.partition("/")
    is_objective = is_known_kind(column) and VALID_NAME.fullmatch(column) and not is_unnamed_latency(column)
    return kind.lower() + slash + suffix if is_objective else ""


@dataclass(frozen=True)
class _Roles:
    """Which columns have the architectures, the names, the spaces and the objectives; empty for none."""

    architecture: str
    identifier: str
    space: str
    objectives: dict[str, str]

    @property
    def used(self) -> set[str]:
        """The columns that are used."""
        return {self.architecture, self.identifier, self.space, *self.objectives.values()}

    @classmethod
    def find(
        cls,
        path: str | os.PathLike[str],
        columns: Sequence[str],
        lines: Sequence[Line],
        space: str,
        architecture: str,
        objectives: Mapping[str, str],
    ) -> _Roles:
        """Find the role of each column; arguments as for `read_csv`."""
        for name, column in [("the architecture", architecture), *objectives.items()]:
            if column and column not in columns:
                raise ValueError(
                    f"{str(path)!r} has no column {column!r} for {name}; {suggest(column, columns)}"
                )
        for name in objectives:
            if not VALID_NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} cannot be the name of an objective: expected for example loss/val"
                )
        by_lower = {name.lower(): name for name in reversed(columns)}
        found = architecture or next((by_lower[n] for n in ARCHITECTURE_COLUMNS if n in by_lower), "")
        if not found:
            raise ValueError(
                f"{str(path)!r} has the columns {', '.join(columns)}: expected one of"
                f" {', '.join(ARCHITECTURE_COLUMNS)}, or the name of the column of the architectures"
            )
        space_column = "" if space else by_lower.get(SPACE_COLUMN, "")
        if not space and not space_column:
            raise ValueError(
                f"{str(path)!r} has no column {SPACE_COLUMN}: expected the search space of all lines"
            )
        identifier = next(
            (by_lower[n] for n in IDENTIFIER_COLUMNS if n in by_lower and by_lower[n] != found), ""
        )
        roles = cls(found, identifier, space_column, dict(objectives))
        for column in columns:
            objective = "" if column in roles.used else objective_of_column(column)
            if objective and objective not in objectives and _has_numbers(lines, column):
                if objective in roles.objectives:
                    raise ValueError(
                        f"{str(path)!r}: the columns {roles.objectives[objective]} and {column} are both"
                        f" {objective}: expected an objective for one of them"
                    )
                roles.objectives[objective] = column
        if not roles.objectives:
            hints = [h for c in columns if c not in roles.used and (h := _column_hint(c))]
            raise ValueError(
                f"{str(path)!r} has no column whose name is an objective, such as accuracy or latency/mybox:"
                f" expected the objective of one of the columns {', '.join(columns)}"
                + "".join(f"; {hint}" for hint in hints)
            )
        return roles


def read_lines(path: str | os.PathLike[str], keep_blanks: bool = False) -> tuple[list[str], list[Line]]:
    """Return the names of the columns, and the lines that are not empty.

    Args:
        path: the file, separated by commas, semicolons or tabs.
        keep_blanks: keep blanks at the start and end of cells.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a CSV file with a header and at least one line.
    """
    csv.field_size_limit(MAX_CELL)
    text = read_text(path, "a CSV file with named columns")
    header = re.sub(r'"[^"]*"', "", next((line for line in text.splitlines() if line.strip()), ""))
    separator = max(SEPARATORS, key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: list[str] = []
    lines: list[Line] = []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if not any(stripped):
                continue
            if not columns:
                columns = [name or f"column {i}" for i, name in enumerate(stripped, 1)]
                if repeated := next((name for name in columns if columns.count(name) > 1), ""):
                    raise ValueError(f"two columns have the name {repeated!r}: expected different names")
                continue
            if len(stripped) != len(columns):
                comma = " A decimal comma separates cells too: expected decimal points" * (separator == ",")
                raise ValueError(
                    f"expected {len(columns)} cells, as in the header, not {len(stripped)}."
                    f"{comma if len(stripped) > len(columns) else ''}"
                )
            kept = cells if keep_blanks else stripped
            lines.append(Line(reader.line_num, dict(zip(columns, kept, strict=True))))
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{str(path)!r} line {reader.line_num}: {error}") from None
    if not lines:
        found = "only a header" if columns else "no lines"
        raise ValueError(f"{str(path)!r} has {found}: expected a header and at least one line")
    return columns, lines


def _has_numbers(lines: Sequence[Line], column: str) -> bool:
    """Return whether a column has at least one number, also if it is written in another way."""
    return any(re.match(r"[+-]?\.?\d", line.cells[column]) for line in lines)


def _row(
    path: str | os.PathLike[str],
    line: Line,
    roles: _Roles,
    space: str,
    spaces: dict[str, SearchSpace[Any]],
) -> Row:
    """Return the row of a line.

    Args:
        path: the file, for error messages.
        line: the line.
        roles: roles of the columns.
        space: the search space, if there is no column of spaces.
        spaces: search spaces of earlier lines by name, which are added to.
    """

    def read_cell(column: str, read: Callable[[str], Any]) -> Any:
        try:
            return read(line.cells[column])
        except ValueError as error:
            raise ValueError(f"{str(path)!r} line {line.number}, column {column}: {error}") from None

    def get_space(name: str) -> SearchSpace[Any]:
        if name not in spaces:
            spaces[name] = search_spaces.get(SPACE_NAMES.get(name, name))
        return spaces[name]

    search_space = read_cell(roles.space, get_space) if roles.space else get_space(space)

    def parse(text: str) -> str:
        if text.lower() in MISSING:
            raise ValueError(f"{text!r} is no architecture: expected one of {search_space.name}")
        return str(search_space.parse(text))

    architecture = read_cell(roles.architecture, parse)
    targets = {
        name: value
        for name, column in roles.objectives.items()
        if (value := read_cell(column, partial(_number, objective=name))) is not None
    }
    identifier = line.cells[roles.identifier] if roles.identifier else ""
    return Row(search_space.name, architecture, targets, identifier=identifier)


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
        line = f"{name} from column {column}: {len(values):,} values"
        line += f" from {min(values):g} to {max(values):g}" if values else ""
        line += f", {len(rows) - len(values):,} missing" if len(values) < len(rows) else ""
        if kind_of(name).unit:
            line += f", in {kind_of(name).unit}"
        ignored = sum(name in row.targets and not row.is_measured(name) for row in rows)
        if ignored:
            line += f"; {ignored:,} are below {MIN_LATENCY_MS} ms, which models do not learn"
        summary.append(line)
    return summary


def is_unnamed_latency(column: str) -> bool:
    """Return whether a column is called like a latency, but not like one of a device."""
    return column.lower() in LATENCY_WORDS


def _column_hint(column: str) -> str:
    """Return a warning of an unused column whose name is nearly that of an objective; empty for another."""
    if is_unnamed_latency(column):
        return (
            f"column {column!r} is not used; are these latencies in milliseconds? Name the device:"
            f" --objective latency/mydevice={column}"
        )
    start = re.split(r"[/_ .(-]", column)[0]
    kind = next(iter(get_close_matches(start.lower(), KINDS, n=1, cutoff=MIN_SIMILARITY)), "")
    if not kind:
        return ""
    rest = column[len(start) :].strip("/_ .()-")
    name = f"{kind}/{rest}" if rest else kind
    if not VALID_NAME.fullmatch(name):
        name = kind
    return (
        f"column {column!r} is not used; did you mean {name}? Rename it, or give --objective {name}={column}"
    )


def _wrong_costs(
    lines: Sequence[Line], rows: Sequence[Row], spaces: Mapping[str, SearchSpace[Any]]
) -> list[str]:
    """Return a warning for flops and for params that are not those of the networks of the first rows."""
    by_name = {space.name: space for space in spaces.values()}
    found = []
    for name in EXACT_OBJECTIVES:
        wrong = []
        given = [(line, row) for line, row in zip(lines, rows, strict=True) if name in row.targets]
        for line, row in progress_bar(given[:MAX_CHECKED], f"check {name}", unit="line", delay=2):
            space = by_name[row.space]
            counted = getattr(space, name)(space.parse(row.arch_str))
            if abs(row.targets[name] - counted) > COST_TOLERANCE * counted:
                wrong.append((line.number, row.targets[name], counted))
        if wrong:
            number, value, counted = wrong[0]
            listed = ", ".join(str(w[0]) for w in wrong[:MAX_LISTED_LINES])
            more = f" and {len(wrong) - MAX_LISTED_LINES:,} more" if len(wrong) > MAX_LISTED_LINES else ""
            found.append(
                f"{name} is not that of the networks in lines {listed}{more}: line {number} has {value:g},"
                f" and the network has {counted:,}. Leave the column out: {name} need no column"
            )
    return found


def _merge(lines: Sequence[Line], rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Merge the rows of an architecture that do not contradict each other; return reports on the others."""
    merged: dict[tuple[str, str], list[tuple[int, Row]]] = {}
    num_merged, conflicts = 0, []
    for line, row in zip(lines, rows, strict=True):
        group = merged.setdefault((row.space, row.arch_str), [])
        differences = [
            f"{name} of {row.arch_str} is {other.targets[name]:g} in line {number} and {value:g} in line"
            f" {line.number}"
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
        reports.append(f"lines that repeat an architecture without contradiction: {num_merged:,}, merged")
    if conflicts:
        reports.append(
            f"lines that contradict an earlier line: {len(conflicts):,}, each kept as a row. The first one:"
            f" {conflicts[0]}"
        )
    return [row for group in merged.values() for _, row in group], reports
