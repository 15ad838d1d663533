"""Measurement of the latency of Triton kernels on a GPU, or a check of them in Triton's interpreter.

After a warm-up, in which Triton compiles, a window of a second is filled with at least 20 runs; the median of
five windows is the latency. Kernels are trusted: they run without confinement, in a process of their own.
Several can start and compile at once; they are timed one after another.
Source: appendix D.4.2 of the paper.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Table
from nas_rlm.devices.connection import (
    DEFAULT_TIMEOUT,
    Connection,
    RequestError,
    WorkerDied,
    check_timeout,
)
from nas_rlm.programs.source import TRITON_KERNEL, read_python
from nas_rlm.programs.table import ProgramResult, digest, update_table
from nas_rlm.utils.extras import require

TRITON_SPACE = "triton"  # space of kernels in tables
WORKER_MODULE = "nas_rlm.programs.triton_worker"
ENTRY_COLUMNS = ("entry_point", "module_name")  # KernelBook's columns with the name of the torch module
PAIRS_FORMAT = "expected python_code, triton_code and entry_point"
MAX_SECONDS_PER_WINDOW = 60


@dataclass(frozen=True)
class Kernel:
    """A Triton program, or a torch module for which Inductor generates one.

    Args:
        source: Python file with kernels and a function `call(args)`, a class `ModelNew` or another function;
            empty to generate it from the module.
        module: Python file with the equivalent torch module, if there is one. It, or the source, defines
            `get_inputs()` and optionally `get_init_inputs()`.
        entry: name of the module or function; the last module of the file by default.

    Raises:
        ValueError: both source and module are empty.
    """

    source: str
    module: str = ""
    entry: str = ""

    def __post_init__(self) -> None:
        if not (self.source.strip() or self.module.strip()):
            raise ValueError("a kernel is empty: expected a Triton program or a torch module")


@dataclass(frozen=True)
class Plan:
    """Settings of the measurement of kernels.

    Args:
        windows: number of windows, each a series of runs.
        seconds_per_window: minimum length of each window in seconds.
        interpret: run in Triton's interpreter instead of on a GPU, to check what kernels compute; the latency
            is that of the interpreter.
        timeout: seconds that compiling a kernel, or a window, may take.

    Raises:
        ValueError: a number is out of range.
    """

    windows: int = 5
    seconds_per_window: float = 1.0
    interpret: bool = False
    timeout: float = DEFAULT_TIMEOUT

    def __post_init__(self) -> None:
        check_timeout(self.timeout, self.seconds_per_window)
        if self.windows < 1:
            raise ValueError(f"windows is {self.windows}, expected at least 1")
        if not 0 < self.seconds_per_window <= MAX_SECONDS_PER_WINDOW:
            raise ValueError(
                f"the seconds of a window are {self.seconds_per_window:g}, expected more than 0 and at most"
                f" {MAX_SECONDS_PER_WINDOW}"
            )


DEFAULT_PLAN = Plan()


@dataclass(frozen=True)
class Latency:
    """The latency of a kernel.

    Args:
        median: median over the windows of the mean latency in a window, in ms.
        deviation: standard deviation of these means, in ms.
        runs: number of runs in all windows.
        order: order of the arguments with which the kernel is called, such as "parameters, inputs".
        matches: whether its outputs equal those of the torch module; None without a module.
    """

    median: float
    deviation: float
    runs: int
    order: str
    matches: bool | None


@dataclass(frozen=True)
class Failure:
    """The reason why a kernel could not be measured.

    Args:
        error: the error message.
    """

    error: str


def measure_kernels(
    kernels: Mapping[str, Kernel],
    out: Path,
    plan: Plan = DEFAULT_PLAN,
    jobs: int = 1,
    progress: bool = False,
) -> Table:
    """Measure kernels and write them to a table.

    Kernels that the table already has are not measured again.

    Args:
        kernels: kernels by name.
        out: the parquet table; its other rows are kept.
        plan: settings of the measurement.
        jobs: number of kernels that start and compile at once; they are timed one after another.
        progress: whether to show a progress bar.

    Returns:
        The table, with `latency/DEVICE` (ms) and, in `metainformation`, the details or the error.

    Raises:
        ValueError: Triton is not installed; there is no GPU, and `plan.interpret` is false; or see
            `nas_rlm.programs.table.update_table`.
    """
    require("triton", "a kernel")
    with Connection(module=WORKER_MODULE, timeout=plan.timeout) as worker:
        environment = worker.open(interpret=plan.interpret)
    device = environment.pop("device")

    def results(missing: Sequence[str]) -> Generator[ProgramResult]:
        workers = _Workers(plan)
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for source, result in pool.map(lambda name: _measure(kernels[name], workers), missing):
                    details = asdict(result)
                    is_measured = isinstance(result, Latency)
                    targets = {f"latency/{device}": details.pop("median")} if is_measured else {}
                    yield ProgramResult(source, targets, {**details, **environment})
            finally:
                workers.stop_all()
                pool.shutdown(wait=False, cancel_futures=True)

    digests = {name: _kernel_digest(kernel, plan, device) for name, kernel in kernels.items()}
    return update_table(out, TRITON_SPACE, digests, results, {}, progress)


def _kernel_digest(kernel: Kernel, plan: Plan, device: str) -> str:
    """Return the digest of a kernel, its plan and device; the keys must not change, or tables mismatch."""
    settings = {
        "windows": plan.windows,
        "seconds": plan.seconds_per_window,
        "interpret": plan.interpret,
    }
    return digest(asdict(kernel), settings, device)


class _Workers:
    """Worker processes of a measurement, of which one at a time has the turn to time its kernel.

    Args:
        plan: settings of the measurement.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.turn = threading.Lock()
        self.running: set[Connection] = set()

    @contextmanager
    def start(self) -> Iterator[Connection]:
        """Start a worker, which is killed at the end of the context."""
        with Connection(module=WORKER_MODULE, timeout=self.plan.timeout) as worker:
            self.running.add(worker)
            try:
                worker.open(interpret=self.plan.interpret)
                yield worker
            finally:
                self.running.discard(worker)

    def stop_all(self) -> None:
        """Kill all workers that run."""
        for worker in tuple(self.running):
            worker.process.kill()


def measure(kernel: Kernel, plan: Plan = DEFAULT_PLAN) -> Latency | Failure:
    """Measure a kernel in a process of its own.

    Args:
        kernel: the kernel.
        plan: settings of the measurement.

    Raises:
        ValueError: there is no GPU, and `plan.interpret` is false.
    """
    return _measure(kernel, _Workers(plan))[1]


def _measure(kernel: Kernel, workers: _Workers) -> tuple[str, Latency | Failure]:
    """Measure a kernel, and return its source, which Inductor generates for a torch module, and the result.

    The source of a module for which none can be generated is the module's own.
    """
    try:
        source = kernel.source or _generate_source(kernel, workers)
    except (RequestError, WorkerDied) as error:
        return kernel.module, Failure(str(error))
    try:
        return source, _time(replace(kernel, source=source), workers)
    except (RequestError, WorkerDied) as error:
        return source, Failure(str(error))


def _generate_source(kernel: Kernel, workers: _Workers) -> str:
    """Return the Triton program that Inductor generates for a module."""
    content = json.dumps({"source": kernel.module, "entry": kernel.entry}).encode()
    with workers.start() as worker:
        return str(worker.request("generate", content)["source"])


def _time(kernel: Kernel, workers: _Workers) -> Latency:
    """Return the latency of a Triton program."""
    plan = workers.plan
    with workers.start() as worker:
        loaded = worker.request("load", json.dumps(asdict(kernel)).encode(), number=0)
        with workers.turn:
            worker.request("warm_up", number=0)
            windows = [
                worker.request("window", number=0, seconds=plan.seconds_per_window)
                for _ in range(plan.windows)
            ]
    times = [window["time"] for window in windows]
    runs = sum(window["runs"] for window in windows)
    return Latency(float(np.median(times)), float(np.std(times)), runs, loaded["order"], loaded["matches"])


def read_kernelbook(path: Path) -> dict[str, Kernel]:
    """Read pairs of torch modules and Triton programs as KernelBook publishes them.

    Args:
        path: parquet file, or JSON list, with `python_code`, `triton_code` and `entry_point`.

    Returns:
        The pairs by their uuid, or by their position where they have none. Pairs that are not valid are left
        out, and a warning reports their number.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has another format, or no valid pair.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no pairs at {str(path)!r}: expected a parquet or JSON file of KernelBook")
    try:
        if path.suffix == ".json":
            records = json.loads(path.read_text(encoding="utf-8"))
        else:
            records = pq.read_table(path).to_pylist()
        if not isinstance(records, list):
            raise TypeError("it is not a list")
    except (ValueError, TypeError, OSError, RecursionError, pa.ArrowException) as error:
        raise ValueError(
            f"{str(path)!r} has no pairs ({type(error).__name__}: {error}): {PAIRS_FORMAT}"
        ) from None
    kernels: dict[str, Kernel] = {}
    omissions = Omissions()
    for i, record in enumerate(records):
        with omissions.skip(f"pair {i}"):
            name, kernel = _parse_pair(record, i)
            if name in kernels:
                raise ValueError(f"another pair has the uuid {name!r}")
            kernels[name] = kernel
    if not kernels:
        reason = f" ({omissions.first_reason})" if omissions else ""
        raise ValueError(f"{str(path)!r} has no pairs{reason}: {PAIRS_FORMAT}")
    omissions.warn()
    return kernels


def _parse_pair(record: Mapping[str, Any], number: int) -> tuple[str, Kernel]:
    """Return the name and kernel of a record; the number is the name of a record without uuid."""
    uuid = record.get("uuid")
    source, module = (record[name] or "" for name in ("triton_code", "python_code"))
    for name, code in (("triton_code", source), ("python_code", module)):
        if not isinstance(code, str):
            raise TypeError(f"{name} is {code!r}: expected text")
        code.encode()
    return str(number if uuid is None else uuid), Kernel(source, module, _entry_name(record))


def _entry_name(record: Mapping[str, Any]) -> str:
    """Return the name of the torch module of a pair; empty if it has none."""
    return next((str(record[name]) for name in ENTRY_COLUMNS if record.get(name)), "")


def read_kernel(path: Path, entry: str = "") -> Kernel:
    """Read a kernel from a Python file: a Triton program, or a torch module if it has no Triton kernel.

    Args:
        path: the Python file.
        entry: name of the module or function; the last module of the file by default.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a regular file, too large, empty, in another language or not text.
    """
    source = read_python(path)
    return Kernel(source, "", entry) if TRITON_KERNEL.search(source) else Kernel("", source, entry)
