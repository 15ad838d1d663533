"""Which networks to measure: few, and such that together they tell most of all the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.cluster.vq import kmeans2

from nas_rlm.surrogates.features import STILL, usual_counts
from nas_rlm.surrogates.graph_surrogate import LATENCY, Expert

ROUNDS = 50  # of k-means


def choose(profiles: np.ndarray, count: int, seed: int = 0) -> list[int]:
    """Those in the middle of as many groups.

    >>> import numpy as np
    >>> choose(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]), 2)
    [1, 4]

    Args:
        profiles: of N networks, see `profiles_of`, float64 [N, D].
        count: so many are chosen.
        seed: of the groups.

    Returns:
        Their positions, rising: of networks with equal profiles never two.

    Raises:
        ValueError: there are not that many different profiles.
    """
    different = np.unique(profiles, axis=0, return_index=True)[1]
    if not 1 <= count <= len(different):
        raise ValueError(
            f"{count} of {len(different)} networks that differ cannot be chosen:"
            f" expected 1 to {len(different)}"
        )
    some = profiles[different]
    centres = kmeans2(some, count, iter=ROUNDS, minit="++", rng=np.random.default_rng(seed))[0]
    distances = ((some[:, None] - centres[None]) ** 2).sum(2)
    chosen: list[int] = []
    for order in distances.argsort(0, kind="stable").T.tolist():
        chosen.append(next(i for i in order if i not in chosen))
    return sorted(different[chosen].tolist())


def profiles_of(experts: Sequence[Expert], space: str, counted: Sequence[Mapping[str, float]]) -> np.ndarray:
    """How fast networks are held to be on each known device, or where none is known, what can be counted.

    Args:
        experts: of the space.
        space: whose networks they are.
        counted: in N networks, see `nas_rlm.data.synthetic.counted`.

    Returns:
        float64 [N, D], each column of mean zero and unit variance.
    """
    columns = []
    for one in experts:
        if names := [name for name in one.objectives if name.startswith(LATENCY)]:
            features = one.counts.features(counted)
            columns += [one.believe(features, name).mean for name in names]
    found = np.stack(columns, 1) if columns else usual_counts(space).features(counted).numpy()
    varies = found.std(0) > STILL
    scaled: np.ndarray = (found[:, varies] - found[:, varies].mean(0)) / found[:, varies].std(0)
    return scaled
