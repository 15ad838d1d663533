"""The process that runs one Python program, on each of its inputs in a fresh copy of itself.

It is started as `python -P -s -S -B python_worker.py` with a job as JSON on its standard input, and writes a line of
JSON for each run, up to the first error. What runs the program is forked after the common modules are there
and before any of the program is, has given up what `sandbox.confine` takes, and tells its parent through a pipe.
That a program lies about itself is not found out, where what it says could be true.

Only the standard library and `sandbox.py` beside it.
"""

from __future__ import annotations

import io
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

NAME = "program.py"  # what the program's file is called within
MOST = 1 << 16  # bytes that a run may answer
RECURSION = 100_000
STACK = 512 * 2**20  # bytes, for deep recursion
OF_A_THREAD = 16 * 2**20  # that else would have as many
SLOWER = 6  # what is not timed may take so many times as long: each allocation is traced to its line
COMMON = (
    *("array", "bisect", "collections", "copy", "ctypes", "datetime", "decimal", "fractions", "functools"),
    *("heapq", "itertools", "json", "math", "operator", "queue", "random", "re", "statistics", "string"),
    *("threading", "tracemalloc", "typing"),
)


def main() -> None:
    """Do a job, as `nas_rlm.programs.python_runner` makes them."""
    _deepen()
    job = json.loads(sys.stdin.buffer.read())
    sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
    sys.path += job["site"]
    for name in COMMON:
        __import__(name)
    import sandbox  # type: ignore[import-not-found]

    sys.path.pop(0)
    del sys.modules["sandbox"]
    sys.setrecursionlimit(RECURSION)
    threading.stack_size(OF_A_THREAD)
    for kind, number in job["runs"]:
        answer = _watched(job, kind, job["cases"][number], sandbox)
        print(json.dumps(answer), flush=True)
        if "error" in answer:
            break


def _deepen() -> None:
    """Start once more with a deeper stack, if it is not as deep: a process learns at its start how deep."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    most = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    if soft != most:
        resource.setrlimit(resource.RLIMIT_STACK, (most, hard))
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _watched(job: dict[str, Any], kind: str, case: dict[str, Any], sandbox: Any) -> dict[str, Any]:
    """What a run answers, and how it ended."""
    reading, writing = os.pipe()
    guard = os.fork()
    if not guard:
        os.setpgid(0, 0)
        os.close(reading)
        _guard(job, kind, case, sandbox, writing)
    os.close(writing)
    seconds = job["seconds"] * (1 if kind == "time" else SLOWER)
    end, told = time.monotonic() + seconds, b""
    while len(told) < MOST:
        if not select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
            break
        if not (part := os.read(reading, MOST)):
            break
        told += part
    late = time.monotonic() >= end
    with suppress(ProcessLookupError, PermissionError):  # it has its group before it has children
        os.killpg(guard, signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    os.waitpid(guard, 0)
    os.close(reading)
    if late:
        return {"error": f"it ran longer than {seconds:g} seconds"}
    return _understood(told, kind)


def _guard(job: dict[str, Any], kind: str, case: dict[str, Any], sandbox: Any, writing: int) -> None:
    """Run the program in a child without network, and tell how it ended; never returns."""
    try:
        separate = sandbox.separate()
        sandbox.end_with_parent()
        runner = os.fork()
        if not runner:
            sandbox.end_with_parent()
            _runner(job, kind, case, sandbox, writing, separate)
        _, status, usage = os.wait4(runner, 0)
        scale = 1 if sys.platform == "darwin" else 1024
        last = {"status": os.waitstatus_to_exitcode(status), "rss": usage.ru_maxrss * scale}
        os.write(writing, b"\n" + json.dumps(last).encode())
    finally:
        os._exit(0)


def _runner(
    job: dict[str, Any], kind: str, case: dict[str, Any], sandbox: Any, writing: int, separate: bool
) -> None:
    """Run the program and answer; never returns."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        _feed(case.get("stdin", ""))
        held = sandbox.confine(job["memory"], int(SLOWER * job["seconds"]) + 1)
        answer: dict[str, Any] = {name: int(name in held) for name in ("landlock", "seccomp")}
        answer["namespaces"] = int(separate)
        try:
            if kind != LAYERS:
                answer = _run(job["source"], job["entry"], kind, case)
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        os.write(writing, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _feed(text: str) -> None:
    """Let the standard input be a text."""
    reading, writing = os.pipe()
    content = text.encode()
    if os.fork() == 0:  # a pipe holds less than a long input
        os.close(reading)
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(writing, rest) :]
        finally:
            os._exit(0)
    os.close(writing)
    os.dup2(reading, 0)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"), encoding="utf-8")


def _run(source: str, entry: str, kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """Run a program once and tell what the run took."""
    code = compile(source, NAME, "exec")
    if not entry:
        return MEASURES[kind](lambda: _whole(code))
    space: dict[str, Any] = {"__name__": "program", "__file__": NAME}
    exec(code, space)
    target = eval(entry, space)
    if "call" in case:
        taken: list[Any] = []
        eval(case["call"], {**space, "candidate": lambda *args, **named: taken.append((args, named))})
        args, named = taken[0]
    else:
        args, named = case.get("args", []), case.get("kwargs", {})
    return MEASURES[kind](lambda: target(*args, **named))


def _whole(code: Any) -> None:
    try:
        exec(code, {"__name__": "__main__", "__file__": NAME})
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


def _time(work: Callable[[], Any]) -> dict[str, Any]:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    work()
    return {"wall": time.perf_counter_ns() - wall, "cpu": time.process_time_ns() - cpu}


def _memory(work: Callable[[], Any]) -> dict[str, Any]:
    """Peak bytes above those before, and what is left that lines of the program allocated."""
    import gc
    import tracemalloc

    gc.collect()
    tracemalloc.start()
    held = tracemalloc.take_snapshot()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    kept = work()
    peak = tracemalloc.get_traced_memory()[1]
    own = [tracemalloc.Filter(True, NAME)]
    grown = tracemalloc.take_snapshot().filter_traces(own).compare_to(held.filter_traces(own), "lineno")
    del kept
    return {
        "peak": peak - before,
        "allocated": sum(max(0, line.size_diff) for line in grown),
        "blocks": sum(max(0, line.count_diff) for line in grown),
    }


def _counts(work: Callable[[], Any]) -> dict[str, Any]:
    """Lines and calls of the program's own, and how deep calls went."""
    lines = calls = depth = deepest = 0

    def noted(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines, calls, depth, deepest
        if frame.f_code.co_filename != NAME:
            return None
        if event == "line":
            lines += 1
        elif event == "call":
            calls, depth = calls + 1, depth + 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1
        return noted

    sys.settrace(noted)
    try:
        work()
    finally:
        sys.settrace(None)
    return {"lines": lines, "calls": calls, "depth": deepest}


LAYERS = "layers"  # no run: which of the sandbox's layers hold
MEASURES = {"time": _time, "memory": _memory, "counts": _counts}
ANSWERS = {
    "time": {"wall", "cpu"},
    "memory": {"peak", "allocated", "blocks"},
    "counts": {"lines", "calls", "depth"},
    LAYERS: {"landlock", "seccomp", "namespaces"},
}


def _understood(told: bytes, kind: str) -> dict[str, Any]:
    """A run's answer, with what its guard adds; the program may have written anything."""
    if len(told) >= MOST:
        return {"error": "it wrote where it answers"}
    own, _, last = told.rpartition(b"\n")
    try:
        guard = json.loads(last)
        status = guard["status"]
    except (ValueError, KeyError, TypeError):
        return {"error": "it ended without an answer"}
    if status:
        return {"error": f"it was ended by signal {-status}" if status < 0 else f"exit code {status}"}
    try:
        answer = json.loads(own)
    except ValueError:
        return {"error": "it ended without an answer"}
    if isinstance(answer, dict) and answer.keys() == {"error"}:
        return {"error": "".join(c if c.isprintable() else " " for c in str(answer["error"])[:500])}
    numbers = answer.values() if isinstance(answer, dict) and answer.keys() == ANSWERS[kind] else [-1]
    if not all(type(number) is int and number >= 0 for number in numbers):
        return {"error": "it wrote where it answers"}
    return {**answer, "rss": guard["rss"]}


if __name__ == "__main__":
    main()
