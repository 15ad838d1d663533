"""Architectures chosen by true values: `propose` beside searches that query as many true values.

A table stands for training and measuring, and all methods choose among its architectures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

import search_spaces
from nas_rlm.benchmarks.schedule import POPULATION, Schedule
from nas_rlm.benchmarks.search.acquisitions import select_by_scalarisation, select_optimistic
from nas_rlm.benchmarks.search.gene_optimizers import (
    GENE_OPTIMIZERS,
    ORDERED_SPACES,
    gene_optimizer,
    nearest_new,
)
from nas_rlm.data.objective_kinds import LATENCY_PREFIX
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row, Table
from nas_rlm.rlm import RLM
from nas_rlm.search.acquisition.active_search import Select, propose
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.improvement_search import (
    select_by_improvement,
    select_by_improvement_and_cost,
)
from nas_rlm.search.algorithms.registry import ALGORITHM_CLASSES
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.lookup import TablePredictor
from nas_rlm.search.objectives import ObjectivePredictor
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.pareto import is_maximised, minimised
from nas_rlm.search.reference_points import published_reference_values
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from nas_rlm.surrogates.registry import Surrogate, graph_surrogates
from nas_rlm.utils.progress import progress_bar

PROPOSE, STUDY = "propose", "study"
# By method, how `propose` selects architectures; as in a study one at a time.
SELECTIONS: Mapping[str, Select] = {
    PROPOSE: select_by_improvement,
    STUDY: select_by_improvement_and_cost,
    "optimistic": select_optimistic,
    "scalarised": select_by_scalarisation,
}
METHODS = (*SELECTIONS, "random", "evolution", "nsga2", *GENE_OPTIMIZERS)
COUNTS = (25, 50, 100, 200)  # evaluations, or costs of mean trainings, after which a search is judged
# A benchmark at equal cost assumes that a training takes this share of a mean one, and the rest in proportion
# to the elements of activations.
CONSTANT_SHARE = 0.2
NUM_OF_MEAN = 300  # random architectures whose mean training is the unit
# Architectures that `propose` selects at once, while there are fewer evaluations than the first number.
BATCH_SIZES = ((1, 10), (50, 5), (100, 10), (math.inf, 20))
REFERENCE_MARGIN = 1.1  # of the largest cost of the table, where no reference value is published

Key = tuple[str, str, int, int]
KEY_NAMES = ("objectives", "method", "seed", "evaluations")


@dataclass(frozen=True)
class ProposalEvaluation:
    """What was found after a number of evaluations.

    Args:
        regret: difference of the best value of the first objective from the table's best.
        relative_hypervolume: hypervolume relative to that of the table; with one objective, the share of the
            way from the reference value to the table's best.
    """

    regret: float
    relative_hypervolume: float


class _WithoutNetwork:
    """A model that predicts nothing and has surrogates by space."""

    objectives = ()

    def __init__(self, surrogates: Mapping[str, Sequence[Surrogate]]) -> None:
        self.surrogates = surrogates

    def predict(self, *args: Any, **options: Any) -> np.ndarray:
        raise ValueError("the model knows no objective")

    sample = predict


def without_network(rlm: RLM, space: str, knows_others: bool = True) -> RLM:
    """Return a model without all that was learnt from a space: its network, and the surrogates of the space.

    Args:
        rlm: the model.
        space: name of the space.
        knows_others: keep the surrogates of other spaces.
    """
    others = {name: group for name, group in rlm.surrogates.items() if name != space}
    return cast("RLM", _WithoutNetwork(others if knows_others else {}))


def table_reference(true_values: TablePredictor, space: str, objectives: Sequence[str]) -> list[float]:
    """Return the reference point of a table: published values, or values beyond its worst ones.

    The latter are also used where no architecture of the table is better than the published values.

    Args:
        true_values: the table.
        space: name of its space.
        objectives: K of its objectives.
    """
    published = published_reference_values(space)
    values = true_values.measured_values(list(true_values.values), objectives)
    worst = [
        float(column.min() if is_maximised(objective) else REFERENCE_MARGIN * column.max())
        for objective, column in zip(objectives, values.T, strict=True)
    ]
    reference = [published.get(o, w) for o, w in zip(objectives, worst, strict=True)]
    is_reached = true_values.max_hypervolume(tuple(objectives), tuple(reference)) > 0
    return reference if is_reached else worst


class ProposalBenchmark:
    """A table with the objectives of a search.

    Args:
        table: measurements of one space; only rows with all objectives are used.
        objectives: objectives of the search.
        rlm: the model of `propose`. Neither its network nor its surrogates of the table's own space are used.
        knows_others: use its surrogates of other spaces.
        by_cost: spend costs of trainings instead of numbers of evaluations.

    Raises:
        ValueError: no row has all objectives.
    """

    def __init__(
        self,
        table: Table,
        objectives: Sequence[str],
        rlm: RLM,
        knows_others: bool = True,
        by_cost: bool = False,
    ) -> None:
        self.objectives, self.by_cost = tuple(objectives), by_cost
        self.true_values = TablePredictor(table, objectives)
        self.space = TableSpace(search_spaces.get(table.rows[0].space), list(self.true_values.values))
        self.rlm = without_network(rlm, self.space.name, knows_others)
        self.reference = table_reference(self.true_values, self.space.name, objectives)
        with_layers = any(name.startswith(LATENCY_PREFIX) for name in self.learned)
        model = ObjectivePredictor(self.rlm)
        self._predictor = CachedPredictor(model, self.space, with_layers)  # its features are of all searches
        values = self.true_values.measured_values(self.space.names, objectives)
        self.best_cost = float(minimised(values, objectives)[:, 0].min())

    @property
    def learned(self) -> list[str]:
        """The objectives that are not counted."""
        return [name for name in self.objectives if name not in EXACT_OBJECTIVES]

    def run(self, method: str, seed: int, count: int) -> list[str]:
        """Return architectures in the order in which a method evaluates them.

        Args:
            method: one of `METHODS`.
            seed: seed of the method.
            count: number of evaluations; `by_cost`, their cost in mean trainings.
        """
        # No training costs less than the share that all have.
        most = min(math.ceil(count / CONSTANT_SHARE), len(self.space.names)) if self.by_cost else count
        if method in SELECTIONS:
            found = self._propose(method, seed, count)
        elif method in GENE_OPTIMIZERS:
            found = self._optimizer(method, seed, count, most)
        else:
            found = self._algorithm(method, seed, most)
        return self.affordable(found, count)

    def affordable(self, names: Sequence[str], count: int) -> list[str]:
        """Return the first architectures that as many evaluations, or as many mean trainings, pay for."""
        return list(names[: int((self._costs(names) <= count).sum())])

    def _costs(self, names: Sequence[str]) -> np.ndarray:
        """What each architecture and those before it cost, float64 [N]."""
        if not self.by_cost:
            return np.arange(1.0, len(names) + 1)
        activations = [features["activations"] for features in self._predictor.raw_features(names)]
        costs = CONSTANT_SHARE + (1 - CONSTANT_SHARE) * np.array(activations) / self._mean_activations
        return np.asarray(costs.cumsum())

    @cached_property
    def _mean_activations(self) -> float:
        drawn = np.random.default_rng(0).permutation(self.space.names)[:NUM_OF_MEAN].tolist()
        features = self._predictor.raw_features(drawn)
        return float(np.mean([of_architecture["activations"] for of_architecture in features]))

    def evaluate(self, names: Sequence[str]) -> ProposalEvaluation:
        """Evaluate architectures in true values."""
        values = self.true_values.measured_values(names, self.objectives)
        cost = float(minimised(values, self.objectives)[:, 0].min())
        return ProposalEvaluation(
            cost - self.best_cost,
            self.true_values.relative_hypervolume(names, self.objectives, self.reference),
        )

    def _propose(self, method: str, seed: int, count: int) -> list[str]:
        learned, sources = self.learned, graph_surrogates(self.rlm.surrogates)
        surrogate = OnlineSurrogate(self._predictor, learned, sources)
        settings = SearchSettings(self.space.name, self.objectives, seed=seed)
        pool = CandidatePool(self.space, seed)
        found: list[str] = []
        while self._is_left(found, count):
            size = next(size for limit, size in BATCH_SIZES if len(found) < limit)
            size = 1 if method == STUDY else size if self.by_cost else min(size, count - len(found))
            names = propose(surrogate, settings, size, pool=pool, select=SELECTIONS[method])
            if not names:
                break
            values = self.true_values.measured_values(names, learned).tolist()
            surrogate.update(
                [
                    Row(self.space.name, name, dict(zip(learned, row, strict=True)))
                    for name, row in zip(names, values, strict=True)
                ]
            )
            found += names
        return found

    def _is_left(self, found: Sequence[str], count: int) -> bool:
        """Whether a search that evaluated architectures can spend more."""
        return not found or bool(self._costs(found)[-1] < count)

    def _algorithm(self, method: str, seed: int, count: int) -> list[str]:
        settings = SearchSettings(self.space.name, self.objectives, (), method, POPULATION, count, seed)
        algorithm = ALGORITHM_CLASSES[method](self.space, settings, ())
        found: list[str] = []
        while len(found) < count and (generation := algorithm.ask()):
            names = [str(architecture) for architecture in generation]
            values = self.true_values.measured_values(names, self.objectives)
            algorithm.tell(minimised(values, self.objectives), np.zeros((len(names), 0)))
            found += names
        others = np.random.default_rng(seed).permutation(sorted(set(self.space.names).difference(found)))
        return [*found, *others.tolist()][:count]

    def _optimizer(self, method: str, seed: int, count: int, most: int) -> list[str]:
        genomes = self.space.genomes
        most, is_ordered = min(most, len(genomes)), self.space.name in ORDERED_SPACES
        optimizer = gene_optimizer(method, self.space, len(self.objectives), most, seed)
        is_new = np.ones(len(genomes), dtype=bool)
        found: list[str] = []
        while len(found) < most and self._is_left(found, count):
            nearest = nearest_new(genomes, optimizer.ask(), is_new, is_ordered)
            found.append(self.space.names[nearest])
            values = self.true_values.measured_values(found[-1:], self.objectives)
            optimizer.tell(minimised(values, self.objectives)[0].tolist())
        return found


def proposal_benchmark(
    benchmark: ProposalBenchmark,
    schedule: Schedule,
    finished: Collection[Key] = (),
    progress: bool = False,
) -> Iterator[tuple[Key, ProposalEvaluation]]:
    """Evaluate each method with each seed.

    Args:
        benchmark: the table and its objectives.
        schedule: some of `METHODS`, with seeds and numbers of evaluations.
        finished: keys to skip.
        progress: show a progress bar.

    Yields:
        Objectives, method, seed and number of evaluations, and the evaluation, as soon as each is available.

    Raises:
        ValueError: a method needs a package that is not installed.
    """
    objectives = " x ".join(benchmark.objectives)
    remaining = schedule.remaining(finished, [objectives])
    for method, seed in progress_bar(remaining, "proposals", unit="search", disable=not progress):
        names = benchmark.run(method, seed, max(schedule.counts))
        for count in schedule.counts:
            yield (objectives, method, seed, count), benchmark.evaluate(benchmark.affordable(names, count))
