"""Measurement of Python programs on their inputs: peak memory, time, and counts of lines and calls.

Each run is a fresh process of `python -P -s -S -B` with PYTHONHASHSEED=0, which `-I` would ignore, in which
common modules are already imported. A program is either a function that is called, or a script that reads its
standard input. Source: appendix D.4.1 of the paper.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nas_rlm.programs.python_worker import PROBE_LAYERS, UNTIMED_SLOWDOWN
from nas_rlm.utils.long_integers import long_integers
from nas_rlm.utils.validation import shown

WORKER_PATH = Path(__file__).with_name("python_worker.py")
MIN_MEMORY_BYTES, MAX_MEMORY_BYTES = 64 * 2**20, 2**44
MAX_SECONDS_PER_RUN = 3600
STARTUP_SECONDS = 30.0  # allowed for starting the worker, in addition to the runs
SINGLE_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # each thread would need memory
CASE_TYPES = {"args": list, "kwargs": dict, "call": str, "stdin": str}
FUNCTION_KEYS, SCRIPT_KEYS = {"args", "kwargs", "call"}, {"stdin"}  # of inputs with and without an entry


def example_of_input(entry: str) -> str:
    """Return an input of a program as JSON, for error messages.

    Args:
        entry: the function that is called; empty for a script.
    """
    return '{"args": [1, 2]}' if entry else '{"stdin": "1 2"}'


class InputError(ValueError):
    """An input of a program is not valid."""


@dataclass(frozen=True)
class Program:
    """A program and its inputs.

    Examples:
        >>> program = Program("def f(n): return [0] * n", "f", [{"args": [1000]}])

    Args:
        source: Python source.
        entry: expression of the function to call, such as `Solution().solve`; empty for a script that reads
            its standard input.
        cases: inputs of the program. An input of a function is `{"args": […], "kwargs": {…}}` with JSON
            values, or `{"call": "candidate(tree([1]))"}`, an expression that calls the function as
            `candidate` and may use names of the program. An input of a script is `{"stdin": "…"}`.
        problem: name of the problem that the program solves; may be empty.

    Raises:
        ValueError: the source is empty or not Unicode, the entry or a call is not an expression, there is no
            input, or an input has another form.
    """

    source: str
    entry: str
    cases: Sequence[dict[str, Any]]
    problem: str = ""

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("a program is empty: expected Python source")
        try:
            self.source.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"a program is not valid Unicode: {error}") from None
        if not self.cases:
            raise ValueError("a program has no inputs: expected at least one")
        _check_expression("entry", self.entry or "None", "Solution().solve")
        for case in self.cases:
            self._check_case(case)

    @long_integers()
    def _check_case(self, case: Any) -> None:
        """Check that an input has the form that the entry needs."""
        keys, other_keys = (FUNCTION_KEYS, SCRIPT_KEYS) if self.entry else (SCRIPT_KEYS, FUNCTION_KEYS)
        if isinstance(case, dict) and case and case.keys() <= other_keys:
            kind = "a script: expected no entry" if self.entry else "a function: expected --entry FUNCTION"
            raise InputError(
                f"{shown(case)} is an input of {kind}, or for example {example_of_input(self.entry)}"
            )
        has_valid_keys = isinstance(case, dict) and case.keys() <= keys
        if not has_valid_keys or not all(isinstance(value, CASE_TYPES[k]) for k, value in case.items()):
            raise InputError(
                f"{shown(case)} is not an input: expected for example {example_of_input(self.entry)}"
            )
        _check_expression("call", case.get("call", "None"), "candidate(tree([1]))")
        try:
            case.get("stdin", "").encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{shown(case)} is not valid Unicode: {error}") from None


def _check_expression(name: str, text: str, example: str) -> None:
    """Check that a text is a Python expression."""
    try:
        compile(text, name, "eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(
            f"{name} is {text[:200]!r}, not an expression ({error}): expected for example {example}"
        ) from None


@dataclass(frozen=True)
class Plan:
    """Settings of the measurement of Python programs.

    Args:
        warmup: number of timed runs on each input before those that count.
        repeats: number of timed runs on each input that count; 0 to measure no time.
        seconds_per_run: time limit of a timed run; a run that traces allocations or lines may take
            `UNTIMED_SLOWDOWN` times as long.
        memory_limit: limit of the address space of a run in bytes.
        count_lines: do one more run on each input that counts lines and calls.
        trusted: run programs even where the system cannot confine them.

    Raises:
        ValueError: a number is out of range.
    """

    warmup: int = 3
    repeats: int = 11
    seconds_per_run: float = 10.0
    memory_limit: int = 2 * 2**30
    count_lines: bool = True
    trusted: bool = False

    def __post_init__(self) -> None:
        for name in ("warmup", "repeats"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name):,}, expected at least 0")
        if not MIN_MEMORY_BYTES <= self.memory_limit <= MAX_MEMORY_BYTES:
            raise ValueError(
                f"the memory of a run is {self.memory_limit:,} bytes, expected at least"
                f" {MIN_MEMORY_BYTES:,} and at most {MAX_MEMORY_BYTES:,}"
            )
        if not 0 < self.seconds_per_run <= MAX_SECONDS_PER_RUN:
            raise ValueError(
                f"the seconds of a run are {self.seconds_per_run:g}, expected more than 0 and at most"
                f" {MAX_SECONDS_PER_RUN}"
            )


DEFAULT_PLAN = Plan()


@dataclass(frozen=True)
class Measurement:
    """The memory and time of a program; the maximum over its inputs, where not stated otherwise.

    Args:
        memory: growth of the peak of Python's allocations during the call or script, in bytes (tracemalloc).
        allocated: bytes that the program's own lines allocated and did not free.
        blocks: memory blocks that the program's own lines allocated and did not free.
        rss: peak resident memory in bytes of a process without tracing, including the interpreter.
        lines: executed lines of the program, summed over its inputs; None if not counted.
        calls: function calls of the program, summed over its inputs; None if not counted.
        depth: maximum depth of the call stack; None if not counted.
        wall: statistics of the wall time on all inputs together, in seconds: min, median, mean, p90, max and
            deviation (the standard deviation) over the rounds; None if not timed.
        cpu: the same statistics of the CPU time.
        runs: number of timed runs on each input.
    """

    memory: int
    allocated: int
    blocks: int
    rss: int
    lines: int | None
    calls: int | None
    depth: int | None
    wall: dict[str, float] | None
    cpu: dict[str, float] | None
    runs: int


@dataclass(frozen=True)
class Failure:
    """The reason why a program could not be measured.

    Args:
        error: the error message, with the index of the input.
    """

    error: str


def measure(program: Program, plan: Plan = DEFAULT_PLAN) -> Measurement | Failure:
    """Run a program on its inputs and measure it.

    Examples:
        >>> program = Program("def f(n): return [0] * n", "f", [{"args": [1000]}])
        >>> measure(program, Plan(repeats=0)).memory > 8000
        True

    Args:
        program: the program with its inputs.
        plan: settings of the measurement.

    Raises:
        ValueError: the system cannot confine programs, and `plan.trusted` is false.
    """
    if not plan.trusted and (layers := missing_layers()):
        raise ValueError(
            f"this system has no {' and no '.join(layers)} to confine programs: expected Linux with them, or"
            " programs that you trust (--trust)"
        )
    num_cases = len(program.cases)
    rounds = plan.warmup + plan.repeats if plan.repeats else 1
    kinds = ["memory", *(["counts"] if plan.count_lines else []), *(["time"] * rounds)]
    runs = [(kind, case) for kind in kinds for case in range(num_cases)]
    answers: dict[str, list[dict[str, Any]]] = {}
    for (kind, case), answer in zip(runs, _run_worker(program, plan, runs), strict=False):
        if "error" in answer:
            return Failure(f"input {case}: {answer['error']}")
        answers.setdefault(kind, []).append(answer)
    if sum(map(len, answers.values())) < len(runs):
        return Failure("the process that runs it ended")
    counts = answers.get("counts")
    times = answers["time"][plan.warmup * num_cases :] if plan.repeats else []
    memory = {name: max(a[name] for a in answers["memory"]) for name in ("peak", "allocated", "blocks")}
    return Measurement(
        memory=memory["peak"],
        allocated=memory["allocated"],
        blocks=memory["blocks"],
        rss=max(a["rss"] for a in answers["time"]),
        lines=sum(a["lines"] for a in counts) if counts else None,
        calls=sum(a["calls"] for a in counts) if counts else None,
        depth=max(a["depth"] for a in counts) if counts else None,
        wall=_summarise(times, "wall", num_cases),
        cpu=_summarise(times, "cpu", num_cases),
        runs=plan.repeats,
    )


@cache
def missing_layers() -> tuple[str, ...]:
    """Return the names of the sandbox's layers that this system lacks; normally empty on Linux."""
    probe = Program("pass", "", [{"stdin": ""}])
    (active,) = _run_worker(probe, DEFAULT_PLAN, [(PROBE_LAYERS, 0)]) or [{}]
    required = {
        "Landlock": active.get("landlock"),
        "seccomp or namespaces": active.get("seccomp") or active.get("namespaces"),
    }
    return tuple(name for name, is_active in required.items() if not is_active)


_running: set[subprocess.Popen[bytes]] = set()


def stop_all() -> None:
    """Kill all workers of this process."""
    for worker in tuple(_running):
        worker.kill()


def _run_worker(program: Program, plan: Plan, runs: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Run a program in a new worker.

    Args:
        program: the program.
        plan: time and memory limits of each run.
        runs: kind of measurement and index of the input of each run.

    Returns:
        The result of each run up to the first error; fewer if the worker ended.
    """
    paths = sysconfig.get_paths()
    job = {
        "source": program.source,
        "entry": program.entry,
        "cases": list(program.cases),
        "runs": list(runs),
        "site_packages": sorted({paths["purelib"], paths["platlib"]}),
        "memory_limit": plan.memory_limit,
        "seconds_per_run": plan.seconds_per_run,
    }
    with long_integers():
        request = json.dumps(job).encode()
    timeout = STARTUP_SECONDS + UNTIMED_SLOWDOWN * plan.seconds_per_run * len(runs)
    with subprocess.Popen(
        [sys.executable, "-P", "-s", "-S", "-B", str(WORKER_PATH)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONHASHSEED": "0", "PATH": os.defpath, **dict.fromkeys(SINGLE_THREAD_VARIABLES, "1")},
        cwd="/",
        start_new_session=True,
    ) as worker:
        _running.add(worker)
        try:
            output = worker.communicate(request, timeout)[0]
        except subprocess.TimeoutExpired:
            return []
        finally:
            _running.discard(worker)
            worker.kill()
    return [json.loads(line) for line in output.splitlines()]


def _summarise(times: Sequence[dict[str, Any]], name: str, num_cases: int) -> dict[str, float] | None:
    """Return statistics of the time of a round in seconds; a round runs each input once.

    Args:
        times: wall and CPU time of each run in nanoseconds, round by round.
        name: `wall` or `cpu`.
        num_cases: number of inputs.
    """
    if not times:
        return None
    rounds = 1e-9 * np.array([run[name] for run in times], dtype=float).reshape(-1, num_cases).sum(1)
    statistics = {"min": rounds.min(), "median": np.median(rounds), "mean": rounds.mean()}
    statistics |= {"p90": np.quantile(rounds, 0.9), "max": rounds.max(), "deviation": rounds.std()}
    return {name: float(value) for name, value in statistics.items()}
