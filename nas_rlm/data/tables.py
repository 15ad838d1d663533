"""Tables of measured architectures and programs in the schema of the paper's public datasets."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import search_spaces
from nas_rlm.data import network_files
from nas_rlm.data.judge_times import make_times_comparable
from nas_rlm.data.objective_kinds import LATENCY_PREFIX, Declaration, check_declaration, expected_value
from nas_rlm.data.omissions import Omissions, is_storable, is_valid_target
from nas_rlm.data.rows import Row, Table
from nas_rlm.files import atomic_write
from nas_rlm.utils.validation import shown

__all__ = [  # Row and Table are those of `nas_rlm.data.rows`
    "COLUMNS",
    "EXACT_OBJECTIVES",
    "METADATA_PREFIXES",
    "SPACE_NAMES",
    "Row",
    "Table",
    "check_readable",
    "data_directory",
    "read",
    "read_declarations",
    "write",
]

COLUMNS = (
    *("identifier", "space", "uid", "arch_str", "input", "target_metric"),
    *("val_accuracy", "flops", "params", "metadata", "metainformation"),
)
TEXT_COLUMNS = ("arch_str", "input", "space", "metainformation")
REQUIRED_COLUMNS = ("identifier", "space", "metadata")  # tables of programs have these as well
CONTENT_COLUMNS = ("arch_str", "input")  # a table needs at least one of them
EXACT_OBJECTIVES = ("flops", "params")  # computed from the graph, not measured
METADATA_PREFIXES = {"acc": "accuracy", "lat": "latency", "mem": "memory"}  # of keys such as lat_pixel3
PLAIN_KEYS = ("perplexity",)  # metadata keys of the public datasets that are objectives
OTHER_OBJECTIVES_KEY = "objectives"  # metadata key of a dict of all objectives that have no other place
DECLARATIONS_KEY = b"nas_rlm.objectives"  # metadata key of the file: JSON of units and directions
METRIC_TYPES = {"memory_bytes": "memory", "latency_ms": "latency"}  # the objective stored in val_accuracy
ADJUSTED_MEMORY_KEY = "adjusted_bytes"  # memory without the differences between a judge's machines
TIME_KEY = "time_ms"  # metadata key of the objective `time`
SOURCE_KEY, HALF_YEAR_KEY = "source", "half_year"  # metadata keys of a program's author and date
SMALL_INPUTS = "small-inputs"  # suffix of the objective that was measured without larger inputs
GROUP_KEYS = ("problem", "kernel", "problem_id", "p_id")  # metadata keys that name a program's problem
SPACE_NAMES = {  # name in the public datasets: name of the search space
    **{"NB201": "nasbench201", "NB101": "nasbench101", "NATS-SSS": "nats_size"},
    **{"FBNet": "fbnet", "OfaMB": "ofa_mbv3", "DARTS": "nds_darts"},
    **{"HWGPT-S": "gpt_s", "HWGPT-M": "gpt_m", "HWGPT-L": "gpt_l", "JUDGE": "LeetCode"},
}
MAX_UNCOMPUTED_MS, UNCOMPUTED_SHARE = 0.02, 1e-3  # latencies of nothing are less, and less of the median
# The published tables of these spaces have rows with networks of another one of them.
CHECKED_SPACES = ("gpt_s", "gpt_m", "gpt_l")
PARQUET_MAGIC = b"PAR1"
PROGRAM_NAMES = {"program", "code", "source_code", "solution"}  # columns of CSV files of programs
MAX_SNIFFED_BYTES = 2**12  # of a file that is no parquet, to see whether it is a CSV file


def data_directory() -> Path:
    """Return the directory of the benchmark tables: NAS_RLM_DATA, or ../shared/data beside the project."""
    return Path(os.environ.get("NAS_RLM_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def read(path: str | os.PathLike[str], omissions: Omissions | None = None) -> Table:
    """Read a parquet table.

    `val_accuracy` is the objective `accuracy`, or the one that the column `metric_type` names: `memory`
    (bytes) or `latency` (ms). `acc_X`, `lat_X` and `mem_X` in the metadata are the objectives `accuracy/X`,
    `latency/X` and `memory/X`; `flops`, `params` and `perplexity` keep their names, and so do all names in
    the dict `objectives` of the metadata. Missing values are left out. For programs, the `language` becomes
    part of the space's name, `problem` or `kernel` becomes the group, and a value measured without
    `larger_inputs` is the objective `memory/small-inputs`. A judge's `adjusted_bytes` replace its memory,
    where they are above 0, and `time_ms` is the objective `time`, made comparable over half-years by
    `nas_rlm.data.judge_times`; `source` and `half_year` (in `metainformation`) say who wrote the program, and
    when. Rows of HW-GPT-Bench with a network of another scale are left out.

    The latency of a network is 0, which is no measurement, where it is less than a thousandth of the median
    and than 0.02 ms: its output does not depend on its input, and the runtime computed nothing.

    A parquet file with the columns `identifier` and `onnx`, the content of an ONNX file in each row, is read
    as well: see `nas_rlm.data.network_files.read_records`. Its space is the name of the file.

    Args:
        path: the parquet file.
        omissions: leave out rows and numbers that are not valid, and count them here; by default they are
            errors.

    Returns:
        The table, named after the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not parquet, lacks columns of the schema, or has a value that is not valid.

    Warns:
        UserWarning: rows are left out.
    """
    path = _existing(path)
    try:
        records = network_files.read_records(path) if network_files.has_networks(path) else _records(path)
        file_metadata = pq.read_schema(path).metadata
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None
    defaults = dict.fromkeys(COLUMNS)
    rows: list[Row] = []
    half_years: dict[int, str] = {}
    for i, record in enumerate(records, 1):
        with omissions.skip(f"row {i}") if omissions is not None else nullcontext():
            if reason := record.get(network_files.ERROR_KEY):
                raise ValueError(f"{str(path)!r}: the network of {record['identifier']}: {reason}")
            record = defaults | record
            row_name = shown(record["identifier"] or record["arch_str"] or f"row {i}")
            metadata = _parse_metadata(record["metadata"], row_name, path)
            rows.append(_to_row(record, metadata, row_name, path, omissions))
            if metadata.get(TIME_KEY) is not None and metadata.get(HALF_YEAR_KEY):
                half_years[len(rows) - 1] = str(metadata[HALF_YEAR_KEY])
    make_times_comparable(rows, half_years, "time")
    misplaced = Omissions() if omissions is None else omissions
    rows = _rows_of_their_space(rows, misplaced)
    _clear_uncomputed(rows)
    if omissions is None:
        misplaced.warn()
    return Table(path.stem, rows, _read_declarations(file_metadata or {}, path))


def check_readable(path: str | os.PathLike[str]) -> None:
    """Check that a file is a table, from its schema alone; values are not checked.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not parquet, or lacks columns of the schema.
    """
    path = _existing(path)
    try:
        if not network_files.has_networks(path):
            _check_columns(path, pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that exists."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no table at {str(path)!r}: expected a parquet file"
            " (NAS_RLM_DATA is the directory of the benchmarks)"
        )
    return path


def _check_columns(path: Path, columns: Collection[str]) -> None:
    """Refuse a file without the columns of a table."""
    missing = [c for c in REQUIRED_COLUMNS if c not in columns]
    if missing or not set(CONTENT_COLUMNS) & set(columns):
        raise ValueError(
            f"{str(path)!r} lacks the columns {', '.join(missing) or ' and '.join(CONTENT_COLUMNS)};"
            f" expected {', '.join(REQUIRED_COLUMNS)}, {' or '.join(CONTENT_COLUMNS)}"
        )


def _unreadable(path: Path, error: Exception) -> ValueError:
    """Return the error for a file that cannot be read as parquet: it may be a CSV file, or damaged."""
    with open(path, "rb") as file:
        start = file.read(MAX_SNIFFED_BYTES)
    is_parquet = start.startswith(PARQUET_MAGIC)
    header = start.partition(b"\n")[0].decode(errors="replace")
    columns = [name.strip().lower() for name in re.split("[,;\t]", header)]
    is_json = header.startswith(("{", "["))
    is_csv = len(columns) > 1 and all(name.isprintable() for name in columns) and not is_json
    if not is_parquet and (is_csv or path.suffix.lower() in (".csv", ".tsv")):
        kind = "onnx" if "file" in columns else "programs" if PROGRAM_NAMES & {*columns} else "csv"
        space = " --space SPACE" if kind == "csv" and "space" not in columns else ""
        source, target = (shlex.quote(str(p)) for p in (path, path.with_suffix(".parquet")))
        return ValueError(
            f"{str(path)!r} is a CSV file, and no parquet table: make one of it with nas-rlm data import"
            f" {kind} {source}{space} --out {target}"
        )
    of_another_format = ", but of another format: expected a table of nas-rlm data import"
    reason = f": {error}" if is_parquet else of_another_format
    return ValueError(f"{str(path)!r} is not a readable parquet file{reason}")


def _records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a parquet file in the schema of tables."""
    content = pq.read_table(path)
    _check_columns(path, content.column_names)
    present = [c for c in (*COLUMNS, "metric_type") if c in content.column_names]
    records: list[dict[str, Any]] = content.select(present).to_pylist()
    return records


def write(
    path: str | os.PathLike[str],
    rows: Iterable[Row],
    declarations: Mapping[str, Declaration] | None = None,
) -> None:
    """Write rows as a parquet table, from which `read` returns the same rows.

    Examples:
        >>> rows = [Row("nats_size", "8:8:8:8:8", {"score": -1.5})]
        >>> write("runs/scores.parquet", rows, {"score": Declaration(direction="maximize")})
        >>> read("runs/scores.parquet").maximised
        ('score',)

    Args:
        path: the parquet file, which is replaced if it exists.
        rows: the rows.
        declarations: units and directions of objectives, see `Table`.

    Raises:
        ValueError: a target is not finite or not valid for its kind, a name has a blank or a comma, or a
            direction contradicts a kind.
    """
    records = [_to_record(row) for row in rows]
    for name, declaration in (declarations or {}).items():
        check_declaration(name, declaration)
    columns = (*COLUMNS, "metric_type") if any("metric_type" in r for r in records) else COLUMNS
    types = {c: pa.float64() if c in ("val_accuracy", "flops", "params") else pa.string() for c in columns}
    declared = {name: asdict(declaration) for name, declaration in (declarations or {}).items()}
    file_metadata = {DECLARATIONS_KEY: json.dumps(declared).encode()} if declared else None
    schema = pa.schema(list(types.items()), file_metadata)
    with atomic_write(path) as temporary:
        pq.write_table(pa.Table.from_pylist(records, schema=schema), temporary)


def read_declarations(path: str | os.PathLike[str]) -> dict[str, Declaration]:
    """Return the units and directions that a parquet table declares, see `Table`."""
    return _read_declarations(pq.read_schema(path).metadata or {}, Path(path))


def _read_declarations(file_metadata: Mapping[bytes, bytes], path: Path) -> dict[str, Declaration]:
    """Return the declarations in the metadata of a file."""
    try:
        declared = json.loads(file_metadata.get(DECLARATIONS_KEY, b"{}"))
        declarations = {name: Declaration(**entry) for name, entry in declared.items()}
        for name, declaration in declarations.items():
            check_declaration(name, declaration)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{str(path)!r}: its units and directions cannot be read: {error}") from None
    return declarations


def _to_row(
    record: Mapping[str, Any],
    metadata: Mapping[Any, Any],
    row_name: str,
    path: Path,
    omissions: Omissions | None,
) -> Row:
    """Convert a record of the file to a row.

    Args:
        record: value of each column, None where it is missing.
        metadata: the content of its column `metadata`.
        row_name: name of the row, for error messages.
        path: the file, for error messages.
        omissions: counts the numbers that are not valid; None if they are errors.
    """
    targets = _read_targets(record, metadata, row_name, path, omissions)
    for name in TEXT_COLUMNS:
        if not isinstance(record[name], str | None):
            raise ValueError(f"{str(path)!r}: {name} of {row_name} is {record[name]!r}, expected text")
    if not (record["arch_str"] or record["input"]):
        raise ValueError(f"{str(path)!r}: {row_name} has neither arch_str nor input: expected one of them")
    space = search_spaces.registered_name(SPACE_NAMES.get(record["space"], record["space"]) or "")
    space += f"/{metadata['language']}" if metadata.get("language") else ""
    group = next((str(metadata[name]) for name in GROUP_KEYS if metadata.get(name) not in (None, "")), "")
    return Row(
        space,
        record["arch_str"] or "",
        targets,
        record["input"] or "",
        record["identifier"] or "",
        record["uid"] or "",
        record["metainformation"] or str(metadata.get(HALF_YEAR_KEY) or ""),
        group.rpartition(":")[2],  # some tables prefix the name of the online judge, others do not
        str(metadata.get(SOURCE_KEY) or ""),
    )


def _rows_of_their_space(rows: list[Row], omissions: Omissions) -> list[Row]:
    """Return the rows without those of `CHECKED_SPACES` whose network is of another space."""
    checked = {row.space for row in rows}.intersection(CHECKED_SPACES)
    spaces = {name: search_spaces.get(name) for name in checked}
    valid = []
    for row in rows:
        with omissions.skip(row.identifier or row.arch_str):
            if row.space in spaces and row.arch_str:
                spaces[row.space].parse(row.arch_str)
            valid.append(row)
    return valid


def _clear_uncomputed(rows: list[Row]) -> None:
    """Set latencies to 0 in which a runtime computed nothing, see `read`."""
    short = {name for row in rows for name, value in row.targets.items() if value < MAX_UNCOMPUTED_MS}
    for name in (name for name in short if name.startswith(LATENCY_PREFIX)):
        measured = [row for row in rows if row.is_measured(name) and not row.is_program]
        limit = UNCOMPUTED_SHARE * median([row.targets[name] for row in measured] or [0.0])
        for row in measured:
            if row.targets[name] < min(limit, MAX_UNCOMPUTED_MS):
                row.targets[name] = 0.0


def _parse_metadata(text: Any, row_name: str, path: Path) -> dict[Any, Any]:
    """Return the metadata of a record, which is stored as the text of a Python dict."""
    try:
        metadata = ast.literal_eval(text or "{}")
        return dict(metadata.items())
    except (ValueError, SyntaxError, AttributeError, TypeError, MemoryError, RecursionError):
        raise ValueError(
            f"{str(path)!r}: metadata of {row_name} is {shown(text)},"
            " expected a dict such as {'lat_pixel3': 3.6}"
        ) from None


def _read_targets(
    record: Mapping[str, Any],
    metadata: Mapping[Any, Any],
    row_name: str,
    path: Path,
    omissions: Omissions | None,
) -> dict[str, float]:
    """Return the value of each objective of a record that has one."""
    metric = record.get("metric_type")
    if metric is not None and metric not in METRIC_TYPES:
        raise ValueError(
            f"{str(path)!r}: metric_type of {row_name} is {metric!r}, expected {' or '.join(METRIC_TYPES)}"
        )
    objective = METRIC_TYPES[metric] if metric else "accuracy"
    if metadata.get("larger_inputs") is False:
        objective = f"{objective}/{SMALL_INPUTS}"
    values = {objective: record["val_accuracy"], "flops": record["flops"], "params": record["params"]}
    if ADJUSTED_MEMORY_KEY in metadata:
        values[objective] = _positive(metadata[ADJUSTED_MEMORY_KEY])
    if TIME_KEY in metadata:
        values["time"] = metadata[TIME_KEY]
    for key, value in metadata.items():
        prefix, _, suffix = str(key).partition("_")
        if prefix in METADATA_PREFIXES and suffix:
            values[f"{METADATA_PREFIXES[prefix]}/{suffix}"] = value
        elif key in PLAIN_KEYS:
            values[key] = value
    others = metadata.get(OTHER_OBJECTIVES_KEY)
    values |= {str(name): value for name, value in others.items()} if isinstance(others, dict) else {}
    for name, value in list(values.items()):
        is_valid = value is None or is_valid_target(name, value)
        if omissions is not None and not (is_valid and is_storable(name)):
            omissions.add(row_name, repr(values.pop(name)), name)
        elif not is_valid:
            raise ValueError(
                f"{str(path)!r}: {name} of {row_name} is {shown(value)}, expected {expected_value(name)}"
            )
    return {k: float(v) for k, v in values.items() if v is not None and not math.isnan(v)}


def _positive(value: Any) -> Any:
    """Return an adjusted value, or None where the adjustment has made it negative or 0."""
    return None if isinstance(value, int | float) and value <= 0 else value


def _to_record(row: Row) -> dict[str, Any]:
    """Convert a row to the columns of the file."""
    for name, value in row.targets.items():
        if not is_storable(name) or not is_valid_target(name, value) or math.isnan(value):
            raise ValueError(f"{name} of {row.arch_str!r} is {value!r}, which cannot be stored in a table")
    metrics = {name: metric for metric, name in METRIC_TYPES.items() if name in row.targets}
    if len(metrics) > 1 or "accuracy" in row.targets:  # val_accuracy has one value
        metrics = {}
    metadata: dict[str, Any] = {}
    others: dict[str, float] = {}
    prefixes = {kind: prefix for prefix, kind in METADATA_PREFIXES.items()}
    for name, value in row.targets.items():
        kind, _, suffix = name.partition("/")
        if suffix and kind in prefixes:
            metadata[f"{prefixes[kind]}_{suffix}"] = value
        elif name in PLAIN_KEYS:
            metadata[name] = value
        elif name not in ("accuracy", *EXACT_OBJECTIVES, *metrics):
            others[name] = value
    if others:
        metadata[OTHER_OBJECTIVES_KEY] = others
    if row.group:
        metadata[GROUP_KEYS[0]] = row.group
    if row.source:
        metadata[SOURCE_KEY] = row.source
    public_names = {space: name for name, space in SPACE_NAMES.items()}
    record = {
        "identifier": row.identifier,
        "space": public_names.get(row.space, row.space),
        "uid": row.uid,
        "arch_str": row.arch_str,
        "input": row.input,
        "target_metric": "val_accuracy",
        "val_accuracy": row.targets.get("accuracy"),
        "flops": row.targets.get("flops"),
        "params": row.targets.get("params"),
        "metadata": repr(metadata),
        "metainformation": row.metainformation,
    }
    for name, metric in metrics.items():
        record |= {"val_accuracy": row.targets[name], "metric_type": metric}
    return record
