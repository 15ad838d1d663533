"""What decides a search: objectives, constraints, the algorithm and its size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np

from nas_rlm.search.pareto import is_maximised, minimised
from nas_rlm.surrogates.predictive import LEAST

QUANTILES = (0.1, 0.5, 0.9)
MEDIAN = 0.5
ALGORITHMS = ("nsga2", "nsga3", "sms-emoa", "evolution", "local", "random")


@dataclass(frozen=True)
class Constraint:
    """A bound on a number's median, or on another of its quantiles, in the number's own unit.

    >>> Constraint.parse("latency/pixel3@0.9<=20")
    Constraint(objective='latency/pixel3', bound=20.0, is_upper=True, level=0.9)
    """

    objective: str
    bound: float
    is_upper: bool
    level: float = MEDIAN

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read `OBJECTIVE<=NUMBER` or `OBJECTIVE>=NUMBER`, after the objective perhaps `@QUANTILE`."""
        match = re.fullmatch(r"\s*([^<>=@\s]+)(?:@([0-9.]+))?\s*(<=|>=)\s*(\S+)\s*", text)
        try:
            if match is None:
                raise ValueError
            bound, level = float(match[4]), float(match[2] or MEDIAN)
            if not np.isfinite(bound) or not 0 < level < 1:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"constraint {text!r} is not OBJECTIVE<=NUMBER or OBJECTIVE>=NUMBER: try latency/pixel3<=20,"
                " or latency/pixel3@0.9<=20 for what nine of ten are within"
            ) from None
        return cls(match[1], bound, match[3] == "<=", level)

    @property
    def name(self) -> str:
        """What it bounds: an objective, perhaps with a quantile, such as `latency/pixel3@0.9`."""
        return self.objective if self.level == MEDIAN else f"{self.objective}@{self.level:g}"

    def __str__(self) -> str:
        return f"{self.name} {'≤' if self.is_upper else '≥'} {self.bound:g}"

    def violation(self, values: np.ndarray) -> np.ndarray:
        """How far values [N] are on the wrong side, relative to the bound; feasible where not positive."""
        excess = values - self.bound if self.is_upper else self.bound - values
        return excess / (abs(self.bound) or 1.0)


@dataclass(frozen=True)
class Settings:
    """What decides a search, together with the model: the same settings give the same front.

    Args:
        space: name of the search space.
        objectives: what is optimised; accuracies upwards, all others but `maximised` downwards.
        constraints: bounds such as `latency/pixel3<=20`, on these or other objectives.
        algorithm: one of `ALGORITHMS`.
        population: architectures a generation.
        generations: rounds of evaluation.
        seed: of all random choices.
        model: fingerprint of the predictor.
        device: on which networks are measured meanwhile, such as `onnxruntime-cpu-1t`, if on any.
        budget: so many of them.
        maximised: objectives of the user's own that go upwards.
        functions: where they come from, such as `energy=mine.py:energy`.
        data: a table of what was measured before, if any.
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
    maximised: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    data: str = ""

    def __post_init__(self) -> None:
        if not self.objectives:
            raise ValueError("a search needs at least one objective, such as accuracy,latency/pixel3")
        repeated = sorted({o for o in self.objectives if self.objectives.count(o) > 1})
        if repeated:
            raise ValueError(f"objective {repeated[0]!r} is given more than once")
        for name in self.maximised:
            if name not in self.objectives:
                raise ValueError(f"{name!r} is to be maximised, but is none of {', '.join(self.objectives)}")
        if self.algorithm not in ALGORITHMS:
            near = get_close_matches(self.algorithm, ALGORITHMS, n=1, cutoff=0)
            raise ValueError(f"no algorithm {self.algorithm!r}: did you mean {near[0]!r}?")
        if self.algorithm == "sms-emoa" and len(self.objectives) < 2:
            raise ValueError("sms-emoa goes by hypervolume: expected two objectives at least")
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
    def quantiles(self) -> tuple[float, ...]:
        """Which quantiles of them are asked for: `QUANTILES`, and those that constraints name."""
        return tuple(sorted({*QUANTILES, *(b.level for b in self.bounds)}))

    @property
    def measured(self) -> tuple[str, ...]:
        """Those of them that are measured on the device."""
        able = {f"{kind}/{self.device}" for kind in ("latency", "memory")} if self.device else set()
        return tuple(name for name in self.predicted if name in able)

    @property
    def measures(self) -> bool:
        """Whether some architectures are measured, and not only predicted."""
        return bool(self.device or self.data)

    @property
    def told(self) -> Settings | None:
        """The same search of what need not be measured, if anything is optimised then."""
        left = tuple(name for name in self.objectives if name not in self.measured)
        if not left:
            return None
        return replace(
            self,
            objectives=left,
            constraints=tuple(
                c for c in self.constraints if Constraint.parse(c).objective not in self.measured
            ),
            maximised=tuple(name for name in self.maximised if name in left),
            device="",
            budget=0,
        )

    def medians(self, values: np.ndarray) -> np.ndarray:
        """The medians [N, K] among quantiles [N, K, Q]."""
        return values[:, :, self.quantiles.index(MEDIAN)]

    def is_maximised(self, objective: str) -> bool:
        """Whether more of it is better."""
        return is_maximised(objective, self.maximised)

    def costs(self, medians: np.ndarray, objectives: Sequence[str] = ()) -> np.ndarray:
        """Medians of objectives, by default of all [N, K], with the sign at which smaller is better."""
        names = objectives or self.objectives
        columns = [self.predicted.index(name) for name in names]
        return minimised(medians[:, columns], names, self.maximised)

    def bounded(self, constraint: Constraint, values: np.ndarray) -> np.ndarray:
        """What a constraint bounds, among quantiles [N, K, Q]: [N]."""
        found: np.ndarray = values[
            :, self.predicted.index(constraint.objective), self.quantiles.index(constraint.level)
        ]
        return found

    def violations(self, values: np.ndarray) -> np.ndarray:
        """How far quantiles [N, K, Q] are beyond each constraint: [N, constraints].

        See `Constraint.violation`.
        """
        columns = [b.violation(self.bounded(b, values)) for b in self.bounds]
        return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))
