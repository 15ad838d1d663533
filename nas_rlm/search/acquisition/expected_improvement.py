"""Expected hypervolume improvement: what a measurement is expected to add to a measured front.

Source: Emmerich et al. 2011, "Hypervolume-based expected improvement: monotonicity properties and exact
computation". The non-dominated region is divided into boxes. Since predictions of different objectives are
independent, the expected volume that a candidate adds within a box is a product over objectives.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nas_rlm.search.pareto import is_non_dominated

MAX_ELEMENTS = 2_000_000  # of an intermediate array


def expected_improvement(
    front: np.ndarray, reference: np.ndarray, costs: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
    """Return the expected hypervolume that each candidate adds to a front, under minimisation.

    With one objective it is the expected improvement over the best cost.

    Examples:
        >>> import numpy as np
        >>> front, reference = np.array([[1.0, 2.0]]), np.array([3.0, 3.0])
        >>> candidates = np.array([[[2.0, 2.0], [1.0, 1.0]], [[2.0, 2.0], [2.5, 2.5]]])
        >>> expected_improvement(front, reference, candidates, np.array([0.5, 0.5]))
        array([1., 0.])

    Args:
        front: costs of F measured architectures, float64 [F, K]; F may be 0.
        reference: reference point, float64 [K].
        costs: possible costs of N candidates in each objective, independent of each other, float64 [N, K, S];
            infinite where a constraint is violated.
        probabilities: their probabilities, float64 [S].

    Returns:
        float64 [N].
    """
    lower, upper = _non_dominated_boxes(front, reference)
    num_candidates, num_objectives, num_samples = costs.shape
    gains = np.empty(num_candidates)
    step = max(1, MAX_ELEMENTS // (len(lower) * num_samples))
    for start in range(0, num_candidates, step):
        volumes = np.ones((len(costs[start : start + step]), len(lower)))
        for k in range(num_objectives):
            corner = np.maximum(costs[start : start + step, k, None, :], lower[:, k, None])
            volumes *= np.clip(upper[:, k, None] - corner, 0, None) @ probabilities
        gains[start : start + step] = volumes.sum(1)
    return gains


def _non_dominated_boxes(front: np.ndarray, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide the region below the reference point that no point of a front dominates into B boxes.

    The region is cut into slabs at the points' last costs; the points below a slab bound its boxes in the
    other objectives.

    Returns:
        Lower and upper corners, each float64 [B, K]; lower ones may be minus infinity.
    """
    num_objectives = len(reference)
    points = front[(front < reference).all(1)]
    points = points[is_non_dominated(points)]
    if num_objectives == 1:
        best = min([float(reference[0]), *points[:, 0]])
        return np.full((1, 1), -np.inf), np.full((1, 1), best)
    points = points[np.argsort(points[:, -1], kind="stable")]
    cuts = [-np.inf, *points[:, -1], reference[-1]]
    lower: list[np.ndarray] = []
    upper: list[np.ndarray] = []
    for i, (low, high) in enumerate(pairwise(cuts)):
        if low < high:
            bounds = _non_dominated_boxes(points[:i, :-1], reference[:-1])
            for corners, boxes, cut in zip((lower, upper), bounds, (low, high), strict=True):
                corners.append(np.column_stack([boxes, np.full(len(boxes), cut)]))
    return np.concatenate(lower), np.concatenate(upper)
