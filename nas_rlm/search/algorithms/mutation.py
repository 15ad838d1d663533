"""Algorithms that mutate single architectures: regularised evolution and local search."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from nas_rlm.search.algorithms.algorithm import (
    INFEASIBLE_COST,
    MAX_DUPLICATES,
    MAX_MUTATION_ATTEMPTS,
    nearest_new,
)
from nas_rlm.search.algorithms.random_search import RandomSearch
from nas_rlm.search.pareto import is_non_dominated
from nas_rlm.search.settings import SearchSettings
from search_spaces import SearchSpace

TOURNAMENT_SIZE = 10


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
                child = nearest_new(self.space, parent, self.random.proposed, self.rng)
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
