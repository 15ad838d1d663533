"""Tables of measured programs: a row each, with its source, what was measured and how, or why it was not."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from platform import node, python_version
from typing import Any

from tqdm import tqdm

from nas_rlm.data.tables import Row, Table, read, write
from nas_rlm.files import alone, check_target, read_text
from nas_rlm.programs.python_runner import USUAL, Measurement, Plan, Program, measure, stop

SPACE = "python"  # what programs are called in tables
EVERY = 10.0  # seconds after which a table is written
MOST = 64 * 2**20  # bytes of a file of programs

# The source, numbers to learn, and all else that is told.
Found = tuple[str, dict[str, float], dict[str, Any]]


def measured(
    programs: Mapping[str, Program],
    out: Path,
    plan: Plan = USUAL,
    jobs: int = 1,
    progress: bool = False,
) -> Table:
    """Measure Python programs and write them to a table, in which those that it has already are left alone.

    Args:
        programs: by their names.
        out: a parquet table; what it holds already stays.
        plan: how.
        jobs: so many at a time; memory does not depend on it, times do.
        progress: show a bar.

    Returns:
        The table, with `memory` (bytes), and in `metainformation` all else that was found, or the error.

    Raises:
        ValueError: see `filled`; or the system cannot confine programs that are not trusted.
    """

    def results(left: Sequence[str]) -> Generator[Found]:
        with ThreadPoolExecutor(jobs) as pool:
            try:
                found = pool.map(lambda name: measure(programs[name], plan), left)
                for name, result in zip(left, found, strict=True):
                    told = asdict(result)
                    memory = {"memory": float(told.pop("memory"))} if isinstance(result, Measurement) else {}
                    yield programs[name].source, memory, {**told, "python": python_version()}
            finally:
                stop()
                pool.shutdown(wait=False, cancel_futures=True)

    how = asdict(replace(plan, trusted=False))
    digests = {name: digest(_measured_of(program), how) for name, program in programs.items()}
    problems = {name: program.problem for name, program in programs.items()}
    return filled(out, SPACE, digests, results, problems, progress)


def _measured_of(program: Program) -> dict[str, Any]:
    """What of a program its measurement depends on."""
    return {"source": program.source, "entry": program.entry, "cases": program.cases}


def digest(*parts: Any) -> str:
    """What tells whether a measurement was of the same thing, in the same way."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def filled(
    out: Path,
    space: str,
    digests: Mapping[str, str],
    results: Callable[[Sequence[str]], Generator[Found]],
    groups: Mapping[str, str],
    progress: bool = False,
) -> Table:
    """Write programs and what is found of them to a table, in which what it has already is left alone.

    Args:
        out: a parquet table; what it holds already stays.
        space: what the programs are called there.
        digests: by the names of the programs, what tells whether a row is of the same program, measured in
            the same way.
        results: from names to what is found of each, one after the other.
        groups: by names the problem that a program solves, where that is known.
        progress: show a bar.

    Raises:
        ValueError: the table is of something else, or of the same programs measured in another way; or
            another process writes to it.
    """
    check_target(out)
    for name in (*digests, *groups.values()):
        if not _is_unicode(name):
            raise ValueError(f"the name {name!r} is no Unicode: expected another name, or another file's")
    with alone(out):
        return _filled(out, space, digests, results, groups, progress)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _filled(
    out: Path,
    space: str,
    digests: Mapping[str, str],
    results: Callable[[Sequence[str]], Generator[Found]],
    groups: Mapping[str, str],
    progress: bool,
) -> Table:
    rows = _known(out, space) if out.exists() else {}
    for name in digests.keys() & rows.keys():
        if json.loads(rows[name].metainformation).get("digest") != digests[name]:
            if rows[name].targets:
                raise ValueError(
                    f"{out} has {name!r} with another source, or measured in another way: expected another"
                    " file"
                )
            del rows[name]  # it could not be measured in that way
    left = [name for name in digests if name not in rows]
    with _written(rows, out) as changed, closing(results(left)) as found:
        pairs = zip(left, found, strict=True)
        for name, (source, targets, told) in tqdm(
            pairs, space, len(left), unit="program", disable=not progress
        ):
            told |= {"digest": digests[name], "host": node(), "at": datetime.now(UTC).isoformat()}
            rows[name] = Row(space, "", targets, source, name, "", json.dumps(told), groups.get(name, ""))
            changed()
    return Table(out.stem, list(rows.values()))


def _known(out: Path, space: str) -> dict[str, Row]:
    """The rows of a table that was made here, by the names of their programs."""
    found: dict[str, Row] = {}
    for row in read(out).rows:
        if row.space != space or row.identifier in found or '"digest"' not in row.metainformation:
            raise ValueError(
                f"{out} is no table of measured {space} programs: it has {row.identifier!r} of {row.space!r}"
            )
        found[row.identifier] = row
    return found


@contextmanager
def _written(rows: Mapping[str, Row], out: Path) -> Iterator[Any]:
    """Within it rows are written now and then, after it once more."""
    last = time.monotonic()

    def changed() -> None:
        nonlocal last
        if time.monotonic() - last > EVERY:
            write(out, rows.values())
            last = time.monotonic()

    try:
        yield changed
    finally:
        write(out, rows.values())


def read_programs(path: Path) -> dict[str, Program]:
    """Programs of a file of JSON lines, by their names.

    Args:
        path: of it; each line has `name`, `source`, `cases`, where a function is called `entry`, and perhaps
            `problem`, so that programs for one problem can be kept apart from others.

    Raises:
        ValueError: a line is no such program, or a name is there twice.
    """
    if path.is_file() and path.stat().st_size > MOST:
        raise ValueError(f"{path} is larger than {MOST:,} bytes")
    found: dict[str, Program] = {}
    for number, line in enumerate(read_text(path, "programs").split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("cases", []), list):
                raise TypeError("a line is an object, and its cases are a list")
            name, source, entry = str(record["name"]), record["source"], record.get("entry", "")
            if not isinstance(source, str) or not isinstance(entry, str):
                raise TypeError("source and entry are texts")
            if name in found:
                raise ValueError(f"{name!r} is there twice")
            found[name] = Program(source, entry, record["cases"], str(record.get("problem", "")))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path} line {number} is no program ({str(error)[:200]}): expected such as"
                ' {"name": "one", "source": "def f(n): return n", "entry": "f", "cases": [{"args": [1]}]}'
            ) from None
    if not found:
        raise ValueError(f"{path} has no programs: expected one a line")
    return found


def read_cases(path: Path) -> Sequence[dict[str, Any]]:
    """Inputs: a JSON list of them, see `Program`."""
    content = read_text(path, "inputs")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{path} is no JSON ({error}): expected such as [{{"args": [1, 2]}}]') from None
    if not isinstance(found, list):
        raise ValueError(f'{path} is no list of inputs: expected such as [{{"args": [1, 2]}}]')
    return found
