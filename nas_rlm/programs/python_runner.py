"""Measuring Python programs: peak memory, time and counts, on inputs of their own.

Source: appendix D.4.1 of the paper. Each run is a fresh process of `python -P -s -S -B` with PYTHONHASHSEED=0
(which `-I` would not heed), in which common modules are there; a program is a function that is called, or
reads its standard input.
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

from nas_rlm.programs.python_worker import LAYERS, SLOWER

CHILD = Path(__file__).with_name("python_worker.py")
MOST = 2**44  # bytes that may be given to a run
START = 30.0  # seconds that starting may take, beside the runs
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # of which each takes memory
CASE = {"args": list, "kwargs": dict, "call": str, "stdin": str}  # what an input may be made of


@dataclass(frozen=True)
class Program:
    """A program and its inputs.

    Args:
        source: Python.
        entry: an expression for the function that is called, such as `Solution().solve`; empty for a program
            that reads its standard input.
        cases: inputs: `{"args": […], "kwargs": {…}}`, as JSON has them; `{"call": "candidate(tree([1]))"}`,
            an expression in which names of the program may stand; or `{"stdin": "…"}`.
        problem: that it solves, if that is known.

    Raises:
        ValueError: the source is empty or no Unicode, the entry or a call is no expression, there is no
            input, or one that is none of these.
    """

    source: str
    entry: str
    cases: Sequence[dict[str, Any]]
    problem: str = ""

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("a program is empty: expected Python")
        try:
            self.source.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"a program is no Unicode: {error}") from None
        if not self.cases:
            raise ValueError("a program has no inputs: expected one at least")
        _check_expression("entry", self.entry or "None", "Solution().solve")
        for case in self.cases:
            wanted = {"args", "kwargs", "call"} if self.entry else {"stdin"}
            fits = isinstance(case, dict) and case.keys() <= wanted
            if not fits or not all(isinstance(part, CASE[name]) for name, part in case.items()):
                shape = '{"args": [1, 2]}' if self.entry else '{"stdin": "1 2"}'
                raise ValueError(f"{str(case)[:60]!r} is no input: expected such as {shape}")
            _check_expression("call", case.get("call", "None"), "candidate(tree([1]))")
            try:
                case.get("stdin", "").encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"{str(case)[:60]!r} is no Unicode: {error}") from None


def _check_expression(name: str, text: str, such: str) -> None:
    try:
        compile(text, name, "eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(
            f"{name} is {text[:200]!r}, no expression ({error}): expected such as {such}"
        ) from None


@dataclass(frozen=True)
class Plan:
    """How programs are measured.

    Args:
        warmup: timed runs on each input that are thrown away.
        repeats: timed runs on each input that count; 0 for none.
        seconds: that a timed run may take; one in which allocations or lines are noted, `SLOWER` as many.
        memory: bytes that a run may have.
        counts: one more run on each input that counts lines and calls.
        trusted: run programs also where the system cannot keep them from writing, networks and processes.
    """

    warmup: int = 3
    repeats: int = 11
    seconds: float = 10.0
    memory: int = 2 * 2**30
    counts: bool = True
    trusted: bool = False

    def __post_init__(self) -> None:
        if self.memory > MOST:
            raise ValueError(f"memory is {self.memory:,}, expected at most {MOST:,}")
        least = {"warmup": 0, "repeats": 0, "memory": 64 * 2**20}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} is {getattr(self, name):,}, expected at least {bound:,}")
        if not 0 < self.seconds <= 3600:
            raise ValueError(f"seconds is {self.seconds:g}, expected more than 0 and at most 3600")


USUAL = Plan()


@dataclass(frozen=True)
class Measurement:
    """What a program takes, of its inputs the one that takes most.

    Args:
        memory: peak bytes of Python objects during the call or program, above those before (tracemalloc):
            whoever allocated them.
        allocated, blocks: bytes and blocks that its own lines allocated and had not freed at the end.
        rss: peak resident bytes of a process in which nothing is traced, interpreter included.
        lines, calls, depth: of its own that were run, over all inputs; None where they were not counted.
        wall, cpu: seconds of a run on all inputs: min, median, mean, p90, max, deviation; None if not timed.
        runs: timed ones of each input.
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
    """Why a program has no measurement, and on which input."""

    error: str


def measure(program: Program, plan: Plan = USUAL) -> Measurement | Failure:
    """Run a program on its inputs.

    >>> measure(Program("def f(n): return [0] * n", "f", [{"args": [1000]}]), Plan(repeats=0)).memory > 8000
    True

    Raises:
        ValueError: the system cannot confine programs, and they are not trusted.
    """
    if not plan.trusted and (layers := lacking()):
        raise ValueError(
            f"this system has no {' and no '.join(layers)} to keep programs from doing harm: expected Linux"
            " with them, or programs that are trusted (--trust)"
        )
    cases = range(len(program.cases))
    kinds = ["memory", *(["counts"] if plan.counts else [])]
    rounds = plan.warmup + plan.repeats if plan.repeats else 1
    runs = [(kind, i) for kind in kinds for i in cases] + [("time", i) for _ in range(rounds) for i in cases]
    found: dict[str, list[dict[str, Any]]] = {}
    for (kind, number), answer in zip(runs, _answers(program, plan, runs), strict=False):
        if "error" in answer:
            return Failure(f"input {number}: {answer['error']}")
        found.setdefault(kind, []).append(answer)
    if sum(map(len, found.values())) < len(runs):
        return Failure("the process that runs it ended")
    counted = found.get("counts")
    times = found["time"][plan.warmup * len(cases) :] if plan.repeats else []
    most = {name: max(one[name] for one in found["memory"]) for name in ("peak", "allocated", "blocks")}
    return Measurement(
        memory=most["peak"],
        allocated=most["allocated"],
        blocks=most["blocks"],
        rss=max(one["rss"] for one in found["time"]),
        lines=sum(one["lines"] for one in counted) if counted else None,
        calls=sum(one["calls"] for one in counted) if counted else None,
        depth=max(one["depth"] for one in counted) if counted else None,
        wall=_summary(times, "wall", len(cases)),
        cpu=_summary(times, "cpu", len(cases)),
        runs=plan.repeats,
    )


@cache
def lacking() -> tuple[str, ...]:
    """What this system does not have of what confines programs: nothing, as a rule, on Linux."""
    (held,) = _answers(Program("pass", "", [{"stdin": ""}]), USUAL, [(LAYERS, 0)]) or [{}]
    needed = {
        "Landlock": held.get("landlock"),
        "seccomp or namespaces": held.get("seccomp") or held.get("namespaces"),
    }
    return tuple(name for name, holds in needed.items() if not holds)


_running: set[subprocess.Popen[bytes]] = set()


def stop() -> None:
    """End all that is being measured."""
    for child in tuple(_running):
        child.kill()


def _answers(program: Program, plan: Plan, runs: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """What the child answers, up to the first error, or fewer."""
    paths = sysconfig.get_paths()
    job = {
        "source": program.source,
        "entry": program.entry,
        "cases": list(program.cases),
        "runs": list(runs),
        "site": sorted({paths["purelib"], paths["platlib"]}),
        "memory": plan.memory,
        "seconds": plan.seconds,
    }
    with subprocess.Popen(
        [sys.executable, "-P", "-s", "-S", "-B", str(CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONHASHSEED": "0", "PATH": os.defpath, **dict.fromkeys(THREADS, "1")},
        cwd="/",
        start_new_session=True,
    ) as child:
        _running.add(child)
        try:
            told = child.communicate(json.dumps(job).encode(), START + SLOWER * plan.seconds * len(runs))[0]
        except subprocess.TimeoutExpired:
            return []
        finally:
            _running.discard(child)
            child.kill()
    return [json.loads(line) for line in told.splitlines()]


def _summary(times: Sequence[dict[str, Any]], name: str, cases: int) -> dict[str, float] | None:
    if not times:
        return None
    sums = 1e-9 * np.array([one[name] for one in times], dtype=float).reshape(-1, cases).sum(1)
    told = {"min": sums.min(), "median": np.median(sums), "mean": sums.mean()}
    told |= {"p90": np.quantile(sums, 0.9), "max": sums.max(), "deviation": sums.std()}
    return {name: float(value) for name, value in told.items()}
