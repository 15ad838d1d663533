"""What is counted in networks, as features: costs, paths, chains of operators, and what layers cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

import search_spaces
from nas_rlm.data import synthetic, tables
from nas_rlm.data.tables import COUNTED, Row, Table

USUAL = 1000  # random networks that tell what counts are usual
CHAINS = 4  # operators in the longest chains that are counted
RARE = 0.02  # share of networks: what fewer of them have otherwise than the rest is no feature
MISSING = -0.5  # a count that a network without a path does not have, where one that it lacks is 0
STILL = 1e-9  # relative standard deviation of a count that never varies
COSTS, PATHS, SUMS = 0, 1, CHAINS + 1  # groups of features; chains of 2 to `CHAINS` are between the last two


@dataclass(frozen=True)
class Counts:
    """Which counts of networks are features, and how each varies.

    Args:
        names: D counts, see `nas_rlm.data.synthetic.metrics`, group by group.
        mean, deviation: of their logarithms, but of what layers cost itself, float64 [D].
    """

    names: tuple[str, ...]
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def usual(cls, counted: Sequence[Mapping[str, float]]) -> Counts:
        """The counts of some networks, less those that hardly vary and those that another one tells."""
        every = dict.fromkeys(name for found in counted for name in found)
        names = tuple(sorted(every, key=_group))
        found = _scaled(counted, names)
        mean, deviation = found.mean(0), found.std(0)
        varies = deviation > STILL * np.maximum(1, np.abs(mean))
        some = np.flatnonzero(varies & ((found != np.median(found, 0)).mean(0) >= RARE))
        alike = np.abs(np.corrcoef(found[:, some], rowvar=False).reshape(len(some), -1)) > 1 - STILL
        some = some[~np.triu(alike, 1).any(0)]
        return cls(tuple(names[k] for k in some), mean[some], deviation[some])

    @property
    def groups(self) -> list[int]:
        """How many features tell costs, paths, chains of each length, and what layers cost."""
        return [sum(_group(name) == group for name in self.names) for group in range(SUMS + 1)]

    def features(self, counted: Sequence[Mapping[str, float]]) -> Tensor:
        """The features of N networks, float64 [N, D]."""
        if not counted:
            return torch.empty(0, len(self.names), dtype=torch.float64)
        return torch.from_numpy((_scaled(counted, self.names) - self.mean) / self.deviation)

    def read(self, texts: Sequence[str]) -> Tensor:
        """The features of N texts, float64 [N, D]."""
        return self.features(synthetic.counted(texts, CHAINS))


@cache
def usual_counts(space: str) -> Counts:
    """The counts of random networks of a space."""
    return Counts.usual([row.targets for row in random_networks(space, USUAL)])


def counts_of(rows: Sequence[Row]) -> Counts:
    """The counts of rows of a space that nobody can draw from."""
    some = Table("", list(rows)).sampled(USUAL)
    return Counts.usual(synthetic.counted(tables.texts(some.rows), CHAINS))


def random_networks(space: str, networks: int, seed: int = 0) -> list[Row]:
    """Networks of a space with their counts: so many, but no more than half of it."""
    size = search_spaces.get(space).size
    return synthetic.table(space, min(networks, size // 2) if size else networks, seed, CHAINS).rows


def _scaled(counted: Sequence[Mapping[str, float]], names: Sequence[str]) -> np.ndarray:
    """Counts as numbers that tell: costs of layers, since times add up, and logarithms of others."""
    groups = [_group(name) for name in names]
    absent = [0.0 if group > PATHS else MISSING for group in groups]
    found = np.array([[c.get(n, none) for n, none in zip(names, absent, strict=True)] for c in counted])
    logs = np.array(groups) < SUMS
    found[:, logs] = np.log1p(found[:, logs])
    return found


def _group(name: str) -> int:
    """Of a count: what a network costs, what lies on its paths, chains by their length, what layers cost."""
    if ":" in name:
        return SUMS
    if name.split("/")[-1] in (*COUNTED, *synthetic.COSTS):
        return COSTS
    if "-" in name or name in synthetic.MEETINGS.values():
        return max(PATHS, name.count("-")) + 1
    return PATHS
