"""Progress of long work: a bar on a terminal, a line for each tenth elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, Literal, TypeVar

from tqdm import tqdm

Mode = Literal["auto", "bar", "quiet"]
Item = TypeVar("Item")

DELAY = 2.0  # seconds before a log line is written, so that short work writes none
PARTS = 10  # log lines for the whole of the work

_mode: Mode = "auto"


def set_mode(mode: Mode) -> None:
    """Choose how progress is shown in this process.

    Args:
        mode: `auto` draws bars on a terminal and writes at most ten lines elsewhere, `bar` always draws bars,
            `quiet` shows nothing.
    """
    global _mode
    _mode = mode


class ProgressLog(Generic[Item]):
    """Writes one line to stderr for each tenth of the work; has the methods of `tqdm` that are used here."""

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
        self._reported = self._part()
        self._start = time.monotonic()

    def __iter__(self) -> Iterator[Item]:
        for item in self.iterable or ():
            yield item
            self.update()

    def __enter__(self) -> ProgressLog[Item]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _part(self) -> int:
        return self.n * PARTS // self.total if self.total else 0

    def update(self, n: int = 1) -> None:
        """Count finished items, and write a line when another tenth is done."""
        self.n += n
        seconds = time.monotonic() - self._start
        if self._part() > self._reported and seconds >= DELAY:
            self._reported = self._part()
            name = f"{self.desc}: " if self.desc else ""
            percent = 100 * self.n // (self.total or 1)
            line = f"{name}{percent}%, {self.n}/{self.total} {self.unit}, {seconds:.0f} s{self._postfix}"
            print(line, file=sys.stderr, flush=True)

    def set_postfix(self, **values: Any) -> None:
        """Values to append to the following lines."""
        self._postfix = "".join(f", {name} {value}" for name, value in values.items())

    def set_description(self, desc: str) -> None:
        """Name what is done from here on."""
        self.desc = desc

    def close(self) -> None:
        """Nothing is open; for the interface of `tqdm`."""


def progress_bar(
    iterable: Iterable[Any] | None = None,
    desc: str = "",
    total: int | None = None,
    *,
    initial: int = 0,
    unit: str = "it",
    delay: float = 0.0,
    disable: bool = False,
) -> tqdm[Any] | ProgressLog[Any]:
    """Show the progress of work, in the way that `set_mode` chose.

    >>> for _ in progress_bar(range(3), "count"):
    ...     pass

    Args:
        iterable: items to work on; without it call `update`.
        desc: what is done, in a word.
        total: number of items, where `iterable` has no length.
        initial: items that were finished before.
        unit: name of an item.
        delay: seconds before a bar is drawn.
        disable: show nothing.
    """
    if not disable and _mode == "auto" and not sys.stderr.isatty():
        return ProgressLog(iterable, desc, total, initial, unit)
    hidden = disable or _mode == "quiet"
    return tqdm(iterable, desc or None, total, initial=initial, unit=unit, delay=delay, disable=hidden)
