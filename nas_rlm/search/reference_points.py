"""Reference points of hypervolumes: the worst value of each objective that still counts.

They are fixed in `assets/references.json`, so that hypervolumes of different searches are comparable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from nas_rlm.files import ASSETS
from nas_rlm.search.loop import Predictor
from nas_rlm.search.pareto import is_maximised
from search_spaces import SearchSpace

PUBLISHED = ASSETS / "references.json"
ACCURACY_PERCENTILE = 5  # of random architectures; the reference value of an accuracy
COST_MARGIN = 1.1  # reference value of a cost, relative to the maximum of random architectures


@cache
def published_reference_values(space: str) -> Mapping[str, float]:
    """Return the published reference values of a space by objective, in the objectives' own units.

    Examples:
        >>> published_reference_values("nasbench201")["latency/pixel3"]
        40.0
    """
    by_space: dict[str, dict[str, float]] = json.loads(PUBLISHED.read_text())
    return by_space.get(space, {})


def reference_point(
    space: str,
    objectives: Sequence[str],
    ranges: Mapping[str, tuple[float, float, float]],
    maximised: Sequence[str] = (),
) -> list[float] | None:
    """Return the reference point: published values, or else the worst of random architectures.

    Args:
        space: name of the space.
        objectives: K names.
        ranges: minimum, median and maximum of random architectures, see `nas_rlm.search.feasibility`.
        maximised: objectives that are maximised although their kind is not.

    Returns:
        K values, or None if an objective has neither.
    """
    worst = {name: low if is_maximised(name, maximised) else high for name, (low, _, high) in ranges.items()}
    values = {**worst, **published_reference_values(space)}
    return [values[name] for name in objectives] if all(name in values for name in objectives) else None


def propose_reference_values(
    space: SearchSpace[Any],
    predictor: Predictor,
    objectives: Sequence[str],
    num_architectures: int,
    seed: int = 0,
) -> dict[str, float]:
    """Return reference values to publish for objectives of a space, from random architectures.

    For an objective that is maximised it is the `ACCURACY_PERCENTILE`, rounded down; for a cost the maximum
    and a margin of a tenth of it, rounded up to two digits.

    Args:
        space: the search space.
        predictor: evaluates architectures.
        objectives: K names.
        num_architectures: number of random architectures.
        seed: seed of the sampling.
    """
    rng = np.random.default_rng(seed)
    sampled = [space.sample(rng) for _ in range(num_architectures)]
    medians = predictor.predict(space, sampled, objectives, (0.5,))[:, :, 0]
    values = {}
    for name, predictions in zip(objectives, medians.T, strict=True):
        if is_maximised(name):
            values[name] = float(math.floor(np.percentile(predictions, ACCURACY_PERCENTILE)))
        else:
            largest = predictions.max()
            values[name] = _rounded_up(largest + (COST_MARGIN - 1) * abs(largest))
    return values


def _rounded_up(value: float) -> float:
    """A value rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1) if value else 1.0
    return float(f"{math.ceil(value / unit) * unit:.2g}")
