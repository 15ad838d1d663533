"""Reading of real ONNX files: share that is read, costs beside reference counts, tokens and time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import DecodeError

from nas_rlm.files import read_text
from nas_rlm.graph.costs import compute_costs
from nas_rlm.graph.onnx_graphs.loading import checked_path
from nas_rlm.graph.operators import Body, Call
from nas_rlm.text import from_onnx
from nas_rlm.text.parser import parse_network

NORM_OPERATIONS = 2  # that a published table counts for each element of a batch normalization
ROUNDING = 5e6  # half of the last digit of multiply-accumulates that are given in units of 10 million
_EXPECTED_MACS = ("macs_torch_used", "macs_expected", "macs_ort", "macs")
_ROWS_PER_BATCH = 64


@dataclass(frozen=True)
class Case:
    """A file to read.

    Args:
        name: its name.
        group: family or package.
        content: the file's bytes, or its path.
        shapes: shapes of inputs with open sizes.
        macs: reference number of multiply-accumulates; None if it is not known.
        is_rounded: True if the reference is in units of 10 million, with those of batch normalizations.
    """

    name: str
    group: str
    content: bytes | Path
    shapes: Mapping[str, Sequence[int]]
    macs: float | None
    is_rounded: bool = False


@dataclass(frozen=True)
class Reading:
    """What reading of a file gave.

    Args:
        name: name of the file.
        group: family or package.
        milliseconds: CPU time from bytes to token ids.
        tokens: tokens of the text; 0 if the file was refused.
        macs: multiply-accumulates; -1 if they are not known.
        expected_macs: reference number; -1 if there is none.
        is_explained: True if the difference to the reference is its rounding and its count of batch norms.
        has_attention: True if the network multiplies two computed matrices.
        error: reason of a refusal or of unknown costs; otherwise empty.
    """

    name: str
    group: str
    milliseconds: float
    tokens: int
    macs: float
    expected_macs: float
    is_explained: bool
    has_attention: bool
    error: str

    @property
    def is_read(self) -> bool:
        """True if the file has a text."""
        return self.tokens > 0

    @property
    def deviation(self) -> float | None:
        """Relative difference of the multiply-accumulates to the reference; None without one of them."""
        if self.macs < 0 or self.expected_macs < 0:
            return None
        if self.macs == self.expected_macs:
            return 0.0
        return self.macs / self.expected_macs - 1 if self.expected_macs else float("inf")


@dataclass(frozen=True)
class Summary:
    """Readings of a group of files; shares are between 0 and 1, and NaN without reference counts.

    Args:
        files: number of files.
        read: share that has a text.
        milliseconds: median CPU time from bytes to token ids.
        tokens: median number of tokens.
        max_tokens: tokens of the longest text.
        exact: share of counts that equal the reference, of those that are known.
        within_2_percent: share of counts that differ by at most 2 %.
        within_5_percent: share of counts that differ by at most 5 %.
        explained: share within 5 % after the rounding of the reference and its count of batch norms.
    """

    files: int
    read: float
    milliseconds: float
    tokens: float
    max_tokens: int
    exact: float
    within_2_percent: float
    within_5_percent: float
    explained: float


def summarize(readings: Sequence[Reading]) -> Summary:
    """Return the summary of readings."""
    read = [r for r in readings if r.is_read]
    deviations = [abs(r.deviation) for r in readings if r.deviation is not None]
    exact, close, near = (_share([d <= limit for d in deviations]) for limit in (0, 0.02, 0.05))
    explained = [r.is_explained or abs(r.deviation) <= 0.05 for r in readings if r.deviation is not None]
    return Summary(
        len(readings),
        len(read) / len(readings),
        float(np.median([r.milliseconds for r in read])) if read else np.nan,
        float(np.median([r.tokens for r in read])) if read else np.nan,
        max((r.tokens for r in read), default=0),
        exact,
        close,
        near,
        _share(explained),
    )


def _share(flags: Sequence[bool]) -> float:
    """Return the share of True; NaN without any."""
    return float(np.mean(flags)) if flags else np.nan


def groups_of(readings: Sequence[Reading]) -> dict[str, list[Reading]]:
    """Return readings by group, all of them, and those with and without products of computed matrices."""
    groups: dict[str, list[Reading]] = {}
    for r in readings:
        groups.setdefault(r.group, []).append(r)
    if len(groups) > 1:
        groups["all"] = list(readings)
    for name, flag in (("with attention", True), ("without attention", False)):
        found = [r for r in readings if r.is_read and r.has_attention == flag]
        if 0 < len(found) < len(readings):
            groups[name] = found
    return groups


def cases_of_table(path: Path, step: int = 1) -> Iterator[Case]:
    """Yield the files in a parquet table with the columns `identifier` and `onnx`.

    Args:
        path: the table; its reference counts are in the column `macs`, or `gmacs` in units of 10⁹, and its
            groups in `family`.
        step: read each `step`-th row.

    Raises:
        FileNotFoundError: there is no such table.
        ValueError: it is no parquet table, or has no such columns.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}: expected {_TABLE}")
    try:
        table = pq.ParquetFile(path)
    except (OSError, pa.ArrowException):
        raise ValueError(f"{str(path)!r} is not {_TABLE}") from None
    schema = table.schema_arrow
    _check_columns(path, schema)
    columns = [n for n in _COLUMN_TYPES if n in schema.names]
    k = 0
    for batch in table.iter_batches(_ROWS_PER_BATCH, columns=columns):
        for row in batch.to_pylist():
            k += 1
            if not row["onnx"] or (k - 1) % step:
                continue
            macs = row.get("macs") or (1e9 * row["gmacs"] if row.get("gmacs") else None)
            name, group = row["identifier"] or f"row {k}", row.get("family") or path.stem
            yield Case(name, group, row["onnx"], {}, macs, "gmacs" in schema.names)


_TABLE = "a parquet table with the columns identifier and onnx"
_INDEX = "an index of JSON lines"
# Columns of a table: the Arrow types of their values, and the name of these types.
_TEXTS = (pa.types.is_string, pa.types.is_large_string), "texts"
_NUMBERS = (pa.types.is_integer, pa.types.is_floating), "numbers"
_COLUMN_TYPES = {
    "identifier": _TEXTS,
    "family": _TEXTS,
    "onnx": ((pa.types.is_binary, pa.types.is_large_binary), "bytes of ONNX files"),
    "macs": _NUMBERS,
    "gmacs": _NUMBERS,
}


def _check_columns(path: Path, schema: pa.Schema) -> None:
    """Refuse a table without the columns that are needed, or with others of their names.

    Raises:
        ValueError: it is such a table.
    """
    missing = [name for name in ("identifier", "onnx") if name not in schema.names]
    if missing:
        raise ValueError(
            f"{str(path)!r} has no column {' and '.join(missing)}, it has {', '.join(schema.names)[:200]}:"
            f" expected {_TABLE}"
        )
    for name, (checks, expected) in _COLUMN_TYPES.items():
        kind = schema.field(name).type if name in schema.names else None
        if kind is not None and not any(check(kind) for check in checks):
            raise ValueError(f"{str(path)!r}: the column {name} has the type {kind}: expected {expected}")


def cases_of_index(path: Path) -> Iterator[Case]:
    """Yield the files that an index of JSON lines lists.

    Args:
        path: each line has `file`, relative to the index or its parent directory, and may have `group`,
            `shapes` and a reference count, see `_EXPECTED_MACS`. Lines whose file is null are left out.

    Raises:
        FileNotFoundError: there is no such index, or one of its files does not exist.
        ValueError: a line is not such an object.
    """
    for number, line in enumerate(read_text(path, _INDEX).splitlines(), 1):
        if not line.strip():
            continue
        try:
            case = _case_of_line(path, line)
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(f"{str(path)!r}, line {number}: {error}") from None
        if case is not None:
            yield case


def _case_of_line(path: Path, line: str) -> Case | None:
    """Return the file that a line of an index names; None if it is null."""
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{line[:40]!r} is not JSON ({error}): expected {_INDEX}") from None
    if not isinstance(row, dict) or "file" not in row:
        raise ValueError(f'{line[:40]!r} is no object with a file: expected {{"file": "network.onnx"}}')
    name, group = row["file"], row.get("group")
    if name is None:
        return None
    for key, value in (("file", name), ("group", group)):
        if not (isinstance(value, str) and value) and not (key == "group" and value is None):
            raise ValueError(f"{key} is {value!r}: expected a text")
    shapes = row.get("shapes") or row.get("inputs") or {}
    if not isinstance(shapes, dict) or not all(isinstance(shape, list) for shape in shapes.values()):
        raise ValueError(f'shapes is {shapes!r}: expected lists of sizes by name, {{"x": [1, 3, 224, 224]}}')
    key = next((key for key in _EXPECTED_MACS if row.get(key) is not None), "")
    macs = row.get(key)
    if macs is not None and (
        isinstance(macs, bool) or not isinstance(macs, int | float) or not 0 <= macs < inf
    ):
        raise ValueError(f"{key} is {macs!r}: expected a number of multiply-accumulates")
    candidates = [path.parent / name, path.parent.parent / name]
    file = checked_path(next((c for c in candidates if c.exists()), candidates[0]))
    return Case(file.name, group or path.absolute().parent.name, file, shapes, macs)


def read_case(case: Case, encode: Callable[[str], list[int]]) -> Reading:
    """Read a file, and compare its costs with the reference.

    Args:
        case: the file.
        encode: function that returns the token ids of a text.
    """
    start = time.process_time()
    try:
        if isinstance(case.content, Path):
            source = (
                onnx.load_model_from_string(case.content.read_bytes()) if not case.shapes else case.content
            )
            text = from_onnx(source, case.shapes)
        else:
            text = from_onnx(onnx.load_model_from_string(case.content))
        tokens = len(encode(text))
    except (DecodeError, ValueError) as error:
        return _refusal(case, 1e3 * (time.process_time() - start), str(error))
    milliseconds = 1e3 * (time.process_time() - start)
    body = parse_network(text)
    costs = compute_costs(body)
    macs = -1.0 if costs.problem else float(costs.sums()[0] or 0)
    return Reading(
        case.name,
        case.group,
        milliseconds,
        tokens,
        macs,
        -1.0 if case.macs is None else float(case.macs),
        case.is_rounded and case.macs is not None and _is_rounding(macs, case.macs, body),
        _has_attention(body),
        costs.problem,
    )


def _refusal(case: Case, milliseconds: float, error: str) -> Reading:
    """Return the result of a file that was refused."""
    expected = -1.0 if case.macs is None else float(case.macs)
    return Reading(case.name, case.group, milliseconds, 0, -1.0, expected, False, False, error)


def _is_rounding(macs: float, expected: float, body: Body) -> bool:
    """Return True if the reference is the rounded count with the operations of batch normalizations."""
    with_norms = macs + NORM_OPERATIONS * _norm_elements(body)
    return min(abs(with_norms - expected), abs(macs - expected)) <= 0.05 * expected + ROUNDING


def _norm_elements(body: Body) -> int:
    """Return the elements that batch normalizations compute."""
    total = 0
    for step in body.steps:
        if isinstance(step, Call):
            total += _norm_elements(step.body)
        elif step.kind == "BatchNormalization":
            total += step.costs.activations
    return total


def _has_attention(body: Body) -> bool:
    """Return True if a network multiplies two computed matrices."""
    return any(
        _has_attention(step.body)
        if isinstance(step, Call)
        else step.kind in ("MatMul", "Einsum") and len(step.values) > 1
        for step in body.steps
    )
