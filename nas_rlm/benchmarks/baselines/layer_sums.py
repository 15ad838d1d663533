"""Non-negative least squares of a latency on sums over layers, with relative errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

from nas_rlm.graph.executed_layers import ALL, ANY

SMALLEST = 1e-12  # avoids division by zero
RawFeatures = Sequence[Mapping[str, float]]


def fit_layer_sums(train: RawFeatures, latencies: np.ndarray, test: RawFeatures) -> np.ndarray:
    """Return the predicted latencies of N networks, float64 [N].

    Args:
        train: raw features of M measured networks, with `nas_rlm.graph.executed_layers`.
        latencies: their latencies above 0, float64 [M].
        test: raw features of N networks.
    """
    names = sorted({_sum_name(name) for features in train for name in features} - {""})
    return fit_sums(_sums(train, names), latencies, _sums(test, names))


def fit_sums(sums: np.ndarray, latencies: np.ndarray, test_sums: np.ndarray) -> np.ndarray:
    """Return predicted latencies by non-negative coefficients of sums and a constant, float64 [N].

    Args:
        sums: sums of M measured networks, float64 [M, D].
        latencies: their latencies above 0, float64 [M].
        test_sums: sums of N networks, float64 [N, D].
    """
    costs, test = (np.column_stack([np.ones(len(s)), s]) for s in (sums, test_sums))
    scales = costs.max(0) + SMALLEST
    weighted = np.column_stack([costs / scales / latencies[:, None], np.ones(len(costs))])
    reduced = np.linalg.qr(weighted).R
    coefficients = nnls(reduced[:, :-1], reduced[:, -1], maxiter=50 * len(scales))[0] / scales
    predicted: np.ndarray = test @ coefficients
    return predicted


def _sum_name(name: str) -> str:
    """Return the layer type and term of a raw feature; empty for features that are not used."""
    mode, _, layer = name.partition("/")
    if mode != ALL or layer.startswith(f"{ANY}:"):
        return ""
    return f"{layer.split('@')[0].split(':')[0]}:{layer.split(':')[-1]}"


def _sums(raw_features: RawFeatures, names: Sequence[str]) -> np.ndarray:
    """Return the named sums of N networks, float64 [N, D]."""
    column_of = {name: k for k, name in enumerate(names)}
    sums = np.zeros((len(raw_features), len(names)))
    for row, features in zip(sums, raw_features, strict=True):
        for name, value in features.items():
            if (column := column_of.get(_sum_name(name))) is not None:
                row[column] += value
    return sums
