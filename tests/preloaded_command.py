"""The command nas-rlm without the seconds that its imports take: a server forks for each command.

The server has imported the package, and runs a command in a new fork of itself, in the directory and with the
environment and the files of the caller. `python -m tests.preloaded_command SOCKET` starts it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
STANDARD_FILES = (0, 1, 2)
MAX_REQUEST = 1 << 20  # bytes
# Isolated and without site-packages, which is the fastest start of Python.
CLIENT = """#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(connection, [len(request).to_bytes(8, "big")], [0, 1, 2])
connection.sendall(request)
code = connection.recv(1)
sys.exit(code[0] if code else "nas-rlm was killed")
"""


@contextmanager
def preloaded_command() -> Iterator[Path]:
    """Serve the command within a `with` block, which gets a directory with an executable nas-rlm."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)  # a short one, since the addresses of sockets are
        address, executable = str(directory / "socket"), directory / "nas-rlm"
        executable.write_text(CLIENT.format(python=sys.executable, address=address))
        executable.chmod(0o755)
        command = [sys.executable, "-m", "tests.preloaded_command", address]
        environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            yield directory
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


def serve(address: str) -> None:
    """Run commands until this process is killed."""
    import nas_rlm.cli
    import nas_rlm.rlm
    import nas_rlm.search_run
    import nas_rlm.study.study  # noqa: F401

    sys.path.remove(str(ROOT))  # where python -m looks, and the command does not
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended commands leave nothing behind
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                if os.fork() == 0:
                    answer(connection)


def answer(connection: socket.socket) -> None:
    """Run the command of a connection in this process, send its exit code, and end the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(connection, 8, len(STANDARD_FILES))
    request = bytearray()
    while len(request) < int.from_bytes(head, "big"):
        request += connection.recv(MAX_REQUEST)
    arguments, directory, environment = json.loads(request)
    for received, standard in zip(files, STANDARD_FILES, strict=True):
        os.dup2(received, standard)
        os.close(received)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    code = 1
    try:
        code = run(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(bytes([code]))
        os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command as its console script does, and return its exit code."""
    from nas_rlm.cli import main

    sys.argv = ["nas-rlm", *arguments]
    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else bool(end.code)


if __name__ == "__main__":
    serve(sys.argv[1])
