"""How long work takes, and the memory that it needs.

Cases that are compared take turns, so that a machine which becomes slower in between is so for all of them.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MIB = 2**20

Work = Callable[[int], int]  # from the number of a run to how much was done in it


@dataclass(frozen=True)
class Timing:
    """What a case takes.

    Args:
        units: of work in a run: networks, evaluations, tokens, or billions of operations.
        seconds: of a run, the median of several.
        spread: seconds between the fastest and the slowest.
        memory: MiB by which the process grew at most; 0 where the system does not tell.
    """

    units: float
    seconds: float
    spread: float
    memory: float

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds is {self.seconds}, expected a positive number")

    @property
    def per_second(self) -> float:
        """Units a second."""
        return self.units / self.seconds


Cases = Iterator[tuple[str, Timing]]


def timed(cases: Mapping[str, Work], runs: int, warm: bool = True) -> Cases:
    """Each case with what it takes; they take turns.

    Args:
        cases: by name.
        runs: of each, that count.
        warm: run each once before.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    units: dict[str, float] = {}
    memory = dict.fromkeys(cases, 0.0)
    for run in range(-warm, runs):
        for name, work in cases.items():
            before = _resident(reset=True)
            start = time.perf_counter()
            done = work(run + 1)
            elapsed = time.perf_counter() - start
            if run >= 0:
                seconds[name].append(elapsed)
                units[name] = done
                memory[name] = max(memory[name], _resident() - before)
    for name, each in seconds.items():
        yield name, Timing(units[name], float(np.median(each)), max(each) - min(each), memory[name] / MIB)


def _resident(reset: bool = False) -> float:
    """The most bytes that were resident since the last reset, where the system tells that."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not (status.is_file() and os.access(clear, os.W_OK)):
        return 0.0
    if reset:
        clear.write_text("5")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    return 1024.0 * int(found[1]) if found else 0.0
