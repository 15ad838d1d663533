"""Non-negative least squares of latencies on costs of layers, weighted so that relative errors count.

Few networks have each type of layer, and a network may have a type that no labelled one has. The
coefficients of a type are therefore close to those of similar types. A cost has a group, such as the
multiply-accumulates of all convolutions, and a wider group, such as those of all layers that multiply. The
coefficients of groups are fitted with the others, and a coefficient is near the sum of those of its groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NUM_FOLDS = 10  # of the cross-validation; with fewer rows each is left out on its own
RELATIVE_NOISE = 0.03  # standard deviation of a latency
RELATIVE_SPREAD = 0.3  # of the coefficients of a group
SHRINKAGE = 0.03  # weight of the contribution of groups to a latency in the objective
NUM_ROUNDS = 3  # in which the spread of coefficients follows from the coefficients of groups
MIN_SHARE = 1e-3  # of the latency of a network, that the spread of an unimportant coefficient allows
SMALLEST = 1e-12  # avoids division by zero


def fit_nonnegative(
    costs: np.ndarray,
    latencies: np.ndarray,
    groups: Sequence[Sequence[str]],
    relative_spread: float = RELATIVE_SPREAD,
) -> np.ndarray:
    """Return the coefficients of costs that are at least 0 and minimise relative errors.

    Examples:
        No network has the second cost. Its coefficient is near those of its group.

        >>> import numpy as np
        >>> costs = np.array([[1.0, 0.0], [4.0, 0.0], [8.0, 0.0]])
        >>> fit_nonnegative(costs, np.array([5.0, 14.0, 26.0]), [["conv"], ["conv"]]).round(2)
        array([2.  , 3.  , 2.85])

    Args:
        costs: costs of M networks, float64 [M, D].
        latencies: their latencies above 0, float64 [M].
        groups: names of the groups of each cost.
        relative_spread: standard deviation of the coefficients around those of their groups, relative to
            them.

    Returns:
        A constant and the coefficients, float64 [1 + D].
    """
    names = sorted({name for of_cost in groups for name in of_cost})
    membership = np.array([[float(name in of_cost) for name in names] for of_cost in groups], dtype=float)
    is_used = costs.any(0)
    weighted, members = costs[:, is_used] / latencies[:, None], membership[is_used]
    constant, targets = 1 / latencies[:, None], np.ones(len(latencies))
    num_used, shares = weighted.shape[1], weighted.mean(0)
    own_shares = weighted.sum(0) / (weighted > 0).sum(0)  # in the networks that have the cost
    ridge = np.diag(SHRINKAGE * (shares @ members))
    pooled = _solve([[constant, weighted @ members], [np.zeros((len(names), 1)), ridge]], targets)
    of_groups, own = pooled[1:], pooled[:1]
    for _ in range(NUM_ROUNDS):
        spreads = relative_spread * np.maximum(members @ of_groups, MIN_SHARE / own_shares)
        precisions = RELATIVE_NOISE / spreads
        blocks = [
            [constant, weighted, np.zeros((len(latencies), len(names)))],
            [np.zeros((num_used, 1)), np.diag(precisions), -members * precisions[:, None]],
            [np.zeros((len(names), 1 + num_used)), ridge],
        ]
        own, of_groups = np.split(_solve(blocks, targets), [1 + num_used])
    coefficients = np.concatenate([own[:1], membership @ of_groups])
    coefficients[1:][is_used] = own[1:]
    return coefficients


def predict_held_out(costs: np.ndarray, latencies: np.ndarray, groups: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the prediction of each latency from the others, by cross-validation, float64 [M].

    Args:
        costs: as for `fit_nonnegative`.
        latencies: as for `fit_nonnegative`.
        groups: as for `fit_nonnegative`.
    """
    folds = np.random.default_rng(0).permutation(len(latencies)) % min(NUM_FOLDS, len(latencies))
    predictions = np.empty(len(latencies))
    for fold in range(folds.max() + 1):
        held_out = folds == fold
        coefficients = fit_nonnegative(costs[~held_out], latencies[~held_out], groups)
        predictions[held_out] = coefficients[0] + costs[held_out] @ coefficients[1:]
    return predictions


def _solve(blocks: list[list[np.ndarray]], targets: np.ndarray) -> np.ndarray:
    """Return the non-negative solution of a system of equations whose last right-hand sides are 0."""
    from scipy.optimize import nnls  # is slow to import

    matrix = np.block(blocks)
    scales = np.linalg.norm(matrix, axis=0) + SMALLEST
    right = np.zeros(len(matrix))
    right[: len(targets)] = targets
    reduced = np.linalg.qr(np.column_stack([matrix / scales, right])).R
    solution: np.ndarray = nnls(reduced[:, :-1], reduced[:, -1], maxiter=50 * len(scales))[0] / scales
    return solution
