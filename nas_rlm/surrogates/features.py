"""What is counted in networks, as features: costs, paths, chains of operators, and what layers cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

import search_spaces
from nas_rlm.data import synthetic, tables
from nas_rlm.data.tables import COUNTED, Row, Table
from nas_rlm.graph.costs import COSTS as COSTS_OF_KINDS
from nas_rlm.graph.paths import MEETINGS

USUAL = 1000  # random networks that tell what counts are usual
CHAINS = 4  # operators in the longest chains that are counted
RARE = 0.02  # share of networks: what fewer of them have otherwise than the rest is no feature
MISSING = -0.5  # a count that a network without a path does not have, where one that it lacks is 0
STILL = 1e-9  # relative standard deviation of a count that never varies
# Groups of features; chains of 2 to `CHAINS` operators are between paths and sums.
COSTS, PATHS, SUMS, ADVICE = 0, 1, CHAINS + 1, CHAINS + 2


class Adviser(Protocol):
    """A model of another space or device whose predictions are features; see `nas_rlm.surrogates.transfer`."""

    @property
    def counts(self) -> Counts:
        """The features that it reads."""

    def advice(self, features: Tensor) -> Tensor:
        """Its predictions for N networks with such features [N, D]: float64 [N]."""

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name."""


@dataclass(frozen=True)
class Counts:
    """Which counts of networks are features, and how each varies.

    Args:
        names: D counts, see `nas_rlm.data.synthetic.metrics`, group by group.
        mean, deviation: of their logarithms, but of what layers cost itself, float64 [D].
        advisers: A that know other spaces; what each holds of a network is a feature as well.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    deviation: np.ndarray
    advisers: tuple[Adviser, ...] = ()

    @classmethod
    def usual(cls, counted: Sequence[Mapping[str, float]]) -> Counts:
        """The counts of some networks, less those that hardly vary and those that another one tells."""
        every = dict.fromkeys(name for found in counted for name in found)
        names = tuple(sorted(every, key=_group))
        found = _scaled(counted, names)
        middle = np.median(found, 0)
        differs = np.abs(found - middle) > STILL * np.maximum(1, np.abs(middle))
        some = np.flatnonzero(_varies(found) & (differs.mean(0) >= RARE))
        alike = np.abs(np.corrcoef(found[:, some], rowvar=False).reshape(len(some), -1)) > 1 - STILL
        some = some[~np.triu(alike, 1).any(0)]
        found = found[:, some]
        return cls(tuple(names[k] for k in some), found.mean(0), found.std(0))

    @classmethod
    def carried(cls, counted: Sequence[Mapping[str, float]], names: Sequence[str]) -> Counts:
        """Of named counts the costs and paths, which mean the same in every space, where they vary at all."""
        some = [name for name in names if _group(name) <= PATHS]
        if not counted or not some:
            return cls((), np.empty(0), np.empty(0))
        found = _scaled(counted, some)
        varies = _varies(found)
        found = found[:, varies]
        kept = tuple(name for name, does in zip(some, varies, strict=True) if does)
        return cls(kept, found.mean(0), found.std(0))

    @property
    def groups(self) -> list[int]:
        """How many features tell costs, paths, chains of each length, what layers cost, and advice."""
        own = [sum(_group(name) == group for name in self.names) for group in range(SUMS + 1)]
        return [*own, len(self.advisers)]

    @property
    def linear(self) -> int:
        """So many features, the last ones, add up: what layers cost, and advice."""
        return sum(self.groups[SUMS:])

    def features(self, counted: Sequence[Mapping[str, float]]) -> Tensor:
        """The features of N networks, float64 [N, D + A]."""
        if not counted:
            return torch.empty(0, sum(self.groups), dtype=torch.float64)
        own = torch.from_numpy((_scaled(counted, self.names) - self.mean) / self.deviation)
        return torch.cat([own, *(advice[:, None] for advice in advised(self.advisers, counted))], 1)

    def read(self, texts: Sequence[str]) -> Tensor:
        """The features of N texts, float64 [N, D + A]."""
        return self.features(synthetic.counted(texts, CHAINS))


def advised(advisers: Sequence[Adviser], counted: Sequence[Mapping[str, float]]) -> Iterator[Tensor]:
    """What each adviser holds of N networks, float64 [N]; those who go by the same counts share them."""
    known: dict[tuple[tuple[str, ...], bytes, bytes], Tensor] = {}
    for one in advisers:
        counts = one.counts
        key = counts.names, counts.mean.tobytes(), counts.deviation.tobytes()
        if key not in known:
            known[key] = counts.features(counted)
        yield one.advice(known[key])


@cache
def usual_counts(space: str) -> Counts:
    """The counts of random networks of a space."""
    return Counts.usual(usual_networks(space))


def usual_networks(space: str, rows: Sequence[Row] = ()) -> list[Mapping[str, float]]:
    """What is counted in random networks of a space, or in rows, where nobody can draw from it."""
    if space in search_spaces.names():
        return _drawn(space)
    some = Table("", list(rows)).sampled(USUAL)
    return [*synthetic.counted(tables.texts(some.rows), CHAINS)]


@lru_cache(maxsize=4)  # they take some megabytes each
def _drawn(space: str) -> list[Mapping[str, float]]:
    return [row.targets for row in random_networks(space, USUAL)]


def random_networks(space: str, networks: int, seed: int = 0) -> list[Row]:
    """Networks of a space with their counts: so many, but no more than half of it."""
    size = search_spaces.get(space).size
    return synthetic.table(space, min(networks, size // 2) if size else networks, seed, CHAINS).rows


def _varies(found: np.ndarray) -> np.ndarray:
    """Which columns hold more than one number."""
    varies: np.ndarray = found.std(0) > STILL * np.maximum(1, np.abs(found.mean(0)))
    return varies


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
    if name.split("/")[-1] in (*COUNTED, *COSTS_OF_KINDS):
        return COSTS
    if "-" in name or name in MEETINGS.values():
        return max(PATHS, name.count("-")) + 1
    return PATHS
