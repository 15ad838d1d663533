"""Coefficients of the costs of layers, and how close they are to those of similar layer types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nas_rlm.graph.executed_layers import ALL, TERMS
from nas_rlm.surrogates.latency.features import groups_of_cost
from nas_rlm.surrogates.latency.nonnegative import fit_nonnegative
from nas_rlm.surrogates.predictive import MIN_LABELS

FREE_SPREAD = 30.0  # of coefficients that are nearly free of those of similar types
FREE_SHARES = (0.0, 0.5)  # weights of free coefficients that are tried
MAX_NETWORKS = 4000  # that a choice is made on
SMALLEST = 1e-6


def fit_coefficients(
    costs: np.ndarray, latencies: np.ndarray, types: Sequence[str], free_share: float = 0.0
) -> np.ndarray:
    """Return a constant and the coefficients of the costs of layer types, float64 [1 + T * 6].

    Args:
        costs: sums of the terms of T layer types over M networks, float64 [M, T * 6].
        latencies: their latencies above 0, float64 [M].
        types: the layer types.
        free_share: weight of coefficients that are nearly free of those of similar types.
    """
    groups = [groups_of_cost(f"{ALL}/{layer}:{term}") for layer in types for term in TERMS]
    coefficients = fit_nonnegative(costs, latencies, groups)
    if free_share:
        free = fit_nonnegative(costs, latencies, groups, FREE_SPREAD)
        coefficients = (1 - free_share) * coefficients + free_share * free
    return coefficients


def choose_free_share(
    costs: np.ndarray, latencies: np.ndarray, types: Sequence[str], families: np.ndarray, folds: np.ndarray
) -> float:
    """Return the free share that predicts families best that are left out.

    Large errors of single families count more: the mean of the squares of the mean absolute errors of each
    family decides. Without families to leave out it is 0.

    Args:
        costs: as for `fit_coefficients`.
        latencies: as for `fit_coefficients`.
        types: the layer types.
        families: indices of the families of the networks, int64 [M].
        folds: the fold of each network, the same for all networks of a family, int64 [M].
    """
    used = np.random.default_rng(0).permutation(len(costs))[:MAX_NETWORKS]
    costs, latencies, families, folds = costs[used], latencies[used], families[used], folds[used]
    predictions = np.full((len(FREE_SHARES), len(costs)), np.nan)
    for fold in np.unique(folds):
        test, train = folds == fold, folds != fold
        if train.sum() < MIN_LABELS:
            continue
        fits = [fit_coefficients(costs[train], latencies[train], types, share) for share in FREE_SHARES]
        predictions[:, test] = [own[0] + costs[test] @ own[1:] for own in fits]
    is_known = np.isfinite(predictions[0])
    if not is_known.any():
        return 0.0
    errors = np.abs(np.log(np.maximum(predictions, SMALLEST)) - np.log(latencies))[:, is_known]
    known_families = families[is_known]
    losses = [
        np.mean([of[known_families == f].mean() ** 2 for f in np.unique(known_families)]) for of in errors
    ]
    return FREE_SHARES[int(np.argmin(losses))]
