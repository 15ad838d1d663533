"""A multilayer perceptron on features of a space."""

from __future__ import annotations

import numpy as np

from nas_rlm.utils.extras import require


def mlp(
    train_features: np.ndarray, labels: np.ndarray, test_features: np.ndarray, seed: int = 0
) -> np.ndarray:
    """Fit a perceptron with two hidden layers and predict the test rows.

    Args:
        train_features: features of M labelled rows [M, F], see `space_features`.
        labels: measured values [M].
        test_features: features of N test rows [N, F].
        seed: seed of the weights.

    Returns:
        Predictions [N].

    Raises:
        ValueError: scikit-learn is not installed.
    """
    require("baselines", "the method mlp")
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train_features)
    mean, deviation = labels.mean(), labels.std() or 1.0
    model = MLPRegressor(hidden_layer_sizes=(128, 128), alpha=1e-2, max_iter=500, random_state=seed)
    model.fit(scaler.transform(train_features), (labels - mean) / deviation)
    predicted: np.ndarray = model.predict(scaler.transform(test_features)) * deviation + mean
    return predicted
