"""Search algorithms: each proposes a generation of architectures, then receives their costs.

All use the space's own variation operators, propose no architecture twice, and treat failed architectures as
infeasible.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np
from pymoo.algorithms.base.genetic import GeneticAlgorithm
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.algorithms.moo.nsga3 import NSGA3
from pymoo.algorithms.moo.sms import SMSEMOA
from pymoo.core.crossover import Crossover
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.evaluator import Evaluator
from pymoo.core.mutation import Mutation
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.termination import NoTermination
from pymoo.problems.static import StaticProblem
from pymoo.util.ref_dirs import get_reference_directions

from nas_rlm.search.pareto import is_non_dominated
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from search_spaces import SearchSpace

INFEASIBLE_COST = 1e30  # cost and constraint violation of a network that does not run
MAX_DUPLICATES = 100  # duplicates per requested architecture before a space counts as exhausted
TOURNAMENT_SIZE = 10
MAX_MUTATION_ATTEMPTS = 20  # mutations of a parent that yield only known architectures


class Algorithm(Protocol):
    """A search algorithm with an ask-and-tell interface."""

    def ask(self) -> list[Any]:
        """Return the next generation: new architectures, none when no new one is found."""

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Receive the evaluation of the generation that `ask` returned last.

        Args:
            costs: [N, K], smaller is better; NaN for an architecture that failed.
            violations: violation of each constraint [N, C], feasible where not positive.
        """


class RandomSearch:
    """Uniform sampling without repetition.

    Args:
        space: the search space.
        settings: settings of the search.
        initial_architectures: returned with the first generation, besides the sampled ones.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any] = (),
    ) -> None:
        self.space, self.population = space, settings.population
        self.rng = np.random.default_rng(settings.seed)
        self.initial_architectures = list(initial_architectures)
        self.proposed = set(map(str, initial_architectures))

    def ask(self) -> list[Any]:
        """Return new architectures, none when the space seems exhausted."""
        return self.sample(self.population)

    def sample(self, count: int) -> list[Any]:
        """Return `count` new architectures, fewer when the space seems exhausted.

        The first call returns the initial architectures as well.
        """
        sampled: dict[str, Any] = {}
        duplicates = 0
        while len(sampled) < count and duplicates < MAX_DUPLICATES * count:
            architecture = self.space.sample(self.rng)
            name = str(architecture)
            duplicates += name in self.proposed
            if name not in self.proposed:
                sampled[name] = architecture
                self.proposed.add(name)
        initial_architectures, self.initial_architectures = self.initial_architectures, []
        return [*sampled.values(), *initial_architectures]

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Ignore the evaluation: random search does not adapt."""


class GeneticSearch:
    """A genetic algorithm of pymoo with a space's own variation operators.

    Args:
        space: the search space.
        settings: settings of the search.
        initial_architectures: part of the first generation, besides the sampled ones.
        create: returns the pymoo algorithm for its keyword arguments.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any],
        create: Callable[..., GeneticAlgorithm],
    ) -> None:
        self.space = space
        self.problem = Problem(
            n_var=len(space.genes),
            n_obj=len(settings.objectives),
            n_ieq_constr=len(settings.constraints) + 1,
            xl=0,
            xu=np.array(space.genes) - 1,
            vtype=int,
        )
        first_generation = RandomSearch(space, settings, initial_architectures).ask()
        self.duplicates = _EvaluatedFilter(space)
        self.algorithm = create(
            pop_size=min(len(first_generation), settings.population),
            sampling=np.array([space.encode(a) for a in first_generation]),
            crossover=_SpaceCrossover(space),
            mutation=_SpaceMutation(space, self.duplicates),
            eliminate_duplicates=self.duplicates,
            seed=settings.seed,
        )
        self.algorithm.setup(self.problem, termination=NoTermination())

    def ask(self) -> list[Any]:
        """Return new architectures, none when mating yields no new one."""
        self.generation = self.algorithm.ask()
        if self.generation is None:
            return []
        return [self.space.decode(individual.X) for individual in self.generation]

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Receive the evaluation, see `Algorithm`."""
        fails = np.isnan(costs).any(axis=1, keepdims=True)
        evaluation = StaticProblem(
            self.problem,
            F=np.nan_to_num(costs, nan=INFEASIBLE_COST),
            G=np.nan_to_num(
                np.hstack([violations, np.where(fails, INFEASIBLE_COST, 0.0)]), nan=INFEASIBLE_COST
            ),
        )
        Evaluator().eval(evaluation, self.generation)
        self.duplicates.add(self.generation)
        self.algorithm.tell(infills=self.generation)


class Nsga2(GeneticSearch):
    """NSGA-II. Source: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002."""

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any] = (),
    ) -> None:
        super().__init__(space, settings, initial_architectures, NSGA2)


class SmsEmoa(GeneticSearch):
    """SMS-EMOA: selection by hypervolume contribution. Source: Beume et al., 2007."""

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any] = (),
    ) -> None:
        super().__init__(space, settings, initial_architectures, SMSEMOA)


class Nsga3(GeneticSearch):
    """NSGA-III, for three or more objectives, with at most as many reference directions as architectures.

    Source: Deb and Jain, "An evolutionary many-objective optimization algorithm", 2014.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any] = (),
    ) -> None:
        def create(**arguments: Any) -> GeneticAlgorithm:
            num_objectives, partitions = len(settings.objectives), 1
            while (
                num_objectives > 1
                and math.comb(partitions + num_objectives, num_objectives - 1) <= arguments["pop_size"]
            ):
                partitions += 1
            directions = get_reference_directions("das-dennis", num_objectives, n_partitions=partitions)
            return NSGA3(ref_dirs=directions, **arguments)

        super().__init__(space, settings, initial_architectures, create)


class MutationSearch:
    """Base of algorithms that propose mutated architectures, none of them twice.

    Args:
        space: the search space.
        settings: settings of the search.
        initial_architectures: part of the first generation, besides the sampled ones.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any] = (),
    ) -> None:
        self.space, self.population = space, settings.population
        self.random = RandomSearch(space, settings, initial_architectures)
        self.rng = np.random.default_rng([settings.seed, 1])
        self.generation: list[Any] = []

    def mutated(self, parent: Any) -> Any | None:
        """Return a new architecture one mutation away, or None after `MAX_MUTATION_ATTEMPTS`."""
        for _ in range(MAX_MUTATION_ATTEMPTS):
            child = self.space.mutate(parent, self.rng)
            if str(child) not in self.random.proposed:
                self.random.proposed.add(str(child))
                return child
        return None


class RegularisedEvolution(MutationSearch):
    """Regularised evolution: the winner of a tournament is mutated, and the oldest architecture is removed.

    With several objectives the winners are the non-dominated architectures of the tournament.

    Source: Real et al., "Regularized evolution for image classifier architecture search", 2019.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any] = (),
    ) -> None:
        super().__init__(space, settings, initial_architectures)
        self.alive: deque[tuple[Any, np.ndarray, float]] = deque(maxlen=settings.population)

    def ask(self) -> list[Any]:
        """Return mutated winners of tournaments; random architectures at first."""
        if not self.alive:
            self.generation = self.random.ask()
            return self.generation
        self.generation = []
        for _ in range(MAX_DUPLICATES * self.population):
            if len(self.generation) == self.population:
                break
            parent = self._select_parent()
            child = self.mutated(parent)
            if child is None:
                child = _nearest_new(self.space, parent, self.random.proposed, self.rng)
            if child is not None:
                self.random.proposed.add(str(child))
                self.generation.append(child)
        return self.generation

    def _select_parent(self) -> Any:
        """The winner of a tournament."""
        size = min(TOURNAMENT_SIZE, len(self.alive))
        entrants = [self.alive[i] for i in self.rng.choice(len(self.alive), size, replace=False)]
        winners = best_indices(
            np.stack([costs for _, costs, _ in entrants]), np.array([violation for *_, violation in entrants])
        )
        return entrants[self.rng.choice(winners)][0]

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Receive the evaluation, see `Algorithm`."""
        self.alive.extend(zip(self.generation, *penalised(costs, violations), strict=True))


class LocalSearch(MutationSearch):
    """Local search: neighbours of the non-dominated architectures, in turn, until none is new.

    Source: White et al., "Local search is state of the art for neural architecture search benchmarks", 2021;
    for several objectives Paquete et al., "Pareto local optimum sets", 2004.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any] = (),
    ) -> None:
        super().__init__(space, settings, initial_architectures)
        self.evaluated: list[Any] = []
        self.costs = np.empty((0, len(settings.objectives)))
        self.total_violations = np.empty(0)
        self.times_mutated: dict[str, int] = {}

    def ask(self) -> list[Any]:
        """Return neighbours of the best, least mutated parents first; random architectures fill up."""
        self.generation = []
        parents = [self.evaluated[i] for i in best_indices(self.costs, self.total_violations)]
        while parents and len(self.generation) < self.population:
            parent = min(parents, key=lambda a: self.times_mutated.get(str(a), 0))
            self.times_mutated[str(parent)] = self.times_mutated.get(str(parent), 0) + 1
            child = self.mutated(parent)
            if child is None:
                parents.remove(parent)
            else:
                self.generation.append(child)
        self.generation += self.random.sample(self.population - len(self.generation))
        return self.generation

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Receive the evaluation, see `Algorithm`."""
        costs, total_violations = penalised(costs, violations)
        self.evaluated += self.generation
        self.costs = np.concatenate([self.costs, costs])
        self.total_violations = np.concatenate([self.total_violations, total_violations])


def _nearest_new(
    space: SearchSpace[Any], parent: Any, known: Collection[str], rng: np.random.Generator
) -> Any | None:
    """Return the candidate that is nearest to a parent and new, where a search has given candidates.

    If these are a small part of the space, mutations of a parent lead to few of them.
    """
    return space.nearest(parent, known, rng) if isinstance(space, TableSpace) else None


def penalised(costs: np.ndarray, violations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace the costs of failed architectures and sum constraint violations.

    Args:
        costs: [N, K], NaN for architectures that failed.
        violations: [N, C].

    Returns:
        Costs [N, K] without NaN, and the total violation of each architecture [N].
    """
    fails = np.isnan(costs).any(axis=1)
    total = np.nan_to_num(violations, nan=INFEASIBLE_COST).clip(min=0).sum(axis=1)
    return np.nan_to_num(costs, nan=INFEASIBLE_COST), total + np.where(fails, INFEASIBLE_COST, 0.0)


def best_indices(costs: np.ndarray, total_violations: np.ndarray) -> np.ndarray:
    """Return the indices of the feasible non-dominated rows, or of the row with the least violation.

    Args:
        costs: [N, K].
        total_violations: [N], feasible where not positive.
    """
    feasible = np.flatnonzero(total_violations <= 0)
    if not len(feasible):
        return np.argsort(total_violations, kind="stable")[:1]
    return feasible[is_non_dominated(costs[feasible])]


ALGORITHM_CLASSES: dict[str, Callable[[SearchSpace[Any], SearchSettings, Sequence[Any]], Algorithm]] = {
    "nsga2": Nsga2,
    "nsga3": Nsga3,
    "sms-emoa": SmsEmoa,
    "evolution": RegularisedEvolution,
    "local": LocalSearch,
    "random": RandomSearch,
}


class _SpaceCrossover(Crossover):
    """The space's crossover, on genomes."""

    def __init__(self, space: SearchSpace[Any]) -> None:
        super().__init__(n_parents=2, n_offsprings=2)
        self.space = space

    def _do(
        self, problem: Problem, X: np.ndarray, *args: Any, random_state: np.random.Generator, **kwargs: Any
    ) -> np.ndarray:
        offspring = []
        for a, b in (map(self.space.decode, pair) for pair in X.swapaxes(0, 1)):
            children = (self.space.crossover(*parents, random_state) for parents in ((a, b), (b, a)))
            offspring.append([self.space.encode(child) for child in children])
        return np.array(offspring).swapaxes(0, 1)


class _SpaceMutation(Mutation):
    """The space's mutation, on genomes; children that were evaluated before are mutated further.

    Late in a search most children were evaluated before.
    """

    def __init__(self, space: SearchSpace[Any], duplicates: _EvaluatedFilter) -> None:
        super().__init__(prob=0.5)
        self.space, self.duplicates = space, duplicates

    def _do(
        self, problem: Problem, X: np.ndarray, *args: Any, random_state: np.random.Generator, **kwargs: Any
    ) -> np.ndarray:
        return np.array([self.space.encode(self._mutate(self.space.decode(x), random_state)) for x in X])

    def _mutate(self, parent: Any, rng: np.random.Generator) -> Any:
        child = self.space.mutate(parent, rng)
        for _ in range(MAX_MUTATION_ATTEMPTS):
            if str(child) not in self.duplicates.evaluated:
                break
            child = self.space.mutate(child, rng)
        if str(child) in self.duplicates.evaluated:
            nearest = _nearest_new(self.space, parent, self.duplicates.evaluated, rng)
            return child if nearest is None else nearest
        return child


class _EvaluatedFilter(DuplicateElimination):
    """Removes architectures that were evaluated before, and duplicates within a generation."""

    def __init__(self, space: SearchSpace[Any]) -> None:
        super().__init__()
        self.space = space
        self.evaluated: set[str] = set()
        self._names: dict[bytes, str] = {}  # genomes recur often, and decoding is slow

    def names(self, population: Population) -> list[str]:
        """Return the architectures of a population as texts."""
        return [self._name(individual.X) for individual in population]

    def _name(self, genome: np.ndarray) -> str:
        key = genome.tobytes()
        if key not in self._names:
            self._names[key] = str(self.space.decode(genome))
        return self._names[key]

    def add(self, population: Population) -> None:
        """Record a population as evaluated."""
        self.evaluated.update(self.names(population))

    def do(self, pop: Population, *others: Population, **kwargs: Any) -> Population:
        """Return the individuals of `pop` that are new and in none of `others`."""
        present = {name for other in others for name in self.names(other)}
        first_index: dict[str, int] = {}
        for i, name in enumerate(self.names(pop)):
            if name not in present and name not in self.evaluated:
                first_index.setdefault(name, i)
        return pop[list(first_index.values())]
