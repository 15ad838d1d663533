"""The application of the benchmarks, and functions that several of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cyclopts import App

import search_spaces
from nas_rlm.benchmarks.results import mean_and_worst
from nas_rlm.cli.app import app
from nas_rlm.utils.validation import suggest

if TYPE_CHECKING:
    from nas_rlm.benchmarks.schedule import Schedule
    from nas_rlm.data import Table

TABLE_NAMES = {"nds_darts": "darts"}  # tables whose name differs from that of their space

bench = app.command(App(name="bench", help="Run benchmarks."))


def read_space_table(space: str, data: Path | None = None) -> Table:
    """Return the rows of a space in its table.

    Args:
        space: name of the space.
        data: the table; by default that of the space in the data directory.

    Raises:
        FileNotFoundError: there is no table.
        ValueError: there is no such space, or the table has no row of it.
    """
    from nas_rlm.data import data_directory, read

    if space and data is None:
        search_spaces.get(space)  # an unknown one is refused with a suggestion
    path = data_directory() / "architectures" / f"{TABLE_NAMES.get(space, space)}.parquet"
    table = read(data or path)
    rows = [row for row in table.rows if row.space == space]
    if not rows:
        spaces = dict.fromkeys(row.space for row in table.rows)
        raise ValueError(f"no row of {data or path} is of the space {space!r}; {suggest(space, spaces)}")
    table.rows = rows
    return table


def with_objectives_of(table: Table, other: Table) -> Table:
    """Return a table with the objectives that another one has of the same architectures.

    Args:
        table: the table, whose own values count where both have one.
        other: the other table.

    Raises:
        ValueError: the tables have no architecture in common.
    """
    from nas_rlm.data import Table

    targets = {row.arch_str: row.targets for row in other.rows}
    rows = [replace(row, targets=targets.get(row.arch_str, {}) | row.targets) for row in table.rows]
    if not any(row.arch_str in targets for row in table.rows):
        raise ValueError(f"no architecture of {table.name} is in {other.name}: expected a table of the same")
    return Table(table.name, rows)


def read_joined_table(space: str, data: Path | None, also: Path | None) -> Table:
    """Return the rows of a space with the objectives of another table, see `with_objectives_of`.

    Args:
        space: name of the space.
        data: the table; None for that of the space in the data directory.
        also: the other table; None for none.
    """
    table = read_space_table(space, data)
    return with_objectives_of(table, read_space_table(space, also)) if also else table


def read_measured_table(space: str, objective: str, data: Path | None = None) -> Table:
    """Return the rows of a space, see `read_space_table`, of which some have an objective.

    Args:
        space: name of the space.
        objective: the objective.
        data: the table; by default that of the space in the data directory.

    Raises:
        ValueError: no row has the objective.
    """
    table = read_space_table(space, data)
    if len(table.where_measured(objective)) == 0:
        raise ValueError(f"{table.name} has no row of {space} with {objective}")
    return table


def draw_rows(table: Table, num_rows: int) -> Table:
    """Return random rows of a table in their order; all for 0.

    Args:
        table: the table.
        num_rows: at most as many rows are drawn, with a fixed seed.
    """
    if not num_rows:
        return table
    drawn = np.sort(np.random.default_rng(0).permutation(len(table))[:num_rows])
    return replace(table, rows=[table.rows[i] for i in drawn])


def check_methods(methods: Sequence[str], known: Sequence[str]) -> None:
    """Refuse methods that a benchmark does not know.

    Raises:
        ValueError: a method is unknown.
    """
    for name in methods:
        if name not in known:
            raise ValueError(f"unknown method {name!r}; {suggest(name, known)}")


def print_searches(
    results: Mapping[tuple[Any, ...], object],
    objectives: Sequence[str],
    schedule: Schedule,
    count_name: str,
) -> None:
    """Print the mean and the worst over seeds of hypervolumes and regrets.

    Args:
        results: with hypervolumes and regrets, by objectives, method, seed and count.
        objectives: objectives of the searches to print.
        schedule: methods, seeds and counts of the searches to print.
        count_name: what is counted, such as evaluations.
    """
    names, seeds, counts = " x ".join(objectives), schedule.seeds, schedule.counts
    shown = {k: v for k, v in results.items() if k[0] == names and k[2] in seeds and k[3] in counts}
    volumes, regrets = (mean_and_worst(shown, field) for field in ("relative_hypervolume", "regret"))
    methods = schedule.methods
    width = max(12, *(len(method) + 1 for method in methods))
    print(f"{'method':<{width}}{count_name:>12}{'hypervolume':>14}{'worst':>10}{'regret':>12}{'worst':>10}")
    for method in methods:
        for key, (volume, low) in sorted(volumes.items()):
            if key[1] == method:
                regret, high = regrets[key]
                print(
                    f"{method:<{width}}{key[-1]:>12}{volume:>14.2%}{low:>10.2%}{regret:>12.4g}{high:>10.4g}"
                )
