"""Tables of measured architectures in the schema of the paper's public datasets."""

from __future__ import annotations

import ast
import hashlib
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

import search_spaces
from nas_rlm.files import atomic
from nas_rlm.text import from_architectures, from_onnx
from nas_rlm.text.parser import is_network, is_onnx
from nas_rlm.utils.validation import hint

COLUMNS = (
    *("identifier", "space", "uid", "arch_str", "input", "target_metric"),
    *("val_accuracy", "flops", "params", "metadata", "metainformation"),
)
NEEDED = ("identifier", "space", "metadata")  # what tables of programs have as well
SAID = ("arch_str", "input")  # one of them tells what was measured
COUNTED = ("flops", "params")  # numbers of a table that nobody measured
KINDS = {"acc": "accuracy", "lat": "latency", "mem": "memory"}  # names of numbers in metadata begin so
METRICS = {"memory_bytes": "memory", "latency_ms": "latency"}  # what val_accuracy is in tables of programs
SMALL = "small-inputs"  # of which a program's number is another one than that on large inputs
GROUPS = ("problem", "kernel", "problem_id", "p_id")  # what metadata calls that which several programs solve
SPACES = {
    **{"NB201": "nasbench201", "NB101": "nasbench101", "NATS-SSS": "nats_size"},
    **{"FBNet": "fbnet", "OfaMB": "ofa_mbv3", "DARTS": "nds_darts"},
}
SHOWN = 60  # characters of a value in an error
NEAR_ZERO = 0.02  # ms; less has only a network whose output does not depend on its input: nothing was run
MANY = 1000  # made texts, keys or counts are worth remembering
VERSIONS = {"text": 6, "key": 6}  # raised when what is made changes, so that remembered ones are made again


@dataclass(frozen=True)
class Row:
    """A measured architecture or program.

    Args:
        space: the adapter's name, or the table's own where there is no adapter.
        arch_str: the benchmark's notation.
        targets: objective to value: percent, milliseconds, multiply-accumulates, parameters.
        input: the text, or the program; empty where the space's adapter makes it.
        identifier, uid, metainformation: as in the file.
        group: the problem that a program solves.
    """

    space: str
    arch_str: str
    targets: dict[str, float]
    input: str = ""
    identifier: str = ""
    uid: str = ""
    metainformation: str = ""
    group: str = ""

    def measured(self, objective: str) -> bool:
        """Whether there is a value; a network's latency near zero is none, nor is what is not finite."""
        value = self.targets.get(objective, math.nan)
        is_none = objective.startswith("latency/") and value < NEAR_ZERO and not self.is_program
        return math.isfinite(value) and not is_none

    @property
    def is_program(self) -> bool:
        """Whether it is a program, and no network."""
        return bool(self.input) and not is_onnx(self.input)

    def only(self, objectives: Collection[str]) -> Row:
        """The same architecture with these of its numbers and no others."""
        return replace(self, targets={k: v for k, v in self.targets.items() if k in objectives})


@dataclass
class Table:
    """Rows of one file."""

    name: str
    rows: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def objectives(self) -> list[str]:
        """Every objective that some row has, accuracies first."""
        known = {name for row in self.rows for name in row.targets}
        return sorted(known, key=lambda n: (not n.startswith("accuracy"), n))

    @property
    def is_programs(self) -> bool:
        """Whether all rows are programs, and none a network."""
        return all(row.is_program for row in self.rows)

    def having(self, objective: str) -> Table:
        """The rows that were measured for an objective."""
        return Table(self.name, [r for r in self.rows if r.measured(objective)])

    def column(self, objective: str) -> np.ndarray:
        """What was measured of each row, float64 [N], NaN where nothing was."""
        return np.array([r.targets[objective] if r.measured(objective) else math.nan for r in self.rows])

    def sampled(self, most: int) -> Table:
        """The table, or as many of its rows drawn at random: tables have their parts one after the other."""
        drawn = np.random.default_rng(0).permutation(len(self))[:most]
        return Table(self.name, [self.rows[i] for i in drawn]) if most < len(self) else self


def data_directory() -> Path:
    """Where the benchmark tables lie: NAS_RLM_DATA, or ../shared/data beside the project."""
    return Path(os.environ.get("NAS_RLM_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def read(path: str | os.PathLike[str]) -> Table:
    """A parquet table.

    `val_accuracy` is the objective `accuracy`, or what a column `metric_type` says: `memory` (bytes) or
    `latency` (ms). `acc_X`, `lat_X` and `mem_X` of the metadata are `accuracy/X`, `latency/X` and `memory/X`;
    `flops` and `params` keep their names. Missing values are left out. Of programs the `language` is
    a part of the space's name, `problem` or `kernel` is the group, and what was measured without
    `larger_inputs` is `memory/small-inputs`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not parquet, or columns of the schema are missing, or metadata is no dict of numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no table at {str(path)!r}: expected a parquet file (NAS_RLM_DATA names the benchmarks' folder)"
        )
    try:
        content = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{str(path)!r} is no parquet file that can be read: {error}") from None
    missing = [c for c in NEEDED if c not in content.column_names]
    if missing or not set(SAID) & set(content.column_names):
        lacking = ", ".join(missing) or " and ".join(SAID)
        raise ValueError(
            f"{str(path)!r} lacks the columns {lacking}; expected {', '.join(NEEDED)}, {' or '.join(SAID)}"
        )
    known = [c for c in (*COLUMNS, "metric_type") if c in content.column_names]
    nothing = dict.fromkeys(COLUMNS)
    records = content.select(known).to_pylist()
    return Table(
        path.stem, [_row(nothing | record, path, number) for number, record in enumerate(records, 1)]
    )


def write(path: str | os.PathLike[str], rows: Iterable[Row]) -> None:
    """Write rows as a parquet table that `read` gives back."""
    records = [_record(row) for row in rows]
    columns = (*COLUMNS, "metric_type") if any("metric_type" in r for r in records) else COLUMNS
    types = {c: pa.float64() if c in ("val_accuracy", "flops", "params") else pa.string() for c in columns}
    with atomic(path) as temporary:
        pq.write_table(pa.Table.from_pylist(records, schema=pa.schema(list(types.items()))), temporary)


def split(table: Table, fraction: float = 0.1, seed: int = 0, by_group: bool = False) -> tuple[Table, Table]:
    """Training and validation rows; architectures that compute the same function stay on one side.

    The side is a hash of the seed and the space's `key`, so it does not depend on the other rows.

    Args:
        table: of all rows.
        fraction: that is held out.
        seed: of the hash.
        by_group: programs for the same problem stay on one side as well.

    Raises:
        ValueError: programs are to be split by problems that are not known.
    """
    training, held = _sides(table, (fraction,), seed, by_group)
    return training, held


def split_in_three(
    table: Table, fraction: float = 0.1, seed: int = 0, by_group: bool = False
) -> tuple[Table, Table, Table]:
    """Training, validation and test rows: of what `split` holds out, one half tells when and how wide.

    The other half judges, and nothing is chosen by it.
    """
    training, test, validation = _sides(table, (fraction, fraction / 2), seed, by_group)
    return training, validation, test


def _sides(table: Table, fractions: Sequence[float], seed: int, by_group: bool) -> list[Table]:
    """Rows by how many of some shares hold them out."""
    own = keys(table.rows)
    if by_group and any(row.is_program and not row.group for row in table.rows):
        raise ValueError(
            f"{table.name} has programs without problem or kernel in their metadata: cannot be split by it"
        )
    of_group = [row.group or key for row, key in zip(table.rows, own, strict=True)] if by_group else own
    depths = [sum(is_held_out(key, f, seed) for f in fractions) for key in of_group]
    deepest: dict[str, int] = {}  # the same program may be filed under two problems
    for key, depth in zip(own, depths, strict=True):
        deepest[key] = max(depth, deepest.get(key, 0))
    sides: list[list[Row]] = [[] for _ in range(len(fractions) + 1)]
    for row, key, depth in zip(table.rows, own, depths, strict=True):
        if depth == deepest[key]:
            sides[depth].append(row)
    return [Table(table.name, rows) for rows in sides]


def is_held_out(key: str, fraction: float, seed: int = 0) -> bool:
    """Whether an architecture is on the validation side, which its key alone decides."""
    digest = hashlib.sha256(f"{seed}:{key}".encode()).hexdigest()
    return int(digest[:8], 16) / 2**32 < fraction


def keys(rows: Sequence[Row]) -> list[str]:
    """What tells architectures apart that do not compute the same; made keys are remembered on disk."""
    made = _of_architectures(rows, "key")
    return [key or row.arch_str or row.input for row, key in zip(rows, made, strict=True)]


def texts(rows: Sequence[Row]) -> list[str]:
    """The text of each row, from its input or its space's adapter; made texts are remembered on disk.

    Raises:
        ValueError: an input starts as ONNX text does, and is none that can be read.
    """
    rest = iter(_of_architectures([row for row in rows if not row.input], "text"))
    foreign = sorted({row.input for row in rows if is_onnx(row.input) and not is_network(row.input)})
    key, make = (VERSIONS["text"], foreign), partial(_canonical, foreign)
    known = dict(zip(foreign, remembered("text", key, len(foreign), make), strict=True))
    return [known.get(row.input, row.input) or next(rest) or "" for row in rows]


def _canonical(foreign: list[str]) -> list[str]:
    """ONNX texts as `from_onnx` gives them."""
    found = []
    for text in tqdm(foreign, "text", unit="net", delay=2):
        try:
            found.append(from_onnx(onnx.parser.parse_model(text)))
        except (onnx.parser.ParseError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(f"the input {text[:60]!r} is no ONNX text that can be read: {reason}") from None
    return found


def _of_architectures(rows: Sequence[Row], what: str) -> list[str | None]:
    """The text or the key of each row's architecture; None for a key in a space without adapter."""
    known = search_spaces.names() if what == "key" else {row.space for row in rows}
    made: dict[tuple[str, str], str] = {}
    for space in sorted({row.space for row in rows}.intersection(known)):
        wanted = sorted({row.arch_str for row in rows if row.space == space})
        key, make = (VERSIONS[what], space, wanted), partial(_made, what, space, wanted)
        found = remembered(what, key, len(wanted), make)
        made.update(((space, a), m) for a, m in zip(wanted, found, strict=True))
    return [made.get((row.space, row.arch_str)) for row in rows]


def remembered(what: str, key: object, count: int, make: Callable[[], list[str]]) -> list[str]:
    """A list that was made before for the same key, from the disk if it is a long one.

    Args:
        what: it is a list of; a part of the file's name.
        key: of which its `repr` tells all that the list depends on.
        count: of its items.
        make: it.
    """
    if count < MANY:
        return make()
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:20]
    folder = Path(os.environ.get("NAS_RLM_CACHE", Path.home() / ".cache" / "nas-rlm"))
    cache = folder / f"{what}s-{digest}.parquet"
    if cache.is_file():
        found: list[str] = pq.read_table(cache).column(what).to_pylist()
        return found
    made = make()
    with atomic(cache) as temporary:
        pq.write_table(pa.table({what: made}), temporary)
    return made


def _made(what: str, space_name: str, architectures: list[str]) -> list[str]:
    """The texts or the keys of architectures."""
    if space_name not in search_spaces.names():
        raise ValueError(
            f"a row of {space_name!r} has no input, which only a search space could make of"
            f" {architectures[0]!r}; {hint(space_name, search_spaces.names())}"
        )
    space = search_spaces.get(space_name)
    try:
        parsed = [space.parse(a) for a in architectures]
    except ValueError as error:
        raise ValueError(f"a row of {space_name}: {error}") from None
    bar = tqdm(parsed, f"{what} of {space_name}", unit="net", disable=len(parsed) < MANY)
    return [space.key(a) for a in bar] if what == "key" else from_architectures(space, bar)


def _row(record: dict[str, Any], path: Path, number: int) -> Row:
    shown = _shown(record["identifier"] or record["arch_str"] or f"row {number}")
    try:
        metadata = ast.literal_eval(record["metadata"] or "{}")
        pairs = list(metadata.items())
    except (ValueError, SyntaxError, AttributeError, TypeError, MemoryError, RecursionError):
        raise ValueError(
            f"{str(path)!r}: metadata of {shown} is {_shown(record['metadata'])},"
            " expected a dict such as {'lat_pixel3': 3.6}"
        ) from None
    metric = record.get("metric_type")
    if metric is not None and metric not in METRICS:
        raise ValueError(
            f"{str(path)!r}: metric_type of {shown} is {metric!r}, expected {' or '.join(METRICS)}"
        )
    target = METRICS[metric] if metric else "accuracy"
    if metadata.get("larger_inputs") is False:
        target = f"{target}/{SMALL}"
    found = {target: record["val_accuracy"], "flops": record["flops"], "params": record["params"]}
    for name, value in pairs:
        kind, _, rest = str(name).partition("_")
        if kind in KINDS and rest:
            found[f"{KINDS[kind]}/{rest}"] = value
    for name, value in found.items():
        if value is not None and not _is_possible(name, value):
            expected = "a percentage" if name.startswith("accuracy") else "a number, 0 or more"
            told = f"{name} of {shown} is {_shown(value)}"
            raise ValueError(f"{str(path)!r}: {told}, expected {expected}")
    for name in ("arch_str", "input", "space", "metainformation"):
        if not isinstance(record[name], str | None):
            raise ValueError(f"{str(path)!r}: {name} of {shown} is {record[name]!r}, expected text")
    if not (record["arch_str"] or record["input"]):
        raise ValueError(f"{str(path)!r}: {shown} has neither arch_str nor input: expected one")
    targets = {k: float(v) for k, v in found.items() if v is not None and not math.isnan(v)}
    space = SPACES.get(record["space"], record["space"]) or ""
    space += f"/{metadata['language']}" if metadata.get("language") else ""
    named = next((str(metadata[name]) for name in GROUPS if metadata.get(name) not in (None, "")), "")
    return Row(
        space,
        record["arch_str"] or "",
        targets,
        record["input"] or "",
        record["identifier"] or "",
        record["uid"] or "",
        record["metainformation"] or "",
        named.rpartition(":")[2],  # one judge's problem has one name, with the judge's before it or not
    )


def _shown(value: object) -> str:
    """A value as an error tells it, its end left out where it is long."""
    text = str(value)
    return repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…")


def _is_possible(objective: str, value: object) -> bool:
    """Whether a value can have been measured; NaN stands for none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    most = 100.0 if objective.startswith("accuracy") else 1e300
    return value != value or 0 <= value <= most


def _record(row: Row) -> dict[str, Any]:
    metrics = {name: metric for metric, name in METRICS.items() if name in row.targets}
    named = r"accuracy|flops|params|(accuracy|latency|memory)/[^,\s]+"
    if len(metrics) == 1 and "accuracy" not in row.targets:
        named += "|" + next(iter(metrics))
    for name, value in row.targets.items():
        if not _is_possible(name, value) or math.isnan(value) or not re.fullmatch(named, name):
            raise ValueError(f"{name} of {row.arch_str!r} is {value!r}: a table has no place for it")
    metadata: dict[str, Any] = {
        f"{kind}_{name.removeprefix(start + '/')}": value.item() if isinstance(value, np.generic) else value
        for name, value in row.targets.items()
        for kind, start in KINDS.items()
        if name.startswith(f"{start}/")
    }
    if row.group:
        metadata[GROUPS[0]] = row.group
    public = {adapter: name for name, adapter in SPACES.items()}
    record = {
        "identifier": row.identifier,
        "space": public.get(row.space, row.space),
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
