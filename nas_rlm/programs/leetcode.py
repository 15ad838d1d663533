"""Solutions of LeetCode problems, to compare measurements on this machine with those of a table.

The problems are those of LeetCodeDataset, whose tests are assertions on `candidate`.
"""

from __future__ import annotations

import ast
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nas_rlm.data import tables
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import spearman
from nas_rlm.programs.python_runner import Program
from search_spaces.wording import counted

MAX_PROBLEMS_BYTES = 2**28
PROBLEMS_FORMAT = (
    "expected gzip-compressed JSON lines with problem, preamble, entry_point, test and statement"
)
# Names that solutions use although neither they nor the preamble of their problem import them.
IMPLICIT_IMPORTS = (
    "import bisect, collections, copy, heapq, itertools, math, operator, re, sys\nxrange = range\n"
)


@dataclass(frozen=True)
class _Problem:
    """A problem of LeetCodeDataset.

    Args:
        preamble: source that its solutions need, such as imports.
        entry: expression of the function to call.
        cases: inputs from the calls in its tests, see `Program`.
        statement: text of the problem.
    """

    preamble: str
    entry: str
    cases: list[dict[str, str]]
    statement: str


def read_solutions(path: Path, problems_path: Path) -> tuple[Table, dict[str, Program]]:
    """Read a table of solutions and build a program for each of them.

    Args:
        path: the table, whose groups are problems.
        problems_path: gzip-compressed JSON lines with problem, preamble, entry_point, test and statement.

    Returns:
        The table, and the programs with the inputs of their problems by identifier. Solutions without a valid
        problem are left out, and a warning reports their number.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file has another format, or no solution has a valid problem.
    """
    table, problems = _read_table_and_problems(path, problems_path)
    programs, omissions = {}, Omissions()
    for row in table.rows:
        problem = problems[row.group]
        source = f"{IMPLICIT_IMPORTS}{problem.preamble}\n{row.input}"
        with omissions.skip(row.identifier):
            programs[row.identifier] = Program(source, problem.entry, problem.cases, row.group)
    if not programs:
        raise ValueError(f"{problems_path} has no inputs for {table.name} ({omissions.first_reason})")
    omissions.warn()
    return table, programs


def add_problem_statements(path: Path, problems_path: Path) -> list[Row]:
    """Read a table of solutions, and put the statement of its problem above each program as comments.

    Solutions without a valid problem are left out, and a warning reports their number. Source: table 14 of
    the paper, "problem and code".

    Args:
        path: the table, whose groups are problems.
        problems_path: gzip-compressed JSON lines, see `read_solutions`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file has another format, or no solution has a valid problem.
    """
    table, problems = _read_table_and_problems(path, problems_path)
    comments = {
        name: "".join(f"# {line}".rstrip() + "\n" for line in ("Problem:", *problem.statement.splitlines()))
        for name, problem in problems.items()
    }
    return [replace(row, input=comments[row.group] + row.input) for row in table.rows]


def rank_agreement(measured: Table, published: Table) -> dict[str, tuple[int, float]]:
    """Compare the ranking of solutions by memory on this machine with that of a table.

    Only solutions whose published value is unique are compared.

    Args:
        measured: table measured on this machine, with `memory`.
        published: table in which `memory` may be that of larger or of small inputs.

    Returns:
        For each objective of the published table, the number of compared solutions and Spearman's rank
        correlation.
    """
    memory = {row.identifier: row.targets["memory"] for row in measured.rows if row.is_measured("memory")}
    agreement = {}
    for objective in published.objectives:
        rows = [row for row in published.where_measured(objective).rows if row.identifier in memory]
        occurrences = Counter(row.targets[objective] for row in rows)
        rows = [row for row in rows if occurrences[row.targets[objective]] == 1]
        if len(rows) > 1:
            values = np.array([memory[row.identifier] for row in rows])
            agreement[objective] = len(rows), spearman(values, Table("", rows).column(objective))
    return agreement


def _read_table_and_problems(path: Path, problems_path: Path) -> tuple[Table, Mapping[str, _Problem]]:
    """Read the rows of a table that have a problem, and the problems."""
    omissions = Omissions()
    table, problems = tables.read(path), _read_problems(problems_path, omissions)
    rows = [row for row in table.rows if row.group in problems]
    if not rows:
        missing = {row.group for row in table.rows}
        raise ValueError(
            f"{problems_path} lacks {counted(len(missing), 'problem')} of {table.name}, the first one:"
            f" {min(missing)!r}"
        )
    if missing_rows := [row for row in table.rows if row.group not in problems]:
        reason = f"{problems_path} lacks its problem {missing_rows[0].group!r}"
        omissions.add(missing_rows[0].identifier, reason, count=len(missing_rows))
    omissions.warn(stacklevel=3)
    return Table(table.name, rows), problems


def _read_problems(path: Path, omissions: Omissions) -> dict[str, _Problem]:
    """Read the problems by name, and count the lines that are not valid."""
    if not path.is_file():
        raise FileNotFoundError(f"no problems at {str(path)!r}: expected gzip-compressed JSON lines")
    problems: dict[str, _Problem] = {}
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(MAX_PROBLEMS_BYTES + 1)
        if len(content) > MAX_PROBLEMS_BYTES:
            raise ValueError(f"it is larger than {MAX_PROBLEMS_BYTES:,} bytes uncompressed")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(
            f"{path} has no problems ({type(error).__name__}: {error}): {PROBLEMS_FORMAT}"
        ) from None
    for number, line in enumerate(content.splitlines(), 1):
        with omissions.skip(f"line {number}"):
            record = json.loads(line)
            problems[str(record["problem"])] = _to_problem(record)
    if not problems:
        reason = omissions.first_reason or "it is empty"
        raise ValueError(f"{path} has no problems ({reason}): {PROBLEMS_FORMAT}")
    return problems


def _to_problem(record: dict[str, Any]) -> _Problem:
    """Convert a record of the file, with the calls of `candidate` in its tests as inputs."""
    try:
        tests = ast.parse(record["test"])
    except SyntaxError as error:
        raise ValueError(f"its test is not Python: {error}") from None
    calls = [
        node
        for node in ast.walk(tests)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "candidate"
    ]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    cases = [{"call": ast.unparse(node)} for node in calls]
    for name in ("preamble", "entry_point", "statement"):
        if not isinstance(record[name], str):
            raise ValueError(f"its {name} is {record[name]!r}: expected text")
    return _Problem(record["preamble"], record["entry_point"], cases, record["statement"])
