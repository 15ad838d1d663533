"""Connection to a worker process on this or another machine: requests and replies over its pipes."""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

DEFAULT_TIMEOUT = 900.0  # seconds; compiling a network is slow
MAX_TIMEOUT = 86_400  # seconds
MAX_STDERR_BYTES = 2000  # of a worker's output that are kept for error messages


def check_timeout(timeout: float, window_seconds: float, name: str = "timeout") -> None:
    """Check that a timeout of requests is longer than a measurement window.

    Args:
        timeout: seconds that a request may take.
        window_seconds: length of a window in seconds.
        name: name of the argument, for the error message.

    Raises:
        ValueError: the timeout is not longer than a window, or longer than `MAX_TIMEOUT`.
    """
    if not window_seconds < timeout <= MAX_TIMEOUT:
        raise ValueError(
            f"{name} is {timeout:g}, expected more than a window's {window_seconds:g} seconds and at most"
            f" {MAX_TIMEOUT:,}"
        )


class RequestError(ValueError):
    """The worker reports an error for a request, and continues to run."""


class WorkerDied(RuntimeError):
    """The worker process has ended, or did not reply in time and was killed."""


class Connection:
    """Start a worker process and send requests to it; the process is killed at the end of the context.

    Examples:
        >>> with Connection() as worker:
        ...     environment = worker.open(device="torch-cpu-1t")

    Args:
        python: command that starts Python where networks run, such as `ssh box .venv/bin/python`; this
            interpreter by default.
        module: name of the module that Python runs as the worker.
        timeout: seconds that a request may take.

    Raises:
        ValueError: the command cannot be started.
    """

    def __init__(
        self, python: str = "", module: str = "nas_rlm.devices.worker", timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        command = [*(shlex.split(python) or [sys.executable]), "-m", module]
        self.command, self.timeout = command, timeout
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise ValueError(f"{shlex.join(command)!r} does not start: {error.strerror}") from None
        self.replies: queue.Queue[bytes] = queue.Queue()
        self.stderr_tail = b""
        self.readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read_replies, self._read_stderr)
        ]
        for reader in self.readers:
            reader.start()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()

    def open(self, **arguments: Any) -> dict[str, Any]:
        """Send the first request, which selects the device, and return the description of the machine.

        Args:
            arguments: arguments of the worker's handler `open`.

        Raises:
            ValueError: the worker does not start, or the device is not available there.
        """
        try:
            return self.request("open", **arguments)
        except WorkerDied as death:
            raise ValueError(f"{' '.join(self.command)!r} does not start a worker: {death}") from None

    def request(self, method: str, content: bytes | None = None, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the reply.

        Args:
            method: name of a request handler of the worker, see `nas_rlm.devices.worker.Worker`.
            content: bytes that follow the request, as the handler's argument `content`.
            arguments: other arguments of the handler.

        Raises:
            RequestError: the worker reports an error.
            WorkerDied: the worker has ended, or does not reply in time and is killed.
        """
        message = {"method": method, **arguments} | ({} if content is None else {"bytes": len(content)})
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n" + (content or b""))
            self.process.stdin.flush()
            line = self.replies.get(timeout=self.timeout)
        except queue.Empty:
            self.process.kill()
            raise WorkerDied(f"no answer within {self.timeout:g} seconds") from None
        except OSError:
            line = b""
        if not line:
            raise WorkerDied(self._describe_exit())
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError:
            self.process.kill()
            raise WorkerDied(f"the worker replied {line[:80]!r}, expected a line of JSON") from None
        if "error" in reply:
            raise RequestError(reply["error"])
        return reply

    def _describe_exit(self) -> str:
        """Wait for the process to end, and return its exit code and last line of output."""
        code = self.process.wait()
        for reader in self.readers:
            reader.join(timeout=1)
        last: Sequence[str] = self.stderr_tail.decode(errors="replace").strip().splitlines()[-1:]
        status = f"signal {-code}" if code < 0 else f"code {code}"
        return f"the process ended with {status}" + (f": {last[0][:200]}" if last else "")

    def _read_replies(self) -> None:
        """Queue each line of the worker's replies, then an empty one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.replies.put(line)
        self.replies.put(b"")

    def _read_stderr(self) -> None:
        """Keep the end of what the worker writes to standard error."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr_tail = (self.stderr_tail + line)[-MAX_STDERR_BYTES:]
