"""A worker process, here or on another machine, and what is asked of it."""

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

LONGEST = 900.0  # seconds that a request may take: compiling is slow
MOST = 86_400  # seconds that it may be allowed to take
LAST = 2000  # characters of what a worker said at last


def check_limit(limit: float, seconds: float, name: str = "limit") -> None:
    """Refuse a time limit of requests, of which one runs a network or kernel for so many seconds.

    Raises:
        ValueError: it is not above these, or above a day.
    """
    if not seconds < limit <= MOST:
        raise ValueError(
            f"{name} is {limit:g}, expected more than a window's {seconds:g} seconds and at most {MOST:,}"
        )


class Refused(ValueError):
    """The worker tells that it cannot do what was asked, and goes on."""


class Died(RuntimeError):
    """The worker has ended or does not answer."""


class Connection:
    """A worker, which is started with it and ends with it.

    Args:
        python: a command that starts Python where networks run, such as `ssh box .venv/bin/python`; by
            default this one.
        module: of the worker.
        longest: seconds that a request may take.
    """

    def __init__(
        self, python: str = "", module: str = "nas_rlm.devices.worker", longest: float = LONGEST
    ) -> None:
        command = [*(shlex.split(python) or [sys.executable]), "-m", module]
        self.command, self.longest = command, longest
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise ValueError(f"{shlex.join(command)!r} does not start: {error.strerror}") from None
        self.replies: queue.Queue[bytes] = queue.Queue()
        self.said = b""
        self.readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read_replies, self._read_errors)
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

    def ask(self, do: str, content: bytes | None = None, **values: Any) -> dict[str, Any]:
        """Ask for something and wait for the reply.

        Args:
            do: a method of `nas_rlm.devices.worker.Worker`.
            content: bytes to go with it.
            values: its other arguments.

        Raises:
            Refused: the worker says why not.
            Died: it has ended, or takes too long and is ended.
        """
        request = {"do": do, **values} | ({} if content is None else {"bytes": len(content)})
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n" + (content or b""))
            self.process.stdin.flush()
            line = self.replies.get(timeout=self.longest)
        except queue.Empty:
            self.process.kill()
            raise Died(f"no answer within {self.longest:g} seconds") from None
        except OSError:
            line = b""
        if not line:
            raise Died(self._end())
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError:
            self.process.kill()
            raise Died(f"it answers {line[:80]!r}, which is no reply of a worker") from None
        if "error" in reply:
            raise Refused(reply["error"])
        return reply

    def _end(self) -> str:
        """How the worker ended, in words."""
        code = self.process.wait()
        for reader in self.readers:
            reader.join(timeout=1)
        last: Sequence[str] = self.said.decode(errors="replace").strip().splitlines()[-1:]
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return f"the process ended with {how}" + (f": {last[0][:200]}" if last else "")

    def _read_replies(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.replies.put(line)
        self.replies.put(b"")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said = (self.said + line)[-LAST:]
