"""The measurement protocol: warm-up, then several windows per network, shuffled among the networks.

A machine that becomes slower while it measures would make the last networks look slow. Therefore the windows
of a group of networks are run in random order, so that the windows of one network are far apart. Their spread
is reported beside the median.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from nas_rlm.devices.connection import DEFAULT_TIMEOUT, Connection, RequestError, WorkerDied
from nas_rlm.devices.device import Device

DEFAULT_WINDOWS, DEFAULT_SECONDS_PER_WINDOW = 5, 0.2
SHUFFLE_GROUP_SIZE = 20  # networks whose windows are shuffled among each other

Key = TypeVar("Key")


@dataclass(frozen=True)
class Plan:
    """Settings of the measurement protocol.

    Args:
        windows: number of windows in which each network is measured.
        seconds_per_window: length of each window in seconds.
        seed: seed of the order of the windows.
        measure_memory: measure memory as well, for which each network is loaded in a process of its own.
        python: command that starts Python where networks run, see `Connection`.
        timeout: seconds that compiling a network, or a window, may take.
    """

    windows: int = DEFAULT_WINDOWS
    seconds_per_window: float = DEFAULT_SECONDS_PER_WINDOW
    seed: int = 0
    measure_memory: bool = False
    python: str = ""
    timeout: float = DEFAULT_TIMEOUT


DEFAULT_PLAN = Plan()


@dataclass(frozen=True)
class Measurement:
    """The latency and memory of a network.

    Args:
        median: median duration of a run, in ms.
        p10: quantile of the durations at 0.1, in ms.
        p90: quantile of the durations at 0.9, in ms.
        spread: range of the windows' medians, relative to `median`.
        runs: number of runs in all windows.
        memory: peak growth of the process in bytes; None where it was not measured.
        environment: description of the machine, with its load.
    """

    median: float
    p10: float
    p90: float
    spread: float
    runs: int
    memory: float | None = None
    environment: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_windows(
        cls, windows: Sequence[Sequence[float]], environment: dict[str, Any], memory: float | None
    ) -> Measurement:
        """Return the measurement of a network from the durations of the runs in each window, in seconds."""
        p10, median, p90 = 1e3 * np.quantile(np.concatenate(windows), (0.1, 0.5, 0.9))
        medians = [1e3 * np.median(times) for times in windows]
        spread = float((max(medians) - min(medians)) / median)
        runs = sum(map(len, windows))
        return cls(float(median), float(p10), float(p90), spread, runs, memory, environment)


@dataclass(frozen=True)
class Failure:
    """The reason why a network could not be measured.

    Args:
        error: the error message.
    """

    error: str


def measure(
    networks: Iterable[tuple[Key, bytes]], device: Device, plan: Plan = DEFAULT_PLAN
) -> Iterator[tuple[Key, Measurement | Failure]]:
    """Measure networks on a device, in groups whose windows are shuffled.

    Args:
        networks: a key of each network, which identifies its result, and the bytes of its ONNX file, with
            weights as initialisers.
        device: where the networks run.
        plan: settings of the protocol.

    Yields:
        The key and the result of each network, in the order of `networks`.

    Raises:
        ValueError: the runtime is not installed, or no worker starts.
    """
    rng, remaining = np.random.default_rng(plan.seed), iter(networks)
    while group := list(islice(remaining, SHUFFLE_GROUP_SIZE)):
        memories = [_measure_memory(c, device, plan) if plan.measure_memory else None for _, c in group]
        yield from _measure_group(group, memories, device, plan, rng)


def _measure_group(
    group: list[tuple[Key, bytes]],
    memories: list[float | None],
    device: Device,
    plan: Plan,
    rng: np.random.Generator,
) -> Iterator[tuple[Key, Measurement | Failure]]:
    """Measure networks whose windows are shuffled; when a worker dies, a new one continues.

    A lost connection looks the same as a crash. Therefore a network fails only if two workers died while
    they ran it.
    """
    failures: dict[int, str] = {}
    died_once: set[int] = set()
    windows: list[list[list[float]]] = [[] for _ in group]
    environment: dict[str, Any] = {}
    order = [i for _ in range(plan.windows) for i in rng.permutation(len(group)).tolist()]
    while order:
        with Connection(plan.python, timeout=plan.timeout) as worker:
            environment |= worker.open(device=str(device))
            loaded: set[int] = set()
            current = -1
            try:
                for current in sorted(set(order)):
                    try:
                        worker.request("load", group[current][1], number=current)
                        loaded.add(current)
                    except RequestError as error:
                        failures[current] = str(error)
                order = [i for i in order if i in loaded]
                while order:
                    current = order[0]
                    try:
                        reply = worker.request("window", number=current, seconds=plan.seconds_per_window)
                        windows[current].append(reply["times"])
                        order.pop(0)
                    except RequestError as error:
                        failures[current] = str(error)
                        order = [i for i in order if i != current]
            except WorkerDied as death:
                if current in died_once:
                    failures[current] = str(death)
                died_once.add(current)
                order = [i for i in order if i not in failures]
    for i, (key, _) in enumerate(group):
        if i in failures:
            yield key, Failure(failures[i])
        else:
            yield key, Measurement.from_windows(windows[i], environment, memories[i])


def check_device(device: Device, python: str = "") -> None:
    """Check that networks can run on a device.

    Args:
        device: where the networks are to run.
        python: command that starts Python there, see `Connection`.

    Raises:
        ValueError: the runtime is not installed, or no worker starts.
    """
    with Connection(python) as worker:
        worker.open(device=str(device))


def _measure_memory(content: bytes, device: Device, plan: Plan) -> float | None:
    """Return the bytes by which a new process grows when it loads and runs a network; None if it fails."""
    with Connection(plan.python, timeout=plan.timeout) as worker:
        worker.open(device=str(device))
        try:
            return float(worker.request("load", content, number=0)["memory"])
        except (RequestError, WorkerDied):
            return None
