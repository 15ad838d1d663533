"""CSV files with named columns: an architecture and numbers in each line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import search_spaces
from nas_rlm.data.importers.csv_columns import (
    IDENTIFIER_COLUMNS,
    SPACE_COLUMN,
    CsvTable,
    Line,
    check_columns,
    column_hints,
    find_column,
    find_objectives,
    merge_rows,
    read_cell,
    read_each,
    read_lines,
    read_targets,
    unused_columns,
    value_summary,
)
from nas_rlm.data.tables import EXACT_OBJECTIVES, SPACE_NAMES, Row
from nas_rlm.data.text_data import MISSING
from nas_rlm.utils.progress import progress_bar
from search_spaces import SearchSpace

ARCHITECTURE_COLUMNS = ("architecture", "arch", "arch_str")
MAX_CHECKED, COST_TOLERANCE = 1000, 0.01  # rows whose costs are counted, and the relative difference allowed
MAX_LISTED_LINES = 5


def read_csv(
    path: str | os.PathLike[str],
    space: str = "",
    architecture: str = "",
    objectives: Mapping[str, str] | None = None,
) -> CsvTable:
    """Read a CSV file of measured architectures, separated by commas, semicolons, tabs or vertical bars.

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
    rows = read_each(path, bar, partial(_row, roles=roles, space=space, spaces=spaces))
    keys = [(row.space, row.arch_str) for row in rows]
    merged, reports = merge_rows(lines, rows, keys, "architecture")
    summary = [
        *value_summary(rows, roles.objectives),
        *unused_columns(columns, roles.used),
        *reports,
    ]
    warnings = [*column_hints(columns, lines, roles.used), *_wrong_costs(lines, rows, spaces)]
    return CsvTable(merged, roles.objectives, summary, warnings)


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
        check_columns(path, columns, {"the architecture": architecture, **objectives})
        found = architecture or find_column(columns, ARCHITECTURE_COLUMNS)
        if not found:
            raise ValueError(
                f"{str(path)!r} has the columns {', '.join(columns)}: expected one of"
                f" {', '.join(ARCHITECTURE_COLUMNS)}, or the name of the column of the architectures"
            )
        space_column = "" if space else find_column(columns, (SPACE_COLUMN,))
        if not space and not space_column:
            raise ValueError(
                f"{str(path)!r} has no column {SPACE_COLUMN}: expected the search space of all lines"
            )
        identifier = find_column(columns, IDENTIFIER_COLUMNS, [found])
        used = {found, identifier, space_column}
        return cls(found, identifier, space_column, find_objectives(path, columns, lines, objectives, used))


def _row(
    line: Line,
    roles: _Roles,
    space: str,
    spaces: dict[str, SearchSpace[Any]],
) -> Row:
    """Return the row of a line.

    Args:
        line: the line.
        roles: roles of the columns.
        space: the search space, if there is no column of spaces.
        spaces: search spaces of earlier lines by name, which are added to.
    """

    def get_space(name: str) -> SearchSpace[Any]:
        if name not in spaces:
            spaces[name] = search_spaces.get(SPACE_NAMES.get(name, name))
        return spaces[name]

    search_space = read_cell(line, roles.space, get_space) if roles.space else get_space(space)

    def parse(text: str) -> str:
        if text.lower() in MISSING:
            raise ValueError(f"{text!r} is no architecture: expected one of {search_space.name}")
        return str(search_space.parse(text))

    architecture = read_cell(line, roles.architecture, parse)
    targets = read_targets(line, roles.objectives)
    identifier = line.cells[roles.identifier] if roles.identifier else ""
    return Row(search_space.name, architecture, targets, identifier=identifier)


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
