import os
import sys
import time

import pytest

from nas_rlm.programs.python import Failure, Measurement, Plan, Program, measure

MEMORY = Plan(repeats=0, counts=False, seconds=5)
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
    plan = Plan(warmup=1, repeats=4, seconds=5)
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
    found = of(source, Plan(repeats=0, counts=False, seconds=0.2, memory=2**28))
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


@pytest.mark.skipif(sys.platform != "linux", reason="below Python there is Landlock, on Linux")
def test_what_goes_around_the_interpreter_is_stopped_by_the_system(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("mine")
    # A hook that was there before the program's: what it refuses is not seen, the system call is made.
    source = f"import _posixsubprocess, os\ntry:\n    os.unlink({str(kept)!r})\nexcept OSError: pass"
    assert isinstance(of(source), Measurement | Failure)
    assert kept.read_text() == "mine"


def test_a_program_cannot_answer_for_itself():
    answer = b'{"peak": 1, "rss": 1}\n'
    loop = "import os\nfor i in range(3, 64):\n    try:\n        os.write(i, {})\n    except OSError: pass"
    source = loop.format(answer)
    assert isinstance(of(source), Failure)


def test_nothing_of_a_program_is_left_running(tmp_path):
    of("import threading, time\nthreading.Thread(target=time.sleep, args=(100,)).start()")
    of("import time\ntime.sleep(100)", Plan(repeats=0, counts=False, seconds=0.2))
    time.sleep(0.1)
    running = [p for p in os.popen("ps -eo args").read().splitlines() if "programs/child.py" in p]
    assert not running


@pytest.mark.parametrize(
    ("entry", "cases", "message"),
    [
        ("f", [], "no inputs"),
        ("f", [{"stdin": "1"}], r"is no input: expected such as \{\"args\": \[1, 2\]\}"),
        ("", [{"args": [1]}], r"is no input: expected such as \{\"stdin\": \"1 2\"\}"),
        ("f", [{"args": 1}], "is no input"),
        ("f", [3], "is no input"),
    ],
)
def test_inputs_that_are_none(entry, cases, message):
    with pytest.raises(ValueError, match=message):
        Program("", entry, cases)


def test_plans_that_are_none():
    for wrong in ({"repeats": -1}, {"seconds": 0}, {"memory": 1}, {"warmup": -2}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Plan(**wrong)
