"""Python without the seconds that imports take: a server that has imported the package forks for a program.

Programs are those of `python -m MODULE` and `python FILE`, also with `-P` or `-u`. Each runs in a new
process, in the directory and with the environment and the standard files of the caller, and with the
constants of `tests.quick_constants` unless the environment has `WITHOUT_QUICK_CONSTANTS`.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path

from tests.quick_constants import QUICK_CONSTANTS, WITHOUT_QUICK_CONSTANTS

ROOT = Path(__file__).parents[1]
MODULES = (
    "nas_rlm.cli",
    "nas_rlm.rlm",
    "nas_rlm.search_run",
    "nas_rlm.study.workers.worker",
    "nas_rlm.devices.worker",
    "nas_rlm.programs",
    "scipy.stats",  # for pictures
    "torch._dynamo",  # which the first optimizer of a process imports
)
# What Triton programs import, with Triton's functions as its interpreter needs them.
TRITON_MODULES = ("torch._inductor.runtime.triton_heuristics", "torch._inductor.runtime.triton_helpers")
OPTIONS = ("-P", "-u")
STANDARD_FILES = (0, 1, 2)
CHUNK_SIZE = 1 << 20  # bytes
# Isolated and without site-packages, which is the fastest start of Python.
CLIENT = """#!{python} -IS
import json, os, socket, sys
arguments = {arguments}
program = [a for a in arguments if a not in {options}][:1]
if not program or program[0].startswith("-") and program[0] != "-m":
    os.execv({python!r}, [{python!r}, *arguments])
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(connection, [len(request).to_bytes(8, "big")], [0, 1, 2])
connection.sendall(request)
code = int(connection.recv(8))
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
ARGUMENTS = {"python": "sys.argv[1:]", "nas-rlm": "['-P', '-m', 'nas_rlm', *sys.argv[1:]]"}


@contextmanager
def preloaded_python() -> Iterator[Path]:
    """Serve within a `with` block, which gets a directory with the executables python and nas-rlm."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)  # a short one, since the addresses of sockets are
        address = str(directory / "socket")
        for executable, arguments in ARGUMENTS.items():
            path = directory / executable
            path.write_text(
                CLIENT.format(python=sys.executable, address=address, arguments=arguments, options=OPTIONS)
            )
            path.chmod(0o755)
        command = [sys.executable, "-m", "tests.preloaded_python", address]
        environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            yield directory
        finally:
            server.kill()
            server.communicate()


def serve(address: str) -> None:
    """Run programs until this process is killed."""
    for module in MODULES:
        import_module(module)
    if find_spec("triton"):
        for module in TRITON_MODULES:
            import_module(module)
    sys.path.remove(str(ROOT))  # where this module was found
    sys.executable = str(Path(address).parent / "python")  # for processes that programs start
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing is left of ended programs
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                if os.fork() == 0:
                    server.close()
                    answer(connection)
                    os._exit(0)


def answer(connection: socket.socket) -> None:
    """Run the program of a connection in a process that ends with the caller, and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    head, files, _, _ = socket.recv_fds(connection, 8, len(STANDARD_FILES))
    request = bytearray()
    while len(request) < int.from_bytes(head, "big"):
        request += connection.recv(CHUNK_SIZE)
    arguments, directory, environment = json.loads(request)
    for received, standard in zip(files, STANDARD_FILES, strict=True):
        os.dup2(received, standard)
        os.close(received)
    process = os.fork()
    if process == 0:
        connection.close()
        os.setsid()
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        run(arguments)
    for standard in STANDARD_FILES:  # which the caller may close for the program
        os.close(standard)
    threading.Thread(target=kill_after_caller, args=(connection, process), daemon=True).start()
    _, status = os.waitpid(process, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def kill_after_caller(connection: socket.socket, process: int) -> None:
    """Kill a process when the caller has ended."""
    connection.recv(1)
    os.kill(process, signal.SIGKILL)


def run(arguments: Sequence[str]) -> None:
    """Run a module or a file as Python does with these arguments, and end this process."""
    if WITHOUT_QUICK_CONSTANTS not in os.environ:
        for name, value in QUICK_CONSTANTS.items():
            module, _, constant = name.rpartition(".")
            setattr(import_module(module), constant, value)
    code, start = 1, next(i for i, argument in enumerate(arguments) if argument not in OPTIONS)
    options, is_module = arguments[:start], arguments[start] == "-m"
    sys.argv = list(arguments[start + is_module :])
    if "-P" not in options:
        sys.path.insert(0, os.getcwd() if is_module else os.path.dirname(os.path.abspath(sys.argv[0])))
    if "-u" in options and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(write_through=True)
    sys.modules.pop(sys.argv[0], None)  # of which runpy would warn
    try:
        if is_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else bool(end.code)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
