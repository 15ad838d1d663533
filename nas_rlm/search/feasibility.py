"""Feasibility of a search: ranges of objectives and share of feasible architectures, by random sampling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nas_rlm.search.algorithms.random_search import RandomSearch
from nas_rlm.search.loop import Predictor, search
from nas_rlm.search.settings import SearchSettings
from search_spaces import SearchSpace

FALLBACK_GENERATIONS = 10  # of the search for a feasible architecture where no random one is feasible


@dataclass(frozen=True)
class Feasibility:
    """Statistics of random architectures of a space.

    Args:
        num_architectures: number of random architectures.
        ranges: by objective, the minimum, median and maximum of the predicted medians.
        constraint_rates: by constraint, the share of architectures that meet it.
        feasible_rate: share of architectures that meet all constraints.
    """

    num_architectures: int
    ranges: dict[str, tuple[float, float, float]]
    constraint_rates: dict[str, float]
    feasible_rate: float

    def __str__(self) -> str:
        title = f"of {self.num_architectures:,} random architectures"
        lines = [f"{title:<40}{'min':>14}{'median':>14}{'max':>14}"]
        for name, values in self.ranges.items():
            lines.append(f"{name:<40}" + "".join(f"{v:>14.6g}" for v in values))
        for name, rate in self.constraint_rates.items():
            lines.append(f"{name:<40}{'met by':>14}{rate:>14.1%}")
        if len(self.constraint_rates) > 1:
            lines.append(f"{'all constraints':<40}{'met by':>14}{self.feasible_rate:>14.1%}")
        return "\n".join(lines)


def estimate_feasibility(
    space: SearchSpace[Any], predictor: Predictor, settings: SearchSettings, num_architectures: int = 200
) -> Feasibility:
    """Predict random architectures of a space, and check that some architecture meets all constraints.

    Args:
        space: the search space.
        predictor: evaluates architectures.
        settings: settings of the search that follows.
        num_architectures: number of random architectures, at most the size of the space.

    Returns:
        Ranges of the objectives and shares of feasible architectures.

    Raises:
        ValueError: no random architecture is feasible, and a short search finds no feasible one either.
    """
    sampled_settings = replace(settings, population=num_architectures).for_space(space)
    sampled = RandomSearch(space, sampled_settings).ask()
    values = predictor.predict(space, sampled, settings.all_objectives, settings.quantile_levels)
    is_met = settings.violations(values) <= 0
    medians = settings.medians(values)
    statistics = zip(medians.min(0), np.median(medians, 0), medians.max(0), strict=True)
    ranges = {
        name: (float(low), float(median), float(high))
        for name, (low, median, high) in zip(settings.all_objectives, statistics, strict=True)
    }
    rates = zip(settings.parsed_constraints, is_met.mean(0), strict=True)
    constraint_rates = {str(constraint): float(rate) for constraint, rate in rates}
    feasibility = Feasibility(len(sampled), ranges, constraint_rates, float(is_met.all(1).mean()))
    if feasibility.feasible_rate == 0:
        _search_feasible(space, predictor, settings, values)
    return feasibility


def _search_feasible(
    space: SearchSpace[Any], predictor: Predictor, settings: SearchSettings, sampled_values: np.ndarray
) -> None:
    """Search for a feasible architecture.

    Args:
        space: the search space.
        predictor: evaluates architectures.
        settings: settings with the constraints.
        sampled_values: predictions of the random architectures [N, K, Q].

    Raises:
        ValueError: no architecture found is feasible; names the nearest one's values.
    """
    short_settings = replace(settings, algorithm="nsga2", generations=FALLBACK_GENERATIONS)
    result = search(space, predictor, short_settings)
    if result.feasible.any():
        return
    values = np.concatenate([sampled_values, result.values])
    nearest = values[settings.violations(values).clip(min=0).sum(1).argmin()]
    constraints = settings.parsed_constraints
    nearest_values = [f"{c.name} {settings.constrained_values(c, nearest[None])[0]:.4g}" for c in constraints]
    raise ValueError(
        f"none of {len(values):,} architectures of {space.name} meets"
        f" {' and '.join(map(str, constraints))}: the nearest has {', '.join(nearest_values)}"
    )
