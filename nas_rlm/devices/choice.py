"""Which networks to measure: few, and such that together they tell most of all the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2

from nas_rlm.expert import knowing
from nas_rlm.features import usual_counts
from nas_rlm.rlm import RLM
from nas_rlm.text import from_architectures
from search_spaces import SearchSpace

ROUNDS = 50  # of k-means


def choose(
    rlm: RLM, space: SearchSpace[Any], architectures: Sequence[Any], count: int, seed: int = 0
) -> list[int]:
    """Networks in the middle of as many groups, by how fast a model holds them on the devices that it knows.

    Args:
        rlm: whose experts know latencies in the space; without any, counts of operators take their place.
        space: the search space.
        architectures: N to choose from.
        count: so many are chosen.
        seed: of the grouping.

    Returns:
        Their positions, rising.

    Raises:
        ValueError: there are no more than that many that differ.
    """
    texts = from_architectures(space, architectures)
    first = np.array(sorted({text: i for i, text in reversed([*enumerate(texts)])}.values()))
    if not 1 <= count < len(first):
        raise ValueError(
            f"{count} of {len(first)} networks that differ cannot be chosen: expected at least 1, and fewer"
        )
    known = profiles(rlm, space.name, [texts[i] for i in first])
    centres = kmeans2(known, count, iter=ROUNDS, minit="++", rng=np.random.default_rng(seed))[0]
    distances = ((known[:, None] - centres[None]) ** 2).sum(2)
    chosen: list[int] = []
    for k in range(count):
        order = distances[:, k].argsort(kind="stable")
        chosen.append(next(i for i in order.tolist() if i not in chosen))
    return sorted(first[chosen].tolist())


def profiles(rlm: RLM, space: str, texts: Sequence[str]) -> np.ndarray:
    """What is held of latencies, each of zero mean and unit variance: float64 [N, D] of D devices."""
    experts = {n: e for n, e in knowing(rlm.experts.get(space, ())).items() if n.startswith("latency/")}
    if experts:
        features = {id(e): e.counts.read(texts) for e in experts.values()}
        found = np.stack([e.believe(features[id(e)], name).mean for name, e in experts.items()], 1)
    else:
        found = usual_counts(space).read(texts).numpy()
    varies = found.std(0) > 0
    scaled: np.ndarray = (found[:, varies] - found[:, varies].mean(0)) / found[:, varies].std(0)
    return scaled
