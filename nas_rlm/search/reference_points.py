"""Reference points: how bad an objective of a space may be and still count in a hypervolume.

They are fixed and published in `assets/references.json`, so that hypervolumes of different searches compare.
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
LOW = 5  # percentile of an accuracy, below which no network is of use
MARGIN = 1.1  # a cost's reference point over the most of random architectures


@cache
def published(space: str) -> Mapping[str, float]:
    """The reference value of each objective of a space, in the objective's own unit.

    >>> published("nasbench201")["latency/pixel3"]
    40.0
    """
    found: dict[str, dict[str, float]] = json.loads(PUBLISHED.read_text())
    return found.get(space, {})


def reference(
    space: str,
    objectives: Sequence[str],
    ranges: Mapping[str, tuple[float, float, float]],
    maximised: Sequence[str] = (),
) -> list[float] | None:
    """The reference point of objectives: of those that are not published, the worst of random architectures.

    Args:
        space: name of the space.
        objectives: K names.
        ranges: least, median and most of random architectures, see `nas_rlm.search.feasibility`.
        maximised: objectives of a user's own that go upwards.

    Returns:
        K values, or None where nothing tells one of them.
    """
    worst = {name: low if is_maximised(name, maximised) else high for name, (low, _, high) in ranges.items()}
    known = {**worst, **published(space)}
    return [known[name] for name in objectives] if all(name in known for name in objectives) else None


def proposed(
    space: SearchSpace[Any], predictor: Predictor, objectives: Sequence[str], count: int, seed: int = 0
) -> dict[str, float]:
    """Reference values for objectives of a space, from random architectures.

    Of accuracies the `LOW` percentile, rounded down; of costs a tenth more than the most, rounded up to two
    digits.

    Args:
        space: where architectures are drawn.
        predictor: what judges them.
        objectives: their names.
        count: of architectures.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    drawn = [space.sample(rng) for _ in range(count)]
    medians = predictor.predict(space, drawn, objectives, (0.5,))[:, :, 0]
    return {
        name: _below(np.percentile(told, LOW)) if is_maximised(name) else _above(MARGIN * told.max())
        for name, told in zip(objectives, medians.T, strict=True)
    }


def _below(value: float) -> float:
    return float(math.floor(value))


def _above(value: float) -> float:
    """Rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 1.0
    return float(f"{math.ceil(value / unit) * unit:.2g}")
