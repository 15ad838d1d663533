"""CSV files with named columns: the path of an ONNX file and numbers in each line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import search_spaces
from nas_rlm.data.importers.csv_columns import (
    SPACE_COLUMN,
    CsvTable,
    Line,
    check_columns,
    column_hints,
    find_column,
    find_objectives,
    merge_rows,
    read_each,
    read_lines,
    read_targets,
    unused_columns,
    value_summary,
)
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row
from nas_rlm.graph.costs import compute_costs
from nas_rlm.text.canonical import costed_text, shapes_of_models
from nas_rlm.text.parser import parse_network
from nas_rlm.utils.progress import progress_bar

FILE_COLUMN = "file"


def read_onnx_csv(
    path: Path,
    space: str = "",
    objectives: Mapping[str, str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    omissions: Omissions | None = None,
) -> CsvTable:
    """Read a CSV file of measured ONNX files, separated by commas, semicolons, tabs or vertical bars.

    Columns whose names are objectives need not be given, as in `nas_rlm.data.importers.csv_files.read_csv`.

    Args:
        path: the CSV file, in UTF-8. The column `file` has paths of ONNX files, relative to the CSV file's
            directory.
        space: the space of all files, which need not be a search space; by default the column `space` names
            it, if there is one.
        objectives: column of each objective whose column has another name.
        shapes: shapes of inputs that have open sizes in the files, by name.
        omissions: ONNX files that cannot be read are left out, and counted here; by default they are among
            the warnings.

    Returns:
        The rows. Lines of one file that do not contradict each other are one row.

    Raises:
        FileNotFoundError: there is no such CSV file.
        ValueError: the file is not such a CSV file, a column is missing, a cell is not valid, `flops` or
            `params` are not those of the network, no ONNX file can be read, or no file has an input of a name
            in `shapes`.
    """
    columns, lines = read_lines(path)
    file_column = find_column(columns, (FILE_COLUMN,))
    if not file_column:
        raise ValueError(
            f"{str(path)!r} has the columns {', '.join(columns)}: expected {FILE_COLUMN}, with paths of ONNX"
            " files, and objectives"
        )
    check_columns(path, columns, objectives or {})
    space_column = "" if space else find_column(columns, (SPACE_COLUMN,))
    used = {file_column, space_column}
    column_of = find_objectives(path, columns, lines, objectives or {}, used)
    used |= set(column_of.values())
    targets = read_each(path, lines, partial(read_targets, objectives=column_of))
    names = [line.cells[file_column] for line in lines]
    if "" in names:
        number = lines[names.index("")].number
        raise ValueError(f"{str(path)!r} line {number} has no file: expected the path of an ONNX file")
    left_out = Omissions() if omissions is None else omissions
    texts = _texts(path, lines, names, shapes, left_out)
    if not texts:
        raise ValueError(f"{str(path)!r}: no ONNX file can be read: {'; '.join(left_out.reasons[''])}")
    kept_lines, keys, rows = [], [], []
    for line, name, line_targets in zip(lines, names, targets, strict=True):
        if name not in texts:
            continue
        _check_costs(path, line, name, line_targets, texts[name])
        row_space = search_spaces.name_of(space) if space else line.cells.get(space_column, "")
        rows.append(Row(row_space, "", line_targets, texts[name], name))
        kept_lines.append(line)
        keys.append((row_space, (path.parent / name).absolute()))
    merged, reports = merge_rows(kept_lines, rows, keys, "file")
    summary = [*value_summary(rows, column_of), *unused_columns(columns, used), *reports]
    messages = left_out.messages() if omissions is None else []
    return CsvTable(merged, column_of, summary, [*messages, *column_hints(columns, lines, used)])


def _texts(
    path: Path,
    lines: Sequence[Line],
    names: Sequence[str],
    shapes: Mapping[str, Sequence[int]] | None,
    omissions: Omissions,
) -> dict[str, str]:
    """Return the text of each file that can be read, by its path in the CSV file."""
    file_of = {name: path.parent / name for name in names}
    known = [name for name, file in file_of.items() if file.is_file()]
    own_shapes = dict(zip(known, shapes_of_models([file_of[n] for n in known], shapes), strict=True))
    texts: dict[str, str] = {}
    lines_of_files = list(zip(lines, names, strict=True))
    for line, name in progress_bar(lines_of_files, "text", unit="net", delay=2):
        if name not in texts:
            with omissions.skip(f"line {line.number}, {name}"):
                texts[name] = costed_text(file_of[name], own_shapes.get(name))
    return texts


def _check_costs(path: Path, line: Line, name: str, targets: Mapping[str, float], text: str) -> None:
    """Check given costs.

    Raises:
        ValueError: they are not those of the network.
    """
    if not any(objective in targets for objective in EXACT_OBJECTIVES):
        return
    macs, params, _ = compute_costs(parse_network(text)).sums()
    for objective, unit, cost in (
        ("flops", "multiply-accumulates", macs),
        ("params", "parameters", params),
    ):
        value = targets.get(objective)
        if value is not None and cost is not None and not math.isclose(value, cost, rel_tol=1e-6):
            raise ValueError(
                f"{str(path)!r} line {line.number} has {objective} {value:,.15g}, but {name!r} has"
                f" {cost:,} {unit}: expected that number, or an empty cell"
            )
