"""Workers of a search: this process, or the processes and machines of a Ray cluster.

Work is split into batches that do not depend on the number of workers, so that predictions equal those of one
process. A batch whose process or machine dies is submitted again.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import count, islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from nas_rlm.data.genome import Genome
from nas_rlm.devices.device import Device
from nas_rlm.devices.profiler import (
    DEFAULT_PLAN,
    SHUFFLE_GROUP_SIZE,
    Failure,
    Measurement,
    Plan,
    check_device,
    measure,
)
from nas_rlm.model.batching import DEFAULT_BATCH_SIZE, TruncationWarning, gather_predictions, named_texts
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.ensemble.query import TextQuery, join_parts
from nas_rlm.text import from_architectures
from nas_rlm.utils.extras import require
from search_spaces import SearchSpace

LOCAL = "local"  # Ray's address of a cluster on this machine only
MAX_RETRIES = 5  # of work whose process died

Key = TypeVar("Key")
NetworkBatch = tuple[int, list[tuple[Key, bytes]]]  # its number, and its networks as ONNX files


class WorkerDied(ValueError):
    """The process or machine that did some work died."""


class LocalWorkers:
    """This process as the only worker; `RayCluster` has the same methods."""

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: nothing was opened."""

    def distribute(self, rlm: RLM) -> RLM:
        """Return the model itself."""
        return rlm

    def check_device(self, device: Device, python: str = "") -> None:
        """Check that a device can measure, see `nas_rlm.devices.profiler.check_device`."""
        check_device(device, python)

    def measure(
        self, networks: Iterable[tuple[Key, bytes]], device: Device, plan: Plan = DEFAULT_PLAN
    ) -> Iterator[tuple[Key, Measurement | Failure]]:
        """Measure networks, see `nas_rlm.devices.profiler.measure`."""
        return measure(networks, device, plan)


class RayCluster(LocalWorkers):
    """A connection to a Ray cluster, as a context manager.

    Examples:
        >>> with RayCluster("local") as cluster:  # doctest: +SKIP
        ...     rlm = cluster.distribute(RLM.load("nas"))
        ...     rlm.predict("nasbench201", cells, ["accuracy"])

    Args:
        address: `auto` for the cluster of this machine, `HOST:6379` or `ray://HOST:10001` for another one,
            `local` for one process per processor of this machine. All machines need this version of nas-rlm.

    Raises:
        ValueError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, address: str) -> None:
        require("ray", "a cluster")
        import ray

        if address == LOCAL:  # by default Ray gives its processes the lowest priority
            os.environ.setdefault("RAY_worker_niceness", "0")
        try:
            ray.init(
                address,
                include_dashboard=False if address == LOCAL else None,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
        except Exception as error:  # Ray raises many types
            raise ValueError(
                f"no Ray cluster answers at {address!r} ({error}): expected auto, HOST:6379, ray://HOST:10001"
                f" or {LOCAL}"
            ) from None
        self.ray: Any = ray

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ray.shutdown()

    def distribute(self, rlm: RLM) -> RayModel:
        """Return the model with predictions made by the cluster.

        Args:
            rlm: a loaded model; its checkpoint is sent to the cluster.
        """
        model = RayModel(**{f.name: getattr(rlm, f.name) for f in fields(RLM)})
        with tempfile.TemporaryDirectory() as directory:
            rlm.save(directory)
            files = {path.name: path.read_bytes() for path in Path(directory).iterdir()}
        # Ray passes a reference inside a list on as it is, and each process fetches the files only once.
        model.checkpoint_reference = [self.ray.put(files)]
        model.ray = self.ray
        return model

    def check_device(self, device: Device, python: str = "") -> None:
        """Check a device on one machine of the cluster, see `nas_rlm.devices.profiler.check_device`."""
        _get(self.ray, self.ray.remote(check_device).remote(device, python))

    def measure(
        self, networks: Iterable[tuple[Key, bytes]], device: Device, plan: Plan = DEFAULT_PLAN
    ) -> Iterator[tuple[Key, Measurement | Failure]]:
        """Measure networks on all machines of the cluster, which must be alike.

        Each machine measures one batch at a time and does nothing else meanwhile. See
        `nas_rlm.devices.profiler.measure`.

        Raises:
            ValueError: the runtime is not installed, no worker starts, or no machine is left.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self.ray.remote(_measure_batch)
        batches = _network_batches(networks)
        retries: list[NetworkBatch[Key]] = []
        num_deaths: Counter[int] = Counter()
        running: dict[Any, tuple[str, NetworkBatch[Key]]] = {}
        while True:
            num_cpus = {n["NodeID"]: n["Resources"].get("CPU", 0) for n in self.ray.nodes() if n["Alive"]}
            for node in num_cpus.keys() - {busy_node for busy_node, _ in running.values()}:
                if not (waiting := retries or list(islice(batches, 1))):
                    break
                number, batch = waiting.pop()
                affinity = NodeAffinitySchedulingStrategy(node, soft=False)
                on_node = task.options(num_cpus=num_cpus[node], max_retries=0, scheduling_strategy=affinity)
                batch_plan = replace(plan, seed=plan.seed + number)
                reference = on_node.remote([content for _, content in batch], device, batch_plan)
                running[reference] = node, (number, batch)
            if not running:
                if retries or any(batches):
                    raise ValueError("no machine of the cluster is left")
                return
            done, _ = self.ray.wait(list(running), num_returns=1)
            _, (number, batch) = running.pop(done[0])
            try:
                results = _get(self.ray, done[0])
            except WorkerDied:
                num_deaths[number] += 1
                if num_deaths[number] > MAX_RETRIES:
                    raise
                retries.append((number, batch))
                continue
            yield from zip((key for key, _ in batch), results, strict=True)


def connect_workers(address: str) -> LocalWorkers:
    """Return this process for an empty address, or else a `RayCluster`.

    Args:
        address: empty, or the address of a Ray cluster.
    """
    return RayCluster(address) if address else LocalWorkers()


class RayModel(RLM):
    """A model whose predictions are made by the processes of a Ray cluster; see `RayCluster.distribute`."""

    ray: Any
    checkpoint_reference: list[Any]

    def predict_query(
        self,
        query: TextQuery,
        levels: Sequence[float],
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
    ) -> np.ndarray:
        """Predict texts, one batch per process at a time, with given numbers here; see `RLM`."""
        if query.given:
            return super().predict_query(query, levels, batch_size, progress)
        return self._submit(query, levels, batch_size)(progress)

    def predict_chunks(
        self,
        space: SearchSpace[Any],
        chunks: Sequence[Sequence[Any]],
        objectives: Sequence[str],
        levels: Sequence[float],
        batch_size: int,
    ) -> Iterator[np.ndarray]:
        """Predict chunks of architectures; all are submitted before the first result is awaited."""
        waits = []
        for chunk in chunks:
            texts, genomes = from_architectures(space, chunk), self.genomes_of(space, chunk)
            with named_texts([str(architecture) for architecture in chunk]):
                parts = TextQuery(texts, objectives, space.name, genomes=genomes).parts()
                waits.append([(rows, self._submit(part, levels, batch_size)) for rows, part in parts])
        return (join_parts((rows, wait()) for rows, wait in of_chunk) for of_chunk in waits)

    def _submit(
        self, query: TextQuery, levels: Sequence[float], batch_size: int
    ) -> Callable[..., np.ndarray]:
        """Submit texts to the cluster; returns a function that waits for their predictions."""
        batches = self.in_batches(query.texts, batch_size)
        task = self.ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(_predict_batch)
        zero_label = [self.ray.put(self.zero_label)] if self.zero_label else []
        genome_of = query.genome_by_text()
        references = [
            task.remote(
                *(self.checkpoint_reference, zero_label, [text for text, _ in batch], list(query.objectives)),
                *(levels, query.space, [genome_of[text] for text, _ in batch if genome_of]),
            )
            for batch in batches
        ]

        def wait(progress: bool = False) -> np.ndarray:
            shape = len(query.objectives), len(levels) + 1
            results = (_get(self.ray, reference) for reference in references)
            return gather_predictions(query.texts, batches, results, shape, progress)

        return wait


def _get(ray: Any, reference: Any) -> Any:
    """The result of a Ray task.

    Raises:
        WorkerDied: the process or its machine died.
        Exception: the task raised it.
    """
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise WorkerDied(
            f"processes of the cluster died {MAX_RETRIES + 1} times at the same work: {error}"
        ) from None


def _network_batches(networks: Iterable[tuple[Key, bytes]]) -> Iterator[NetworkBatch[Key]]:
    """Numbered batches of networks that are measured together."""
    iterator = iter(networks)
    for number in count():
        if not (batch := list(islice(iterator, SHUFFLE_GROUP_SIZE))):
            return
        yield number, batch


_models: dict[str, RLM] = {}  # of a worker process, by Ray's reference to the checkpoint


def _predict_batch(
    checkpoint_reference: list[Any],
    zero_label: list[Any],
    texts: list[str],
    objectives: list[str],
    levels: Sequence[float],
    space: str,
    genomes: Sequence[Genome],
) -> np.ndarray:
    """Quantiles and novelties of a batch, in a worker process: float64 [N, K, Q + 1]."""
    import ray

    key = checkpoint_reference[0].hex()
    if key not in _models:
        with tempfile.TemporaryDirectory() as directory:
            for name, content in ray.get(checkpoint_reference[0]).items():
                (Path(directory) / name).write_bytes(content)
            _models[key] = RLM.load(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # the process that submitted the batch has warned
        model = replace(_models[key], zero_label=ray.get(zero_label[0]) if zero_label else {})
        return model.predict_with_novelties(
            texts, objectives, levels, len(texts), space=space, genomes=genomes
        )


def _measure_batch(contents: list[bytes], device: Device, plan: Plan) -> list[Measurement | Failure]:
    """Measurements of a batch of ONNX files, on a machine of the cluster."""
    return [result for _, result in measure(enumerate(contents), device, plan)]
