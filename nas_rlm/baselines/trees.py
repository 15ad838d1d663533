"""Gradient-boosted trees on features made by hand for each space: a high bar for a model that reads text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import search_spaces
from nas_rlm.data.tables import Row


def trees(training: Sequence[Row], rows: Sequence[Row], objective: str) -> np.ndarray:
    """Predictions of trees on one-hot genes and parameters.

    Args:
        training: rows that have the objective.
        rows: N rows of the same space.
        objective: what to predict.

    Returns:
        float64 [N].

    Raises:
        ValueError: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise ValueError("trees need scikit-learn: pip install 'nas-rlm[baselines]'") from None
    target = np.array([row.targets[objective] for row in training])
    model = HistGradientBoostingRegressor(max_iter=400, learning_rate=0.06, random_state=0)
    model.fit(features(training), target)
    predicted: np.ndarray = model.predict(features(rows))
    return predicted


def features(rows: Sequence[Row]) -> np.ndarray:
    """One-hot genes, then the parameters: float32 [N, features]."""
    space = search_spaces.get(rows[0].space)
    architectures = [space.parse(row.arch_str) for row in rows]
    genomes = np.array([space.encode(a) for a in architectures])
    ordered = genomes.astype(np.float32)
    hot = [np.eye(n, dtype=np.float32)[genomes[:, g]] for g, n in enumerate(space.genes) if n > 2]
    size = np.array([[space.params(a)] for a in architectures], dtype=np.float32)
    return np.concatenate([ordered, *hot, size], axis=1)
