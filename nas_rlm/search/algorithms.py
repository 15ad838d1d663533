"""Search algorithms: each proposes a generation of architectures, then is told how good they are.

All of them go by a space's own operators, propose nothing twice, and hold all that fails for infeasible.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
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

from nas_rlm.search.pareto import unbeaten
from nas_rlm.search.settings import Settings
from search_spaces import SearchSpace

NEVER = 1e30  # cost of a network that does not run
ATTEMPTS = 100  # rounds of sampling that find nothing new before a space counts as exhausted
TOURNAMENT = 10  # of the living that compete to be a parent
MUTATIONS = 20  # of a parent that find nothing new, before it is given up


class Algorithm(Protocol):
    """How a search asks what to evaluate next."""

    def ask(self) -> list[Any]:
        """The next generation: new architectures, none when nothing new is found."""

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Learn what the generation asked for costs.

        Args:
            costs: [N, K], the smaller the better, NaN of what does not run.
            violations: of each constraint [N, C], feasible where none is above 0.
        """


class Random:
    """Uniform sampling without repetition.

    Args:
        space: where architectures come from.
        settings: of the search.
        known: architectures that the first generation has besides its own.
    """

    def __init__(self, space: SearchSpace[Any], settings: Settings, known: Sequence[Any] = ()) -> None:
        self.space, self.population = space, settings.population
        self.rng = np.random.default_rng(settings.seed)
        self.waiting = list(known)
        self.seen = set(map(str, known))

    def ask(self) -> list[Any]:
        """New architectures, none when the space seems exhausted."""
        return self.draw(self.population)

    def draw(self, count: int) -> list[Any]:
        """So many new architectures, or fewer when the space seems exhausted; and once what is known."""
        found: dict[str, Any] = {}
        misses = 0
        while len(found) < count and misses < ATTEMPTS * count:
            architecture = self.space.sample(self.rng)
            name = str(architecture)
            misses += name in self.seen
            if name not in self.seen:
                found[name] = architecture
                self.seen.add(name)
        known, self.waiting = self.waiting, []
        return [*found.values(), *known]

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Random search does not care."""


class Genetic:
    """A genetic algorithm of pymoo on a space's own operators.

    Args:
        space: where architectures come from.
        settings: of the search.
        known: architectures that the first generation has besides its own.
        kind: makes the algorithm of its parts.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: Settings,
        known: Sequence[Any],
        kind: Callable[..., GeneticAlgorithm],
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
        first = Random(space, settings, known).ask()
        self.unseen = _Unseen(space)
        self.algorithm = kind(
            pop_size=min(len(first), settings.population),
            sampling=np.array([space.encode(a) for a in first]),
            crossover=_Crossover(space),
            mutation=_Mutation(space, self.unseen),
            eliminate_duplicates=self.unseen,
            seed=settings.seed,
        )
        self.algorithm.setup(self.problem, termination=NoTermination())

    def ask(self) -> list[Any]:
        """New architectures, none when mating finds nothing new."""
        self.asked = self.algorithm.ask()
        return [] if self.asked is None else [self.space.decode(individual.X) for individual in self.asked]

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """See `Algorithm`."""
        fails = np.isnan(costs).any(axis=1, keepdims=True)
        judged = StaticProblem(
            self.problem,
            F=np.nan_to_num(costs, nan=NEVER),
            G=np.nan_to_num(np.hstack([violations, np.where(fails, NEVER, 0.0)]), nan=NEVER),
        )
        Evaluator().eval(judged, self.asked)
        self.unseen.remember(self.asked)
        self.algorithm.tell(infills=self.asked)


class Nsga2(Genetic):
    """NSGA-II. Source: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002."""

    def __init__(self, space: SearchSpace[Any], settings: Settings, known: Sequence[Any] = ()) -> None:
        super().__init__(space, settings, known, NSGA2)


class SmsEmoa(Genetic):
    """SMS-EMOA: who adds least hypervolume dies. Source: Beume et al. 2007."""

    def __init__(self, space: SearchSpace[Any], settings: Settings, known: Sequence[Any] = ()) -> None:
        super().__init__(space, settings, known, SMSEMOA)


class Nsga3(Genetic):
    """NSGA-III, for three objectives and more, with about as many reference directions as architectures.

    Source: Deb and Jain, "An evolutionary many-objective optimization algorithm", 2014.
    """

    def __init__(self, space: SearchSpace[Any], settings: Settings, known: Sequence[Any] = ()) -> None:
        def kind(**parts: Any) -> GeneticAlgorithm:
            count, cuts = len(settings.objectives), 1
            while count > 1 and math.comb(cuts + count, count - 1) <= parts["pop_size"]:
                cuts += 1
            return NSGA3(ref_dirs=get_reference_directions("das-dennis", count, n_partitions=cuts), **parts)

        super().__init__(space, settings, known, kind)


class Mutating:
    """What evolution and local search share: children by mutation, none of which was seen before."""

    def __init__(self, space: SearchSpace[Any], settings: Settings, known: Sequence[Any] = ()) -> None:
        self.space, self.population = space, settings.population
        self.random = Random(space, settings, known)
        self.rng = np.random.default_rng([settings.seed, 1])
        self.asked: list[Any] = []

    def child(self, parent: Any) -> Any | None:
        """A new architecture one mutation away, if one is found soon."""
        for _ in range(MUTATIONS):
            found = self.space.mutate(parent, self.rng)
            if str(found) not in self.random.seen:
                self.random.seen.add(str(found))
                return found
        return None


class Evolution(Mutating):
    """Regularised evolution: the best of a tournament has a child, and the oldest dies.

    Of several objectives the best are those that no other of the tournament beats.

    Source: Real et al., "Regularized evolution for image classifier architecture search", 2019.
    """

    def __init__(self, space: SearchSpace[Any], settings: Settings, known: Sequence[Any] = ()) -> None:
        super().__init__(space, settings, known)
        self.alive: deque[tuple[Any, np.ndarray, float]] = deque(maxlen=settings.population)

    def ask(self) -> list[Any]:
        """Children of tournaments; random architectures at first."""
        if not self.alive:
            self.asked = self.random.ask()
            return self.asked
        self.asked = []
        for _ in range(ATTEMPTS * self.population):
            if len(self.asked) == self.population:
                break
            born = self.child(self._parent())
            self.asked += [] if born is None else [born]
        return self.asked

    def _parent(self) -> Any:
        count = min(TOURNAMENT, len(self.alive))
        some = [self.alive[i] for i in self.rng.choice(len(self.alive), count, replace=False)]
        best = best_of(np.stack([costs for _, costs, _ in some]), np.array([excess for *_, excess in some]))
        return some[self.rng.choice(best)][0]

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """See `Algorithm`."""
        self.alive.extend(zip(self.asked, *judged(costs, violations), strict=True))


class Local(Mutating):
    """Local search: neighbours of those that none beats, each in turn, until there are no new ones.

    Source: White et al., "Local search is state of the art for neural architecture search benchmarks", 2021;
    of several objectives Paquete et al., "Pareto local optimum sets", 2004.
    """

    def __init__(self, space: SearchSpace[Any], settings: Settings, known: Sequence[Any] = ()) -> None:
        super().__init__(space, settings, known)
        self.known: list[Any] = []
        self.costs = np.empty((0, len(settings.objectives)))
        self.excess = np.empty(0)
        self.turns: dict[str, int] = {}

    def ask(self) -> list[Any]:
        """Neighbours of the best, of those first that had the fewest turns; without any, random ones."""
        self.asked = []
        best = [self.known[i] for i in best_of(self.costs, self.excess)]
        while best and len(self.asked) < self.population:
            parent = min(best, key=lambda a: self.turns.get(str(a), 0))
            self.turns[str(parent)] = self.turns.get(str(parent), 0) + 1
            born = self.child(parent)
            if born is None:
                best.remove(parent)
            else:
                self.asked.append(born)
        self.asked += self.random.draw(self.population - len(self.asked))
        return self.asked

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """See `Algorithm`."""
        costs, excess = judged(costs, violations)
        self.known += self.asked
        self.costs = np.concatenate([self.costs, costs])
        self.excess = np.concatenate([self.excess, excess])


def judged(costs: np.ndarray, violations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Costs [N, K] without NaN, and how far each architecture is from feasible [N]."""
    fails = np.isnan(costs).any(axis=1)
    excess = np.nan_to_num(violations, nan=NEVER).clip(min=0).sum(axis=1) + np.where(fails, NEVER, 0.0)
    return np.nan_to_num(costs, nan=NEVER), excess


def best_of(costs: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """Positions of those that no other beats: the feasible ones, or the one nearest to feasible."""
    feasible = np.flatnonzero(excess <= 0)
    if not len(feasible):
        return np.argsort(excess, kind="stable")[:1]
    return feasible[unbeaten(costs[feasible])]


KINDS: dict[str, Callable[[SearchSpace[Any], Settings, Sequence[Any]], Algorithm]] = {
    "nsga2": Nsga2,
    "nsga3": Nsga3,
    "sms-emoa": SmsEmoa,
    "evolution": Evolution,
    "local": Local,
    "random": Random,
}


class _Crossover(Crossover):
    def __init__(self, space: SearchSpace[Any]) -> None:
        super().__init__(n_parents=2, n_offsprings=2)
        self.space = space

    def _do(
        self, problem: Problem, X: np.ndarray, *args: Any, random_state: np.random.Generator, **kwargs: Any
    ) -> np.ndarray:
        children = []
        for a, b in (map(self.space.decode, pair) for pair in X.swapaxes(0, 1)):
            born = (self.space.crossover(*parents, random_state) for parents in ((a, b), (b, a)))
            children.append([self.space.encode(child) for child in born])
        return np.array(children).swapaxes(0, 1)


class _Mutation(Mutation):
    """The space's own; what was evaluated already is mutated further, as most are late in a search."""

    def __init__(self, space: SearchSpace[Any], unseen: _Unseen) -> None:
        super().__init__(prob=0.5)
        self.space, self.unseen = space, unseen

    def _do(
        self, problem: Problem, X: np.ndarray, *args: Any, random_state: np.random.Generator, **kwargs: Any
    ) -> np.ndarray:
        return np.array([self.space.encode(self._child(self.space.decode(x), random_state)) for x in X])

    def _child(self, parent: Any, rng: np.random.Generator) -> Any:
        child = self.space.mutate(parent, rng)
        for _ in range(MUTATIONS):
            if str(child) not in self.unseen.seen:
                break
            child = self.space.mutate(child, rng)
        return child


class _Unseen(DuplicateElimination):
    """Keeps what was never evaluated, so that every evaluation tells something new."""

    def __init__(self, space: SearchSpace[Any]) -> None:
        super().__init__()
        self.space = space
        self.seen: set[str] = set()
        self._known: dict[bytes, str] = {}

    def names(self, population: Population) -> list[str]:
        return [self._name(individual.X) for individual in population]

    def _name(self, genome: np.ndarray) -> str:
        key = genome.tobytes()  # the same ones are asked for often
        if key not in self._known:
            self._known[key] = str(self.space.decode(genome))
        return self._known[key]

    def remember(self, population: Population) -> None:
        self.seen.update(self.names(population))

    def do(self, pop: Population, *others: Population, **kwargs: Any) -> Population:
        taken = {name for other in others for name in self.names(other)}
        first: dict[str, int] = {}
        for i, name in enumerate(self.names(pop)):
            if name not in taken and name not in self.seen:
                first.setdefault(name, i)
        return pop[list(first.values())]
