"""Gradient-boosted trees on features made by hand for each space: a high bar for a model that reads text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import search_spaces
from nas_rlm.data.tables import Row


def trees(known: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Predictions of gradient-boosted trees.

    Args:
        known: `features` of M measured rows.
        values: what was measured, float64 [M].
        asked: `features` of N rows.

    Returns:
        float64 [N].

    Raises:
        ValueError: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise ValueError("trees need scikit-learn: pip install 'nas-rlm[baselines]'") from None
    model = HistGradientBoostingRegressor(max_iter=400, learning_rate=0.06, random_state=0)
    model.fit(known, values)
    predicted: np.ndarray = model.predict(asked)
    return predicted


def features(rows: Sequence[Row]) -> np.ndarray:
    """Genes, one-hot genes and parameters of N rows of one space: float32 [N, features]."""
    space = search_spaces.get(rows[0].space)
    architectures = [space.parse(row.arch_str) for row in rows]
    genomes = np.array([space.encode(a) for a in architectures])
    ordered = genomes.astype(np.float32)
    hot = [np.eye(n, dtype=np.float32)[genomes[:, g]] for g, n in enumerate(space.genes) if n > 2]
    size = np.array([[space.params(a)] for a in architectures], dtype=np.float32)
    return np.concatenate([ordered, *hot, size], axis=1)
