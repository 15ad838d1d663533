"""What is possible in a space, before anything is searched: how objectives range, who meets constraints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nas_rlm.search.algorithms import Random
from nas_rlm.search.loop import Predictor, search
from nas_rlm.search.settings import Settings
from search_spaces import SearchSpace

TRIES = 10  # generations that look for a feasible architecture where none was drawn


@dataclass(frozen=True)
class Feasibility:
    """What random architectures tell.

    Args:
        architectures: how many were drawn.
        ranges: of each objective least, median and most of the medians.
        shares: of the architectures that meet each constraint.
        share: of those that meet all.
    """

    architectures: int
    ranges: dict[str, tuple[float, float, float]]
    shares: dict[str, float]
    share: float

    def __str__(self) -> str:
        lines = [
            f"{f'of {self.architectures:,} random architectures':<40}{'least':>14}{'median':>14}{'most':>14}"
        ]
        for name, values in self.ranges.items():
            lines.append(f"{name:<40}" + "".join(f"{v:>14.6g}" for v in values))
        for name, share in self.shares.items():
            lines.append(f"{name:<40}{'met by':>14}{share:>14.1%}")
        if len(self.shares) > 1:
            lines.append(f"{'all constraints':<40}{'met by':>14}{self.share:>14.1%}")
        return "\n".join(lines)


def feasibility(
    space: SearchSpace[Any], predictor: Predictor, settings: Settings, count: int = 200
) -> Feasibility:
    """Draw architectures of a space and judge them.

    Args:
        space: where they come from.
        predictor: what judges them.
        settings: of the search that is to come.
        count: so many, or as many as there are.

    Raises:
        ValueError: none of them meets all constraints, nor does any that a short search for one finds.
    """
    drawn = Random(space, replace(settings, population=min(count, space.size or count))).ask()
    values = predictor.predict(space, drawn, settings.predicted, settings.quantiles)
    met = settings.violations(values) <= 0
    medians = settings.medians(values)
    spread = zip(medians.min(0), np.median(medians, 0), medians.max(0), strict=True)
    ranges = {
        name: (float(low), float(middle), float(high))
        for name, (low, middle, high) in zip(settings.predicted, spread, strict=True)
    }
    shares = {str(b): float(share) for b, share in zip(settings.bounds, met.mean(0), strict=True)}
    found = Feasibility(len(drawn), ranges, shares, float(met.all(1).mean()))
    if found.share == 0:
        _look_further(space, predictor, settings, values)
    return found


def _look_further(
    space: SearchSpace[Any], predictor: Predictor, settings: Settings, drawn: np.ndarray
) -> None:
    """Refuse constraints that nothing meets, after a short search for what does.

    Args:
        space: that is searched.
        predictor: what judges.
        settings: with the constraints.
        drawn: what was told of random architectures, [N, K, Q].
    """
    short = replace(settings, algorithm="nsga2", generations=TRIES)
    result = search(space, predictor, short)
    if result.feasible.any():
        return
    values = np.concatenate([drawn, result.values])
    nearest = values[settings.violations(values).clip(min=0).sum(1).argmin()]
    has = [f"{b.name} {settings.bounded(b, nearest[None])[0]:.4g}" for b in settings.bounds]
    raise ValueError(
        f"none of {len(values):,} architectures of {space.name} meets"
        f" {' and '.join(map(str, settings.bounds))}: the nearest has {', '.join(has)}"
    )
