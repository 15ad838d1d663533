"""How networks are measured: warm, in several windows, in an order that has nothing to do with their size.

On a machine that becomes slower while it measures, the networks of the end would seem slow. So the windows of
many networks are shuffled among each other, and a network's windows lie far apart; how much they differ is
told beside their median.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from nas_rlm.devices.connection import LONGEST, Connection, Died, Refused
from nas_rlm.devices.device import Device

WINDOWS, SECONDS = 5, 0.2
TOGETHER = 20  # networks whose windows are shuffled

Key = TypeVar("Key")


@dataclass(frozen=True)
class Plan:
    """How networks are measured.

    Args:
        windows: times that each is measured, with others in between.
        seconds: of each window.
        seed: of the order.
        memory: measure memory as well, for which each network gets a process of its own.
        python: see `Connection`.
        limit: seconds that compiling a network, or a window of its runs, may take.
    """

    windows: int = WINDOWS
    seconds: float = SECONDS
    seed: int = 0
    memory: bool = False
    python: str = ""
    limit: float = LONGEST


USUAL = Plan()


@dataclass(frozen=True)
class Measurement:
    """What one network takes.

    Args:
        median, p10, p90: of the times of all runs, ms.
        spread: of the windows' medians, the difference between largest and smallest by `median`.
        runs: so many.
        memory: bytes that the process grew by at most, where that was asked for.
        environment: the machine, and how busy it was.
    """

    median: float
    p10: float
    p90: float
    spread: float
    runs: int
    memory: float | None = None
    environment: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, windows: list[list[float]], environment: dict[str, Any], memory: float | None) -> Measurement:
        """From the times of each window, in seconds."""
        low, median, high = 1e3 * np.quantile(np.concatenate(windows), (0.1, 0.5, 0.9))
        medians = [1e3 * np.median(times) for times in windows]
        spread = float((max(medians) - min(medians)) / median)
        runs = sum(map(len, windows))
        return cls(float(median), float(low), float(high), spread, runs, memory, environment)


@dataclass(frozen=True)
class Failure:
    """Why a network has no measurement."""

    error: str


def measure(
    networks: Iterable[tuple[Key, bytes]], device: Device, plan: Plan = USUAL
) -> Iterator[tuple[Key, Measurement | Failure]]:
    """Measure networks on a device.

    Args:
        networks: each with what it is called and its ONNX file, whose weights are initialisers.
        device: where.
        plan: how.

    Returns:
        Each network with its result, in order, some at a time.

    Raises:
        ValueError: the runtime is not there, or no worker starts.
    """
    rng, rest = np.random.default_rng(plan.seed), iter(networks)
    while some := list(islice(rest, TOGETHER)):
        grown = [_memory(content, device, plan) if plan.memory else None for _, content in some]
        yield from _measured(some, grown, device, plan, rng)


def _measured(
    some: list[tuple[Key, bytes]],
    grown: list[float | None],
    device: Device,
    plan: Plan,
    rng: np.random.Generator,
) -> Iterator[tuple[Key, Measurement | Failure]]:
    """Networks whose windows are shuffled; when one of them ends the process, all get a new one.

    A connection may be lost as well, so that only a network at which two processes ended is to blame.
    """
    failures: dict[int, str] = {}
    ended: set[int] = set()
    times: list[list[list[float]]] = [[] for _ in some]
    environment: dict[str, Any] = {}
    asked = [i for _ in range(plan.windows) for i in rng.permutation(len(some)).tolist()]
    while asked:
        with Connection(plan.python, longest=plan.limit) as worker:
            environment |= opened(worker, device)
            loaded: set[int] = set()
            at = -1
            try:
                for at in sorted(set(asked)):
                    try:
                        worker.ask("load", some[at][1], number=at)
                        loaded.add(at)
                    except Refused as refused:
                        failures[at] = str(refused)
                asked = [i for i in asked if i in loaded]
                while asked:
                    at = asked[0]
                    try:
                        times[at].append(worker.ask("window", number=at, seconds=plan.seconds)["times"])
                        asked.pop(0)
                    except Refused as refused:
                        failures[at] = str(refused)
                        asked = [i for i in asked if i != at]
            except Died as died:
                if at in ended:
                    failures[at] = str(died)
                ended.add(at)
                asked = [i for i in asked if i not in failures]
    for i, (key, _) in enumerate(some):
        if i in failures:
            yield key, Failure(failures[i])
        else:
            yield key, Measurement.of(times[i], environment, grown[i])


def check_device(device: Device, python: str = "") -> None:
    """Refuse a device that is not there, before any work is done.

    Args:
        device: on which networks are to run.
        python: see `Connection`.

    Raises:
        ValueError: the runtime is not there, or no worker starts.
    """
    with Connection(python) as worker:
        opened(worker, device)


def opened(worker: Connection, device: Device) -> dict[str, Any]:
    """Tell a worker its device.

    Raises:
        ValueError: it does not start, or the device is not there.
    """
    try:
        return worker.ask("open", device=str(device))
    except Died as died:
        raise ValueError(f"{' '.join(worker.command)!r} is no worker: {died}") from None


def _memory(content: bytes, device: Device, plan: Plan) -> float | None:
    """What a process of its own grows by when it loads and runs a network."""
    with Connection(plan.python, longest=plan.limit) as worker:
        opened(worker, device)
        try:
            return float(worker.ask("load", content, number=0)["memory"])
        except (Refused, Died):
            return None
