"""How well predictions rank, and how honest their intervals are."""

from __future__ import annotations

import numpy as np
from scipy import stats


def spearman(predicted: np.ndarray, true: np.ndarray) -> float:
    """Spearman's rank correlation; 0 where either side is constant.

    >>> spearman(np.array([1, 2, 3]), np.array([10, 20, 40]))
    1.0
    """
    return _correlation(stats.spearmanr, predicted, true)


def kendall(predicted: np.ndarray, true: np.ndarray) -> float:
    """Kendall's tau-b; 0 where either side is constant.

    >>> kendall(np.array([1, 2, 3]), np.array([30, 20, 10]))
    -1.0
    """
    return _correlation(stats.kendalltau, predicted, true)


def coverage(low: np.ndarray, high: np.ndarray, true: np.ndarray) -> float:
    """The share of true values within their intervals, ends included.

    >>> coverage(np.array([0.0, 0.0]), np.array([1.0, 1.0]), np.array([0.5, 2.0]))
    0.5
    """
    return float(np.mean((low <= true) & (true <= high)))


def _correlation(measure: object, predicted: np.ndarray, true: np.ndarray) -> float:
    assert callable(measure)
    if len(true) < 2 or np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return 0.0
    return float(measure(predicted, true).statistic)
