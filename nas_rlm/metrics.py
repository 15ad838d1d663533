"""Rank correlation of predictions and coverage of their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MIN_UNEXPLAINED = 1e-9  # product of shares of variance of ranks


def spearman(predicted: np.ndarray, true: np.ndarray) -> float:
    """Return Spearman's rank correlation; 0 if an input is constant or shorter than 2.

    Examples:
        >>> spearman(np.array([1, 2, 3]), np.array([10, 20, 40]))
        1.0

    Args:
        predicted: predictions [N].
        true: labels [N].
    """
    return _correlation("spearmanr", predicted, true)


def kendall(predicted: np.ndarray, true: np.ndarray) -> float:
    """Return Kendall's tau-b; 0 if an input is constant or shorter than 2.

    Examples:
        >>> kendall(np.array([1, 2, 3]), np.array([30, 20, 10]))
        -1.0

    Args:
        predicted: predictions [N].
        true: labels [N].
    """
    return _correlation("kendalltau", predicted, true)


def partial_spearman(predicted: np.ndarray, true: np.ndarray, known: np.ndarray) -> float:
    """Return Spearman's rank correlation of what a known quantity does not explain of both inputs.

    It is the correlation of the residuals of their ranks after a line in the ranks of the known quantity; 0
    where nothing is left.

    Examples:
        >>> size, rest = np.array([1, 2, 3, 4, 5, 6]), np.array([0, 1, 0, 0, 1, 0])
        >>> round(partial_spearman(size + 1.5 * rest, size + 2.5 * rest, size), 2)
        0.88

    Args:
        predicted: predictions [N].
        true: labels [N].
        known: the known quantity, such as the number of parameters [N].
    """
    by_labels, by_known, of_known = (
        spearman(a, b) for a, b in ((predicted, true), (predicted, known), (known, true))
    )
    left = (1 - by_known**2) * (1 - of_known**2)
    return float((by_labels - by_known * of_known) / np.sqrt(left)) if left > MIN_UNEXPLAINED else 0.0


def coverage(low: np.ndarray, high: np.ndarray, true: np.ndarray) -> float:
    """Return the fraction of labels inside their prediction intervals, bounds included.

    Examples:
        >>> coverage(np.array([0.0, 0.0]), np.array([1.0, 1.0]), np.array([0.5, 2.0]))
        0.5

    Args:
        low: lower bounds [N].
        high: upper bounds [N].
        true: labels [N].
    """
    return float(np.mean((low <= true) & (true <= high)))


def pinball_loss(quantiles: np.ndarray, levels: Sequence[float], true: np.ndarray) -> np.ndarray:
    """Return the pinball loss of each label, the mean over its quantiles; the smaller the better.

    Examples:
        >>> pinball_loss(np.array([[0.0, 2.0]]), (0.1, 0.9), np.array([1.0])).round(3).tolist()
        [0.1]

    Args:
        quantiles: predicted quantiles [N, Q].
        levels: Q levels.
        true: labels [N].

    Returns:
        float64 [N].
    """
    errors = true[:, None] - quantiles
    weights = np.where(errors >= 0, np.array(levels), np.array(levels) - 1)
    losses: np.ndarray = (weights * errors).mean(1)
    return losses


def _correlation(measure: str, predicted: np.ndarray, true: np.ndarray) -> float:
    """Return a correlation of `scipy.stats`; 0 where it is undefined."""
    from scipy import stats  # slow to import

    if len(true) < 2 or np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return 0.0
    return float(getattr(stats, measure)(predicted, true).statistic)
