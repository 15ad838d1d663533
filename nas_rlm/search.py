"""Multi-objective search: a space proposes architectures, a predictor judges them, a log remembers.

The log is the whole state. A search that was killed is replayed from it: the same seed proposes the same
architectures, their predictions are read instead of computed, and from where the log ends the search goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.crossover import Crossover
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.evaluator import Evaluator
from pymoo.core.mutation import Mutation
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.termination import NoTermination
from pymoo.problems.static import StaticProblem
from tqdm import tqdm

from nas_rlm.belief import LEAST
from nas_rlm.pareto import minimised, nondominated
from search_spaces import SearchSpace

QUANTILES = (0.1, 0.5, 0.9)
MEDIAN = QUANTILES.index(0.5)
NOTHING: Mapping[str, str] = MappingProxyType({})
NEVER = 1e30  # cost of a network that does not run
MEASURED, FAILED, PREDICTED = "measured", "failed", "predicted"
ATTEMPTS = 100  # rounds of sampling that find nothing new before a space counts as exhausted


class Predictor(Protocol):
    """What a search asks of a model; `nas_rlm.RLM` is one."""

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        """Quantiles of each objective of each architecture: float64 [N, K, Q]."""


class Log(Protocol):
    """Where a search keeps its evaluations; `nas_rlm.folder.SearchLog` is one."""

    def replay(self, architectures: Sequence[str]) -> np.ndarray | None:
        """What was predicted of these when they were evaluated before: [N, K, Q], or None."""

    def append(
        self, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str] = NOTHING
    ) -> None:
        """Remember a generation, and of some of it whether it was measured."""


@dataclass(frozen=True)
class Constraint:
    """A bound on a predicted median, in the objective's own unit.

    >>> Constraint.parse("latency/pixel3<=20")
    Constraint(objective='latency/pixel3', bound=20.0, is_upper=True)
    """

    objective: str
    bound: float
    is_upper: bool

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read `OBJECTIVE<=NUMBER` or `OBJECTIVE>=NUMBER`."""
        match = re.fullmatch(r"\s*([^<>=\s]+)\s*(<=|>=)\s*(\S+)\s*", text)
        try:
            if match is None:
                raise ValueError
            bound = float(match[3])
            if not np.isfinite(bound):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"constraint {text!r} is not OBJECTIVE<=NUMBER or OBJECTIVE>=NUMBER: try latency/pixel3<=20"
            ) from None
        return cls(match[1], bound, match[2] == "<=")

    def violation(self, values: np.ndarray) -> np.ndarray:
        """How far values [N] are on the wrong side, relative to the bound; feasible where not positive."""
        excess = values - self.bound if self.is_upper else self.bound - values
        return excess / (abs(self.bound) or 1.0)


@dataclass(frozen=True)
class Settings:
    """What decides a search, together with the model: the same settings give the same front.

    Args:
        space: name of the search space.
        objectives: what is optimised; accuracies upwards, all others downwards.
        constraints: bounds such as `latency/pixel3<=20`, on these or other objectives.
        algorithm: `nsga2` or `random`.
        population: architectures a generation.
        generations: rounds of evaluation.
        seed: of all random choices.
        model: fingerprint of the predictor.
        device: on which networks are measured meanwhile, such as `onnxruntime-cpu-1t`, if on any.
        budget: so many of them.
    """

    space: str
    objectives: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    algorithm: str = "nsga2"
    population: int = 50
    generations: int = 20
    seed: int = 0
    model: str = ""
    device: str = ""
    budget: int = 0

    def __post_init__(self) -> None:
        if not self.objectives:
            raise ValueError("a search needs at least one objective, such as accuracy,latency/pixel3")
        repeated = sorted({o for o in self.objectives if self.objectives.count(o) > 1})
        if repeated:
            raise ValueError(f"objective {repeated[0]!r} is given more than once")
        if self.algorithm not in ALGORITHMS:
            near = get_close_matches(self.algorithm, ALGORITHMS, n=1, cutoff=0)
            raise ValueError(f"no algorithm {self.algorithm!r}: did you mean {near[0]!r}?")
        sizes = {"population": 2, "generations": 1, "seed": 0, "budget": LEAST if self.device else 0}
        for name, least in sizes.items():
            if not isinstance(getattr(self, name), int) or isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected a whole number")
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least {least}")
        if self.seed >= 2**63:
            raise ValueError(f"seed is {self.seed}, expected less than 2**63")
        for constraint in self.constraints:
            Constraint.parse(constraint)
        if self.device and not self.measured:
            raise ValueError(
                f"nothing of {self.device} is among {', '.join(self.predicted)}:"
                f" expected latency/{self.device} or memory/{self.device}"
            )
        if self.budget and not self.device:
            raise ValueError(
                f"budget is {self.budget} on no device: expected a device to measure networks on"
            )

    @property
    def bounds(self) -> list[Constraint]:
        """The constraints, parsed."""
        return [Constraint.parse(c) for c in self.constraints]

    @property
    def predicted(self) -> tuple[str, ...]:
        """The objectives, then those that only a constraint names."""
        return tuple(dict.fromkeys([*self.objectives, *(b.objective for b in self.bounds)]))

    @property
    def measured(self) -> tuple[str, ...]:
        """Those of them that are measured on the device."""
        able = {f"{kind}/{self.device}" for kind in ("latency", "memory")} if self.device else set()
        return tuple(name for name in self.predicted if name in able)


@dataclass
class Result:
    """Every architecture that a search evaluated, in order.

    Args:
        settings: of the search.
        architectures: N strings.
        values: [N, K, Q] quantiles `QUANTILES` of `settings.predicted`, in the objectives' own units.
        status: `measured` of the architectures whose `settings.measured` are no predictions, `failed` of
            those that the device could not run, or that are like those.
    """

    settings: Settings
    architectures: list[str] = field(default_factory=list)
    values: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0)))
    status: Mapping[str, str] = field(default_factory=dict)

    def add(self, architectures: Sequence[str], values: np.ndarray) -> None:
        """Append a generation."""
        self.values = np.concatenate([self.values, values]) if self.architectures else values
        self.architectures.extend(architectures)

    @property
    def medians(self) -> np.ndarray:
        """Predicted medians [N, K]."""
        return self.values[:, :, MEDIAN]

    @property
    def feasible(self) -> np.ndarray:
        """Which architectures run and meet every constraint: bool [N]."""
        run = np.array([self.status.get(name) != FAILED for name in self.architectures], dtype=bool)
        return run & np.all(violations(self.settings, self.medians) <= 0, axis=1)

    @property
    def is_measured(self) -> np.ndarray:
        """Which architectures were measured: bool [N]."""
        return np.array([self.status.get(name) == MEASURED for name in self.architectures], dtype=bool)

    @property
    def front(self) -> np.ndarray:
        """Indices of the feasible architectures that no other beats, best in the first objective first."""
        rows = np.flatnonzero(self.feasible)
        objectives = self.settings.objectives
        medians = self.medians[rows, : len(objectives)]
        rows = rows[nondominated(medians, objectives)]
        return rows[np.lexsort(minimised(self.medians[rows, : len(objectives)], objectives).T[::-1])]


def search(
    space: SearchSpace[Any],
    predictor: Predictor,
    settings: Settings,
    log: Log | None = None,
    progress: bool = False,
    status: Callable[[Sequence[str]], Mapping[str, str]] | None = None,
) -> Result:
    """Search a space for the architectures that a predictor finds best.

    >>> import search_spaces
    >>> from nas_rlm import RLM
    >>> settings = Settings("nasbench201", ("accuracy", "latency/pixel3"), generations=5)
    >>> result = search(search_spaces.get("nasbench201"), RLM.load("nas"), settings)
    >>> best = result.architectures[result.front[0]]

    No architecture is evaluated twice. The search ends early when the algorithm finds nothing new.

    Args:
        space: where architectures come from.
        predictor: what judges them.
        settings: objectives, constraints, algorithm and its size.
        log: receives each generation, and is replayed first.
        progress: show a bar.
        status: of architectures, see `Result`; what fails is not bred from.
    """
    if space.size and settings.population > space.size:
        raise ValueError(
            f"population is {settings.population:,}, more than the {space.size:,} of {space.name}"
        )
    algorithm = ALGORITHMS[settings.algorithm](space, settings)
    result = Result(settings)
    total = settings.population * settings.generations
    with tqdm(total=total, desc="search", unit="net", disable=not progress) as bar:
        for _ in range(settings.generations):
            proposed = algorithm.ask()
            if not proposed:
                break
            names = [str(a) for a in proposed]
            known = status(names) if status else NOTHING
            values = log.replay(names) if log else None
            if values is None:
                values = predictor.predict(space, proposed, settings.predicted, quantiles=QUANTILES)
                if log:
                    log.append(names, values, known)
            medians = values[:, :, MEDIAN].copy()
            failed = [known.get(name) == FAILED for name in names]
            medians[failed] = np.nan
            algorithm.tell(medians)
            result.add(names, values)
            bar.update(len(names))
    return result


class Random:
    """Uniform sampling without repetition."""

    def __init__(self, space: SearchSpace[Any], settings: Settings) -> None:
        self.space, self.population = space, settings.population
        self.rng = np.random.default_rng(settings.seed)
        self.seen: set[str] = set()

    def ask(self) -> list[Any]:
        """The next generation: new architectures, none when the space seems exhausted."""
        found: dict[str, Any] = {}
        misses = 0
        while len(found) < self.population and misses < ATTEMPTS * self.population:
            architecture = self.space.sample(self.rng)
            name = str(architecture)
            misses += name in self.seen
            if name not in self.seen:
                found[name] = architecture
                self.seen.add(name)
        return list(found.values())

    def tell(self, medians: np.ndarray) -> None:
        """Learn the predicted medians [N, K] of the generation asked for; random search does not care."""


class Nsga2:
    """NSGA-II on a space's own operators.

    Source: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002.
    """

    def __init__(self, space: SearchSpace[Any], settings: Settings) -> None:
        self.space, self.settings = space, settings
        self.problem = Problem(
            n_var=len(space.genes),
            n_obj=len(settings.objectives),
            n_ieq_constr=len(settings.constraints),
            xl=0,
            xu=np.array(space.genes) - 1,
            vtype=int,
        )
        first = Random(space, settings).ask()
        self.unseen = _Unseen(space)
        self.algorithm = NSGA2(
            pop_size=len(first),
            sampling=np.array([space.encode(a) for a in first]),
            crossover=_Crossover(space),
            mutation=_Mutation(space),
            eliminate_duplicates=self.unseen,
            seed=settings.seed,
        )
        self.algorithm.setup(self.problem, termination=NoTermination())

    def ask(self) -> list[Any]:
        """The next generation: new architectures, none when mating finds nothing new."""
        self.asked = self.algorithm.ask()
        return [] if self.asked is None else [self.space.decode(individual.X) for individual in self.asked]

    def tell(self, medians: np.ndarray) -> None:
        """Learn the predicted medians [N, K] of the generation asked for, NaN of what does not run."""
        objectives = self.settings.objectives
        costs = minimised(medians[:, : len(objectives)], objectives)
        judged = StaticProblem(
            self.problem,
            F=np.nan_to_num(costs, nan=NEVER),
            G=np.nan_to_num(violations(self.settings, medians), nan=NEVER),
        )
        Evaluator().eval(judged, self.asked)
        self.unseen.remember(self.asked)
        self.algorithm.tell(infills=self.asked)


Algorithm = Random | Nsga2
ALGORITHMS: dict[str, Callable[[SearchSpace[Any], Settings], Algorithm]] = {"nsga2": Nsga2, "random": Random}


def violations(settings: Settings, medians: np.ndarray) -> np.ndarray:
    """How far values [N, K] are beyond each constraint: [N, constraints], see `Constraint.violation`."""
    columns = [b.violation(medians[:, settings.predicted.index(b.objective)]) for b in settings.bounds]
    return np.stack(columns, axis=1) if columns else np.zeros((len(medians), 0))


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
    def __init__(self, space: SearchSpace[Any]) -> None:
        super().__init__(prob=0.5)
        self.space = space

    def _do(
        self, problem: Problem, X: np.ndarray, *args: Any, random_state: np.random.Generator, **kwargs: Any
    ) -> np.ndarray:
        return np.array([self.space.encode(self.space.mutate(self.space.decode(x), random_state)) for x in X])


class _Unseen(DuplicateElimination):
    """Keeps what was never evaluated, so that every evaluation tells something new."""

    def __init__(self, space: SearchSpace[Any]) -> None:
        super().__init__()
        self.space = space
        self.seen: set[str] = set()

    def names(self, population: Population) -> list[str]:
        return [str(self.space.decode(individual.X)) for individual in population]

    def remember(self, population: Population) -> None:
        self.seen.update(self.names(population))

    def do(self, pop: Population, *others: Population, **kwargs: Any) -> Population:
        taken = self.seen.union(*(self.names(other) for other in others))
        first: dict[str, int] = {}
        for i, name in enumerate(self.names(pop)):
            if name not in taken:
                first.setdefault(name, i)
        return pop[list(first.values())]
