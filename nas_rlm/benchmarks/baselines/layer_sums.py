"""Non-negative least squares of a latency on sums over layers, with relative errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

from nas_rlm.graph.executed_layers import ALL, ANY

RawFeatures = Sequence[Mapping[str, float]]


def fit_layer_sums(train: RawFeatures, latencies: np.ndarray, test: RawFeatures) -> np.ndarray:
    """Return the predicted latencies of N networks, float64 [N].

    Args:
        train: raw features of M measured networks, with `nas_rlm.graph.executed_layers`.
        latencies: their latencies above 0, float64 [M].
        test: raw features of N networks.
    """
    names = sorted({_sum_name(name) for features in train for name in features} - {""})
    costs = _sums(train, names)
    scales = costs.max(0, initial=0) + 1e-12
    weighted = costs / scales / latencies[:, None]
    coefficients = nnls(weighted, np.ones(len(latencies)), maxiter=50 * len(scales))[0] / scales
    predicted: np.ndarray = _sums(test, names) @ coefficients
    return predicted


def _sum_name(name: str) -> str:
    """Return the layer type and term of a raw feature; empty for features that are not used."""
    mode, _, layer = name.partition("/")
    if mode != ALL or layer.startswith(f"{ANY}:"):
        return ""
    return f"{layer.split('@')[0].split(':')[0]}:{layer.split(':')[-1]}"


def _sums(raw_features: RawFeatures, names: Sequence[str]) -> np.ndarray:
    """Return a constant 1 and the named sums of N networks, float64 [N, 1 + D]."""
    column_of = {name: 1 + k for k, name in enumerate(names)}
    sums = np.zeros((len(raw_features), 1 + len(names)))
    sums[:, 0] = 1
    for row, features in zip(sums, raw_features, strict=True):
        for name, value in features.items():
            if (column := column_of.get(_sum_name(name))) is not None:
                row[column] += value
    return sums
