"""Mixtures of models of a latency's logarithm, whose weights fall where a model extrapolates."""

from __future__ import annotations

import numpy as np

EXTRAPOLATION_STD, EXTRAPOLATION_EXPONENT = 1.5, 4  # relative to labelled networks, above which weights fall
EVIDENCE_PRIOR = 5  # weight of an unchanged standard deviation, in labels
FITTED_PARAMETERS = 8  # by which variances of few labels are increased


def mixture(
    weights: np.ndarray, means: np.ndarray, stds: np.ndarray, usual_stds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of a mixture of V models for N networks, each float64 [N].

    A model that is less certain of a network than of the labelled ones extrapolates: its weight is less.

    Args:
        weights: weights of the models, float64 [V].
        means: their means, float64 [V, N].
        stds: their standard deviations, float64 [V, N].
        usual_stds: their standard deviations for labelled networks, float64 [V].
    """
    certainty = np.minimum(1, EXTRAPOLATION_STD * usual_stds[:, None] / stds)
    of_network = weights[:, None] * certainty**EXTRAPOLATION_EXPONENT
    of_network /= of_network.sum(0)
    mean: np.ndarray = (of_network * means).sum(0)
    return mean, np.sqrt((of_network * (stds**2 + (means - mean) ** 2)).sum(0))


def std_factor(errors: np.ndarray, stds: np.ndarray) -> float:
    """Return the factor of standard deviations with which they fit the errors of labels that are left out.

    Args:
        errors: errors of M labels, float64 [M].
        stds: their standard deviations, float64 [M].
    """
    count = len(errors)
    variance = (((errors / stds) ** 2).sum() + EVIDENCE_PRIOR) / (count + EVIDENCE_PRIOR)
    return float(np.sqrt(variance * (1 + FITTED_PARAMETERS / count)))
