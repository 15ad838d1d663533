import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nas_rlm.programs import python_runner, sandbox
from nas_rlm.programs.python_runner import CHILD, Failure, Measurement, Plan, Program, lacking, measure

MEMORY = Plan(repeats=0, counts=False, seconds=5, trusted=True)
ZEROS = "def zeros(n):\n    return [0] * n"


def of(source, plan=MEMORY, **case):
    """What a program that reads its standard input takes."""
    return measure(Program(source, "", [case]), plan)


def test_memory_is_that_of_the_call_on_its_largest_input():
    found = measure(
        Program(ZEROS, "zeros", [{"args": [1000]}, {"args": [5000]}, {"kwargs": {"n": 10}}]), MEMORY
    )
    assert isinstance(found, Measurement)
    assert 40_000 < found.memory < 41_500
    assert 40_000 < found.allocated < 40_500
    assert found.rss > 5e6
    assert found.wall is found.lines is None


def test_what_is_there_before_the_call_does_not_count():
    source = "big = list(range(10**5))\ndef first(xs, n):\n    return xs[0] + n + big[0]"
    found = measure(Program(source, "first", [{"args": [list(range(50_000)), 3]}]), MEMORY)
    assert found.memory < 2_000


def test_memory_is_the_same_each_time():
    program = Program("def f(n):\n    return {str(i): {i} for i in range(n)}", "f", [{"args": [300]}])
    assert len({measure(program, MEMORY).memory for _ in range(3)}) == 1


def test_a_whole_program_reads_its_input():
    words = of(
        "n = int(input())\nprint(len([int(x) for x in input().split()]) / n)", stdin="1\n" + "7 " * 20_000
    )
    few = of("n = int(input())\nprint(len([int(x) for x in input().split()]) / n)", stdin="1\n7 7\n")
    assert words.memory > 200_000 > 20_000 > few.memory
    assert of("import sys\nsys.exit(0)").memory > 0
    assert isinstance(
        of("import sys\nprint(sys.stdin.buffer.read().decode(), open(0))", stdin="é"), Measurement
    )


def test_arguments_may_be_an_expression_with_names_of_the_program():
    source = "class Node:\n    def __init__(self, v): self.v = v\n"
    source += "class Solution:\n    def value(self, node): return node.v * 2"
    found = measure(Program(source, "Solution().value", [{"call": "candidate(node=Node(21))"}]), MEMORY)
    assert isinstance(found, Measurement)


def test_times_and_counts():
    source = "def f(n):\n    if n == 0:\n        return 0\n    return 1 + f(n - 1)"
    plan = Plan(warmup=1, repeats=4, seconds=5, trusted=True)
    found = measure(Program(source, "f", [{"args": [10]}, {"args": [5]}]), plan)
    assert (found.calls, found.depth) == (11 + 6, 11)
    assert found.lines == 2 * 17
    assert found.runs == 4
    assert 0 < found.wall["min"] <= found.wall["median"] <= found.wall["p90"] <= found.wall["max"] < 1
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
def test_a_program_that_fails_is_told_of(source, error):
    if "RecursionError" in error:
        source = "import sys\nsys.setrecursionlimit(500)\n" + source
    seconds = 0.2 if "longer" in error else 20
    found = of(source, Plan(repeats=0, counts=False, seconds=seconds, memory=2**28, trusted=True))
    assert isinstance(found, Failure)
    assert found.error.startswith("input 0: ") and error in found.error


def test_the_first_input_that_fails_is_named():
    found = measure(Program("def f(n): return 1 // n", "f", [{"args": [1]}, {"args": [0]}]), MEMORY)
    assert found == Failure("input 1: ZeroDivisionError: integer division or modulo by zero")


HOSTILE = {
    "write": "open({path!r}, 'w')",
    "write below": "import os\nos.open({path!r}, os.O_CREAT | os.O_WRONLY)",
    "append": "open({kept!r}, 'a').write('x')",
    "remove": "import os\nos.remove({kept!r})",
    "rename": "import os\nos.rename({kept!r}, {path!r})",
    "remove all": "import shutil\nshutil.rmtree({folder!r})",
    "shell": "import os\nos.system('touch ' + {path!r})",
    "process": "import subprocess\nsubprocess.run(['touch', {path!r}])",
    "fork": "import os\nwhile True: os.fork()",
    "kill": "import os\nos.kill(os.getppid(), 9)",
    "kill all": "import os\nos.kill(-1, 9)",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)",
    "listen": "import socket\nsocket.socket().bind(('127.0.0.1', 0))",
    "code": "import ctypes\nctypes.CDLL(None).unlink({kept!r}.encode())",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_programs_are_stopped(what, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("mine")
    source = HOSTILE[what].format(path=str(tmp_path / "new"), kept=str(kept), folder=str(tmp_path), port=1)
    found = of(source)
    assert isinstance(found, Failure) and "may not" in found.error
    assert kept.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


BENEATH = {
    "remove": "os.unlink({kept!r})",
    "write": "open({kept!r}, 'w')",
    "chmod": "os.chmod({kept!r}, 0)",
    "fork": "os.fork()",
    "spawn": "os.posix_spawn('/bin/sh', ['sh', '-c', 'rm {kept}'], {{}})",
    "exec": "os.execv('/bin/rm', ['rm', {kept!r}])",
    "kill": "os.kill(os.getppid(), 9)",
    "socket": "socket.socket(socket.AF_UNIX)",
    "session": "os.setsid()",
    "chroot": "os.chroot('/tmp')",
}


@pytest.mark.skipif(bool(lacking()), reason="the system does not confine programs")
@pytest.mark.parametrize("what", BENEATH)
def test_what_goes_around_the_interpreter_is_stopped_by_the_system(tmp_path, what):
    kept = tmp_path / "kept"
    kept.write_text("mine")
    kept.chmod(0o640)
    script = "import os, socket, sys\nsys.addaudithook = lambda hook: None\nimport jail\n"
    script += "assert jail.confine(2**31, 10) == ['landlock', 'seccomp']\n"
    script += f"try:\n    {BENEATH[what].format(kept=str(kept))}\n"
    script += "except PermissionError:\n    os._exit(42)\n"
    folder = Path(sandbox.__file__).parent
    assert subprocess.run([sys.executable, "-B", "-c", script], cwd=folder).returncode == 42
    assert kept.read_text() == "mine" and kept.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(bool(lacking()), reason="the system does not confine programs")
def test_threads_go_on_beneath():
    source = "import threading\nfound = []\nts = [threading.Thread(target=found.append, args=(i,)) for i in "
    source += "range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nassert len(found) == 8"
    assert isinstance(of(source), Measurement)


def test_a_system_without_layers_needs_trust(monkeypatch):
    monkeypatch.setattr(python_runner, "lacking", lambda: ("Landlock",))
    with pytest.raises(ValueError, match=r"this system has no Landlock .* \(--trust\)"):
        of("x = 1", Plan(repeats=0, counts=False))
    assert isinstance(of("x = 1"), Measurement)


ANSWERS = {
    "more": b'{"peak": 1, "allocated": 0, "blocks": 0}\n',
    "nothing": b"{}",
    "negative": b'{"peak": -1, "allocated": 0, "blocks": 0}',
    "no number": b'{"peak": "1", "allocated": 0, "blocks": 0}',
    "much": b"x" * 2**17,
    "no text": b'{"error": "\\ud800\\u001b"}',
}


@pytest.mark.parametrize("ending", ["", "\nos._exit(0)"])
@pytest.mark.parametrize("what", ANSWERS)
def test_what_is_no_answer_is_none(what, ending):
    """A program that writes what could be true and ends lies about itself alone."""
    loop = "import os\nfor i in range(3, 64):\n    try:\n        os.write(i, {})\n    except OSError: pass"
    found = of(loop.format(ANSWERS[what]) + ending)
    assert isinstance(found, Failure) or (what, ending) == ("more", "\nos._exit(0)")
    assert isinstance(found, Measurement) or found.error.isprintable()


def test_a_program_that_forgets_its_allocations_is_told_of():
    source = "import tracemalloc\nx = [0] * 10**5\ntracemalloc.clear_traces()"
    assert isinstance(of(source), Failure | Measurement)


def test_hashes_are_the_same_in_each_process():
    program = Program("def f(): return [0] * (hash('a') % 10**5)", "f", [{}])
    assert len({measure(program, MEMORY).memory for _ in range(3)}) == 1


def test_after_an_error_nothing_else_is_run():
    start = time.monotonic()
    slow = Plan(repeats=3, seconds=0.2, trusted=True)
    assert isinstance(measure(Program("def f(): 1 / 0", "f", [{}] * 200), slow), Failure)
    assert isinstance(measure(Program("def f():\n while True: pass", "f", [{}] * 9), slow), Failure)
    assert time.monotonic() - start < 15


def test_nothing_of_a_program_is_left_running(tmp_path, monkeypatch):
    for name in ("python_worker.py", "sandbox.py"):
        shutil.copy(CHILD.with_name(name), tmp_path)
    monkeypatch.setattr(
        "nas_rlm.programs.python_runner.CHILD", tmp_path / "python_worker.py"
    )  # others run that
    of("import threading, time\nthreading.Thread(target=time.sleep, args=(100,)).start()")
    of("import time\ntime.sleep(100)", Plan(repeats=0, counts=False, seconds=0.2, trusted=True))
    time.sleep(0.1)
    running = [p for p in os.popen("ps -eo args").read().splitlines() if str(tmp_path) in p]
    assert not running


@pytest.mark.parametrize(
    ("entry", "cases", "message"),
    [
        ("f", [], "no inputs"),
        ("f", [{"stdin": "1"}], r"is no input: expected such as \{\"args\": \[1, 2\]\}"),
        ("", [{"args": [1]}], r"is no input: expected such as \{\"stdin\": \"1 2\"\}"),
        ("f", [{"args": 1}], "is no input"),
        ("f", [3], "is no input"),
        (
            "f",
            [{"call": "candidate("}],
            r"call is 'candidate\(', no expression .*: expected such as candidate",
        ),
        ("", [{"stdin": "\ud800"}], "is no Unicode"),
    ],
)
def test_inputs_that_are_none(entry, cases, message):
    with pytest.raises(ValueError, match=message):
        Program("x = 1", entry, cases)


def test_entries_that_are_none():
    with pytest.raises(ValueError, match=r"entry is 'f\(\(', no expression"):
        Program("x = 1", "f((", [{"args": []}])


@pytest.mark.skipif(bool(lacking()), reason="the system does not confine programs")
@pytest.mark.parametrize("call", ["prctl(1, 0, 0, 0, 0)", "shmget(7, 4096, 0o1600)", "msgget(7, 0o1600)"])
def test_nothing_of_a_process_stays(call):
    script = "import ctypes, os, sys\nsys.addaudithook = lambda hook: None\nimport jail\n"
    script += "library = ctypes.CDLL(None, use_errno=True)\njail.confine(2**31, 10)\n"
    script += f"os._exit(42 if library.{call} == -1 and ctypes.get_errno() == 1 else 0)"
    folder = Path(sandbox.__file__).parent
    assert subprocess.run([sys.executable, "-B", "-c", script], cwd=folder).returncode == 42


@pytest.mark.parametrize(
    ("source", "message"), [("", "is empty"), (" \n", "is empty"), ("x = '\ud800'", "is no Unicode")]
)
def test_sources_that_are_none(source, message):
    with pytest.raises(ValueError, match=message):
        Program(source, "", [{"stdin": ""}])


def test_plans_that_are_none():
    for wrong in ({"repeats": -1}, {"seconds": 0}, {"memory": 1}, {"warmup": -2}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Plan(**wrong)


def test_more_memory_than_there_is_anywhere():
    with pytest.raises(ValueError, match="memory is 100,000,000,000,000,000, expected at most"):
        Plan(memory=10**17)
