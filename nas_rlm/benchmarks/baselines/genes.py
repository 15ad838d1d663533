"""Learners on the genome with costs: a Gaussian process and gradient-boosted trees for few labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

import search_spaces
from nas_rlm.data.tables import Row
from nas_rlm.surrogates.gaussian_process import compute_alpha, fit_hyperparameters, posterior_mean
from nas_rlm.surrogates.predictive import NormalScoreTransform

COSTS = ("flops", "params", "activations")


def gene_features(rows: Sequence[Row], raw_features: Sequence[Mapping[str, float]]) -> np.ndarray:
    """Return the one-hot genome and the logarithms of costs of rows of one space, standardised.

    Args:
        rows: N rows.
        raw_features: graph features of their networks, see `nas_rlm.data.synthetic.graph_features`.

    Returns:
        float64 [N, F]; the costs are the last three.
    """
    space = search_spaces.get(rows[0].space)
    genomes = np.array([space.encode(space.parse(row.arch_str)) for row in rows])
    one_hot = [np.eye(n)[genomes[:, g]] for g, n in enumerate(space.genes)]
    costs = np.log1p([[features[name] for name in COSTS] for features in raw_features])
    values = np.concatenate([*one_hot, costs], axis=1)
    std = values.std(0)
    std[std == 0] = 1.0
    standardised: np.ndarray = (values - values.mean(0)) / std
    return standardised


def gene_process(features: np.ndarray, train_indices: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Fit a Gaussian process to normal scores of labelled rows and predict all rows.

    Args:
        features: features of N rows [N, F], see `gene_features`.
        train_indices: indices of M labelled rows.
        labels: measured values [M].

    Returns:
        Predictions [N].
    """
    transform = NormalScoreTransform(labels)
    x = torch.from_numpy(features)
    train, targets = x[torch.from_numpy(train_indices)], torch.from_numpy(transform.scores)
    group_sizes = [x.shape[1] - len(COSTS), len(COSTS)]
    hyperparameters = fit_hyperparameters(train, group_sizes, targets)
    alpha = compute_alpha(train, targets, hyperparameters)
    return transform.inverse(posterior_mean(x, train, hyperparameters, alpha).numpy())


def gene_boosting(features: np.ndarray, train_indices: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Fit gradient-boosted trees to labelled rows and predict all rows; arguments as for `gene_process`."""
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(
        n_estimators=200, learning_rate=0.05, subsample=0.7, min_samples_leaf=2, random_state=0
    )
    predicted: np.ndarray = model.fit(features[train_indices], labels).predict(features)
    return predicted
