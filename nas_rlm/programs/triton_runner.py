"""Measuring Triton kernels on a GPU: latency; or checking them in Triton's interpreter, without one.

Source: appendix D.4.2 of the paper. After a warm-up, in which Triton compiles, a window of a second is filled
with runs, 20 at least; of five windows the median counts. Kernels are trusted: they run as any program of the
user's does, in a process of their own.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nas_rlm.data.tables import Table
from nas_rlm.devices.connection import LONGEST, Connection, Died, Refused, check_limit
from nas_rlm.programs.source import KERNEL, source_of
from nas_rlm.programs.table import Found, digest, filled

SPACE = "triton"  # what kernels are called in tables
WORKER = "nas_rlm.programs.triton_worker"
ENTRIES = ("entry_point", "module_name")  # what KernelBook calls the name of the torch module


@dataclass(frozen=True)
class Kernel:
    """A Triton program, or a torch module of which Inductor makes one.

    Args:
        source: a Python file with kernels and with `call(args)`, a class `ModelNew` or a function; empty for
            what Inductor makes.
        module: a Python file with the torch module that the kernels stand for, if there is one. It, or the
            source, has `get_inputs()` and perhaps `get_init_inputs()`.
        entry: the name of the module, or of a function; by default the last module that is defined.

    Raises:
        ValueError: there is neither source nor module.
    """

    source: str
    module: str = ""
    entry: str = ""

    def __post_init__(self) -> None:
        if not (self.source.strip() or self.module.strip()):
            raise ValueError("a kernel is empty: expected Triton, or a torch module")


@dataclass(frozen=True)
class Plan:
    """How kernels are measured.

    Args:
        windows: of runs.
        seconds: that a window takes at least.
        interpret: in Triton's interpreter instead of on a GPU: it tells what kernels compute, and how slow
            the interpreter is.
        limit: seconds that compiling a kernel, or a window of its runs, may take.
    """

    windows: int = 5
    seconds: float = 1.0
    interpret: bool = False
    limit: float = LONGEST

    def __post_init__(self) -> None:
        check_limit(self.limit, self.seconds)
        if self.windows < 1:
            raise ValueError(f"windows is {self.windows}, expected at least 1")
        if not 0 < self.seconds <= 60:
            raise ValueError(f"seconds is {self.seconds:g}, expected more than 0 and at most 60")


USUAL = Plan()


@dataclass(frozen=True)
class Latency:
    """How long a kernel takes.

    Args:
        median, deviation: of the windows' means, ms.
        runs: in all windows.
        order: of its arguments, the first that fits.
        matches: whether it does what its module does; None where there is no module.
    """

    median: float
    deviation: float
    runs: int
    order: str
    matches: bool | None


@dataclass(frozen=True)
class Failure:
    """Why a kernel has no latency."""

    error: str


def latencies(kernels: Mapping[str, Kernel], out: Path, plan: Plan = USUAL, progress: bool = False) -> Table:
    """Measure kernels and write them to a table, in which those that it has already are left alone.

    Args:
        kernels: by their names.
        out: a parquet table; what it holds already stays.
        plan: how.
        progress: show a bar.

    Returns:
        The table, with `latency/DEVICE` (ms), and in `metainformation` how it was found, or the error.

    Raises:
        ValueError: there is no GPU, and they are not to be interpreted.
    """
    with Connection(module=WORKER, longest=plan.limit) as worker:
        environment = _opened(worker, plan)
    device = environment.pop("device")

    def results(left: Sequence[str]) -> Generator[Found]:
        for name in left:
            kernel = kernels[name]
            source = kernel.source or _made(kernel, plan)
            result = source if isinstance(source, Failure) else measure(replace(kernel, source=source), plan)
            told = asdict(result)
            found = {f"latency/{device}": told.pop("median")} if isinstance(result, Latency) else {}
            yield kernel.module if isinstance(source, Failure) else source, found, {**told, **environment}

    digests = {name: digest(asdict(kernel), _how(plan), device) for name, kernel in kernels.items()}
    return filled(out, SPACE, digests, results, {}, progress)


def _how(plan: Plan) -> dict[str, Any]:
    """What of a plan a latency depends on."""
    return {name: value for name, value in asdict(plan).items() if name != "limit"}


def measure(kernel: Kernel, plan: Plan = USUAL) -> Latency | Failure:
    """Run a kernel in a process of its own.

    Raises:
        ValueError: see `latencies`.
    """
    with Connection(module=WORKER, longest=plan.limit) as worker:
        _opened(worker, plan)
        try:
            told = worker.ask("load", json.dumps(asdict(kernel)).encode(), number=0)
            windows = [worker.ask("window", number=0, seconds=plan.seconds) for _ in range(plan.windows)]
        except (Refused, Died) as error:
            return Failure(str(error))
    times = [one["time"] for one in windows]
    runs = sum(one["runs"] for one in windows)
    return Latency(float(np.median(times)), float(np.std(times)), runs, told["order"], told["matches"])


def _made(kernel: Kernel, plan: Plan) -> str | Failure:
    """What Inductor makes of a module."""
    with Connection(module=WORKER, longest=plan.limit) as worker:
        _opened(worker, plan)
        content = json.dumps({"source": kernel.module, "entry": kernel.entry}).encode()
        try:
            return str(worker.ask("make", content)["source"])
        except (Refused, Died) as error:
            return Failure(str(error))


def _opened(worker: Connection, plan: Plan) -> dict[str, Any]:
    try:
        return worker.ask("open", interpret=plan.interpret)
    except Died as died:
        raise ValueError(f"{' '.join(worker.command)!r} does not start: {died}") from None


def read_pairs(path: Path) -> dict[str, Kernel]:
    """Pairs of torch modules and Triton programs, as KernelBook publishes them, by their numbers.

    Args:
        path: a parquet file, or a JSON list, with `python_code`, `triton_code` and `entry_point`.

    Raises:
        ValueError: it is none.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no pairs at {str(path)!r}: expected a parquet or JSON file of KernelBook")
    try:
        if path.suffix == ".json":
            records = json.loads(path.read_text(encoding="utf-8"))
        else:
            records = pq.read_table(path).to_pylist()
        pairs = {
            str(i if one.get("uuid") is None else one["uuid"]): Kernel(
                one["triton_code"] or "", one["python_code"] or "", _entry(one)
            )
            for i, one in enumerate(records)
        }
        if len(pairs) < len(records):
            raise ValueError("several have one uuid")
    except (ValueError, KeyError, TypeError, AttributeError, OSError, pa.ArrowException) as error:
        raise ValueError(
            f"{str(path)!r} has no pairs ({type(error).__name__}: {error}): expected python_code, triton_code"
            " and entry_point"
        ) from None
    if not pairs:
        raise ValueError(f"{str(path)!r} has no pairs: expected one at least")
    return pairs


def _entry(record: Mapping[str, Any]) -> str:
    return next((str(record[name]) for name in ENTRIES if record.get(name)), "")


def read_kernel(path: Path, entry: str = "") -> Kernel:
    """A file of the user's: a Triton program, or a torch module where it has no kernel."""
    source = source_of(path)
    return Kernel(source, "", entry) if KERNEL.search(source) else Kernel("", source, entry)
