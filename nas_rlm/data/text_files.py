"""Texts and values in CSV, Parquet and JSON lines files."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nas_rlm.data.importers.csv_columns import read_lines
from nas_rlm.data.text_data import (
    JSON_SUFFIX,
    MISSING,
    SUFFIXES,
    expected_cell,
    read_value,
)
from nas_rlm.files import read_text
from nas_rlm.utils.faults import Faults
from nas_rlm.utils.validation import listed, shown, suggest
from search_spaces.wording import counted

NUM_CHECKED_CELLS = 100  # of a column
JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class TextFile:
    """The content of a file.

    Args:
        texts: N texts, of the rows that have one.
        values: the cells of each target.
        columns: names of the columns that the texts are made of.
        notes: lines on what was left out.
        num_left_out: number of rows without a text.
    """

    texts: list[str]
    values: dict[str, list[Any]]
    columns: tuple[str, ...]
    notes: list[str]
    num_left_out: int = 0


def read_text_file(
    path: str | os.PathLike[str],
    text: str = "",
    targets: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> TextFile:
    r"""Read texts, and values of targets, from a file.

    Examples:
        >>> from nas_rlm.files import write_text
        >>> write_text("runs/texts.csv", "size,kind,y\n3,a,1.5\n4,b,2.5\n")
        >>> read_text_file("runs/texts.csv", targets=["y"]).texts
        ['{"size": 3, "kind": "a"}', '{"size": 4, "kind": "b"}']

    Cells of CSV files stay as they are written, so that 1.10 and 1.1 are different. Those that are numbers in
    JSON are written as such, codes such as 007 as strings.

    Args:
        path: a CSV (.csv, .tsv), Parquet or JSON lines (.jsonl) file.
        text: column of the texts; by default a text is the JSON of the other columns.
        targets: columns of the targets; they may be absent where `columns` are given.
        columns: columns that are written as JSON without `text`; by default all but the targets.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is of another kind, cannot be read, lacks a column or has no text, or a target's
            cell has no value.
    """
    path = Path(path)
    records = _read_records(path)
    known = list(dict.fromkeys(name for record in records.values() for name in record))
    for name in (*filter(None, [text]), *targets, *columns):
        if name not in known:
            split = next((column for column in known if name in map(str.strip, column.split(","))), "")
            hint = f"{split!r} has a comma, which separates names: rename it" if split else ""
            raise ValueError(f"{str(path)!r} has no column {name!r}; {hint or suggest(name, known)}")
    if text in targets:
        raise ValueError(f"{text!r} is both the text and a target: expected different columns")
    used = [text] if text else list(columns) or [name for name in known if name not in targets]
    if not used:
        raise ValueError(f"{str(path)!r} has only the columns {', '.join(known)}: expected one with texts")
    notes = []
    _check_cells(path, records, targets)
    _decode_cells(path, records, used)
    kept = [record for record in records.values() if not text or record.get(text) is not None]
    if not kept:
        raise ValueError(f"{str(path)!r} has no row with a {text}: expected texts in this column")
    num_left_out = len(records) - len(kept)
    if num_left_out:
        notes.append(f"left out: {counted(num_left_out, 'row has', 'rows have')} no {text}")
    if text and (empty := sum(not _as_text(record[text]).strip() for record in kept)):
        notes.append(f"{counted(empty, 'text is', 'texts are')} empty")
    if unused := [name for name in known if name not in (*used, *targets)]:
        notes.append(f"columns that are not used: {listed(unused)}")
    texts = [_as_text(record[text]) if text else _as_json(record, used) for record in kept]
    values = {name: [record.get(name) for record in kept] for name in targets}
    return TextFile(texts, values, tuple(used), notes, num_left_out)


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the columns of a file."""
    return list(dict.fromkeys(name for record in _read_records(Path(path)).values() for name in record))


def numeric_columns(path: str | os.PathLike[str]) -> list[str]:
    """Return the columns of a file whose first cells are numbers, which may be targets."""
    records = list(_read_records(Path(path)).values())[:NUM_CHECKED_CELLS]
    known = dict.fromkeys(name for record in records for name in record)
    return [name for name in known if all(read_value(record.get(name)) is not None for record in records)]


def _check_cells(path: Path, records: Mapping[str, Mapping[str, Any]], targets: Sequence[str]) -> None:
    """Refuse cells of targets that are no values.

    Raises:
        ValueError: some are none; the message names the places and the columns.
    """
    faults = Faults()
    for place, record in records.items():
        for name in targets:
            cell = record.get(name)
            if read_value(cell) is None:
                faults.add(f"{place}, column {name}: {shown(cell)}: expected {expected_cell(cell)}")
    faults.check(f"{str(path)!r} ")


def _decode_cells(path: Path, records: Mapping[str, dict[str, Any]], columns: Sequence[str]) -> None:
    """Replace bytes, which Parquet files may have instead of strings, by the texts that they are.

    Raises:
        ValueError: some are no texts; the message names the places and the columns.
    """
    faults = Faults()
    for place, record in records.items():
        for name in columns:
            if isinstance(cell := record.get(name), bytes):
                try:
                    record[name] = cell.decode()
                except UnicodeDecodeError:
                    faults.add(f"{place}, column {name}: {shown(cell)}: expected text in UTF-8")
    faults.check(f"{str(path)!r} ")


def _read_records(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a file by their place, such as `line 2`, each with its cells by column."""
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a directory: expected a file, one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}: expected one of {', '.join(SUFFIXES)}")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        hint = f", and for {JSON_SUFFIX} JSON lines: an object in each line" if suffix == JSON_SUFFIX else ""
        raise ValueError(f"{str(path)!r} is of an unknown kind: expected one of {', '.join(SUFFIXES)}{hint}")
    if suffix in (".csv", ".tsv"):
        return {f"line {line.number}": dict(line.cells) for line in read_lines(path, keep_blanks=True)[1]}
    records = _read_parquet(path) if suffix == ".parquet" else _read_json_lines(path)
    if not records:
        raise ValueError(f"{str(path)!r} has no rows: expected at least two")
    return records


def _read_parquet(path: Path) -> dict[str, dict[str, Any]]:
    try:
        names = pq.read_schema(path).names
        if repeated := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(
                f"{str(path)!r}: two columns have the name {repeated!r}: expected different names"
            )
        records: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{str(path)!r} is not a readable parquet file: {error}") from None
    return {f"row {i}": record for i, record in enumerate(records, 1)}


def _read_json_lines(path: Path) -> dict[str, dict[str, Any]]:
    records, faults = {}, Faults()
    for number, line in enumerate(read_text(path, "JSON lines").split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_float=_json_float, object_pairs_hook=_json_object)
        except (json.JSONDecodeError, RecursionError) as error:
            faults.add(f"line {number} is not JSON: {error}")
            continue
        except ValueError as error:
            faults.add(f"line {number}: {error}")
            continue
        if isinstance(record, dict):
            records[f"line {number}"] = record
        else:
            faults.add(f'line {number} is {shown(line)}: expected an object, {{"a": 1}}')
    faults.check(f"{str(path)!r} ")
    return records


def _json_float(text: str) -> float | str:
    """Return a number of JSON; as text where it is beyond the largest one, which is not infinity."""
    number = float(text)
    return text if math.isinf(number) else number


def _json_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON.

    Raises:
        ValueError: it has a name twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {repeated!r} occurs twice, expected different names")
    return found


def _as_text(cell: Any) -> str:
    """Return a cell as text: a string as it is, anything else as JSON."""
    return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)


def _as_json(record: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return some columns of a row as JSON."""
    cells = (f"{json.dumps(name, ensure_ascii=False)}: {_json_cell(record.get(name))}" for name in columns)
    return f"{{{', '.join(cells)}}}"


def _json_cell(cell: Any) -> str:
    """Return a cell as JSON: numbers as they are written, null for a word such as NA, other words as strings.

    Numbers that are not valid in JSON are strings, such as 007 and +5.
    """
    if isinstance(cell, str):
        stripped = cell.strip()
        if stripped.lower() in MISSING:
            return "null"
        if JSON_NUMBER.fullmatch(stripped):
            return stripped
    return json.dumps(cell, ensure_ascii=False, default=str)
