"""Non-negative least squares of latencies on costs, weighted so that relative errors count."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

NUM_FOLDS = 20  # of the cross-validation; with fewer rows each is left out on its own


def fit_nonnegative(costs: np.ndarray, latencies: np.ndarray) -> np.ndarray:
    """Return the coefficients of costs that are at least 0 and minimise relative errors.

    Examples:
        >>> import numpy as np
        >>> costs = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 4.0]])
        >>> fit_nonnegative(costs, np.array([2.0, 5.0, 14.0])).round(6)
        array([2., 3.])

    Args:
        costs: costs of M networks, float64 [M, D].
        latencies: their latencies above 0, float64 [M].

    Returns:
        float64 [D]; 0 for costs that are 0 in all networks.
    """
    weighted = costs / latencies[:, None]
    scales = weighted.max(0, initial=0)
    is_used = scales > 0
    coefficients = np.zeros(costs.shape[1])
    coefficients[is_used] = (
        nnls(weighted[:, is_used] / scales[is_used], np.ones(len(latencies)))[0] / scales[is_used]
    )
    return coefficients


def predict_held_out(costs: np.ndarray, latencies: np.ndarray) -> np.ndarray:
    """Return the prediction of each latency from the others, by cross-validation, float64 [M].

    Args:
        costs: as for `fit_nonnegative`.
        latencies: as for `fit_nonnegative`.
    """
    folds = np.random.default_rng(0).permutation(len(latencies)) % min(NUM_FOLDS, len(latencies))
    predictions = np.empty(len(latencies))
    for fold in range(folds.max() + 1):
        held_out = folds == fold
        coefficients = fit_nonnegative(costs[~held_out], latencies[~held_out])
        predictions[held_out] = costs[held_out] @ coefficients
    return predictions
