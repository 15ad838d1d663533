"""Workers of a study: this process, or processes with a GPU or a set of cores each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from nas_rlm.devices.processors import num_processors
from nas_rlm.files import write_text
from nas_rlm.study.evaluation import (
    MAX_ERROR_LENGTH,
    EvaluateFunction,
    Outcome,
    check_parameters,
    load_evaluation,
    location_of,
    make_directory,
    run_evaluation,
)
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.trial import ERROR, OUTPUT, Trial
from nas_rlm.study.workers.pool import Clock, Finished, Workers
from nas_rlm.study.workers.ray_cluster import RayWorkers
from nas_rlm.study.workers.worker import STARTED, read_message
from nas_rlm.study.writing import writing
from nas_rlm.utils.validation import is_whole_number

POLL_SECONDS, WAIT_SECONDS = 0.05, 1.0
READ_SIZE = 65_536  # bytes of a worker's message
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MAX_OUTPUT_LINES = 3  # of a worker that died, in its error


class ThisProcess(Workers):
    """This process as the only worker.

    Args:
        function: evaluates a trial.
        settings: settings of the study.
    """

    def __init__(self, function: EvaluateFunction, settings: StudySettings) -> None:
        self.function, self.settings = function, settings
        self._waiting: list[Trial] = []

    @property
    def num_busy(self) -> int:
        return len(self._waiting)

    def start(self, trial: Trial) -> None:
        self._waiting.append(trial)

    def wait(self) -> Finished:
        trial = self._waiting.pop()
        return [(trial, run_evaluation(self.function, trial, self.settings))]

    def close(self) -> None:
        self._waiting.clear()


@dataclass
class _Running:
    """A worker process.

    Args:
        trial: the trial that it evaluates.
        process: the process, the leader of a process group.
        slot: its number among the workers, which decides its GPU and cores.
        message: what was read so far of its message, see `nas_rlm.study.workers.worker`.
        clock: when it was started, and when its function was loaded.
    """

    trial: Trial
    process: subprocess.Popen[bytes]
    slot: int
    message: bytes = b""
    clock: Clock = field(default_factory=lambda: Clock(time.monotonic()))

    def read(self) -> None:
        """Read what the process wrote to its standard output, without waiting."""
        assert self.process.stdout is not None
        with suppress(BlockingIOError):
            while part := os.read(self.process.stdout.fileno(), READ_SIZE):
                self.message += part
        if self.clock.evaluation_start is None and STARTED in self.message:
            self.clock.evaluation_start = time.monotonic()

    def end(self) -> None:
        """End the process and those that it started."""
        assert self.process.stdout is not None
        kill(self.process)
        self.read()
        self.process.stdout.close()


class ProcessWorkers(Workers):
    """Processes of this machine, a new one for each trial, whose output goes to output.txt of the trial.

    Args:
        directory: directory of the study.
        function: evaluates a trial: a function at the top level of a module or script, or its location.
        count: number of processes at a time.
        time_limit: seconds that an evaluation may take; None for no limit.

    Raises:
        ValueError: the function cannot be loaded in another process.
    """

    def __init__(
        self, directory: Path, function: EvaluateFunction | str, count: int, time_limit: float | None
    ) -> None:
        self.directory, self.count, self.time_limit = directory, count, time_limit
        self.location = function if isinstance(function, str) else location_of(function)
        if not self.location:
            name = getattr(function, "__qualname__", repr(function))
            raise ValueError(
                f"worker processes cannot import the function {name}: define it at the top level of a file"
                " and give it as 'FILE.py:FUNCTION', or use workers=0"
            )
        self._running: list[_Running] = []
        self._environments = worker_environments(count)

    @property
    def num_busy(self) -> int:
        return len(self._running)

    def start(self, trial: Trial) -> None:
        make_directory(trial)
        with writing(trial.directory / OUTPUT):
            (trial.directory / ERROR).unlink(missing_ok=True)
            (trial.directory / OUTPUT).touch()
        slot = min(set(range(self.count)) - {running.slot for running in self._running})
        command = [sys.executable, "-u", "-m", "nas_rlm.study.workers.worker"]
        command += [str(self.directory.resolve()), str(trial.number), self.location]
        with open(trial.directory / OUTPUT, "ab") as output:
            process = self._popen(command, self._environments[slot], output)
        self._running.append(_Running(trial, process, slot))

    def _popen(
        self, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, **environment, "PYTHONPATH": path},
            start_new_session=True,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def wait(self) -> Finished:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (finished := [running for running in self._running if self._is_finished(running)]):
            if time.monotonic() > deadline:
                return []
            time.sleep(POLL_SECONDS)
        self._running = [running for running in self._running if running not in finished]
        return [(running.trial, self._outcome(running)) for running in finished]

    def _is_finished(self, running: _Running) -> bool:
        """Whether a process has ended, or was ended because its time was over."""
        running.read()
        if running.process.poll() is not None:
            return True
        if is_late := running.clock.is_late(self.time_limit):
            kill(running.process)
        return is_late

    def _outcome(self, running: _Running) -> Outcome:
        """The outcome of a process that has ended.

        Raises:
            WrongValuesError: its function gave something other than a number for each objective.
            StorageError: it could not write a file.
        """
        is_late = running.clock.is_late(self.time_limit)
        running.end()  # processes that it started may still run
        directory, seconds = running.trial.directory, running.clock.seconds
        if outcome := read_message(running.message):
            return outcome
        if is_late:
            error = running.clock.late_error(self.time_limit)
        else:
            code = running.process.returncode
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            output = last_output(directory / OUTPUT) or "it printed nothing"
            error = f"the worker process ended with {reason}: {output}"
        with writing(directory / ERROR):
            write_text(directory / ERROR, f"{error}\n")
        return Outcome(error=error, cost=seconds)

    def close(self) -> None:
        for running in self._running:
            running.end()
        self._running.clear()


def check_workers(count: int, time_limit: float | None, ray: str = "") -> None:
    """Check the arguments of `make_workers` that no study is needed for.

    Raises:
        ValueError: one is invalid.
    """
    if not is_whole_number(count) or count < 0:
        raise ValueError(f"workers is {count!r}, expected a whole number of at least 0")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit is {time_limit!r}, expected a positive number of seconds")
    if ray and not count:
        raise ValueError("a cluster needs the number of evaluations at a time: expected workers=1 or more")
    if time_limit is not None and not count:
        raise ValueError("a time limit ends a worker process: expected workers=1 or more")


def make_workers(
    directory: Path,
    settings: StudySettings,
    evaluate: EvaluateFunction | str | None,
    count: int,
    time_limit: float | None,
    ray: str = "",
) -> Workers:
    """Return the workers of a study.

    Args:
        directory: directory of the study.
        settings: its settings.
        evaluate: evaluates a trial, or the location of a function that does; None is refused.
        count: number of processes; 0 for this process.
        time_limit: seconds that an evaluation may take; None for no limit.
        ray: address of a Ray cluster that runs the evaluations; empty for processes of this machine.

    Raises:
        ValueError: an argument is invalid, or the function cannot be loaded.
    """
    check_workers(count, time_limit, ray)
    if evaluate is None:
        raise ValueError(f"expected a function that evaluates {' and '.join(settings.evaluated) or 'trials'}")
    function = load_evaluation(evaluate) if isinstance(evaluate, str) else evaluate
    if not callable(function):
        raise ValueError(f"evaluate is {function!r}, expected a function of a trial")
    check_parameters(function, has_budgets=bool(settings.budgets))
    if ray:
        return RayWorkers(ray, evaluate, settings, count, time_limit)
    if count:
        return ProcessWorkers(directory, evaluate, count, time_limit)
    return ThisProcess(function, settings)


def last_output(path: Path) -> str:
    """Return the last lines that a process printed, without the start of long ones.

    Args:
        path: the file with its output, which may be large.
    """
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_ERROR_LENGTH))
        text = file.read(MAX_ERROR_LENGTH).decode(errors="replace")
    return " | ".join(text.splitlines()[-MAX_OUTPUT_LINES:])


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started, and wait for its end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin:
        process.stdin.close()
    process.wait()


def worker_environments(count: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker: its number of threads, its GPU and its cores.

    The processors of this process are divided among the workers, and the GPUs are assigned in turn. Numbers
    of threads in the environment of this process, such as `OMP_NUM_THREADS`, are not exceeded.

    Args:
        count: number of workers.
    """
    threads = max(1, num_processors() // count)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    gpus = _visible_gpus()
    environments = []
    for slot in range(count):
        variables = {name: str(_num_threads(name, threads)) for name in THREAD_VARIABLES}
        if len(cores) >= threads * count:
            own_cores = cores[slot * threads : (slot + 1) * threads]
            variables["NAS_RLM_CORES"] = ",".join(map(str, own_cores))
        if gpus:
            variables["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
        environments.append(variables)
    return environments


def _num_threads(variable: str, most: int) -> int:
    """The number of threads in an environment variable, at most so many; so many without a positive one."""
    value = os.environ.get(variable, "")
    return min(most, int(value)) if value.isdecimal() and int(value) else most


def _visible_gpus() -> list[str]:
    """Identifiers of the GPUs that this process sees."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu]
    return [str(i) for i in range(torch.cuda.device_count())]
