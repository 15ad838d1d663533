"""Tables of measured programs: a row for each program, with its source, its measurements or its error."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from platform import node, python_version
from typing import Any, NamedTuple

from nas_rlm.data.tables import Row, Table, read, write
from nas_rlm.files import check_target, exclusive_lock, read_text
from nas_rlm.programs.python_runner import (
    DEFAULT_PLAN,
    Measurement,
    Plan,
    Program,
    example_of_input,
    measure,
    stop_all,
)
from nas_rlm.utils.faults import Faults
from nas_rlm.utils.long_integers import long_integers
from nas_rlm.utils.progress import progress_bar

PYTHON_SPACE = "python"  # space of Python programs in tables
MILLISECONDS = 1000.0  # of a second
WRITE_INTERVAL = 10.0  # seconds between two writes of a table
MAX_PROGRAMS_BYTES = 64 * 2**20
MAX_REASON = 100  # characters of what is wrong with a line
PROGRAM_EXAMPLE = '{"name": "one", "source": "def f(n): return n", "entry": "f", "cases": [{"args": [1]}]}'


class ProgramResult(NamedTuple):
    """The result for a program.

    Args:
        source: its source.
        targets: value of each measured objective; empty if it failed.
        details: other values of the measurement, or the error.
    """

    source: str
    targets: dict[str, float]
    details: dict[str, Any]


def measure_programs(
    programs: Mapping[str, Program],
    out: Path,
    plan: Plan = DEFAULT_PLAN,
    jobs: int = 1,
    progress: bool = False,
) -> Table:
    """Measure Python programs and write them to a table.

    Programs that the table already has are not measured again.

    Args:
        programs: programs by name.
        out: the parquet table; its other rows are kept.
        plan: settings of the measurement.
        jobs: number of programs at a time, which changes times but not memory.
        progress: whether to show a progress bar.

    Returns:
        The table, with `memory` (bytes), `time` (the median wall time of a round over all inputs, in
        milliseconds, if the plan has timed runs) and, in `metainformation`, the details or the error.

    Raises:
        ValueError: the system cannot confine programs, and `plan.trusted` is false; or see `update_table`.
    """

    def results(missing: Sequence[str]) -> Generator[ProgramResult]:
        with ThreadPoolExecutor(jobs) as pool:
            try:
                measurements = pool.map(lambda name: measure(programs[name], plan), missing)
                for name, result in zip(missing, measurements, strict=True):
                    details = asdict(result)
                    is_measured = isinstance(result, Measurement)
                    targets = {"memory": float(details.pop("memory"))} if is_measured else {}
                    if isinstance(result, Measurement) and result.wall is not None:
                        targets["time"] = MILLISECONDS * result.wall["median"]
                    yield ProgramResult(
                        programs[name].source, targets, {**details, "python": python_version()}
                    )
            finally:
                stop_all()
                pool.shutdown(wait=False, cancel_futures=True)

    digests = {name: _program_digest(program, plan) for name, program in programs.items()}
    problems = {name: program.problem for name, program in programs.items()}
    return update_table(out, PYTHON_SPACE, digests, results, problems, progress)


def _program_digest(program: Program, plan: Plan) -> str:
    """Return the digest of a program and its plan; the keys must not change, or existing tables mismatch."""
    content = {"source": program.source, "entry": program.entry, "cases": program.cases}
    settings = {
        "warmup": plan.warmup,
        "repeats": plan.repeats,
        "seconds": plan.seconds_per_run,
        "memory": plan.memory_limit,
        "counts": plan.count_lines,
        "trusted": False,
    }
    return digest(content, settings)


@long_integers()
def digest(*parts: Any) -> str:
    """Return a hash of JSON values, which identifies a program and the settings of its measurement."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def update_table(
    out: Path,
    space: str,
    digests: Mapping[str, str],
    results: Callable[[Sequence[str]], Generator[ProgramResult]],
    groups: Mapping[str, str],
    progress: bool = False,
) -> Table:
    """Measure the programs that a table lacks, and add them to it.

    Args:
        out: the parquet table; its other rows are kept.
        space: name of the space of the table's rows.
        digests: digest of each program and its plan, by the program's name.
        results: function that measures the programs with the given names and yields their results in order.
        groups: problem that a program solves, by the program's name; may be empty or missing.
        progress: whether to show a progress bar.

    Returns:
        The table.

    Raises:
        ValueError: the file is another table, has one of the programs with another digest, or is being
            written by another process.
    """
    check_target(out)
    for name in (*digests, *groups.values()):
        if not _is_unicode(name):
            raise ValueError(f"the name {name!r} is not valid Unicode: rename the program or its file")
    with exclusive_lock(out):
        rows = _read_rows(out, space) if out.exists() else {}
        _drop_outdated_failures(rows, digests, out)
        missing = [name for name in digests if name not in rows]
        with _periodic_writes(rows, out) as write_if_due, closing(results(missing)) as new_results:
            pairs = zip(missing, new_results, strict=True)
            for name, result in progress_bar(
                pairs, space, len(missing), unit="program", disable=not progress
            ):
                details = result.details | {
                    "digest": digests[name],
                    "host": node(),
                    "at": datetime.now(UTC).isoformat(),
                }
                rows[name] = Row(
                    space,
                    "",
                    result.targets,
                    result.source,
                    name,
                    metainformation=json.dumps(details),
                    group=groups.get(name, ""),
                )
                write_if_due()
        return Table(out.stem, list(rows.values()))


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded in UTF-8, unlike some names of files."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_rows(out: Path, space: str) -> dict[str, Row]:
    """Return the rows of an existing table of measured programs, by name."""
    rows: dict[str, Row] = {}
    for row in read(out).rows:
        if row.space != space or row.identifier in rows or '"digest"' not in row.metainformation:
            raise ValueError(
                f"{out} is not a table of measured {space} programs: it has {row.identifier!r} of"
                f" {row.space!r}"
            )
        rows[row.identifier] = row
    return rows


def _drop_outdated_failures(rows: dict[str, Row], digests: Mapping[str, str], out: Path) -> None:
    """Remove failed rows with another digest, to measure them again; raise for a measured one."""
    for name in digests.keys() & rows.keys():
        if json.loads(rows[name].metainformation).get("digest") != digests[name]:
            if rows[name].targets:
                raise ValueError(
                    f"{out} has {name!r} with another source or other settings: expected another file"
                )
            del rows[name]


@contextmanager
def _periodic_writes(rows: Mapping[str, Row], out: Path) -> Iterator[Callable[[], None]]:
    """Yield a function that writes the table every `WRITE_INTERVAL` seconds; write it at the end as well."""
    last_write = time.monotonic()

    def write_if_due() -> None:
        nonlocal last_write
        if time.monotonic() - last_write > WRITE_INTERVAL:
            write(out, rows.values())
            last_write = time.monotonic()

    try:
        yield write_if_due
    finally:
        write(out, rows.values())


@long_integers()
def read_programs(path: Path) -> dict[str, Program]:
    """Read programs from JSON lines, by name.

    Args:
        path: the file; each line has `name`, `source` and `cases`, an `entry` where a function is called, and
            optionally the `problem`, which lets a split keep programs for one problem together.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: lines are no valid programs, or a name occurs twice.
    """
    if path.is_file() and path.stat().st_size > MAX_PROGRAMS_BYTES:
        raise ValueError(f"{path} is larger than {MAX_PROGRAMS_BYTES:,} bytes")
    programs: dict[str, Program] = {}
    faults = Faults()
    for number, line in enumerate(read_text(path, "programs").split("\n"), 1):
        if not line.strip():
            continue
        try:
            name, program = _parse_program(line)
            if name in programs:
                raise ValueError(f"{name!r} occurs twice")
            programs[name] = program
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
            faults.add(f"line {number} is not a program ({reason[:MAX_REASON]})")
    faults.check(f"{path} ", f": expected for example {PROGRAM_EXAMPLE}")
    if not programs:
        raise ValueError(f"{path} has no programs: expected one in each line")
    return programs


def _parse_program(line: str) -> tuple[str, Program]:
    """Return the name and the program of a JSON line."""
    record = json.loads(line)
    if not isinstance(record, dict) or not isinstance(record.get("cases", []), list):
        raise TypeError("a line must be an object, and its cases a list")
    name, source, entry = str(record["name"]), record["source"], record.get("entry", "")
    if not isinstance(source, str) or not isinstance(entry, str):
        raise TypeError("source and entry must be text")
    return name, Program(source, entry, record["cases"], str(record.get("problem", "")))


@long_integers()
def read_cases(path: Path, entry: str) -> Sequence[dict[str, Any]]:
    """Read the inputs of a program from a JSON list, see `nas_rlm.programs.python_runner.Program`.

    Args:
        path: the JSON file.
        entry: the function that is called; empty for a script.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a JSON list with at least one input.
    """
    content = read_text(path, "inputs")
    expected = f"expected for example [{example_of_input(entry)}]"
    try:
        cases = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): {expected}") from None
    if not isinstance(cases, list):
        raise ValueError(f"{path} is not a list of inputs: {expected}")
    if not cases:
        raise ValueError(f"{path} has no inputs: {expected}")
    return cases
