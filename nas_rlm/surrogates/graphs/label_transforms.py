"""Transforms of labels: the scores that a Gaussian process of an objective is fitted to."""

from __future__ import annotations

import numpy as np

from nas_rlm.data.objective_kinds import LATENCY_PREFIX, is_accuracy, kind_of
from nas_rlm.surrogates.predictive import EPSILON, FittedTransform, NormalScoreTransform, RobustTransform

MAX_TRANSFER_LABELS = 100  # of a latency; with more labels, other devices are not used


def transform_of_labels(objective: str, labels: np.ndarray, distance_weight: float) -> FittedTransform:
    """Return the transform between the values and the scores of an objective.

    Args:
        objective: name of the objective.
        labels: its labels, float64 [M].
        distance_weight: how far scores keep distances: 0 if they keep ranks alone (see
            `NormalScoreTransform`), 1 if distances alone (see `RobustTransform`), otherwise the mean of both.
            Few labels of a latency have a mean of ranks and logarithms.
    """
    maximum, minimum = _maximum(objective, labels), kind_of(objective).minimum
    if objective.startswith(LATENCY_PREFIX) and len(labels) <= MAX_TRANSFER_LABELS:
        logs = np.log(np.maximum(labels, EPSILON))
        return NormalScoreTransform(labels, maximum, logs, minimum)
    if not distance_weight:
        return NormalScoreTransform(labels, maximum, minimum=minimum)
    robust = RobustTransform(labels, maximum, minimum)
    if distance_weight == 1:
        return robust
    return NormalScoreTransform(labels, maximum, robust.scores, minimum)


def _maximum(objective: str, labels: np.ndarray) -> float:
    """Return the largest possible value of an objective: 1 for accuracies that are fractions."""
    is_fraction = is_accuracy(objective) and labels.max() <= 1
    return 1.0 if is_fraction else kind_of(objective).maximum
