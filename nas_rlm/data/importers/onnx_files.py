"""Numbers in a CSV file, and the ONNX files that they belong to."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nas_rlm.data.omissions import Omissions, is_storable
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row
from nas_rlm.data.text_data import MISSING
from nas_rlm.files import read_text
from nas_rlm.graph.costs import compute_costs
from nas_rlm.text.canonical import costed_text, shapes_of_models
from nas_rlm.text.parser import parse_network

FILE_COLUMN, SPACE_COLUMN = "file", "space"
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@dataclass(frozen=True)
class _Record:
    """A line of the CSV file.

    Args:
        line: its number.
        file: path of the ONNX file as it is written.
        space: name of the space.
        values: text of each objective that is not missing.
    """

    line: int
    file: str
    space: str
    values: Mapping[str, str]

    @property
    def name(self) -> str:
        """Name of the line in messages."""
        return f"line {self.line}, {self.file}"


def read_rows(
    path: Path, omissions: Omissions, shapes: Mapping[str, Sequence[int]] | None = None
) -> list[Row]:
    """Read a CSV file of numbers.

    Args:
        path: the CSV file. The column `file` has paths of ONNX files, relative to the CSV file's directory;
            `space` may name their space; all other columns are objectives. An empty cell, NA or a
            similar word is not measured.
        omissions: entries that are left out.
        shapes: shapes of inputs that have open sizes in the files, by name.

    Raises:
        ValueError: the file has no column `file`, a column cannot be an objective, a line has a different
            number of cells, names no file or repeats one, `flops` or `params` are not those of the network,
            or no file has an input of a name in `shapes`.
    """
    records = list(_records(read_text(path, "a CSV file")))
    files = [path.parent / record.file for record in records]
    _check_repeated(records, files)
    known = list(dict.fromkeys(f for f in files if f.is_file()))
    own_shapes = shapes_of_models(known, shapes) if shapes else []
    shape_of = dict(zip(known, own_shapes, strict=False))
    rows, wrong = [], ""
    for record, file in zip(records, files, strict=True):
        with omissions.skip(record.name):
            text = costed_text(file, shape_of.get(file))
            values = {objective: _number(cell) for objective, cell in record.values.items()}
            wrong = wrong or _wrong_costs(record, values, text)
            targets = omissions.targets(values, record.name)
            rows.append(Row(record.space, "", targets, text, record.file))
    if wrong:
        raise ValueError(wrong)
    return rows


def _records(text: str) -> Iterator[_Record]:
    """Yield the lines of a CSV file."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    try:
        for cells in reader:
            line = [cell.strip() for cell in cells]
            if not any(line):
                continue
            if not columns:
                columns = line
                _check_header(columns)
                continue
            if len(line) != len(columns):
                raise ValueError(
                    f"line {reader.line_num} has {len(line)} cells: expected {len(columns)},"
                    f" for {','.join(columns)}"
                )
            cell_of = dict(zip(columns, line, strict=True))
            file, space = cell_of.pop(FILE_COLUMN), cell_of.pop(SPACE_COLUMN, "")
            if not file:
                raise ValueError(f"line {reader.line_num} has no file: expected the path of an ONNX file")
            yield _Record(
                reader.line_num, file, space, {k: v for k, v in cell_of.items() if v.lower() not in MISSING}
            )
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None
    if not columns:
        raise ValueError("it is empty: expected a header such as file,accuracy and a line for each file")


def _check_header(columns: list[str]) -> None:
    """Refuse a header without the column of files or with columns that cannot be objectives.

    Raises:
        ValueError: the header is such a one.
    """
    header = ",".join(columns)[:80]
    if FILE_COLUMN not in columns:
        for separator, name in _OTHER_SEPARATORS.items():
            if FILE_COLUMN in [cell.strip() for cell in header.split(separator)]:
                raise ValueError(f"the header is {header!r}: expected commas between the columns, not {name}")
        raise ValueError(f"the header is {header!r}: expected file and different objectives")
    if len(set(columns)) < len(columns):
        raise ValueError(f"the header is {header!r}: expected file and different objectives")
    objectives = [name for name in columns if name not in (FILE_COLUMN, SPACE_COLUMN)]
    if not objectives:
        raise ValueError(f"the header is {header!r}: expected a column for at least one objective")
    for name in objectives:
        if not is_storable(name):
            raise ValueError(
                f"the column {name!r} cannot be an objective: expected a name such as accuracy or"
                " latency/mybox"
            )


def _check_repeated(records: Sequence[_Record], files: Sequence[Path]) -> None:
    """Refuse a file that occurs twice in a space.

    Raises:
        ValueError: there is one.
    """
    first: dict[tuple[Path, str], int] = {}
    for record, file in zip(records, files, strict=True):
        line = first.setdefault((file.absolute(), record.space), record.line)
        if line != record.line:
            raise ValueError(
                f"line {record.line} repeats the file {record.file!r} of line {line}:"
                " expected one line for each file"
            )


def _wrong_costs(record: _Record, values: Mapping[str, float | str], text: str) -> str:
    """Return why given costs are not those of the network; empty if they are."""
    if not any(name in values for name in EXACT_OBJECTIVES):
        return ""
    macs, params, _ = compute_costs(parse_network(text)).sums()
    for name, unit, cost in (("flops", "multiply-accumulates", macs), ("params", "parameters", params)):
        value = values.get(name)
        if isinstance(value, float) and cost is not None and not math.isclose(value, cost, rel_tol=1e-6):
            return (
                f"line {record.line} has {name} {value:,.15g}, but {record.file!r} has {cost:,} {unit}:"
                f" expected that number, or an empty cell"
            )
    return ""


def _number(text: str) -> float | str:
    """Return a cell as a number, or as it is if it is none."""
    try:
        return float(text)
    except ValueError:
        return text
