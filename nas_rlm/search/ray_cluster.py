"""Who predicts and measures: this process, or by Ray the machines of a cluster or processes of this one.

Work is handed out in pieces that do not depend on who does them, so that predictions are what one process
would predict; a piece whose process or machine dies is handed out again.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import count, islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from nas_rlm.devices.device import Device
from nas_rlm.devices.profiler import TOGETHER, USUAL, Failure, Measurement, Plan, check_device, measure
from nas_rlm.model.batching import gathered
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.ensemble import BATCH
from nas_rlm.text import from_architectures
from nas_rlm.utils.validation import levels_of, listed
from search_spaces import SearchSpace

LOCAL = "local"  # as Ray calls a cluster of this machine alone

RETRIES = 5  # of work whose process died

Key = TypeVar("Key")
Piece = tuple[int, list[tuple[Key, bytes]]]  # its number, and networks


class Lost(ValueError):
    """Work that was begun on a cluster and did not end."""


class Here:
    """This process alone; see `Cluster`."""

    def __enter__(self) -> Here:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is to be closed."""

    def model(self, rlm: RLM) -> RLM:
        """The model itself."""
        return rlm

    def check_device(self, device: Device, python: str = "") -> None:
        """See `nas_rlm.devices.profiler.check_device`."""
        check_device(device, python)

    def measure(
        self, networks: Iterable[tuple[Key, bytes]], device: Device, plan: Plan = USUAL
    ) -> Iterator[tuple[Key, Measurement | Failure]]:
        """See `nas_rlm.devices.profiler.measure`."""
        return measure(networks, device, plan)


class Cluster(Here):
    """A connection to Ray, which ends with the block that it is opened for.

    >>> with Cluster("local") as cluster:  # doctest: +SKIP
    ...     rlm = cluster.model(RLM.load("nas"))
    ...     rlm.predict("nasbench201", cells, ["accuracy"])

    Args:
        address: `auto` for the cluster that this machine is part of, `HOST:6379` or `ray://HOST:10001` for
            another one, `local` for as many processes here as there are processors. Its machines need this
            version of the package.

    Raises:
        ValueError: Ray is not installed, or no cluster answers.
    """

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise ValueError("a cluster needs Ray: pip install 'nas-rlm[ray]'") from None
        if address == LOCAL:  # it would give its processes the lowest priority
            os.environ.setdefault("RAY_worker_niceness", "0")
        try:
            ray.init(
                address,
                include_dashboard=False if address == LOCAL else None,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
        except Exception as error:  # whatever Ray raises
            raise ValueError(
                f"no Ray cluster answers at {address!r} ({error}): expected auto, HOST:6379, ray://HOST:10001"
                f" or {LOCAL}"
            ) from None
        self.ray: Any = ray

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ray.shutdown()

    def model(self, rlm: RLM) -> Clustered:
        """The same model, whose predictions are made here.

        Args:
            rlm: one that was loaded: its weights are told as a checkpoint holds them.
        """
        found = Clustered(**{f.name: getattr(rlm, f.name) for f in fields(RLM)})
        with tempfile.TemporaryDirectory() as folder:
            rlm.save(folder)
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        # Within a list Ray hands on the reference, which a process follows once.
        found.held = [self.ray.put(files)]
        found.ray = self.ray
        return found

    def check_device(self, device: Device, python: str = "") -> None:
        """As `nas_rlm.devices.profiler.check_device`, on some machine of the cluster."""
        _got(self.ray, self.ray.remote(check_device).remote(device, python))

    def measure(
        self, networks: Iterable[tuple[Key, bytes]], device: Device, plan: Plan = USUAL
    ) -> Iterator[tuple[Key, Measurement | Failure]]:
        """As `nas_rlm.devices.profiler.measure`, on all machines of the cluster, which are to be alike.

        Each measures some networks at a time, and nothing else meanwhile.

        Raises:
            ValueError: the runtime is not there, no worker starts, or no machine is left.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self.ray.remote(_measured)
        pieces = _pieces(networks)
        again: list[Piece[Key]] = []
        lost: Counter[int] = Counter()
        running: dict[Any, tuple[str, Piece[Key]]] = {}
        while True:
            nodes = {n["NodeID"]: n["Resources"].get("CPU", 0) for n in self.ray.nodes() if n["Alive"]}
            for node in nodes.keys() - {busy for busy, _ in running.values()}:
                if not (todo := again or list(islice(pieces, 1))):
                    break
                number, some = piece = todo.pop()
                pinned = NodeAffinitySchedulingStrategy(node, soft=False)
                there = task.options(num_cpus=nodes[node], max_retries=0, scheduling_strategy=pinned)
                own = replace(plan, seed=plan.seed + number)
                running[there.remote([content for _, content in some], device, own)] = node, piece
            if not running:
                if again or any(pieces):
                    raise ValueError("no machine of the cluster is left")
                return
            done, _ = self.ray.wait(list(running), num_returns=1)
            _, (number, some) = running.pop(done[0])
            try:
                results = _got(self.ray, done[0])
            except Lost:
                lost[number] += 1
                if lost[number] > RETRIES:
                    raise
                again.append((number, some))
                continue
            yield from zip((key for key, _ in some), results, strict=True)


def workers(address: str) -> Here:
    """Who works: this process for an empty address, see `Cluster` for others."""
    return Cluster(address) if address else Here()


class Clustered(RLM):
    """A model whose predictions of texts are made by the processes of a cluster; see `Cluster.model`."""

    ray: Any
    held: list[Any]

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = BATCH,
        progress: bool = False,
        space: str = "",
    ) -> np.ndarray:
        """As `RLM.predict_text`, a batch by each process at a time."""
        self.check(objectives)
        texts = listed(texts, "texts")
        return self._asked(texts, objectives, quantiles, batch_size, space)(progress)

    def in_pieces(
        self,
        space: SearchSpace[Any],
        pieces: Sequence[Sequence[Any]],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None,
        batch_size: int,
    ) -> Iterator[np.ndarray]:
        """As `RLM.in_pieces`; the cluster has all of them before the first one is waited for."""
        asked = [
            self._asked(from_architectures(space, piece), objectives, quantiles, batch_size, space.name)
            for piece in pieces
        ]
        return (answer() for answer in asked)

    def _asked(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None,
        batch_size: int,
        space: str,
    ) -> Callable[..., np.ndarray]:
        """Hand texts out; what comes back waits for what is predicted of them."""
        levels, batches = levels_of(quantiles), self.in_batches(texts, batch_size)
        task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(_told)
        told = [task.remote(self.held, [t for t, _ in b], list(objectives), levels, space) for b in batches]

        def answer(progress: bool = False) -> np.ndarray:
            shape = len(objectives), len(levels)
            found = gathered(texts, batches, (_got(self.ray, one) for one in told), shape, progress)
            return found if quantiles is not None else found[:, :, 0]

        return answer


def _got(ray: Any, told: Any) -> Any:
    """What a process found.

    Raises:
        Lost: it or its machine is gone.
        Exception: what was raised there.
    """
    try:
        return ray.get(told)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise Lost(f"processes of the cluster ended {RETRIES + 1} times at the same work: {error}") from None


def _pieces(networks: Iterable[tuple[Key, bytes]]) -> Iterator[Piece[Key]]:
    rest = iter(networks)
    for number in count():
        if not (some := list(islice(rest, TOGETHER))):
            return
        yield number, some


_models: dict[str, RLM] = {}  # of this process, by what Ray calls their checkpoints


def _told(
    held: list[Any], texts: list[str], objectives: list[str], levels: Sequence[float], space: str
) -> np.ndarray:
    """What a process predicts of a batch."""
    import ray

    key = held[0].hex()
    if key not in _models:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in ray.get(held[0]).items():
                (Path(folder) / name).write_bytes(content)
            _models[key] = RLM.load(folder)
    return _models[key].predict_text(texts, objectives, levels, batch_size=len(texts), space=space)


def _measured(contents: list[bytes], device: Device, plan: Plan) -> list[Measurement | Failure]:
    """What a machine measures of some networks."""
    return [result for _, result in measure(enumerate(contents), device, plan)]
