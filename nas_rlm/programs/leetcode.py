"""Solutions of LeetCode's problems, to be measured again: whether what is measured here agrees with a table.

The problems are those of LeetCodeDataset, whose tests are asserts on `candidate`.
"""

from __future__ import annotations

import ast
import gzip
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nas_rlm.data import tables
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import spearman
from nas_rlm.programs.python_runner import Program

MOST = 2**28  # bytes of the problems
# What solutions take for granted beside the names of their problem's preamble.
TAKEN = "import bisect, collections, copy, heapq, itertools, math, operator, re, sys\nxrange = range\n"


@dataclass(frozen=True)
class _Problem:
    """A problem: what its solutions take for granted, what is called, with what, and what it asks for."""

    preamble: str
    entry: str
    cases: list[dict[str, str]]
    statement: str


def read_solutions(path: Path, problems: Path) -> tuple[Table, dict[str, Program]]:
    """A table of solutions, and by their identifiers the programs with the inputs of their problems.

    Args:
        path: of the table, whose groups are problems.
        problems: JSON lines, compressed, each with problem, preamble, entry_point, test and statement.

    Raises:
        ValueError: a file is not as it should be, or a problem of the table is missing.
    """
    table, known = tables.read(path), _problems(problems)
    _check_all_there(table, known, problems)
    found = {}
    for row in table.rows:
        one = known[row.group]
        source = f"{TAKEN}{one.preamble}\n{row.input}"
        found[row.identifier] = Program(source, one.entry, one.cases, row.group)
    return table, found


def described(path: Path, problems: Path) -> list[Row]:
    """The rows of a table of solutions, each with the statement of its problem above it, as remarks.

    Source: table 14 of the paper, problem and code.

    Args:
        path: of the table, whose groups are problems.
        problems: JSON lines, compressed, each with problem and statement.

    Raises:
        ValueError: a file is not as it should be, or a problem of the table is missing.
    """
    table, known = tables.read(path), _problems(problems)
    _check_all_there(table, known, problems)
    above = {
        problem: "".join(f"# {line}".rstrip() + "\n" for line in ("Problem:", *one.statement.splitlines()))
        for problem, one in known.items()
    }
    return [replace(row, input=above[row.group] + row.input) for row in table.rows]


def agreement(measured: Table, known: Table) -> dict[str, tuple[int, float]]:
    """How far numbers measured here rank solutions as a table does.

    Args:
        measured: here, with `memory`.
        known: the table, in which `memory` may be that of larger or of small inputs.

    Returns:
        For each number of the table, of how many solutions, whose value no other shares, and Spearman.
    """
    own = {row.identifier: row.targets["memory"] for row in measured.rows if row.measured("memory")}
    found = {}
    for objective in known.objectives:
        rows = [row for row in known.having(objective).rows if row.identifier in own]
        often = Counter(row.targets[objective] for row in rows)
        rows = [row for row in rows if often[row.targets[objective]] == 1]
        if len(rows) > 1:
            here = np.array([own[row.identifier] for row in rows])
            found[objective] = len(rows), spearman(here, Table("", rows).column(objective))
    return found


def _check_all_there(table: Table, known: Mapping[str, _Problem], problems: Path) -> None:
    missing = sorted({row.group for row in table.rows} - known.keys())
    if missing:
        raise ValueError(
            f"{problems} lacks {len(missing)} problems of {table.name}, the first one: {missing[0]!r}"
        )


def _problems(path: Path) -> dict[str, _Problem]:
    """Each problem by its name, with the calls of its tests."""
    if not path.is_file():
        raise FileNotFoundError(f"no problems at {str(path)!r}: expected compressed JSON lines")
    found = {}
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(MOST + 1)
        if len(content) > MOST:
            raise ValueError(f"it holds more than {MOST:,} bytes")
        for line in content.splitlines():
            one = json.loads(line)
            calls = [
                node
                for node in ast.walk(ast.parse(one["test"]))
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "candidate"
            ]
            calls.sort(key=lambda node: (node.lineno, node.col_offset))
            cases = [{"call": ast.unparse(node)} for node in calls]
            found[one["problem"]] = _Problem(
                one["preamble"], one["entry_point"], cases, str(one["statement"])
            )
    except (OSError, EOFError, ValueError, SyntaxError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} has no problems ({type(error).__name__}: {error}): expected compressed JSON lines with"
            " problem, preamble, entry_point, test and statement"
        ) from None
    return found
