"""Time and memory of repeated work.

Cases that are compared run in turns, so that a machine that slows down affects all of them.
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

MIB = 2**20  # bytes

Work = Callable[[int], int]  # from the index of a run to the number of units that it processed


@dataclass(frozen=True)
class Timing:
    """Time and memory of a case.

    Args:
        units: units of work in a run: networks, evaluations, tokens, or billions of operations.
        seconds: median time of a run.
        spread: difference in seconds between the slowest and the fastest run.
        memory: largest growth of the process in a run, in MiB; 0 where the system does not report it.
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
        """Units per second."""
        return self.units / self.seconds


Cases = Iterator[tuple[str, Timing]]


def time_cases(cases: Mapping[str, Work], runs: int, warm_up: bool = True) -> Cases:
    """Measure cases that run in turns.

    Examples:
        >>> dict(time_cases({"sum": lambda run: sum(range(1000)) and 1000}, runs=3))["sum"].units
        1000

    Args:
        cases: name to work.
        runs: number of timed runs of each case.
        warm_up: run each case once before, without timing it.

    Yields:
        The name and the timing of each case.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    units: dict[str, float] = {}
    memory = dict.fromkeys(cases, 0.0)
    for run in range(-warm_up, runs):
        for name, work in cases.items():
            memory_before = _peak_memory(reset=True)
            start = time.perf_counter()
            num_units = work(run + 1)
            elapsed = time.perf_counter() - start
            if run >= 0:
                seconds[name].append(elapsed)
                units[name] = num_units
                memory[name] = max(memory[name], _peak_memory() - memory_before)
    for name, times in seconds.items():
        median = float(np.median(times))
        yield name, Timing(units[name], median, max(times) - min(times), memory[name] / MIB)


def _peak_memory(reset: bool = False) -> float:
    """The largest resident size of the process since the last reset, in bytes; 0 if the system has none."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not (status.is_file() and os.access(clear, os.W_OK)):
        return 0.0
    if reset:
        clear.write_text("5")
    match = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    return 1024.0 * int(match[1]) if match else 0.0
