"""Simple predictions of a latency from few samples: Bayesian ridges on operators, genes and known devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import search_spaces
from nas_rlm.data.tables import Row
from nas_rlm.graph.executed_layers import ANY, LIVE

NUM_COMPONENTS = 4  # of the predictions of known devices
NUM_ROUNDS = 100  # of the search for the precisions of noise and weights
MIN_PRECISION = 1e-6


def live_counts(raw_features: Sequence[Mapping[str, float]]) -> np.ndarray:
    """Return the number of live operators of each type that varies, float64 [N, T].

    Args:
        raw_features: raw features of N networks, with `nas_rlm.graph.executed_layers`.
    """
    counts: list[dict[str, float]] = []
    for features in raw_features:
        own: dict[str, float] = {}
        for name, value in features.items():
            mode, _, layer = name.partition("/")
            if mode == LIVE and layer.endswith(":number") and not layer.startswith(f"{ANY}:"):
                layer_type = layer.split("@")[0].split(":")[0]
                own[layer_type] = own.get(layer_type, 0.0) + value
        counts.append(own)
    names = sorted({name for own in counts for name in own})
    values = np.array([[own.get(name, 0.0) for name in names] for own in counts]).reshape(len(counts), -1)
    varying = values[:, values.std(0) > 0]
    return np.unique(varying, axis=1) if varying.size else varying


def one_hot_genes(rows: Sequence[Row]) -> np.ndarray:
    """Return the one-hot genomes of rows of one space, without columns if it has no name: float64 [N, F]."""
    if not rows or rows[0].space not in search_spaces.names():
        return np.empty((len(rows), 0))
    space = search_spaces.get(rows[0].space)
    genomes = np.array([space.encode(space.parse(row.arch_str)) for row in rows])
    return np.concatenate([np.eye(size)[genomes[:, g]] for g, size in enumerate(space.genes)], axis=1)


def components(predictions: np.ndarray) -> np.ndarray:
    """Return the first principal components of the predictions of S known devices [N, S]: float64 [N, C]."""
    centred = predictions - predictions.mean(0)
    _, _, vectors = np.linalg.svd(centred, full_matrices=False)
    projected: np.ndarray = centred @ vectors[:NUM_COMPONENTS].T
    return projected


def bayesian_ridge(features: np.ndarray, train: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return predictions of all networks by a Bayesian ridge on standardised features, float64 [N].

    Args:
        features: features of N networks, float64 [N, F].
        train: indices of M measured networks.
        values: their latencies, float64 [M].
    """
    varying = features[:, features.std(0) > 0]
    standardised = (varying - varying.mean(0)) / varying.std(0)
    inputs, targets = standardised[train], values - values.mean()
    centre = inputs.mean(0)
    left, singular, right = np.linalg.svd(inputs - centre, full_matrices=False)
    projected = left.T @ targets
    noise, weight = MIN_PRECISION + 1 / (targets.var() + MIN_PRECISION), 1.0
    for _ in range(NUM_ROUNDS):  # of evidence maximisation (MacKay 1992, Bayesian Interpolation)
        shrunk = noise * singular / (noise * singular**2 + weight)
        coefficients = right.T @ (shrunk * projected)
        num_effective = float((noise * singular**2 / (noise * singular**2 + weight)).sum())
        residuals = targets - (inputs - centre) @ coefficients
        weight = (num_effective + MIN_PRECISION) / (coefficients @ coefficients + MIN_PRECISION)
        noise = (len(values) - num_effective + MIN_PRECISION) / (residuals @ residuals + MIN_PRECISION)
    predicted: np.ndarray = values.mean() + (standardised - centre) @ coefficients
    return predicted
