"""Selection of the networks to measure: representatives of clusters, as in experimental design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.cluster.vq import kmeans2

from nas_rlm.surrogates.features import MIN_RELATIVE_STD, graph_features_of_space
from nas_rlm.surrogates.graph_surrogate import LATENCY_PREFIX, GraphSurrogate

KMEANS_ITERATIONS = 50


def select_samples(features: np.ndarray, count: int, seed: int = 0) -> list[int]:
    """Select the networks that are nearest to the centres of k-means clusters.

    Examples:
        >>> import numpy as np
        >>> select_samples(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]), 2)
        [1, 4]

    Args:
        features: features of N networks, see `selection_features`, float64 [N, D].
        count: number of networks to select, which is the number of clusters.
        seed: seed of the clustering.

    Returns:
        The sorted indices of the selected networks, whose features all differ.

    Raises:
        ValueError: there are fewer networks with different features.
    """
    distinct = np.unique(features, axis=0, return_index=True)[1]
    if not 1 <= count <= len(distinct):
        raise ValueError(
            f"cannot select {count} of {len(distinct)} networks with different features:"
            f" expected 1 to {len(distinct)}"
        )
    points = features[distinct]
    centres = kmeans2(points, count, iter=KMEANS_ITERATIONS, minit="++", rng=np.random.default_rng(seed))[0]
    distances = ((points[:, None] - centres[None]) ** 2).sum(2)
    selected: list[int] = []
    for nearest in distances.argsort(0, kind="stable").T.tolist():
        selected.append(next(i for i in nearest if i not in selected))
    return sorted(distinct[selected].tolist())


def selection_features(
    surrogates: Sequence[GraphSurrogate], space: str, raw_features: Sequence[Mapping[str, float]]
) -> np.ndarray:
    """Return features in which similar networks have similar latencies.

    These are the predicted latencies on each device of the surrogates, or the graph features where no
    surrogate predicts a latency.

    Args:
        surrogates: surrogates of the search space.
        space: name of the search space.
        raw_features: graph features of N networks, see `nas_rlm.data.synthetic.graph_features_of_texts`.

    Returns:
        float64 [N, D], each column standardised; constant columns are left out.
    """
    columns = []
    for surrogate in surrogates:
        if names := [name for name in surrogate.objectives if name.startswith(LATENCY_PREFIX)]:
            inputs = surrogate.graph_features.transform(raw_features)
            columns += [surrogate.predict(inputs, name).mean for name in names]
    features = (
        np.stack(columns, 1) if columns else graph_features_of_space(space).transform(raw_features).numpy()
    )
    varying = features[:, features.std(0) > MIN_RELATIVE_STD]
    standardised: np.ndarray = (varying - varying.mean(0)) / varying.std(0)
    return standardised
