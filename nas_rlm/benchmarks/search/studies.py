"""Complete trainings at equal cost: a study with and without budgets, and other ways to spend epochs.

A table with accuracies after several numbers of epochs stands for training; a training that is continued
costs the epochs between. Other objectives, such as latencies, are measured with the first epochs, and cost
nothing. All methods choose among the architectures of the table, one evaluation at a time; evolution and
NSGA-II choose a generation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.benchmarks.schedule import POPULATION, Schedule
from nas_rlm.benchmarks.search.gene_optimizers import nearest_new, optuna_genes
from nas_rlm.benchmarks.search.proposals import table_reference, without_network
from nas_rlm.data.objective_kinds import ACCURACY, LATENCY_PREFIX
from nas_rlm.data.tables import Row, Table
from nas_rlm.rlm import RLM
from nas_rlm.search.acquisition.active_search import propose
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.fidelity_choice import choose_next
from nas_rlm.search.algorithms.registry import ALGORITHM_CLASSES
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.fidelity_surrogate import FidelitySurrogate, level_name
from nas_rlm.search.lookup import TablePredictor
from nas_rlm.search.objectives import ObjectivePredictor
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.pareto import minimised, pareto_order
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
ALGORITHMS = ("random", "evolution", "nsga2")  # full trainings
METHODS = (STUDY, FULL, HALVING, TPE, *ALGORITHMS)
COSTS = (25, 50, 100, 200)  # in full trainings, after which a method is judged
NUM_NEIGHBOURS = 20  # architectures of a table that count as mutations
MIN_SHARE = 0.5  # of a space that a table needs for mutations of the space

Key = tuple[str, str, int, int]
KEY_NAMES = ("objectives", "method", "seed", "cost")


@dataclass(frozen=True)
class StudyEvaluation:
    """What was found at a cost.

    Args:
        regret: difference of the best accuracy of a complete training from the table's best, in percentage
            points.
        relative_hypervolume: hypervolume of the complete trainings relative to that of the table; with one
            objective, the share of the way from the reference value to the table's best.
        complete: complete trainings.
        started: trainings that were started.
    """

    regret: float
    relative_hypervolume: float
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
        values: by architecture, the minimised values of the K objectives at each budget, float64 [levels, K].
        budgets: the budgets, ascending, in epochs.
        max_cost: epochs to spend.

    Attributes:
        levels: by architecture that was trained, the position of its largest budget.
        log: after each evaluation, the cost so far, its architecture and its level.
    """

    def __init__(self, values: Mapping[str, np.ndarray], budgets: Sequence[int], max_cost: float) -> None:
        self.values, self.budgets, self.max_cost = values, tuple(budgets), max_cost
        self.levels: dict[str, int] = {}
        self.log: list[tuple[float, str, int]] = []

    @property
    def cost(self) -> float:
        """Epochs that were spent."""
        return self.log[-1][0] if self.log else 0.0

    def train(self, name: str) -> np.ndarray | None:
        """Train an architecture to its next budget.

        Returns:
            The minimised values of the objectives, float64 [K]; None where it costs too much.
        """
        level = self.levels.get(name, -1) + 1
        cost = self.cost + self.budgets[level] - (self.budgets[level - 1] if level else 0)
        if cost > self.max_cost:
            return None
        self.levels[name] = level
        self.log.append((cost, name, level))
        return self.values[name][level]

    def is_complete(self, name: str) -> bool:
        """Whether an architecture was trained to the last budget."""
        return self.levels.get(name) == len(self.budgets) - 1


class StudyBenchmark:
    """A table with accuracies after several numbers of epochs.

    Args:
        table: rows of one space of `EPOCHS`; only those with all accuracies and objectives are used.
        budgets: some of its epochs, ascending, the last one among them.
        rlm: a model, whose surrogates of other spaces are sources of transfer. Neither its network nor its
            surrogates of the space are used.
        objectives: accuracy, and others that do not depend on the epochs.

    Raises:
        ValueError: the table has no accuracies after these epochs, or accuracy is not the first objective.
    """

    def __init__(
        self, table: Table, budgets: Sequence[int], rlm: RLM, objectives: Sequence[str] = (ACCURACY,)
    ) -> None:
        epochs = EPOCHS[table.rows[0].space]
        if unknown := [budget for budget in budgets if budget not in epochs]:
            raise ValueError(
                f"budget {unknown[0]} is not among {', '.join(map(str, epochs))} of {table.name}"
            )
        if list(budgets) != sorted(set(budgets)) or len(budgets) < 2 or budgets[-1] != max(epochs):
            raise ValueError(f"budgets are {list(budgets)}, expected two ascending ones up to {max(epochs)}")
        if not objectives or objectives[0] != ACCURACY:
            raise ValueError(f"objectives are {', '.join(objectives)}: the first one is {ACCURACY}")
        self.budgets, self.objectives = tuple(budgets), tuple(objectives)
        accuracies, others = [epochs[budget] for budget in budgets], self.objectives[1:]
        self.true_values = TablePredictor(table, [*accuracies, *others])
        names = list(self.true_values.values)
        at_levels = [self.true_values.measured_values(names, (name, *others)) for name in accuracies]
        by_name = minimised(np.stack(at_levels, 1), self.objectives)
        self.values: dict[str, np.ndarray] = dict(zip(names, by_name, strict=True))
        full_space = search_spaces.get(table.rows[0].space)
        is_large = full_space.size is not None and len(names) >= MIN_SHARE * full_space.size
        self.space = (TableSpace if is_large else NeighbourSpace)(full_space, names)
        self.rlm = without_network(rlm, self.space.name)
        self.reference = table_reference(self.true_values, self.space.name, self.objectives)
        with_layers = any(name.startswith(LATENCY_PREFIX) for name in others)
        # Its features are of all searches.
        self._predictor = CachedPredictor(ObjectivePredictor(self.rlm), self.space, with_layers)

    def run(self, method: str, seed: int, num_trainings: float) -> Trainings:
        """Spend the cost of a number of full trainings.

        Args:
            method: one of `METHODS`.
            seed: seed of the method.
            num_trainings: full trainings whose epochs are spent.
        """
        is_full = method in (FULL, *ALGORITHMS)
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
        accuracies = -np.array([values[-1, 0] for values in self.values.values()])
        best = max((-float(self.values[name][-1, 0]) for name in complete), default=0.0)
        return StudyEvaluation(
            float(accuracies.max()) - best,
            self.true_values.relative_hypervolume(complete, self.objectives, self.reference),
            len(complete),
            len({name for _, name, _ in done}),
        )

    def _study(self, trainings: Trainings, seed: int) -> None:
        """Spend them as a study does, see `nas_rlm.study.suggestion`."""
        budgets, settings = trainings.budgets, SearchSettings(self.space.name, self.objectives, seed=seed)
        sources, learned = graph_surrogates(self.rlm.surrogates), self.objectives
        surrogate = (
            FidelitySurrogate(self._predictor, learned, sources, (ACCURACY,), budgets)
            if len(budgets) > 1
            else OnlineSurrogate(self._predictor, learned, sources)
        )
        pool = CandidatePool(self.space, seed)
        while True:
            if isinstance(surrogate, FidelitySurrogate):
                name = choose_next(surrogate, settings, pool=pool)
            else:
                name = next(iter(propose(surrogate, settings, 1, pool=pool)), None)
            if name is None or trainings.train(name) is None:
                return
            surrogate.update([self._row(name, trainings)])

    def _row(self, name: str, trainings: Trainings) -> Row:
        """An architecture with its values at all budgets so far."""
        at_levels = minimised(trainings.values[name], self.objectives)[: trainings.levels[name] + 1]
        accuracies = {
            level_name(ACCURACY, trainings.budgets, level): float(values[0])
            for level, values in enumerate(at_levels)
        }
        others = dict(zip(self.objectives[1:], at_levels[-1, 1:].tolist(), strict=True))
        return Row(self.space.name, name, accuracies | others)

    def _successive_halving(self, trainings: Trainings, seed: int) -> None:
        """Asynchronous successive halving of random architectures."""
        new = iter(np.random.default_rng(seed).permutation(sorted(self.space.names)).tolist())
        while True:
            name = promoted(trainings) or next(new, None)
            if name is None or trainings.train(name) is None:
                return

    def _algorithm(self, method: str, trainings: Trainings, seed: int) -> None:
        count = int(trainings.max_cost / self.budgets[-1])
        settings = SearchSettings(self.space.name, self.objectives, (), method, POPULATION, count, seed)
        algorithm = ALGORITHM_CLASSES[method](self.space, settings, ())
        while generation := algorithm.ask():
            values = [trainings.train(str(architecture)) for architecture in generation]
            measured = [of_architecture for of_architecture in values if of_architecture is not None]
            if len(measured) < len(generation):
                return
            algorithm.tell(np.stack(measured), np.zeros((len(generation), 0)))

    def _tpe(self, trainings: Trainings, seed: int) -> None:
        """Optuna's sampler TPE, whose trainings its pruner stops; with several objectives it stops none."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        first, second = trainings.budgets[:2]
        study = optuna.create_study(
            directions=[optuna.study.StudyDirection.MINIMIZE] * len(self.objectives),
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.SuccessiveHalvingPruner(first, round(second / first)),
        )
        genomes = np.array([self.space.encode(self.space.parse(name)) for name in self.space.names])
        is_new = np.ones(len(genomes), dtype=bool)
        while is_new.any():
            trial = study.ask()
            nearest = nearest_new(genomes, optuna_genes(trial, self.space), is_new)
            name = self.space.names[nearest]
            while (values := trainings.train(name)) is not None and not trainings.is_complete(name):
                if len(values) == 1:
                    trial.report(float(values[0]), trainings.budgets[trainings.levels[name]])
                    if trial.should_prune():
                        break
            if values is None:
                return
            if trainings.is_complete(name):
                study.tell(trial, values.tolist())
            else:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)


def promoted(trainings: Trainings) -> str | None:
    """Return the training that asynchronous successive halving continues, or None to start a new one.

    With several objectives, the best ones are first by non-dominated sorting.

    Source: Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning, algorithm 2.

    Args:
        trainings: trainings so far.
    """
    budgets = trainings.budgets
    for level in reversed(range(len(budgets) - 1)):
        reached = [name for name, highest in trainings.levels.items() if highest >= level]
        count = int(len(reached) * budgets[level] / budgets[level + 1])
        if not count:
            continue
        best = pareto_order(np.array([trainings.values[name][level] for name in reached]), count)
        for name in (reached[i] for i in best.tolist()):
            if trainings.levels[name] == level:
                return name
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
        Objectives, method, seed and cost, and the evaluation, as soon as each is available.

    Raises:
        ValueError: a method needs Optuna, which is not installed.
    """
    if TPE in schedule.methods:
        require("optuna", "a comparison with Optuna")
    objectives = " x ".join(benchmark.objectives)
    remaining = schedule.remaining(finished, [objectives])
    for method, seed in progress_bar(remaining, "studies", unit="search", disable=not progress):
        trainings = benchmark.run(method, seed, max(schedule.counts))
        for cost in schedule.counts:
            yield (objectives, method, seed, cost), benchmark.evaluate(trainings, cost)
