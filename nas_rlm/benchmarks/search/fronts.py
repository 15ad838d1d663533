"""Hypervolume of searches in measured values: searches by a model, and searches that query true values.

All of them choose among the architectures of a table, so that every architecture has measured values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.benchmarks.results import over_seeds
from nas_rlm.benchmarks.schedule import POPULATION
from nas_rlm.data.objective_kinds import LATENCY_PREFIX
from nas_rlm.data.tables import Row, Table
from nas_rlm.search.acquisition.active_search import propose
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.lookup import LabelledPredictor, TablePredictor
from nas_rlm.search.loop import Predictor, SamplingPredictor, search
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.pareto import is_maximised
from nas_rlm.search.reference_points import published_reference_values
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from nas_rlm.utils.progress import progress_bar
from search_spaces.wording import counted

OBJECTIVE_SETS = (
    ("accuracy", "latency/pixel3"),
    ("accuracy", "latency/eyeriss"),
    ("accuracy", "latency/gold_6226", "latency/titan_rtx_256"),
)
EVALUATION_COUNTS = (50, 100, 200, 500, 1000, 2000, 5000, 10000)  # after which a search is evaluated
SHORTLIST_SIZE = 100
SELECTION_ROUNDS = 4  # rounds in which labels are chosen
MODEL, COSTS, TRUE_VALUES = "model", "costs", "true values"  # what a search queries
# Name to what the search queries, and its algorithm.
METHODS = {
    "model": (MODEL, "nsga2"),
    "model, random": (MODEL, "random"),
    "parameters and MACs, random": (COSTS, "random"),
    "nsga2 on true values": (TRUE_VALUES, "nsga2"),
    "evolution on true values": (TRUE_VALUES, "evolution"),
    "random on true values": (TRUE_VALUES, "random"),
}
Key = tuple[str, str, int, int]
KEY_NAMES = ("objectives", "method", "seed", "evaluations")


@dataclass(frozen=True)
class SearchEvaluation:
    """What a search has found after a number of evaluations.

    Args:
        front_size: architectures of the front.
        relative_hypervolume: hypervolume of their true values, relative to that of the full table.
        shortlist_hypervolume: the same of the best `SHORTLIST_SIZE` architectures, see
            `SearchResult.shortlist`.
        seconds: time of the complete search.
    """

    front_size: int
    relative_hypervolume: float
    shortlist_hypervolume: float
    seconds: float


@dataclass(frozen=True)
class SearchPlan:
    """The searches of a benchmark, with each of `METHODS`.

    Args:
        num_labels: number of labelled rows. Their values replace predictions in the search.
        is_chosen: for each set of objectives, choose the labelled rows in `SELECTION_ROUNDS` rounds with
            `nas_rlm.search.acquisition.active_search.propose`, instead of at random.
        objective_sets: sets of objectives, each with a published reference point.
        population: architectures per generation of searches by the model.
        generations: their number; searches that query true values have as many evaluations in all.
        seeds: seeds of labels, training and searches.
        is_sampled: only searches that draw architectures of the table at random, since variation hardly ever
            leads to one of them where the table is a small part of the space.
    """

    num_labels: int = 0
    is_chosen: bool = False
    objective_sets: Sequence[tuple[str, ...]] = OBJECTIVE_SETS
    population: int = 50
    generations: int = 20
    seeds: Sequence[int] = range(5)
    is_sampled: bool = False

    @property
    def all_objectives(self) -> tuple[str, ...]:
        """The objectives of all sets."""
        return tuple(dict.fromkeys(name for objectives in self.objective_sets for name in objectives))

    @property
    def evaluations(self) -> int:
        """Evaluations of a search."""
        return self.population * self.generations

    @property
    def counts(self) -> list[int]:
        """Numbers of evaluations after which a search is evaluated."""
        return [*(count for count in EVALUATION_COUNTS if count < self.evaluations), self.evaluations]

    def remaining(self, finished: Collection[Key]) -> list[tuple[int, tuple[str, ...], str]]:
        """Return the seed, the objectives and the method of each search that lacks a result."""
        return [
            (seed, objectives, method)
            for seed in self.seeds
            for objectives in self.objective_sets
            for method, (_, algorithm) in METHODS.items()
            if algorithm == "random" or not self.is_sampled
            if any((" x ".join(objectives), method, seed, count) not in finished for count in self.counts)
        ]


def search_benchmark(
    table: Table,
    make_model: Callable[[Sequence[Row], Sequence[str], int], SamplingPredictor],
    plan: SearchPlan,
    finished: Collection[Key] = (),
    progress: bool = False,
) -> Iterator[tuple[Key, SearchEvaluation]]:
    """Search with each of `METHODS` for each set of objectives.

    Args:
        table: measurements of one space; only rows with all objectives are used.
        make_model: returns a model trained on labelled rows, if any, from rows, objectives and seed.
        plan: the searches.
        finished: keys to skip.
        progress: show a progress bar.

    Yields:
        Objectives, method, seed and number of evaluations, and the evaluation, as soon as each is available.

    Raises:
        ValueError: there are fewer rows than labels, or an objective has no reference value.
    """
    true_values, num_labels = TablePredictor(table, plan.all_objectives), plan.num_labels
    names = list(true_values.values)
    if num_labels and not 2 <= num_labels < len(names):
        raise ValueError(
            f"{counted(num_labels, 'label')} of {counted(len(names), 'row')}: expected 2 at least, and fewer"
            " than rows"
        )
    space = search_spaces.get(table.rows[0].space)
    table_space = TableSpace(space, names)
    remaining = plan.remaining(finished)
    trained: dict[tuple[int, tuple[str, ...]], tuple[list[Row], SamplingPredictor]] = {}  # the latest one
    for seed, objectives, method in progress_bar(remaining, "search", unit="search", disable=not progress):
        queried, algorithm = METHODS[method]
        size = POPULATION if queried == TRUE_VALUES else plan.population
        generations = plan.evaluations // size
        settings = SearchSettings(*(space.name, objectives, (), algorithm, size, generations, seed))
        rows: list[Row] = []
        predictor: Predictor = true_values
        if queried == COSTS:
            predictor = cost_predictor(table, objectives)
        if queried == MODEL:
            key = seed, objectives if plan.is_chosen else plan.all_objectives
            if key not in trained:
                if plan.is_chosen:
                    untrained = make_model([], objectives, seed)
                    rows = _choose_rows(table_space, untrained, true_values, num_labels, settings)
                else:
                    rows = _random_rows(table, true_values, num_labels, seed)
                trained = {key: (rows, make_model(rows, key[1], seed))}
            rows, model = trained[key]
            predictor = LabelledPredictor(model, rows)
        start = time.perf_counter()
        result = search(table_space, predictor, settings)
        seconds = time.perf_counter() - start
        for count in plan.counts:
            partial_result = _with_labelled_rows(result.truncated(count), rows)
            evaluation = evaluate_result(partial_result, true_values, seconds)
            yield (" x ".join(objectives), method, seed, count), evaluation


def cost_predictor(table: Table, objectives: Sequence[str]) -> TablePredictor:
    """Return a predictor by which networks with more parameters are better, and slower with more MACs.

    Args:
        table: rows of one space.
        objectives: latencies, and objectives that improve with the number of parameters.
    """
    costs = {"flops": baselines.flops(table.rows), "params": baselines.params(table.rows)}
    rows = []
    for i, row in enumerate(table.rows):
        targets = {}
        for name in row.targets:
            cost = costs["flops" if name.startswith(LATENCY_PREFIX) else "params"][i]
            rises = name.startswith(LATENCY_PREFIX) or is_maximised(name)
            targets[name] = float(cost if rises else -cost)
        rows.append(replace(row, targets=targets))
    return TablePredictor(Table(table.name, rows), objectives)


def _choose_rows(
    space: TableSpace,
    model: SamplingPredictor,
    true_values: TablePredictor,
    num_labels: int,
    settings: SearchSettings,
) -> list[Row]:
    """Rows that active search proposes, with the objectives of the search as targets."""
    objectives = settings.objectives
    surrogate = OnlineSurrogate(CachedPredictor(model, space), objectives, {})
    pool = CandidatePool(space, settings.seed)
    for round_index in range(SELECTION_ROUNDS):
        count = (num_labels - len(surrogate.measurements)) // (SELECTION_ROUNDS - round_index)
        names = propose(surrogate, settings, count, pool=pool)
        values = true_values.measured_values(names, objectives).tolist()
        surrogate.update(
            [
                Row(space.name, name, dict(zip(objectives, row, strict=True)))
                for name, row in zip(names, values, strict=True)
            ]
        )
    return [*surrogate.measurements.values()]


def _random_rows(table: Table, true_values: TablePredictor, num_labels: int, seed: int) -> list[Row]:
    """Random rows, with the objectives of all searches as targets."""
    rows = [row for row in table.rows if row.arch_str in true_values.values]
    indices = np.random.default_rng([seed, num_labels]).permutation(len(rows))[:num_labels]
    return [rows[i].select(list(true_values.objectives)) for i in indices]


def _with_labelled_rows(result: SearchResult, rows: Sequence[Row]) -> SearchResult:
    """A result to which labelled rows are added that the search has not evaluated."""
    objectives = result.settings.objectives
    new = [row for row in rows if row.arch_str not in set(result.architectures)]
    if new:
        values = np.array([[row.targets[name] for name in objectives] for row in new])
        result.add([row.arch_str for row in new], np.repeat(values[:, :, None], result.values.shape[2], 2))
    return result


def evaluate_result(result: SearchResult, true_values: TablePredictor, seconds: float) -> SearchEvaluation:
    """Evaluate the front and the shortlist of a search in true values.

    Args:
        result: result of the search.
        true_values: the table.
        seconds: time of the search.
    """
    objectives = result.settings.objectives
    values = published_reference_values(result.settings.space)
    reference_point = [values[name] for name in objectives]

    def relative_hypervolume(indices: np.ndarray) -> float:
        names = [result.architectures[i] for i in indices]
        return true_values.relative_hypervolume(names, objectives, reference_point)

    front = result.front
    shortlist = result.shortlist(SHORTLIST_SIZE)
    return SearchEvaluation(len(front), relative_hypervolume(front), relative_hypervolume(shortlist), seconds)


def mean_and_deviation(
    results: Mapping[Key, SearchEvaluation], field: str
) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Return the mean and the standard deviation over seeds, by objectives, method and evaluations.

    Args:
        results: see `search_benchmark`.
        field: name of a field of `SearchEvaluation`.
    """
    groups = over_seeds(results, field)
    return {key: (float(np.mean(values)), float(np.std(values))) for key, values in groups.items()}
