"""A plain multilayer perceptron on the adjacency encoding: the genes of a space, one-hot."""

from __future__ import annotations

import numpy as np


def mlp(known: np.ndarray, values: np.ndarray, asked: np.ndarray, seed: int = 0) -> np.ndarray:
    """Predictions of a perceptron of two hidden layers.

    Args:
        known: `features` of M measured rows.
        values: what was measured, float64 [M].
        asked: `features` of N rows.
        seed: of the weights.

    Returns:
        float64 [N].

    Raises:
        ValueError: scikit-learn is not installed.
    """
    try:
        from sklearn.neural_network import MLPRegressor
        from sklearn.preprocessing import StandardScaler
    except ImportError:
        raise ValueError("the perceptron needs scikit-learn: pip install 'nas-rlm[baselines]'") from None
    scaler = StandardScaler().fit(known)
    mean, deviation = values.mean(), values.std() or 1.0
    model = MLPRegressor(hidden_layer_sizes=(128, 128), alpha=1e-2, max_iter=500, random_state=seed)
    model.fit(scaler.transform(known), (values - mean) / deviation)
    predicted: np.ndarray = model.predict(scaler.transform(asked)) * deviation + mean
    return predicted
