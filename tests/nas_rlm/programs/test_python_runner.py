import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nas_rlm.programs import python_runner, sandbox
from nas_rlm.programs.python_runner import (
    WORKER_PATH,
    Failure,
    Measurement,
    Plan,
    Program,
    measure,
    missing_layers,
)

MEMORY = Plan(repeats=0, count_lines=False, seconds_per_run=5, trusted=True)
ZEROS = "def zeros(n):\n    return [0] * n"


def measure_script(source, plan=MEMORY, **case):
    """What a program that reads its standard input takes."""
    return measure(Program(source, "", [case]), plan)


def test_memory_is_the_maximum_over_the_inputs():
    result = measure(
        Program(ZEROS, "zeros", [{"args": [1000]}, {"args": [5000]}, {"kwargs": {"n": 10}}]), MEMORY
    )
    assert isinstance(result, Measurement)
    assert 40_000 < result.memory < 41_500
    assert 40_000 < result.allocated < 40_500
    assert result.rss > 5e6
    assert result.wall is result.lines is None


def test_an_error_whose_text_raises_another_one_is_named_by_its_type():
    source = "class Odd(Exception):\n    def __str__(self):\n        return self.missing\nraise Odd"
    assert measure_script(source) == Failure("input 0: Odd")


@pytest.mark.parametrize("name", ["exit", "quit"])
def test_a_script_may_exit(name):
    source = "a = [0] * 10_000\nif input() == 'end':\n    {}({})\nb = [0] * 10_000"
    ended, complete = (measure_script(source.format(name, ""), stdin=text) for text in ("end", "all"))
    assert 80_000 < ended.memory < 120_000 < 160_000 < complete.memory
    assert measure_script(source.format(name, 3), stdin="end") == Failure("input 0: SystemExit: 3")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def f(n):\n    yield n", "a generator"),
        ("async def f(n):\n    return n", "a coroutine"),
        ("async def f(n):\n    yield n", "an asynchronous generator"),
    ],
)
def test_a_function_whose_lines_have_not_run_is_refused(source, kind):
    result = measure(Program(source, "f", [{"args": [3]}]), MEMORY)
    assert isinstance(result, Failure) and f"the result is {kind}" in result.error


def test_memory_before_the_call_does_not_count():
    source = "big = list(range(10**5))\ndef first(xs, n):\n    return xs[0] + n + big[0]"
    result = measure(Program(source, "first", [{"args": [list(range(50_000)), 3]}]), MEMORY)
    assert result.memory < 2_000


def test_memory_is_reproducible():
    program = Program("def f(n):\n    return {str(i): {i} for i in range(n)}", "f", [{"args": [300]}])
    assert len({measure(program, MEMORY).memory for _ in range(3)}) == 1


def test_a_script_reads_its_standard_input():
    long_input = measure_script(
        "n = int(input())\nprint(len([int(x) for x in input().split()]) / n)", stdin="1\n" + "7 " * 20_000
    )
    short_input = measure_script(
        "n = int(input())\nprint(len([int(x) for x in input().split()]) / n)", stdin="1\n7 7\n"
    )
    assert long_input.memory > 200_000 > 20_000 > short_input.memory
    assert measure_script("import sys\nsys.exit(0)").memory > 0
    assert isinstance(
        measure_script("import sys\nprint(sys.stdin.buffer.read().decode(), open(0))", stdin="é"), Measurement
    )


def test_arguments_may_be_an_expression_with_names_of_the_program():
    source = "class Node:\n    def __init__(self, v): self.v = v\n"
    source += "class Solution:\n    def value(self, node): return node.v * 2"
    result = measure(Program(source, "Solution().value", [{"call": "candidate(node=Node(21))"}]), MEMORY)
    assert isinstance(result, Measurement)


def test_times_lines_and_calls_are_measured():
    source = "def f(n):\n    if n == 0:\n        return 0\n    return 1 + f(n - 1)"
    plan = Plan(warmup=1, repeats=4, seconds_per_run=5, trusted=True)
    result = measure(Program(source, "f", [{"args": [10]}, {"args": [5]}]), plan)
    assert (result.calls, result.depth) == (11 + 6, 11)
    assert result.lines == 2 * 17
    assert result.runs == 4
    assert 0 < result.wall["min"] <= result.wall["median"] <= result.wall["p90"] <= result.wall["max"] < 1
    slow = measure(Program("import time\ndef f():\n    time.sleep(0.05)", "f", [{"args": []}]), plan)
    assert 0.05 <= slow.wall["min"] < 1
    assert slow.cpu["median"] < 0.05


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError"),
        ("import sys\nsys.exit(1)", "SystemExit: 1"),
        ("import os\nos._exit(3)", "exit code 3"),
        ("while True: pass", "it ran longer than 1.2 seconds"),
        ("import time\ntime.sleep(100)", "it ran longer than 1.2 seconds"),
        ("x = []\nwhile True: x.append('a' * 10**6)", "MemoryError"),
        ("def f(): f()\nf()", "RecursionError"),
        ("input()", "EOFError"),
    ],
)
def test_the_error_of_a_program_is_reported(source, error):
    if "RecursionError" in error:
        source = "import sys\nsys.setrecursionlimit(500)\n" + source
    seconds = 0.2 if "longer" in error else 20
    result = measure_script(
        source, Plan(repeats=0, count_lines=False, seconds_per_run=seconds, memory_limit=2**28, trusted=True)
    )
    assert isinstance(result, Failure)
    assert result.error.startswith("input 0: ") and error in result.error


def test_the_first_input_that_fails_is_named():
    result = measure(Program("def f(n): return 1 // n", "f", [{"args": [1]}, {"args": [0]}]), MEMORY)
    assert result == Failure("input 1: ZeroDivisionError: integer division or modulo by zero")


HARMFUL_PROGRAMS = {
    "write": "open({path!r}, 'w')",
    "write below": "import os\nos.open({path!r}, os.O_CREAT | os.O_WRONLY)",
    "append": "open({existing!r}, 'a').write('x')",
    "remove": "import os\nos.remove({existing!r})",
    "rename": "import os\nos.rename({existing!r}, {path!r})",
    "remove all": "import shutil\nshutil.rmtree({directory!r})",
    "shell": "import os\nos.system('touch ' + {path!r})",
    "process": "import subprocess\nsubprocess.run(['touch', {path!r}])",
    "fork": "import os\nwhile True: os.fork()",
    "kill": "import os\nos.kill(os.getppid(), 9)",
    "kill all": "import os\nos.kill(-1, 9)",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)",
    "listen": "import socket\nsocket.socket().bind(('127.0.0.1', 0))",
    "code": "import ctypes\nctypes.CDLL(None).unlink({existing!r}.encode())",
}


@pytest.mark.parametrize("name", HARMFUL_PROGRAMS)
def test_harmful_programs_are_stopped(name, tmp_path):
    existing = tmp_path / "existing"
    existing.write_text("mine")
    source = HARMFUL_PROGRAMS[name].format(
        path=str(tmp_path / "new"), existing=str(existing), directory=str(tmp_path), port=1
    )
    result = measure_script(source)
    assert isinstance(result, Failure) and "may not" in result.error
    assert existing.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["existing"]


SYSTEM_CALLS = {
    "remove": "os.unlink({existing!r})",
    "write": "open({existing!r}, 'w')",
    "chmod": "os.chmod({existing!r}, 0)",
    "fork": "os.fork()",
    "spawn": "os.posix_spawn('/bin/sh', ['sh', '-c', 'rm {existing}'], {{}})",
    "exec": "os.execv('/bin/rm', ['rm', {existing!r}])",
    "kill": "os.kill(os.getppid(), 9)",
    "socket": "socket.socket(socket.AF_UNIX)",
    "session": "os.setsid()",
    "chroot": "os.chroot('/tmp')",
}


@pytest.mark.skipif(bool(missing_layers()), reason="the system does not confine programs")
@pytest.mark.parametrize("name", SYSTEM_CALLS)
def test_system_calls_are_refused_without_the_audit_hook(tmp_path, name):
    existing = tmp_path / "existing"
    existing.write_text("mine")
    existing.chmod(0o640)
    script = "import os, socket, sys\nsys.addaudithook = lambda hook: None\nimport sandbox\n"
    script += "assert sandbox.confine(2**31, 10) == ['landlock', 'seccomp']\n"
    script += f"try:\n    {SYSTEM_CALLS[name].format(existing=str(existing))}\n"
    script += "except PermissionError:\n    os._exit(42)\n"
    directory = Path(sandbox.__file__).parent
    assert subprocess.run([sys.executable, "-B", "-c", script], cwd=directory).returncode == 42
    assert existing.read_text() == "mine" and existing.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(bool(missing_layers()), reason="the system does not confine programs")
def test_threads_are_allowed():
    source = (
        "import threading\nresult = []\nts = [threading.Thread(target=result.append, args=(i,)) for i in "
    )
    source += "range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nassert len(result) == 8"
    assert isinstance(measure_script(source), Measurement)


def test_only_trusted_programs_run_without_the_layers(monkeypatch):
    monkeypatch.setattr(python_runner, "missing_layers", lambda: ("Landlock",))
    with pytest.raises(ValueError, match=r"this system has no Landlock .* \(--trust\)"):
        measure_script("x = 1", Plan(repeats=0, count_lines=False))
    assert isinstance(measure_script("x = 1"), Measurement)


ANSWERS = {
    "more": b'{"peak": 1, "allocated": 0, "blocks": 0}\n',
    "nothing": b"{}",
    "negative": b'{"peak": -1, "allocated": 0, "blocks": 0}',
    "no number": b'{"peak": "1", "allocated": 0, "blocks": 0}',
    "much": b"x" * 2**17,
    "no text": b'{"error": "\\ud800\\u001b"}',
}


@pytest.mark.parametrize("ending", ["", "\nos._exit(0)"])
@pytest.mark.parametrize("name", ANSWERS)
def test_invalid_answers_are_refused(name, ending):
    """A plausible answer that a program writes itself is accepted."""
    loop = "import os\nfor i in range(3, 64):\n    try:\n        os.write(i, {})\n    except OSError: pass"
    result = measure_script(loop.format(ANSWERS[name]) + ending)
    assert isinstance(result, Failure) or (name, ending) == ("more", "\nos._exit(0)")
    assert isinstance(result, Measurement) or result.error.isprintable()


def test_a_program_may_clear_its_allocation_traces():
    source = "import tracemalloc\nx = [0] * 10**5\ntracemalloc.clear_traces()"
    assert isinstance(measure_script(source), Failure | Measurement)


def test_hashes_are_reproducible():
    program = Program("def f(): return [0] * (hash('a') % 10**5)", "f", [{}])
    assert len({measure(program, MEMORY).memory for _ in range(3)}) == 1


def test_no_further_runs_after_an_error():
    start = time.monotonic()
    slow = Plan(repeats=3, seconds_per_run=0.2, trusted=True)
    assert isinstance(measure(Program("def f(): 1 / 0", "f", [{}] * 200), slow), Failure)
    assert isinstance(measure(Program("def f():\n while True: pass", "f", [{}] * 9), slow), Failure)
    assert time.monotonic() - start < 15


def test_no_process_of_a_program_keeps_running(tmp_path, monkeypatch):
    for name in ("python_worker.py", "sandbox.py"):
        shutil.copy(WORKER_PATH.with_name(name), tmp_path)
    # A path that no other test uses, to find the processes of this test.
    monkeypatch.setattr(python_runner, "WORKER_PATH", tmp_path / "python_worker.py")
    measure_script("import threading, time\nthreading.Thread(target=time.sleep, args=(100,)).start()")
    measure_script(
        "import time\ntime.sleep(100)", Plan(repeats=0, count_lines=False, seconds_per_run=0.2, trusted=True)
    )
    time.sleep(0.1)
    running = [p for p in os.popen("ps -eo args").read().splitlines() if str(tmp_path) in p]
    assert not running


@pytest.mark.parametrize(
    ("entry", "cases", "message"),
    [
        ("f", [], "no inputs"),
        (
            "f",
            [{"stdin": "1"}],
            r"input of a script: expected no entry, or for example \{\"args\": \[1, 2\]\}",
        ),
        ("", [{"args": [1]}], r"of a function: expected --entry FUNCTION, or .* \{\"stdin\": \"1 2\"\}"),
        ("", [{"arg": [1]}], r"is not an input: expected for example \{\"stdin\": \"1 2\"\}"),
        ("f", [{"args": 1}], "is not an input"),
        ("f", [3], "is not an input"),
        (
            "f",
            [{"call": "candidate("}],
            r"call is 'candidate\(', not an expression .*: expected for example candidate",
        ),
        ("", [{"stdin": "\ud800"}], "is not valid Unicode"),
    ],
)
def test_invalid_inputs_are_refused(entry, cases, message):
    with pytest.raises(ValueError, match=message):
        Program("x = 1", entry, cases)


def test_invalid_entries_are_refused():
    with pytest.raises(ValueError, match=r"entry is 'f\(\(', not an expression"):
        Program("x = 1", "f((", [{"args": []}])


@pytest.mark.skipif(bool(missing_layers()), reason="the system does not confine programs")
@pytest.mark.parametrize("call", ["prctl(1, 0, 0, 0, 0)", "shmget(7, 4096, 0o1600)", "msgget(7, 0o1600)"])
def test_system_calls_that_outlive_a_process_are_refused(call):
    script = "import ctypes, os, sys\nsys.addaudithook = lambda hook: None\nimport sandbox\n"
    script += "library = ctypes.CDLL(None, use_errno=True)\nsandbox.confine(2**31, 10)\n"
    script += f"os._exit(42 if library.{call} == -1 and ctypes.get_errno() == 1 else 0)"
    directory = Path(sandbox.__file__).parent
    assert subprocess.run([sys.executable, "-B", "-c", script], cwd=directory).returncode == 42


@pytest.mark.parametrize(
    ("source", "message"), [("", "is empty"), (" \n", "is empty"), ("x = '\ud800'", "is not valid Unicode")]
)
def test_invalid_sources_are_refused(source, message):
    with pytest.raises(ValueError, match=message):
        Program(source, "", [{"stdin": ""}])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": -1}, "repeats is -1, expected at least 0"),
        ({"warmup": -2}, "warmup is -2, expected at least 0"),
        ({"seconds_per_run": 0}, "seconds of a run are 0, expected more than 0"),
        ({"memory_limit": 1}, "memory of a run is 1 bytes, expected at least"),
        ({"memory_limit": 10**17}, "memory of a run is 100,000,000,000,000,000 bytes, expected"),
    ],
)
def test_plans_with_numbers_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Plan(**settings)
