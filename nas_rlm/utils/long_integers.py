"""Conversion of integers with many digits, which Python refuses by default."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_DIGITS = 1_000_000

_lock = threading.Lock()
_num_users = 0
_previous_limit = 0


@contextmanager
def long_integers() -> Iterator[None]:
    """Allow integers of up to `MAX_DIGITS` digits in texts, in all threads, until the last user has left.

    Examples:
        >>> with long_integers():
        ...     len(str(int("7" * 9131)))
        9131
    """
    global _num_users, _previous_limit
    with _lock:
        if not _num_users:
            _previous_limit = sys.get_int_max_str_digits()
            if _previous_limit:  # 0 stands for no limit
                sys.set_int_max_str_digits(max(_previous_limit, MAX_DIGITS))
        _num_users += 1
    try:
        yield
    finally:
        with _lock:
            _num_users -= 1
            if not _num_users:
                sys.set_int_max_str_digits(_previous_limit)
