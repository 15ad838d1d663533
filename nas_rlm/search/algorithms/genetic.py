"""Genetic algorithms of pymoo with a space's own variation operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

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

from nas_rlm.search.algorithms.algorithm import INFEASIBLE_COST, MAX_MUTATION_ATTEMPTS, nearest_new
from nas_rlm.search.algorithms.random_search import RandomSearch
from nas_rlm.search.settings import SearchSettings
from search_spaces import SearchSpace


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
            nearest = nearest_new(self.space, parent, self.duplicates.evaluated, rng)
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
