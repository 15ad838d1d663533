"""Selection of the networks to measure: half by D-optimal design, half at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nas_rlm.data.objective_kinds import LATENCY_PREFIX
from nas_rlm.surrogates.graphs.features import MIN_RELATIVE_STD
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.registry import FeatureSurrogate
from search_spaces.wording import counted

NOISE = 0.3  # noise variance of a measurement, relative to the mean variance of the networks


def select_samples(features: np.ndarray, count: int, seed: int = 0) -> list[int]:
    """Select networks to measure, for a linear model of their features.

    The first half is selected one by one: each time the network whose prediction is most uncertain after the
    measurements of those before it. The others are drawn at random, since a design relies on its model.

    Examples:
        >>> import numpy as np
        >>> select_samples(np.array([[0.0, 1.0], [0.1, 1.0], [0.2, 1.0], [9.0, 0.0], [-9.0, 0.0]]), 4)
        [0, 2, 3, 4]

    Args:
        features: features of N networks, see `selection_features`, float64 [N, D].
        count: number of networks to select.
        seed: seed of the first network and of the random half.

    Returns:
        The sorted indices of the selected networks, whose features all differ.

    Raises:
        ValueError: there are fewer networks with different features.
    """
    distinct = np.unique(features, axis=0, return_index=True)[1]
    if not 1 <= count <= len(distinct):
        raise ValueError(
            f"cannot select {count} of {counted(len(distinct), 'network')} with different features:"
            f" expected 1 to {len(distinct)}"
        )
    order = np.random.default_rng(seed).permutation(np.sort(distinct))
    designed = _design(features[order], -(-count // 2))
    others = [k for k in range(len(order)) if k not in designed][: count - len(designed)]
    return sorted(order[[*designed, *others]].tolist())


def _design(points: np.ndarray, count: int) -> list[int]:
    """Return the indices of a greedy D-optimal design that begins with the first point."""
    variances = (points**2).sum(1)
    factors = np.empty((0, len(points)))
    noise = NOISE * max(variances.mean(), MIN_RELATIVE_STD)
    design = [0]
    while len(design) < count:
        new = design[-1]
        covariances = points @ points[new] - factors.T @ factors[:, new]
        factor = covariances / np.sqrt(variances[new] + noise)
        factors, variances = np.vstack([factors, factor]), variances - factor**2
        candidates = variances.copy()
        candidates[design] = -np.inf
        design.append(int(candidates.argmax()))
    return design


def selection_features(
    surrogates: Sequence[FeatureSurrogate], raw_features: Sequence[Mapping[str, float]]
) -> np.ndarray:
    """Return features of which the latency of an unknown device is nearly a linear function.

    These are the predicted latencies on each device of the surrogates, and the sums over executed layers, see
    `nas_rlm.graph.executed_layers`.

    Args:
        surrogates: surrogates of the search space.
        raw_features: graph features of N networks with executed layers, see
            `nas_rlm.data.synthetic.graph_features_of_texts`.

    Returns:
        float64 [N, D], the variance of both parts is 1.
    """
    predictions = []
    for surrogate in surrogates:
        if names := [name for name in surrogate.objectives if name.startswith(LATENCY_PREFIX)]:
            inputs = surrogate.graph_features.transform(raw_features)
            predictions += [surrogate.predict(inputs, name).mean for name in names]
    layers = LatencyFeatures.fit(raw_features)
    parts = [layers.transform(raw_features)[:, layers.layer_columns].numpy()]
    if predictions:
        parts.append(np.stack(predictions, 1))
    return np.concatenate([_with_unit_variance(part) for part in parts], 1)


def _with_unit_variance(values: np.ndarray) -> np.ndarray:
    """Return standardised columns, without constant ones, whose total variance is 1."""
    std = values.std(0)
    varies = std > MIN_RELATIVE_STD * np.maximum(1, np.abs(values).max(0, initial=0))
    standardised: np.ndarray = (values[:, varies] - values[:, varies].mean(0)) / std[varies]
    return standardised / max(1, varies.sum()) ** 0.5
