"""Progress of long work: a bar on a terminal, a line for each tenth elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakSet

from tqdm import tqdm

Mode = Literal["auto", "bar", "quiet"]
Item = TypeVar("Item")

DELAY = 2.0  # seconds before a log line is written, so that short work writes none
MAX_LOG_LINES = 10  # of one progress log

_mode: Mode = "auto"
_active: WeakSet[Any] = WeakSet()  # bars and logs that are shown now


def set_mode(mode: Mode) -> None:
    """Choose how progress is shown in this process.

    Args:
        mode: `auto` draws bars on a terminal and writes at most ten lines elsewhere, `bar` always draws bars,
            `quiet` shows nothing.
    """
    global _mode
    _mode = mode


def print_status(message: str) -> None:
    """Write a line on the current step to stderr, unless the mode is `quiet`."""
    if _mode != "quiet":
        print(f"nas-rlm: {message}", file=sys.stderr, flush=True)


class ProgressBar(tqdm):
    """A `tqdm` bar that registers itself as active until it is closed, so that nested bars are hidden."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.disable:
            _active.add(self)

    def close(self) -> None:
        """Stop drawing the bar."""
        super().close()
        _active.discard(self)


class ProgressLog(Generic[Item]):
    """A progress log with the interface of `tqdm`: one line on stderr for each tenth of the work.

    Args:
        iterable: items to work on; None if `update` is called instead.
        desc: name of the work.
        total: number of items; None for the length of `iterable`.
        initial: number of items that were finished before.
        unit: name of an item.
    """

    def __init__(
        self,
        iterable: Iterable[Item] | None = None,
        desc: str = "",
        total: int | None = None,
        initial: int = 0,
        unit: str = "it",
    ) -> None:
        self.iterable, self.desc, self.unit = iterable, desc, unit
        self.total = len(iterable) if total is None and isinstance(iterable, Sized) else total
        self.n = initial
        self._postfix = ""
        self._reported = self._num_tenths()
        self._start = time.monotonic()
        _active.add(self)

    def __iter__(self) -> Iterator[Item]:
        try:
            for item in self.iterable or ():
                yield item
                self.update()
        finally:
            self.close()

    def __enter__(self) -> ProgressLog[Item]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _num_tenths(self) -> int:
        """Return the number of completed tenths of the work."""
        return self.n * MAX_LOG_LINES // self.total if self.total else 0

    def update(self, n: int = 1) -> None:
        """Count finished items, and write a line when another tenth is done."""
        self.n += n
        seconds = time.monotonic() - self._start
        if self._num_tenths() > self._reported and seconds >= DELAY:
            self._reported = self._num_tenths()
            name = f"{self.desc}: " if self.desc else ""
            percent = 100 * self.n // (self.total or 1)
            line = f"{name}{percent}%, {self.n}/{self.total} {self.unit}, {seconds:.0f} s{self._postfix}"
            print(line, file=sys.stderr, flush=True)

    def set_postfix(self, **values: Any) -> None:
        """Append these values to the following lines."""
        self._postfix = "".join(f", {name} {value}" for name, value in values.items())

    def set_description(self, desc: str) -> None:
        """Set the name of the work in the following lines."""
        self.desc = desc

    def close(self) -> None:
        """End the log, so that the next one is not nested."""
        _active.discard(self)


def progress_bar(
    iterable: Iterable[Any] | None = None,
    desc: str = "",
    total: int | None = None,
    *,
    initial: int = 0,
    unit: str = "it",
    delay: float = 0.0,
    disable: bool = False,
) -> ProgressBar | ProgressLog[Any]:
    """Show the progress of work, in the way that `set_mode` chose.

    Nested work shows nothing while the outer work shows its progress, except on a terminal: there its bar
    appears after `DELAY` seconds and is removed at its end.

    Examples:
        >>> for _ in progress_bar(range(3), "count"):
        ...     pass

    Args:
        iterable: items to work on; without it call `update`.
        desc: name of the work.
        total: number of items, needed if `iterable` has no length.
        initial: number of items that were finished before.
        unit: name of an item.
        delay: seconds before a bar is drawn.
        disable: show nothing.
    """
    is_terminal, is_nested = sys.stderr.isatty(), len(_active) > 0
    is_hidden = disable or _mode == "quiet" or (is_nested and not is_terminal)
    if not is_hidden and _mode == "auto" and not is_terminal:
        return ProgressLog(iterable, desc, total, initial, unit)
    return ProgressBar(
        iterable,
        desc or None,
        total,
        leave=not is_nested,
        initial=initial,
        unit=unit,
        delay=max(delay, DELAY) if is_nested else delay,
        disable=is_hidden,
    )
