import os
import signal
import subprocess
import sys
import time

import pytest

from nas_rlm.surrogates.graphs import features
from tests.quick_constants import WITHOUT_QUICK_CONSTANTS

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "MINE": "61.5"}
SCRIPT = """
import os, sys

if __name__ == "__main__":
    print(os.getcwd(), sys.argv[1:], sys.stdin.read(), os.environ["MINE"], flush=True)
    exec(sys.argv[1])
"""


@pytest.fixture
def module(tmp_path):
    (tmp_path / "program.py").write_text(SCRIPT)
    return tmp_path


def run(preloaded, directory, code, program=("-m", "program")):
    return subprocess.run(
        [preloaded / "python", "-u", *program, code],
        cwd=directory,
        env=ENVIRONMENT,
        input="typed",
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("pass", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("os._exit(4)", 4, ""),
        ("sys.exit('a reason')", 1, "a reason\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("os.kill(os.getpid(), 9)", -9, ""),
    ],
)
def test_a_program_has_the_surroundings_of_its_caller_who_gets_its_output_and_status(
    preloaded, module, code, status, error
):
    done = run(preloaded, module, code)
    assert (done.returncode, done.stdout) == (status, f"{module} {[code]} typed 61.5\n")
    assert done.stderr.endswith(error) and bool(done.stderr) == bool(error)


def test_a_file_runs_as_a_module_does_and_imports_what_is_beside_it(preloaded, module):
    scripts = module / "scripts"
    scripts.mkdir()
    (scripts / "beside.py").write_text("NAME = 'neighbour'\n")
    (scripts / "program.py").write_text((module / "program.py").read_text())
    code = "import beside; print(beside.NAME, __name__); sys.exit(3)"
    done = run(preloaded, module, code, ["scripts/program.py"])
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == f"{module} {[code]} typed 61.5\nneighbour __main__\n"


def test_a_program_has_the_constants_of_tests_unless_the_environment_forbids_it(
    preloaded, module, monkeypatch
):
    code = "from nas_rlm.surrogates.graphs import features; print(features.NUM_NETWORKS)"
    assert run(preloaded, module, code).stdout.splitlines()[1:] == [str(features.NUM_NETWORKS)]
    monkeypatch.setitem(ENVIRONMENT, WITHOUT_QUICK_CONSTANTS, "1")
    (found,) = run(preloaded, module, code).stdout.splitlines()[1:]
    assert int(found) > features.NUM_NETWORKS


def test_a_program_is_killed_with_its_caller(preloaded, module):
    code = "import time; open('pid', 'w').write(str(os.getpid())); time.sleep(300)"
    caller = subprocess.Popen(
        [preloaded / "python", "-m", "program", code],
        cwd=module,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    deadline, file = time.monotonic() + 60, module / "pid"
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline and caller.poll() is None
        time.sleep(0.01)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    while os.path.exists(f"/proc/{file.read_text()}"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_other_uses_of_python_are_passed_on(preloaded):
    done = subprocess.run(
        [preloaded / "python", "-c", "import sys; print(sys.executable)"], capture_output=True, text=True
    )
    assert done.stdout == f"{sys.executable}\n"


def test_the_command_has_the_exit_code_of_bad_input(preloaded, tmp_path):
    command = [preloaded / "nas-rlm", "export", "--space", "nasbench210", "--sample", "1", "--out", "two"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'nasbench201'?" in done.stderr
