"""Settings of a search: objectives, constraints, algorithm and size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, ClassVar

import numpy as np
from pydantic import ConfigDict, StrictInt

import search_spaces
from nas_rlm.data.objective_kinds import COST_KINDS, expected_value, kind_of
from nas_rlm.search.pareto import is_maximised, minimised
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.utils.schema import NO_OTHER_KEYS
from nas_rlm.utils.validation import as_list, is_whole_number
from search_spaces import SearchSpace

QUANTILE_LEVELS = (0.1, 0.5, 0.9)
MEDIAN_LEVEL = 0.5
MIN_POPULATION = 2
ALGORITHMS = ("nsga2", "nsga3", "sms-emoa", "evolution", "local", "random")


@dataclass(frozen=True)
class Constraint:
    """A bound on the median of an objective, or on another of its quantiles, in the objective's own unit.

    Examples:
        >>> Constraint.parse("latency/pixel3@0.9<=20")
        Constraint(objective='latency/pixel3', bound=20.0, is_upper=True, level=0.9)

    Args:
        objective: name of the objective.
        bound: largest or smallest feasible value.
        is_upper: whether `bound` is the largest feasible value.
        level: quantile level that the bound applies to.
    """

    objective: str
    bound: float
    is_upper: bool
    level: float = MEDIAN_LEVEL

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Parse `OBJECTIVE<=NUMBER` or `OBJECTIVE>=NUMBER`, optionally with `@QUANTILE` after the objective.

        Raises:
            ValueError: the text has another form, or no value of the objective's kind meets the bound.
        """
        match = re.fullmatch(r"\s*([^<>=@\s]+)(?:@([0-9.]+))?\s*(<=|>=)\s*(\S+)\s*", text)
        try:
            if match is None:
                raise ValueError
            bound, level = float(match[4]), float(match[2] or MEDIAN_LEVEL)
            if not np.isfinite(bound) or not 0 < level < 1:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"constraint {text!r} is not OBJECTIVE<=NUMBER or OBJECTIVE>=NUMBER: try latency/pixel3<=20,"
                " or latency/pixel3@0.9<=20 for a bound on the 0.9 quantile"
            ) from None
        constraint = cls(match[1], bound, match[3] == "<=", level)
        if not constraint.is_possible:
            raise ValueError(f"constraint {text!r} cannot be met: {match[1]} is {expected_value(match[1])}")
        return constraint

    @property
    def is_possible(self) -> bool:
        """Whether a value in the range of the objective's kind meets the bound."""
        kind = kind_of(self.objective)
        if self.is_upper:
            is_positive = kind.zero_is_missing and self.objective not in COST_KINDS
            return self.bound > 0 if is_positive else self.bound >= kind.minimum
        return self.bound <= min(kind.maximum, kind.max_plausible)

    @property
    def name(self) -> str:
        """The objective, with the quantile level unless it is the median: `latency/pixel3@0.9`."""
        return self.objective if self.level == MEDIAN_LEVEL else f"{self.objective}@{self.level:g}"

    @property
    def text(self) -> str:
        """The constraint as `parse` reads it, such as `latency/pixel3@0.9<=20`."""
        level = "" if self.level == MEDIAN_LEVEL else f"@{float(self.level)!r}"
        return f"{self.objective}{level}{'<=' if self.is_upper else '>='}{float(self.bound)!r}"

    def __str__(self) -> str:
        return f"{self.name} {'≤' if self.is_upper else '≥'} {self.bound:g}"

    def violation(self, values: np.ndarray) -> np.ndarray:
        """Return how far values [N] exceed the bound, relative to it: [N], feasible where not positive."""
        excess = values - self.bound if self.is_upper else self.bound - values
        return excess / (abs(self.bound) or 1.0)


def constraint_texts(constraints: Sequence[str | Constraint]) -> tuple[str, ...]:
    """Return constraints, or their texts, as texts."""
    return tuple(c.text if isinstance(c, Constraint) else c for c in as_list(constraints, "constraints"))


def check_measuring(device: str, budget: int, python: str) -> None:
    """Refuse incomplete arguments of a search that measures.

    Args:
        device: device on which networks are measured; empty for none.
        budget: number of networks to measure.
        python: command that starts Python where the networks run.

    Raises:
        ValueError: the budget or the device is missing.
    """
    if python and not device:
        raise ValueError(f"python is {python!r}, but nothing is measured: expected a device as well")
    if device and not budget:
        raise ValueError(f"no budget for {device}: expected the number of networks to measure, at least 10")


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search. Equal settings and an equal model give an equal front.

    Args:
        space: name of the search space.
        objectives: objectives to optimise; the kind of each decides its direction, see
            `nas_rlm.data.objective_kinds`, and those in `maximised` are maximised as well.
        constraints: bounds such as `latency/pixel3<=20`, on these or on other objectives.
        algorithm: one of `ALGORITHMS`.
        population: architectures per generation; all of a space that has fewer.
        generations: number of generations.
        seed: seed of all random choices.
        model: fingerprint of the predictor, of user functions and of labels.
        device: device on which networks are measured during the search, such as `onnxruntime-cpu-1t`; empty
            for none.
        budget: number of networks to measure on the device.
        maximised: objectives that are maximised although their kind is not.
        functions: user-defined objectives, such as `energy=mine.py:energy`.
        data: table of labels from earlier measurements; empty for none.
        location: `FILE.py:CLASS` or `MODULE:CLASS` of a space that is not registered; otherwise empty.

    Raises:
        ValueError: a setting is invalid, or two settings contradict each other.
    """

    space: str
    objectives: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    algorithm: str = "nsga2"
    population: StrictInt = 50
    generations: StrictInt = 20
    seed: StrictInt = 0
    model: str = ""
    device: str = ""
    budget: StrictInt = 0
    maximised: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    data: str = ""
    location: str = ""

    __pydantic_config__: ClassVar[ConfigDict] = NO_OTHER_KEYS  # applies where pydantic reads settings

    def __post_init__(self) -> None:
        if not self.objectives:
            raise ValueError("a search needs at least one objective, such as accuracy,latency/pixel3")
        repeated = sorted({o for o in self.objectives if self.objectives.count(o) > 1})
        if repeated:
            raise ValueError(f"objective {repeated[0]!r} is given more than once")
        for name in self.maximised:
            if name not in self.objectives:
                raise ValueError(f"{name!r} is to be maximised, but is not in {', '.join(self.objectives)}")
        if self.algorithm not in ALGORITHMS:
            near = get_close_matches(self.algorithm, ALGORITHMS, n=1, cutoff=0)
            raise ValueError(f"no algorithm {self.algorithm!r}: did you mean {near[0]!r}?")
        if self.algorithm == "sms-emoa" and len(self.objectives) < 2:
            raise ValueError("sms-emoa selects by hypervolume: expected at least two objectives")
        minima = {
            "population": MIN_POPULATION,
            "generations": 1,
            "seed": 0,
            "budget": MIN_LABELS if self.device else 0,
        }
        for name, minimum in minima.items():
            value = getattr(self, name)
            if not is_whole_number(value):
                raise ValueError(f"{name} is {value!r}, expected a whole number")
            object.__setattr__(self, name, int(value))  # JSON has no integers of NumPy
            if value < minimum:
                raise ValueError(f"{name} is {value}, expected at least {minimum}")
        if self.seed >= 2**63:
            raise ValueError(f"seed is {self.seed}, expected less than 2**63")
        for constraint in self.constraints:
            Constraint.parse(constraint)
        if self.device and not self.measured_objectives:
            raise ValueError(
                f"no objective of {self.device} is among {', '.join(self.all_objectives)}:"
                f" expected latency/{self.device} or memory/{self.device}"
            )
        if self.budget and not self.device:
            raise ValueError(f"budget is {self.budget} without a device: expected a device to measure on")

    def load_space(self) -> SearchSpace[Any]:
        """Return the search space.

        Raises:
            ValueError: it cannot be loaded.
        """
        is_known = not self.location or self.space in search_spaces.names()
        return search_spaces.get(self.space if is_known else self.location)

    def for_space(self, space: SearchSpace[Any]) -> SearchSettings:
        """Return the settings with a population of at most all architectures of a space.

        Raises:
            ValueError: the budget exceeds the space's size.
        """
        if space.size and self.budget > space.size:
            raise ValueError(
                f"budget is {self.budget:,}, expected at most {space.size:,}: {space.name} has no more"
                " architectures"
            )
        population = min(self.population, max(space.size or self.population, MIN_POPULATION))
        return replace(self, population=population)

    @property
    def parsed_constraints(self) -> list[Constraint]:
        """The constraints, parsed."""
        return [Constraint.parse(c) for c in self.constraints]

    @property
    def all_objectives(self) -> tuple[str, ...]:
        """The K objectives that are predicted: those to optimise, then those that only a constraint names."""
        constrained = (c.objective for c in self.parsed_constraints)
        return tuple(dict.fromkeys([*self.objectives, *constrained]))

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """The Q quantile levels that are predicted: `QUANTILE_LEVELS` and those of constraints, ascending."""
        return tuple(sorted({*QUANTILE_LEVELS, *(c.level for c in self.parsed_constraints)}))

    @property
    def measured_objectives(self) -> tuple[str, ...]:
        """Those of `all_objectives` that are measured on the device."""
        measurable = {f"{kind}/{self.device}" for kind in ("latency", "memory")} if self.device else set()
        return tuple(name for name in self.all_objectives if name in measurable)

    @property
    def has_measurements(self) -> bool:
        """Whether some architectures are measured, during the search or before it."""
        return bool(self.device or self.data)

    @property
    def without_measured(self) -> SearchSettings | None:
        """The settings without measured objectives and their constraints; None if no objective is left."""
        objectives = tuple(name for name in self.objectives if name not in self.measured_objectives)
        if not objectives:
            return None
        return replace(
            self,
            objectives=objectives,
            constraints=tuple(
                c for c in self.constraints if Constraint.parse(c).objective not in self.measured_objectives
            ),
            maximised=tuple(name for name in self.maximised if name in objectives),
            device="",
            budget=0,
        )

    def medians(self, values: np.ndarray) -> np.ndarray:
        """Return the medians [N, K] among quantiles [N, K, Q]."""
        return values[:, :, self.quantile_levels.index(MEDIAN_LEVEL)]

    def is_maximised(self, objective: str) -> bool:
        """Whether an objective is maximised."""
        return is_maximised(objective, self.maximised)

    def costs(self, medians: np.ndarray, objectives: Sequence[str] = ()) -> np.ndarray:
        """Return medians with maximised objectives negated, so that smaller is better.

        Args:
            medians: [N, K].
            objectives: names of the columns to return; by default the objectives to optimise.
        """
        names = objectives or self.objectives
        columns = [self.all_objectives.index(name) for name in names]
        return minimised(medians[:, columns], names, self.maximised)

    def constrained_values(self, constraint: Constraint, values: np.ndarray) -> np.ndarray:
        """Return the quantiles [N] that a constraint bounds, among quantiles [N, K, Q]."""
        column: np.ndarray = values[
            :, self.all_objectives.index(constraint.objective), self.quantile_levels.index(constraint.level)
        ]
        return column

    def violations(self, values: np.ndarray) -> np.ndarray:
        """Return how far quantiles [N, K, Q] violate each constraint: [N, C], see `Constraint.violation`."""
        columns = [c.violation(self.constrained_values(c, values)) for c in self.parsed_constraints]
        return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))
