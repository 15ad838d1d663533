"""Numbers in a CSV file, and the ONNX files that they belong to."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row
from nas_rlm.files import read_text
from nas_rlm.text.canonical import costed_text, shapes_of_models

FILE_COLUMN, SPACE_COLUMN = "file", "space"


def read_rows(
    path: Path, omissions: Omissions, shapes: Mapping[str, Sequence[int]] | None = None
) -> list[Row]:
    """Read a CSV file of numbers.

    Args:
        path: the CSV file. The column `file` has paths of ONNX files, relative to the CSV file's directory;
            `space` may name their space; all other columns are objectives. An empty cell is not measured.
        omissions: entries that are left out.
        shapes: shapes of inputs that have open sizes in the files, by name.

    Raises:
        ValueError: the file has no column `file`, a line has a different number of cells, or no file has an
            input of a name in `shapes`.
    """
    header, *lines = csv.reader(read_text(path, "a CSV file").splitlines()) or [[]]
    columns = [name.strip() for name in header]
    if FILE_COLUMN not in columns or len(set(columns)) < len(columns):
        raise ValueError(f"the header is {','.join(header)[:80]!r}: expected file and different objectives")
    records = []
    for number, line in enumerate(lines, 2):
        if not any(cell.strip() for cell in line):
            continue
        if len(line) != len(columns):
            raise ValueError(f"line {number} has {len(line)} cells: expected {len(columns)}")
        records.append(dict(zip(columns, (cell.strip() for cell in line), strict=True)))
    files = [path.parent / record[FILE_COLUMN] for record in records]
    own_shapes = shapes_of_models([f for f in files if f.is_file()], shapes) if shapes else []
    shape_of = dict(zip([f for f in files if f.is_file()], own_shapes, strict=False))
    rows = []
    for record, file in zip(records, files, strict=True):
        name = record[FILE_COLUMN]
        with omissions.skip(name):
            text = costed_text(file, shape_of.get(file))
            values = {k: _number(v) for k, v in record.items() if k not in (FILE_COLUMN, SPACE_COLUMN) and v}
            rows.append(Row(record.get(SPACE_COLUMN, ""), "", omissions.targets(values, name), text, name))
    return rows


def _number(text: str) -> float | str:
    """Return a cell as a number, or as it is if it is none."""
    try:
        return float(text)
    except ValueError:
        return text
