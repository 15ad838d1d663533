"""Limits on what is read from a file, so that no file takes unbounded time or memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


class TimeLimitError(ValueError):
    """The time limit has passed."""


_deadline: ContextVar[tuple[float, float] | None] = ContextVar("deadline", default=None)


@dataclass(frozen=True)
class Limits:
    """Limits on an ONNX file.

    Args:
        max_bytes: size of the file, without external data.
        max_nodes: number of nodes after all functions are inlined.
        max_depth: depth of nested functions and subgraphs.
        max_seconds: time of the conversion to text.
    """

    max_bytes: int = 2 * 1024**3
    max_nodes: int = 20_000
    max_depth: int = 32
    max_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_nodes", "max_depth", "max_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected a positive number")


DEFAULT_LIMITS = Limits()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Make `check_time` within a `with` block raise an error after this number of seconds."""
    token = _deadline.set((time.monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def check_time() -> None:
    """Stop if the time limit has passed; long loops call this.

    Raises:
        TimeLimitError: it has passed.
    """
    deadline = _deadline.get()
    if deadline is not None and time.monotonic() > deadline[0]:
        raise TimeLimitError(f"the conversion takes longer than the limit of {deadline[1]:g} s")
