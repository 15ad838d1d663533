"""Gradient-boosted trees on features of a space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import search_spaces
from nas_rlm.data.tables import Row
from nas_rlm.utils.extras import require


def trees(train_features: np.ndarray, labels: np.ndarray, test_features: np.ndarray) -> np.ndarray:
    """Fit gradient-boosted trees and predict the test rows.

    Args:
        train_features: features of M labelled rows [M, F], see `space_features`.
        labels: measured values [M].
        test_features: features of N test rows [N, F].

    Returns:
        Predictions [N].

    Raises:
        ValueError: scikit-learn is not installed.
    """
    require("baselines", "the method trees")
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=400, learning_rate=0.06, random_state=0)
    model.fit(train_features, labels)
    predicted: np.ndarray = model.predict(test_features)
    return predicted


def space_features(rows: Sequence[Row]) -> np.ndarray:
    """Return the genome, the one-hot genome and the number of parameters of rows of one space.

    Args:
        rows: N rows.

    Returns:
        float32 [N, F].
    """
    space = search_spaces.get(rows[0].space)
    architectures = [space.parse(row.arch_str) for row in rows]
    genomes = np.array([space.encode(a) for a in architectures])
    ordinal = genomes.astype(np.float32)
    one_hot = [np.eye(n, dtype=np.float32)[genomes[:, g]] for g, n in enumerate(space.genes) if n > 2]
    num_params = np.array([[space.params(a)] for a in architectures], dtype=np.float32)
    return np.concatenate([ordinal, *one_hot, num_params], axis=1)
