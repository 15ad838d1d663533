"""CSV files with named columns: the source of a program and numbers in each line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial

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
from nas_rlm.data.objective_kinds import kind_of
from nas_rlm.data.rows import KERNEL_SPACES
from nas_rlm.data.tables import Row
from nas_rlm.utils.faults import Faults
from search_spaces.wording import counted

PROGRAM_COLUMNS = ("program", "code", "source_code", "solution", "input")
LANGUAGE_COLUMN, DEFAULT_SPACE = "language", "programs"
GROUP_COLUMNS, SOURCE_COLUMNS = ("problem", "kernel"), ("source", "author")
LANGUAGE_ALIASES = {
    **{"golang": "go", "cpp": "c++", "cxx": "c++", "csharp": "c#", "js": "javascript", "ts": "typescript"},
    **{"py": "python", "rb": "ruby", "rs": "rust", "kt": "kotlin"},
}
COMPILERS = {  # and interpreters, which count where no language is named
    **{"g++": "c++", "clang++": "c++", "gcc": "c", "clang": "c", "rustc": "rust", "openjdk": "java"},
    **{"pypy": "python", "cpython": "python", "node": "javascript", "nodejs": "javascript"},
    "node.js": "javascript",
}
QUALIFIERS = ("gnu", "ms", "microsoft", "visual", "mono", ".net", "diagnostics", "jvm", "native")
_BRACKETED, _VERSION = re.compile(r"[(\[].*"), re.compile(r"-?v?\d[\d.]*(?:x|bit)?$")
_FILE_NAME = re.compile(r"[^\s(){}\[\];=]+\.[A-Za-z]\w{0,5}")
MIN_LARGEST_MEMORY = 1024  # bytes; below it the values of a table are rather in megabytes
OBJECTIVES = ("memory", "time")  # whose columns need not be given
KERNEL_OBJECTIVES = (*OBJECTIVES, "latency")  # the same, of kernels


def read_program_csv(
    path: str | os.PathLike[str],
    space: str = "",
    objectives: Mapping[str, str] | None = None,
    languages: Sequence[str] = (),
) -> CsvTable:
    """Read a CSV file of measured programs, separated by commas, semicolons, tabs or vertical bars.

    The columns `problem`, `source` or `author`, and `identifier`, `name` or `id` are read where there are
    such.

    Examples:
        >>> table = read_program_csv("solutions.csv", "LeetCode")  # doctest: +SKIP

    Args:
        path: the file, in UTF-8. A column `program`, `code`, `source_code`, `solution` or `input` has the
            programs, and `language` their languages, if there is one.
        space: the space of all lines, such as LeetCode; by default the column `space` names it, else it is
            `DEFAULT_SPACE`. A language becomes a part of it, such as `LeetCode/Java`.
        objectives: column of each objective whose name is not `memory`, `time` or that of another objective.
        languages: names of the languages, which a cell may have in lower case or abbreviated; by default any
            names.

    Returns:
        The rows. Lines of one program that do not contradict each other are one row.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not such a CSV file, a column is missing, or a cell is not valid; the message
            names the line and the column.
    """
    columns, lines = read_lines(path, keep_blanks=True)
    given = dict(objectives or {})
    check_columns(path, columns, given)
    program = find_column(columns, PROGRAM_COLUMNS)
    if not program:
        raise ValueError(
            f"{str(path)!r} has the columns {', '.join(columns)}: expected one of"
            f" {', '.join(PROGRAM_COLUMNS)}, with the source of a program in each line"
        )
    roles = {
        "language": find_column(columns, (LANGUAGE_COLUMN,)),
        "space": "" if space else find_column(columns, (SPACE_COLUMN,)),
        "identifier": find_column(columns, IDENTIFIER_COLUMNS),
        "group": find_column(columns, GROUP_COLUMNS),
        "source": find_column(columns, SOURCE_COLUMNS),
    }
    used = {program, *filter(None, roles.values())}
    names = KERNEL_OBJECTIVES if space in KERNEL_SPACES else OBJECTIVES
    named = {name: find_column(columns, (name,)) for name in names if name not in given}
    known = {name: column for name, column in named.items() if column}
    column_of = find_objectives(path, columns, lines, known | given, used, of_programs=True)
    used |= set(column_of.values())
    if roles["language"] and languages:
        _check_languages(path, lines, roles["language"], languages)
    read = partial(_row, program=program, roles=roles, space=space, objectives=column_of, languages=languages)
    rows = read_each(path, lines, read)
    if not any(row.targets for row in rows):
        raise ValueError(f"{str(path)!r} has no number in the columns {', '.join(column_of.values())}")
    keys = [(row.space, row.group, row.input) for row in rows]
    merged, reports = merge_rows(lines, rows, keys, "program")
    summary = [*value_summary(rows, column_of), *unused_columns(columns, used), *reports]
    hints = [*column_hints(columns, lines, used, of_programs=True), *_units_of_memory(rows, column_of)]
    return CsvTable(merged, column_of, summary, hints)


def _row(
    line: Line,
    program: str,
    roles: Mapping[str, str],
    space: str,
    objectives: Mapping[str, str],
    languages: Sequence[str],
) -> Row:
    """Return the row of a line.

    Args:
        line: the line.
        program: column of the programs.
        roles: columns of the other contents, empty where there is none.
        space: the space, if there is no column of spaces.
        objectives: column of each objective.
        languages: see `read_program_csv`.
    """
    cells = {role: line.cells[column].strip() if column else "" for role, column in roles.items()}
    language = cells["language"]
    if language and languages:
        language = _language(language, languages)
    name = space or cells["space"] or DEFAULT_SPACE
    stripped = Line(line.number, {column: cell.strip() for column, cell in line.cells.items()})
    return Row(
        f"{name}/{language}" if language else name,
        "",
        read_targets(stripped, objectives),
        read_cell(line, program, _source),
        cells["identifier"] or f"line {line.number}",
        group=cells["group"],
        source=cells["source"],
    )


def _units_of_memory(rows: Sequence[Row], objectives: Mapping[str, str]) -> list[str]:
    """Return a warning of each column of memory whose values are hardly in bytes.

    Args:
        rows: the rows.
        objectives: column of each objective.
    """
    found = []
    for name, column in objectives.items():
        values = [row.targets[name] for row in rows if name in row.targets]
        if kind_of(name).unit != "bytes" or not values:
            continue
        if max(values) < MIN_LARGEST_MEMORY:
            found.append(
                f"column {column!r} has no memory above {max(values):g} bytes; is it in another unit, such as"
                " megabytes? Convert it to bytes"
            )
    return found


def _check_languages(
    path: str | os.PathLike[str], lines: Sequence[Line], column: str, names: Sequence[str]
) -> None:
    """Refuse lines with unknown languages, each of which is named once.

    Raises:
        ValueError: there are such lines.
    """
    unknown: dict[str, list[int]] = {}
    for line in lines:
        cell = line.cells[column].strip()
        if cell and not _language(cell, names):
            unknown.setdefault(cell, []).append(line.number)
    faults = Faults()
    for cell, (first, *others) in unknown.items():
        more = f" and {counted(len(others), 'other')}" if others else ""
        faults.add(f"line {first}{more}, column {column}: there is no language {cell!r}")
    faults.check(f"{str(path)!r} ", f": expected one of {', '.join(names)}")


def _language(cell: str, names: Sequence[str]) -> str:
    """Return the name of a language; empty if there is none such.

    A cell may have its maker, its version and a compiler as well, as GNU C++17 7.3.0, Python 3, C# Mono and
    Java 8 (OpenJDK 1.8.0).
    """
    words = [_without_version(word) for word in _BRACKETED.sub("", cell.lower()).replace("/", " ").split()]
    words = [word for word in words if word and word not in QUALIFIERS]
    languages = {LANGUAGE_ALIASES.get(word, word) for word in words if word not in COMPILERS}
    found = languages or {COMPILERS[word] for word in words}
    return next((name for name in names if found == {name.lower()}), "")


def _without_version(word: str) -> str:
    """Return a word without the numbers of a version at its end."""
    while (shorter := _VERSION.sub("", word)) != word:
        word = shorter
    return word


def _source(cell: str) -> str:
    """Return the source of a program.

    Raises:
        ValueError: it is empty, or the name of a file.
    """
    if not cell.strip():
        raise ValueError("the cell is empty: expected the source of a program")
    if _FILE_NAME.fullmatch(cell.strip()):
        raise ValueError(f"{cell.strip()!r} is the name of a file: expected the source of the program in it")
    return cell
