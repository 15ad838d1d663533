"""Three policies that spend a budget of measurements on a new device in a search.

A table with the measurements of all architectures of a space stands for the device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import search_spaces
from nas_rlm.data.objective_kinds import ACCURACY
from nas_rlm.data.tables import Row, Table
from nas_rlm.devices.device import Device
from nas_rlm.devices.measurements import Network
from nas_rlm.devices.profiler import Measurement, Plan
from nas_rlm.rlm import RLM
from nas_rlm.search.acquisition.active_search import current_result
from nas_rlm.search.acquisition.selection import initial_design
from nas_rlm.search.algorithms.random_search import RandomSearch
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.lookup import TablePredictor
from nas_rlm.search.loop import search
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.pareto import nondominated
from nas_rlm.search.result import SearchResult
from nas_rlm.search.run_directory import MemoryLog
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from nas_rlm.study.measured_search import measure_and_search
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.registry import graph_surrogates
from nas_rlm.utils.progress import progress_bar

REFERENCE_ACCURACY = 80.0  # percent, of the reference point: networks below are of no use
MAX_INITIAL_MEASUREMENTS = 20  # of the policy that measures the front once
STAND_IN = "onnxruntime-cpu-1t"  # device whose name stands for that of the table in a study
ACTIVE_SEARCH, FRONT_ONCE, RANDOM = POLICIES = ("active search", "front once", "random")

Key = tuple[str, str, int, int]
KEY_NAMES = ("target", "policy", "budget", "seed")


@dataclass(frozen=True)
class MeasuredSearchResult:
    """What a search on a new device has found.

    Args:
        num_measured: measured networks.
        front_size: networks of the front.
        num_confirmed: measured networks of the front.
        relative_hypervolume: hypervolume of the front's true values, relative to that of the full table.
        measured_hypervolume: the same of the non-dominated measured networks.
    """

    num_measured: int
    front_size: int
    num_confirmed: int
    relative_hypervolume: float
    measured_hypervolume: float


class TableDevice:
    """A table that stands for a new device.

    Args:
        predictor: the model, over the space of the table.
        table: measurements of all architectures of the space.
        target: the latency.
        surrogates: surrogates of the space on other devices.

    Raises:
        ValueError: no architecture of the table dominates the reference point.
    """

    def __init__(
        self, predictor: CachedPredictor, table: Table, target: str, surrogates: Sequence[GraphSurrogate]
    ) -> None:
        self.predictor, self.target = predictor, target
        self.surrogates = {predictor.space.name: surrogates}
        self.objectives = (ACCURACY, target)
        self.true_values = TablePredictor(table, self.objectives)
        max_latency = max(latency for _, latency in self.true_values.values.values())
        self.reference_point = (REFERENCE_ACCURACY, max_latency)
        if not self.true_values.max_hypervolume(self.objectives, self.reference_point):
            raise ValueError(
                f"{table.name} has no network with an {ACCURACY} above {REFERENCE_ACCURACY:g} and {target}"
            )

    def measure(self, names: Sequence[str]) -> list[Row]:
        """Return rows with the latencies of architectures."""
        latencies = {name: self.true_values.values[name][1] for name in names}
        return [Row(self.predictor.space.name, name, {self.target: latencies[name]}) for name in names]

    def run(
        self, policy: str, budget: int, seed: int, population: int, generations: int
    ) -> MeasuredSearchResult:
        """Search once with a policy.

        Args:
            policy: one of `POLICIES`: `active search` measures during the search, `front once` measures an
                initial design and then the predicted front, `random` measures random networks.
            budget: number of measurements.
            seed: seed of the search.
            population: architectures per generation.
            generations: generations of each search.
        """
        device = self.target.split("/", 1)[1]
        settings = SearchSettings(
            *(self.predictor.space.name, self.objectives, (), "nsga2", population, generations, seed),
            device=device,
            budget=budget,
        )
        if policy == ACTIVE_SEARCH:
            return self._evaluate(self._search_actively(settings))
        surrogate = OnlineSurrogate(self.predictor, [self.target], self.surrogates)
        if policy == RANDOM:
            first = self._random_names(settings)
        else:
            num_initial = min(MAX_INITIAL_MEASUREMENTS, max(MIN_LABELS, budget // 2))
            first = initial_design(surrogate, settings, num_initial)
        surrogate.update(self.measure(first))
        searched = search(self.predictor.space, surrogate, settings)
        names = [*dict.fromkeys([*searched.architectures, *first])]
        result = current_result(surrogate, settings, names)
        if policy == FRONT_ONCE:
            surrogate.update(self.measure(_unmeasured_front(result, budget - len(first))))
            result = current_result(surrogate, settings, result.architectures)
        return self._evaluate(result)

    def _search_actively(self, settings: SearchSettings) -> SearchResult:
        """Search as `search --measure` does, under the name of a device that can be measured."""
        latency = f"latency/{STAND_IN}"
        renamed = replace(settings, objectives=(ACCURACY, latency), device=STAND_IN)

        def measure(
            networks: Iterable[tuple[Network, bytes]], device: Device, plan: Plan
        ) -> Iterator[tuple[Network, Measurement]]:
            for network, _ in networks:
                latency = self.true_values.values[network.row.arch_str][1]
                yield network, Measurement(latency, latency, latency, 0.0, 1)

        with TemporaryDirectory() as directory:
            result, _ = measure_and_search(
                *(self.predictor, self.surrogates, renamed, Path(directory), MemoryLog()),
                measure_function=measure,
            )
        return result

    def _random_names(self, settings: SearchSettings) -> list[str]:
        """As many random architectures as the budget has measurements."""
        algorithm = RandomSearch(self.predictor.space, replace(settings, population=settings.budget))
        return [str(architecture) for architecture in algorithm.ask()]

    def _evaluate(self, result: SearchResult) -> MeasuredSearchResult:
        """Evaluate the front, and the front of the measured networks, in true values."""
        front = [result.architectures[i] for i in result.front]
        measured = np.flatnonzero(result.is_measured)
        best = measured[np.flatnonzero(nondominated(result.medians[measured], self.objectives))]
        measured_front = [result.architectures[i] for i in best]
        hypervolume, measured_hypervolume = (
            self.true_values.relative_hypervolume(names, self.objectives, self.reference_point)
            for names in (front, measured_front)
        )
        num_confirmed = int(result.is_measured[result.front].sum())
        return MeasuredSearchResult(
            len(measured), len(front), num_confirmed, hypervolume, measured_hypervolume
        )


def _unmeasured_front(result: SearchResult, max_count: int) -> list[str]:
    """Unmeasured architectures of the front, evenly spaced along it if there are more than `max_count`."""
    new = [name for i in result.front if (name := result.architectures[i]) not in result.status]
    positions = np.linspace(0, len(new) - 1, min(max_count, len(new))).round().astype(int)
    return [new[i] for i in np.unique(positions)]


@dataclass(frozen=True)
class MeasuredSearchPlan:
    """The searches of a benchmark.

    Args:
        targets: latencies of the new devices.
        budgets: numbers of measurements.
        seeds: seeds of the searches.
        population: architectures per generation.
        generations: generations of each search.
        policies: some of `POLICIES`.
    """

    targets: Sequence[str]
    budgets: Sequence[int]
    seeds: Sequence[int]
    population: int = 50
    generations: int = 20
    policies: Sequence[str] = POLICIES

    def remaining(self, finished: Collection[Key]) -> list[Key]:
        """Return the keys of the searches that are not finished, in the order in which they run."""
        return [
            key
            for target in self.targets
            for budget in self.budgets
            for seed in self.seeds
            for policy in self.policies
            if (key := (target, policy, budget, seed)) not in finished
        ]


def measured_search_benchmark(
    rlm: RLM,
    table: Table,
    plan: MeasuredSearchPlan,
    finished: Collection[Key] = (),
    progress: bool = False,
) -> Iterator[tuple[Key, MeasuredSearchResult]]:
    """Search for accuracy and the latency of each new device with each policy.

    Args:
        rlm: the model; its surrogate of the new device is not used.
        table: architectures of one space; only rows with accuracy and all targets are used.
        plan: the searches.
        finished: keys to skip.
        progress: show a progress bar.

    Yields:
        Target, policy, budget and seed, and the result, as soon as each is available.

    Raises:
        ValueError: fewer than two rows of the table have accuracy and all latencies.
    """
    required = (ACCURACY, *plan.targets)
    rows = [row for row in table.rows if all(row.is_measured(name) for name in required)]
    if len(rows) < 2:
        raise ValueError(
            f"{table.name} has no two rows with {', '.join(required)}: expected a space whose architectures"
            " all have measurements, such as nasbench201"
        )
    space = search_spaces.get(rows[0].space)
    predictor = CachedPredictor(rlm, TableSpace(space, [row.arch_str for row in rows]))
    measured = Table(table.name, rows)
    surrogates = graph_surrogates(rlm.surrogates).get(space.name, ())
    remaining = plan.remaining(finished)
    devices: dict[str, TableDevice] = {}
    for key in progress_bar(remaining, "measured search", unit="search", disable=not progress):
        target, policy, budget, seed = key
        if target not in devices:
            others = [s for surrogate in surrogates if (s := surrogate.without([target]))]
            devices[target] = TableDevice(predictor, measured, target, others)
        yield key, devices[target].run(policy, budget, seed, plan.population, plan.generations)


def mean_and_deviation(
    results: Mapping[Key, MeasuredSearchResult], field: str
) -> dict[tuple[str, int], tuple[float, float]]:
    """Return by policy and budget the mean over devices and seeds, and the deviation over seeds.

    The deviation is that of the means over devices.

    Args:
        results: see `measured_search_benchmark`.
        field: name of a field of `MeasuredSearchResult`.
    """
    groups: dict[tuple[str, int], dict[int, list[float]]] = {}
    for (_, policy, budget, seed), result in results.items():
        by_seed = groups.setdefault((policy, budget), {})
        by_seed.setdefault(seed, []).append(float(getattr(result, field)))
    means = {key: [float(np.mean(v)) for v in by_seed.values()] for key, by_seed in groups.items()}
    return {key: (float(np.mean(values)), float(np.std(values))) for key, values in means.items()}
