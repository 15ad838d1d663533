"""Best complete training at equal cost: a study with and without budgets, and other ways to spend epochs.

A table with accuracies after several numbers of epochs stands for training; a training that is continued
costs the epochs between. All methods choose among the architectures of the table, one evaluation at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.benchmarks.results import over_seeds
from nas_rlm.benchmarks.schedule import Schedule
from nas_rlm.benchmarks.search.gene_optimizers import nearest_new, optuna_genes
from nas_rlm.benchmarks.search.proposals import without_network
from nas_rlm.data.objective_kinds import ACCURACY
from nas_rlm.data.tables import Row, Table
from nas_rlm.rlm import RLM
from nas_rlm.search.acquisition.active_search import propose
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.fidelity_choice import choose_next
from nas_rlm.search.algorithms.registry import ALGORITHM_CLASSES
from nas_rlm.search.fidelity_surrogate import FidelitySurrogate, level_name
from nas_rlm.search.lookup import TablePredictor
from nas_rlm.search.objectives import ObjectivePredictor
from nas_rlm.search.online_surrogate import CachedPredictor, OnlineSurrogate
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from nas_rlm.surrogates.registry import graph_surrogates
from nas_rlm.utils.extras import require
from nas_rlm.utils.progress import progress_bar
from search_spaces import SearchSpace

# By space, epochs to the objective of the accuracy after as many.
EPOCHS = {
    "nasbench101": {
        4: "accuracy/cifar10_4ep",
        12: "accuracy/cifar10_12ep",
        36: "accuracy/cifar10_36ep",
        108: ACCURACY,
    },
    "nasbench201": {12: "accuracy/cifar10_12ep", 200: ACCURACY},
}
STUDY, FULL, HALVING, TPE = "study", "full", "halving", "tpe"
METHODS = (STUDY, FULL, HALVING, TPE, "random", "evolution")
COSTS = (25, 50, 100)  # in full trainings, after which a method is judged
POPULATION = 10  # of evolution
NUM_NEIGHBOURS = 20  # architectures of a table that count as mutations
MIN_SHARE = 0.5  # of a space that a table needs for mutations of the space

Key = tuple[str, int, int]
KEY_NAMES = ("method", "seed", "cost")


@dataclass(frozen=True)
class StudyEvaluation:
    """What was found at a cost.

    Args:
        regret: difference of the best accuracy of a complete training from the table's best, in percentage
            points.
        complete: complete trainings.
        started: trainings that were started.
    """

    regret: float
    complete: int
    started: int


class NeighbourSpace(TableSpace):
    """A table that is a small part of its space, so that mutations hardly ever lead to one of its rows.

    A mutation is one of the `NUM_NEIGHBOURS` architectures of the table that have most genes in common.
    """

    def __init__(self, full_space: SearchSpace[Any], names: Sequence[str]) -> None:
        super().__init__(full_space, names)
        self._genomes = np.array([full_space.encode(full_space.parse(name)) for name in names])

    def mutate(self, architecture: Any, rng: np.random.Generator) -> Any:
        """Return a random neighbour."""
        distances = (self._genomes != self.encode(architecture)).sum(1)
        nearest = distances.argsort(kind="stable")[1 : NUM_NEIGHBOURS + 1]
        return self.parse(self.names[rng.choice(nearest)])


class Trainings:
    """Trainings by lookup, each continued from one budget to the next.

    Args:
        values: by architecture, the accuracy at each budget.
        budgets: the budgets, ascending, in epochs.
        max_cost: epochs to spend.

    Attributes:
        levels: by architecture that was trained, the position of its largest budget.
        log: after each evaluation, the cost so far, its architecture and its level.
    """

    def __init__(
        self, values: Mapping[str, Sequence[float]], budgets: Sequence[int], max_cost: float
    ) -> None:
        self.values, self.budgets, self.max_cost = values, tuple(budgets), max_cost
        self.levels: dict[str, int] = {}
        self.log: list[tuple[float, str, int]] = []

    @property
    def cost(self) -> float:
        """Epochs that were spent."""
        return self.log[-1][0] if self.log else 0.0

    def train(self, name: str) -> float | None:
        """Train an architecture to its next budget; returns its accuracy, or None where it costs too much."""
        level = self.levels.get(name, -1) + 1
        cost = self.cost + self.budgets[level] - (self.budgets[level - 1] if level else 0)
        if cost > self.max_cost:
            return None
        self.levels[name] = level
        self.log.append((cost, name, level))
        return self.values[name][level]

    def train_fully(self, name: str) -> float | None:
        """Train an architecture to the last budget; None where it costs too much."""
        value = self.train(name)
        while value is not None and self.levels[name] < len(self.budgets) - 1:
            value = self.train(name)
        return value


class StudyBenchmark:
    """A table with accuracies after several numbers of epochs.

    Args:
        table: rows of one space of `EPOCHS`; only those with all accuracies are used.
        budgets: some of its epochs, ascending, the last one among them.
        rlm: a model, whose surrogates of other spaces are sources of transfer. Neither its network nor its
            surrogates of the space are used.

    Raises:
        ValueError: the table has no accuracies after these epochs.
    """

    def __init__(self, table: Table, budgets: Sequence[int], rlm: RLM) -> None:
        epochs = EPOCHS[table.rows[0].space]
        if unknown := [budget for budget in budgets if budget not in epochs]:
            raise ValueError(
                f"budget {unknown[0]} is not among {', '.join(map(str, epochs))} of {table.name}"
            )
        if list(budgets) != sorted(set(budgets)) or len(budgets) < 2 or budgets[-1] != max(epochs):
            raise ValueError(f"budgets are {list(budgets)}, expected two ascending ones up to {max(epochs)}")
        self.budgets = tuple(budgets)
        objectives = [epochs[budget] for budget in budgets]
        self.values = TablePredictor(table, objectives).values
        full_space = search_spaces.get(table.rows[0].space)
        is_large = full_space.size is not None and len(self.values) >= MIN_SHARE * full_space.size
        self.space = (TableSpace if is_large else NeighbourSpace)(full_space, list(self.values))
        self.rlm = without_network(rlm, self.space.name)
        self.best = max(of_architecture[-1] for of_architecture in self.values.values())
        self._raw_features: dict[str, Mapping[str, float]] = {}

    def run(self, method: str, seed: int, num_trainings: float) -> Trainings:
        """Spend the cost of a number of full trainings.

        Args:
            method: one of `METHODS`.
            seed: seed of the method.
            num_trainings: full trainings whose epochs are spent.
        """
        is_full = method in (FULL, "random", "evolution")
        budgets = self.budgets[-1:] if is_full else self.budgets
        values = {name: v[-1:] for name, v in self.values.items()} if is_full else self.values
        trainings = Trainings(values, budgets, num_trainings * self.budgets[-1])
        if method in (STUDY, FULL):
            self._study(trainings, seed)
        elif method == TPE:
            self._tpe(trainings, seed)
        elif method == HALVING:
            self._successive_halving(trainings, seed)
        else:
            self._algorithm(method, trainings, seed)
        return trainings

    def evaluate(self, trainings: Trainings, num_trainings: float) -> StudyEvaluation:
        """Evaluate what was found at the cost of a number of full trainings."""
        done = [entry for entry in trainings.log if entry[0] <= num_trainings * self.budgets[-1]]
        complete = [name for _, name, level in done if level == len(trainings.budgets) - 1]
        best = max((self.values[name][-1] for name in complete), default=0.0)
        return StudyEvaluation(self.best - best, len(complete), len({name for _, name, _ in done}))

    def _study(self, trainings: Trainings, seed: int) -> None:
        """Spend them as a study does, see `nas_rlm.study.suggestion`."""
        budgets, settings = trainings.budgets, SearchSettings(self.space.name, (ACCURACY,), seed=seed)
        predictor = CachedPredictor(ObjectivePredictor(self.rlm), self.space, False, self._raw_features)
        sources = graph_surrogates(self.rlm.surrogates)
        surrogate = (
            FidelitySurrogate(predictor, (ACCURACY,), sources, (ACCURACY,), budgets)
            if len(budgets) > 1
            else OnlineSurrogate(predictor, (ACCURACY,), sources)
        )
        pool = CandidatePool(self.space, seed)
        while True:
            if isinstance(surrogate, FidelitySurrogate):
                name = choose_next(surrogate, settings, pool=pool)
            else:
                name = next(iter(propose(surrogate, settings, 1, pool=pool)), None)
            if name is None or trainings.train(name) is None:
                return
            levels = range(trainings.levels[name] + 1)
            values = {level_name(ACCURACY, budgets, i): trainings.values[name][i] for i in levels}
            surrogate.update([Row(self.space.name, name, values)])

    def _successive_halving(self, trainings: Trainings, seed: int) -> None:
        """Asynchronous successive halving of random architectures."""
        new = iter(np.random.default_rng(seed).permutation(sorted(self.space.names)).tolist())
        while True:
            name = promoted(trainings) or next(new, None)
            if name is None or trainings.train(name) is None:
                return

    def _algorithm(self, method: str, trainings: Trainings, seed: int) -> None:
        count = int(trainings.max_cost / self.budgets[-1])
        settings = SearchSettings(self.space.name, (ACCURACY,), (), method, POPULATION, count, seed)
        algorithm = ALGORITHM_CLASSES[method](self.space, settings, ())
        while generation := algorithm.ask():
            accuracies = [trainings.train(str(architecture)) for architecture in generation]
            if None in accuracies:
                return
            algorithm.tell(-np.array(accuracies, dtype=float)[:, None], np.zeros((len(generation), 0)))

    def _tpe(self, trainings: Trainings, seed: int) -> None:
        """Optuna's sampler TPE, whose trainings its pruner stops."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        first, second = trainings.budgets[:2]
        pruner = optuna.pruners.SuccessiveHalvingPruner(first, round(second / first))
        sampler = optuna.samplers.TPESampler(seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
        genomes = np.array([self.space.encode(self.space.parse(name)) for name in self.space.names])
        is_new = np.ones(len(genomes), dtype=bool)
        while is_new.any():
            trial = study.ask()
            nearest = nearest_new(genomes, optuna_genes(trial, self.space), is_new)
            for budget in trainings.budgets:
                value = trainings.train(self.space.names[nearest])
                if value is None:
                    return
                trial.report(value, budget)
                if budget < trainings.budgets[-1] and trial.should_prune():
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                    break
            else:
                study.tell(trial, value)


def promoted(trainings: Trainings) -> str | None:
    """Return the training that asynchronous successive halving continues, or None to start a new one.

    Source: Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning, algorithm 2.

    Args:
        trainings: trainings so far.
    """
    budgets = trainings.budgets
    for level in reversed(range(len(budgets) - 1)):
        reached = [name for name, highest in trainings.levels.items() if highest >= level]
        count = int(len(reached) * budgets[level] / budgets[level + 1])
        best = sorted(reached, key=lambda name: -trainings.values[name][level])[:count]
        if waiting := [name for name in best if trainings.levels[name] == level]:
            return waiting[0]
    return None


def study_benchmark(
    benchmark: StudyBenchmark,
    schedule: Schedule,
    finished: Collection[Key] = (),
    progress: bool = False,
) -> Iterator[tuple[Key, StudyEvaluation]]:
    """Evaluate each method with each seed.

    Args:
        benchmark: the table and its budgets.
        schedule: some of `METHODS`, with seeds and costs in full trainings.
        finished: keys to skip.
        progress: show a progress bar.

    Yields:
        Method, seed and cost, and the evaluation, as soon as each is available.

    Raises:
        ValueError: a method needs Optuna, which is not installed.
    """
    if TPE in schedule.methods:
        require("optuna", "a comparison with Optuna")
    remaining = schedule.remaining(finished)
    for method, seed in progress_bar(remaining, "studies", unit="search", disable=not progress):
        trainings = benchmark.run(method, seed, max(schedule.counts))
        for cost in schedule.counts:
            yield (method, seed, cost), benchmark.evaluate(trainings, cost)


def mean_and_worst(results: Mapping[Key, StudyEvaluation]) -> dict[tuple[str, int], tuple[float, float]]:
    """Return the mean and the worst regret over seeds, by method and cost."""
    regrets = over_seeds(results, "regret")
    return {key: (float(np.mean(values)), max(values)) for key, values in regrets.items()}
