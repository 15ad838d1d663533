"""Lessons: what a few measured networks of a space say of its others, for a model to learn from.

A few labels tell a network of millions of weights little, and a Gaussian process on what can be counted in
networks a lot. The process is asked about random networks; from its answers, as doubtful as they are, the
model learns to tell the same from text alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from scipy.stats import norm, rankdata
from torch import Tensor

import search_spaces
from nas_rlm.data import synthetic, tables
from nas_rlm.data.tables import COUNTED, Row
from nas_rlm.process import Process

CHAINS = 3  # operators in the longest chains that are counted
LEAST, MOST = 10, 4000  # values of an objective that a process is made of
TAIL = 0.1  # share of the values that tells how a scale goes on beyond them
MISSING = -0.5  # a count that a network without a path does not have, where one that it lacks is 0


def lessons(rows: Sequence[Row], objectives: Sequence[str], networks: int, seed: int = 0) -> list[Row]:
    """Random networks with numbers that are likely, given what was measured of others of their space.

    Args:
        rows: measured architectures.
        objectives: which of their numbers to tell of others; not those with fewer than `LEAST` values.
        networks: so many of each space that has an adapter, but no more than half of it.
        seed: of the networks and the numbers.

    Returns:
        Rows that nobody measured; each number is drawn from what an expert holds possible.
    """
    rng = np.random.default_rng(seed)
    found = []
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        if space not in search_spaces.names():
            continue
        known = list(group)
        told = [name for name in objectives if sum(row.measured(name) for row in known) >= LEAST]
        if not told:
            continue
        counts = Counts(space, networks, seed)
        expert = Expert(counts.of(tables.texts(known)), counts.groups, known, told)
        values = expert.draw(counts.random, rng)
        found += [
            Row(space, row.arch_str, dict(zip(told, of_row, strict=True)))
            for row, of_row in zip(counts.rows, values.tolist(), strict=True)
        ]
    return found


class Counts:
    """What is counted in networks of a space, as features of about the same spread.

    Args:
        space: its name.
        networks: random ones, which tell what is usual: so many, but at most half of the space.
        seed: of those.
    """

    def __init__(self, space: str, networks: int, seed: int = 0) -> None:
        size = search_spaces.get(space).size
        table = synthetic.table(space, min(networks, size // 2) if size else networks, seed, CHAINS)
        self.rows = table.rows
        self.names = sorted(table.objectives, key=_group)
        self.groups = [sum(_group(name) == group for name in self.names) for group in range(3)]
        usual = self._logs([row.targets for row in self.rows])
        self.mean, self.deviation = usual.mean(0), usual.std(0)
        self.random = self._scaled(usual)

    def of(self, texts: Sequence[str]) -> Tensor:
        """The features of N networks, from their texts: float64 [N, D]."""
        return self._scaled(self._logs(synthetic.counted(texts, CHAINS)))

    def _scaled(self, logs: np.ndarray) -> Tensor:
        return torch.from_numpy((logs - self.mean) / self.deviation)

    def _logs(self, counted: Sequence[dict[str, float]]) -> np.ndarray:
        absent = [0.0 if _group(name) == 2 else MISSING for name in self.names]
        found = [
            [count.get(name, none) for name, none in zip(self.names, absent, strict=True)]
            for count in counted
        ]
        return np.log1p(np.array(found))


class Expert:
    """A Gaussian process for each number of a space's networks, on what is counted in them.

    Args:
        features: of M networks, see `Counts`, float64 [M, D].
        groups: sizes of the groups of features.
        rows: the M networks, measured.
        objectives: K numbers that some rows have.
    """

    def __init__(
        self, features: Tensor, groups: Sequence[int], rows: Sequence[Row], objectives: Sequence[str]
    ) -> None:
        self.scales, self.processes = [], []
        for name in objectives:
            known = [i for i, row in enumerate(rows) if row.measured(name)][:MOST]
            most = 100.0 if name.startswith("accuracy") else math.inf
            scale = Scale(np.array([rows[i].targets[name] for i in known]), most)
            self.scales.append(scale)
            self.processes.append(Process(features[known], groups, torch.from_numpy(scale.scores)))

    def expect(self, features: Tensor) -> np.ndarray:
        """The medians of other networks of the space, float64 [N, K]."""
        means = (process.posterior(features)[0].numpy() for process in self.processes)
        return np.stack([s.values(m) for s, m in zip(self.scales, means, strict=True)], 1)

    def draw(self, features: Tensor, rng: np.random.Generator) -> np.ndarray:
        """Numbers drawn from what is possible, each by itself, float64 [N, K]."""
        found = []
        for scale, process in zip(self.scales, self.processes, strict=True):
            mean, deviation = (t.numpy() for t in process.posterior(features))
            found.append(scale.values(mean + deviation * rng.standard_normal(len(mean))))
        return np.stack(found, 1)


class Scale:
    """Values as the scores of a normal distribution, by their ranks.

    Args:
        known: float64 [M].
        most: that there can be.
    """

    def __init__(self, known: np.ndarray, most: float = math.inf) -> None:
        self._most = most
        self.scores = norm.ppf((rankdata(known) - 0.5) / len(known))
        self._values, first = np.unique(known, return_index=True)
        self._scores = self.scores[first]

    def values(self, scores: np.ndarray) -> np.ndarray:
        """Back from scores; beyond the known values the scale goes on as steeply as in its tails."""
        found = np.interp(scores, self._scores, self._values)
        tail = max(1, round(TAIL * len(self._values)))
        if len(self._values) > tail:
            above = np.clip(scores - self._scores[-1], 0, None)
            below = np.clip(self._scores[0] - scores, 0, None)
            found += above * _slope(self._values[[-1 - tail, -1]], self._scores[[-1 - tail, -1]])
            found -= below * _slope(self._values[[0, tail]], self._scores[[0, tail]])
        return np.clip(found, self._values[0] / 2, self._most)


def _slope(values: np.ndarray, scores: np.ndarray) -> float:
    return float(np.diff(values)[0] / np.diff(scores)[0])


def _group(name: str) -> int:
    """Of a count: what a network costs, what lies on its paths, or which operators follow each other."""
    if name.split("/")[-1] in (*COUNTED, *synthetic.COSTS):
        return 0
    return 2 if "-" in name or name in synthetic.MEETINGS.values() else 1
