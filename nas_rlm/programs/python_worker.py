"""Worker process that runs one Python program; each run is a new fork of it.

It is started as `python -P -s -S -B python_worker.py` with a job as JSON on its standard input, and writes a
JSON line for each run, up to the first error. The process that runs the program is forked after common
modules are imported and before any code of the program runs. It is confined by `sandbox.confine` and reports
its result through a pipe. A program that reports plausible numbers about itself is not detected.

This file uses only the standard library and `sandbox.py` beside it.
"""

from __future__ import annotations

import builtins
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
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType, ModuleType
from typing import Any, NoReturn

PROGRAM_NAME = "program.py"  # file name of the program in its code objects
MAX_ANSWER_BYTES = 1 << 16
RECURSION_LIMIT = 100_000
STACK_BYTES = 512 * 2**20  # of the main thread, for deep recursion
THREAD_STACK_BYTES = 16 * 2**20
UNTIMED_SLOWDOWN = 6  # runs that trace allocations or lines may take this many times as long
PRELOADED_MODULES = (
    *("array", "bisect", "collections", "copy", "ctypes", "datetime", "decimal", "fractions", "functools"),
    *("heapq", "itertools", "json", "math", "operator", "queue", "random", "re", "statistics", "string"),
    *("threading", "tracemalloc", "typing"),
)
NOT_RUN = {  # results of functions whose lines run later, and what they are called
    GeneratorType: "a generator",
    CoroutineType: "a coroutine",
    AsyncGeneratorType: "an asynchronous generator",
}


def main() -> None:
    """Run the program of the job on standard input, and write the result of each run as a JSON line."""
    _raise_stack_limit()
    max_digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # inputs may be longer; the limit protects from results of the program
    job = json.loads(sys.stdin.buffer.read())
    sys.set_int_max_str_digits(max_digits)
    sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
    sys.path += job["site_packages"]
    for name in PRELOADED_MODULES:
        __import__(name)
    for name in ("exit", "quit"):
        setattr(builtins, name, sys.exit)  # which the module site adds, that -S leaves out
    import sandbox  # type: ignore[import-not-found]

    sys.path.pop(0)
    del sys.modules["sandbox"]
    sys.setrecursionlimit(RECURSION_LIMIT)
    threading.stack_size(THREAD_STACK_BYTES)
    for kind, case_index in job["runs"]:
        answer = _run_with_timeout(job, kind, job["cases"][case_index], sandbox)
        print(json.dumps(answer), flush=True)
        if "error" in answer:
            break


def _raise_stack_limit() -> None:
    """Raise the stack limit and restart this process, since the limit only applies from its start."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    limit = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    if soft != limit:
        resource.setrlimit(resource.RLIMIT_STACK, (limit, hard))
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _run_with_timeout(
    job: dict[str, Any], kind: str, case: dict[str, Any], sandbox: ModuleType
) -> dict[str, Any]:
    """Run the program once in a child process, and return its validated result or an error."""
    read_end, write_end = os.pipe()
    guard = os.fork()
    if not guard:
        os.setpgid(0, 0)
        os.close(read_end)
        _guard(job, kind, case, sandbox, write_end)
    os.close(write_end)
    seconds = job["seconds_per_run"] * (1 if kind == "time" else UNTIMED_SLOWDOWN)
    deadline, output = time.monotonic() + seconds, b""
    while len(output) < MAX_ANSWER_BYTES:
        if not select.select([read_end], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        if not (chunk := os.read(read_end, MAX_ANSWER_BYTES)):
            break
        output += chunk
    timed_out = time.monotonic() >= deadline
    with suppress(ProcessLookupError, PermissionError):  # the guard sets its group before it has children
        os.killpg(guard, signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    os.waitpid(guard, 0)
    os.close(read_end)
    if timed_out:
        slower = (
            "" if kind == "time" else f", {UNTIMED_SLOWDOWN} times the limit, in a run that records {kind}"
        )
        return {"error": f"it ran longer than {seconds:g} seconds{slower}"}
    return _validate(output, kind)


def _guard(
    job: dict[str, Any], kind: str, case: dict[str, Any], sandbox: ModuleType, write_end: int
) -> NoReturn:
    """Run the program in a child without network, and write its exit status and memory to the pipe."""
    try:
        in_namespaces = sandbox.enter_namespaces()
        sandbox.die_with_parent()
        runner = os.fork()
        if not runner:
            sandbox.die_with_parent()
            _run_confined(job, kind, case, sandbox, write_end, in_namespaces)
        _, status, usage = os.wait4(runner, 0)
        unit = 1 if sys.platform == "darwin" else 1024
        report = {"status": os.waitstatus_to_exitcode(status), "rss": usage.ru_maxrss * unit}
        os.write(write_end, b"\n" + json.dumps(report).encode())
    finally:
        os._exit(0)


def _run_confined(
    job: dict[str, Any],
    kind: str,
    case: dict[str, Any],
    sandbox: ModuleType,
    write_end: int,
    in_namespaces: bool,
) -> NoReturn:
    """Confine this process, run the program and write the result to the pipe."""
    try:
        null_device = os.open(os.devnull, os.O_RDWR)
        os.dup2(null_device, 1)
        os.dup2(null_device, 2)
        _set_stdin(case.get("stdin", ""))
        cpu_seconds = int(UNTIMED_SLOWDOWN * job["seconds_per_run"]) + 1
        active = sandbox.confine(job["memory_limit"], cpu_seconds)
        answer: dict[str, Any] = {name: int(name in active) for name in ("landlock", "seccomp")}
        answer["namespaces"] = int(in_namespaces)
        try:
            if kind != PROBE_LAYERS:
                sys.set_int_max_str_digits(0)  # programs may be older than the limit
                answer = _run_program(job["source"], job["entry"], kind, case)
        except MemoryError:  # which has no text
            answer = {"error": f"MemoryError: it needs more than the limit of {job['memory_limit']:,} bytes"}
        except BaseException as error:
            answer = {"error": _description(error)[:500]}
        os.write(write_end, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _description(error: BaseException) -> str:
    """Return the type and the text of an error, whose own method may raise another one."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        return name


def _set_stdin(text: str) -> None:
    """Replace standard input by a text."""
    read_end, write_end = os.pipe()
    content = text.encode()
    if os.fork() == 0:  # a child writes, because the pipe's buffer may be smaller than the text
        os.close(read_end)
        remaining = memoryview(content)
        try:
            while remaining:
                remaining = remaining[os.write(write_end, remaining) :]
        finally:
            os._exit(0)
    os.close(write_end)
    os.dup2(read_end, 0)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"), encoding="utf-8")


def _run_program(source: str, entry: str, kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """Run a program once on one input, and return the measurements of this kind of run."""
    code = compile(source, PROGRAM_NAME, "exec")
    if not entry:
        return MEASUREMENTS[kind](lambda: _execute_script(code))
    namespace: dict[str, Any] = {"__name__": "program", "__file__": PROGRAM_NAME}
    exec(code, namespace)
    function = eval(entry, namespace)
    if "call" in case:
        calls: list[Any] = []
        record = {"candidate": lambda *args, **kwargs: calls.append((args, kwargs))}
        eval(case["call"], {**namespace, **record})
        args, kwargs = calls[0]
    else:
        args, kwargs = case.get("args", []), case.get("kwargs", {})
    return MEASUREMENTS[kind](lambda: function(*args, **kwargs))


def _execute_script(code: CodeType) -> None:
    """Execute a program that reads its standard input; a regular exit is no error."""
    try:
        exec(code, {"__name__": "__main__", "__file__": PROGRAM_NAME})
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


def _measure_time(work: Callable[[], Any]) -> dict[str, Any]:
    """Run a function, and return its wall and CPU time in nanoseconds."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    work()
    return {"wall": time.perf_counter_ns() - wall, "cpu": time.process_time_ns() - cpu}


def _measure_memory(work: Callable[[], Any]) -> dict[str, Any]:
    """Run a function, and return the growth of the memory peak and what the program's lines did not free."""
    import gc
    import tracemalloc

    gc.collect()
    tracemalloc.start()
    snapshot_before = tracemalloc.take_snapshot()
    bytes_before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    result = work()
    peak = tracemalloc.get_traced_memory()[1]
    if type(result) in NOT_RUN:
        raise TypeError(
            f"the result is {NOT_RUN[type(result)]}, whose lines have not run: expected a function that"
            " returns what it computes"
        )
    own_lines = [tracemalloc.Filter(True, PROGRAM_NAME)]
    before, after = (
        snapshot.filter_traces(own_lines) for snapshot in (snapshot_before, tracemalloc.take_snapshot())
    )
    growth = after.compare_to(before, "lineno")
    del result
    return {
        "peak": peak - bytes_before,
        "allocated": sum(max(0, line.size_diff) for line in growth),
        "blocks": sum(max(0, line.count_diff) for line in growth),
    }


def _count_lines(work: Callable[[], Any]) -> dict[str, Any]:
    """Run a function, and return the program's numbers of lines and calls, and the depth of its stack."""
    lines = calls = depth = max_depth = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines, calls, depth, max_depth
        if frame.f_code.co_filename != PROGRAM_NAME:
            return None
        if event == "line":
            lines += 1
        elif event == "call":
            calls, depth = calls + 1, depth + 1
            max_depth = max(max_depth, depth)
        elif event == "return":
            depth -= 1
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return {"lines": lines, "calls": calls, "depth": max_depth}


PROBE_LAYERS = "layers"  # a run that only reports which layers of the sandbox are active
MEASUREMENTS = {"time": _measure_time, "memory": _measure_memory, "counts": _count_lines}
ANSWER_KEYS = {
    "time": {"wall", "cpu"},
    "memory": {"peak", "allocated", "blocks"},
    "counts": {"lines", "calls", "depth"},
    PROBE_LAYERS: {"landlock", "seccomp", "namespaces"},
}


def _validate(output: bytes, kind: str) -> dict[str, Any]:
    """Return a run's result with its resident memory, or an error; the program may have written anything."""
    if len(output) >= MAX_ANSWER_BYTES:
        return {"error": "it wrote to the pipe of its answer"}
    answer_line, _, guard_line = output.rpartition(b"\n")
    try:
        guard = json.loads(guard_line)
        status = guard["status"]
    except (ValueError, KeyError, TypeError):
        return {"error": "it ended without an answer"}
    if status:
        return {"error": f"it was ended by signal {-status}" if status < 0 else f"exit code {status}"}
    try:
        answer = json.loads(answer_line)
    except ValueError:
        return {"error": "it ended without an answer"}
    if isinstance(answer, dict) and answer.keys() == {"error"}:
        return {"error": "".join(c if c.isprintable() else " " for c in str(answer["error"])[:500])}
    is_complete = isinstance(answer, dict) and answer.keys() == ANSWER_KEYS[kind]
    if not is_complete or not all(type(number) is int and number >= 0 for number in answer.values()):
        return {"error": "it wrote to the pipe of its answer"}
    return {**answer, "rss": guard["rss"]}


if __name__ == "__main__":
    main()
