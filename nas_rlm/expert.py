"""Experts: what measured networks of a space say of its others, by a Gaussian process on what is counted.

A few labels tell a network of millions of weights little, and a process on counts a lot; many labels tell the
network more. So an expert's belief is a factor in the decoding, digit by digit: what the model has not learnt
to tell apart, the expert decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import groupby

import numpy as np
import torch
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm, rankdata
from torch import Tensor

import search_spaces
from nas_rlm.data import synthetic, tables
from nas_rlm.data.tables import COUNTED, Row, Table
from nas_rlm.process import Process, solved, weights_of
from nas_rlm.text.operators import is_onnx

USUAL = 1000  # random networks that tell what counts are usual
CHAINS = 4  # operators in the longest chains that are counted
RARE = 0.02  # share of networks: what fewer of them have otherwise than the rest is no feature
LEAST, MOST = 10, 4000  # values of an objective that a process is made of
TAIL = 0.1  # share of the values that tells how a scale goes on beyond them
MISSING = -0.5  # a count that a network without a path does not have, where one that it lacks is 0
TINY = 1e-6
STILL = 1e-9  # relative standard deviation of a count that never varies
COSTS, PATHS, SUMS = 0, 1, CHAINS + 1  # groups of features; chains of 2 to `CHAINS` are between the last two
DOUBT = 1e-3  # share of the probability at each digit that a belief does not tell
SHARED = 1.5  # temperature of what network and expert say together, where no rows tell it: they err alike


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


@dataclass(frozen=True)
class Expert:
    """A Gaussian process for each number of a space's networks.

    Args:
        counts: what its features are.
        features: of M measured networks, float64 [M, D].
        values: K numbers of each, float64 [M, K], NaN where one was not measured.
        objectives: their names.
        weights: of the features in each number's process, and its noise, float64 [D + 1].
        solved: the means of each number's process, see `nas_rlm.process.solved`, float64 [M], 0 where the
            number was not measured.
        temperatures: of what network and expert say together of each number, see `nas_rlm.calibration`.
    """

    counts: Counts
    features: Tensor
    values: np.ndarray
    objectives: tuple[str, ...]
    weights: Mapping[str, Tensor]
    solved: Mapping[str, Tensor]
    temperatures: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def fitted(
        cls, counts: Counts, features: Tensor, values: np.ndarray, objectives: Sequence[str]
    ) -> Expert:
        """With the weights under which the values are likeliest."""
        features, values = _rounded(features), values.astype(np.float32).astype(float)
        unfitted = cls(counts, features, values, tuple(objectives), {}, {})
        weights, means = {}, {}
        for name, known in zip(objectives, unfitted._known, strict=True):
            scores = torch.from_numpy(unfitted.scales[name].scores)
            weights[name] = weights_of(features[known], counts.groups, scores)
            means[name] = torch.zeros(len(features), dtype=torch.float64)
            found = solved(features[known], scores, weights[name], counts.groups[-1])
            means[name][known] = found.float().double()  # as saved
        return replace(unfitted, weights=weights, solved=means)

    @property
    def _known(self) -> list[np.ndarray]:
        """For each number, the positions of the networks that have it."""
        return [np.flatnonzero(np.isfinite(column)) for column in self.values.T]

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """For each number, how its values are spread."""
        return {
            name: Scale(column[known], 100.0 if name.startswith("accuracy") else math.inf)
            for name, column, known in zip(self.objectives, self.values.T, self._known, strict=True)
        }

    @cached_property
    def _processes(self) -> dict[str, Process]:
        return {}

    def process(self, objective: str) -> Process:
        """The process of a number, made when it is first asked for."""
        if objective not in self._processes:
            known = self._known[self.objectives.index(objective)]
            scores = torch.from_numpy(self.scales[objective].scores)
            means = self.solved[objective][known]
            self._processes[objective] = Process(
                self.features[known], scores, self.weights[objective], means, self.counts.groups[-1]
            )
        return self._processes[objective]

    def without(self, objectives: Sequence[str]) -> Expert | None:
        """An expert for its other numbers, if there are any."""
        left = [k for k, name in enumerate(self.objectives) if name not in objectives]
        if len(left) == len(self.objectives):
            return self
        names = tuple(self.objectives[k] for k in left)
        return replace(self, values=self.values[:, left], objectives=names) if left else None

    def tensors(self) -> dict[str, Tensor]:
        """All that it is made of, but for names."""
        return {
            "mean": torch.tensor(self.counts.mean),
            "deviation": torch.tensor(self.counts.deviation),
            "features": self.features.half(),
            "values": torch.tensor(self.values).float(),
            "weights": torch.stack([self.weights[name] for name in self.objectives]),
            "solved": torch.stack([self.solved[name] for name in self.objectives]).float(),
        }

    @classmethod
    def restored(
        cls,
        tensors: Mapping[str, Tensor],
        names: Sequence[str],
        objectives: Sequence[str],
        temperatures: Mapping[str, float],
    ) -> Expert:
        """From its `tensors`, the names of its counts, its objectives and their temperatures.

        Raises:
            ValueError: they do not fit each other, or no process has such numbers.
        """
        if not all(isinstance(name, str) for name in (*names, *objectives)):
            raise ValueError(f"counts {names} and objectives {objectives} are not all names")
        if len(set(objectives)) < len(objectives):
            raise ValueError(f"objectives {objectives} are not different names")
        missing = {"mean", "deviation", "features", "values", "weights", "solved"} - tensors.keys()
        if missing:
            raise ValueError(f"{', '.join(sorted(missing))} missing")
        m, d, k = len(tensors["features"]), len(names), len(objectives)
        shapes = {
            "mean": (d,),
            "deviation": (d,),
            "features": (m, d),
            "values": (m, k),
            "weights": (k, d + 1),
            "solved": (k, m),
        }
        for name, shape in shapes.items():
            if tuple(tensors[name].shape) != shape:
                raise ValueError(f"{name} is {tuple(tensors[name].shape)}, expected {shape}")
        if not (tensors["deviation"] > 0).all() or not (tensors["weights"] > 0).all():
            raise ValueError("a deviation or a weight is not above 0")
        if not tensors["values"].isfinite().any(0).all():
            raise ValueError("an objective has no values")
        if not all(0 < t < math.inf for t in temperatures.values()):
            raise ValueError("a temperature is not above 0")
        counts = Counts(tuple(names), tensors["mean"].numpy(), tensors["deviation"].numpy())
        weights = dict(zip(objectives, tensors["weights"], strict=True))
        means = dict(zip(objectives, tensors["solved"].double(), strict=True))
        features, values = tensors["features"].double(), tensors["values"].double().numpy()
        return cls(counts, features, values, tuple(objectives), weights, means, dict(temperatures))

    def believe(self, features: Tensor, objective: str) -> Belief:
        """What it holds of a number of other networks, whose features are float64 [N, D]."""
        mean, deviation = self.process(objective).posterior(features)
        temperature = self.temperatures.get(objective, SHARED)
        return Belief(self.scales[objective], mean.numpy(), deviation.numpy(), temperature)


def experts_of(rows: Sequence[Row], objectives: Sequence[str]) -> dict[str, Expert]:
    """An expert for each space of which rows tell enough; programs are not asked about."""
    found = {}
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        known = [row for row in group if not row.input or is_onnx(row.input)]
        told = enough(known, objectives)
        if space and told:
            counts = usual_counts(space) if space in search_spaces.names() else _counts_of(known)
            found[space] = expert(counts, known, told)
    return found


def enough(rows: Sequence[Row], objectives: Sequence[str]) -> list[str]:
    """Of which objectives rows have so many values that an expert can tell of others."""
    return [name for name in objectives if sum(row.measured(name) for row in rows) >= LEAST]


def _counts_of(rows: Sequence[Row]) -> Counts:
    """The counts of rows of a space that nobody can draw from."""
    some = Table("", list(rows)).sampled(USUAL)
    return Counts.usual(synthetic.counted(tables.texts(some.rows), CHAINS))


@cache
def usual_counts(space: str) -> Counts:
    """The counts of random networks of a space."""
    return Counts.usual([row.targets for row in random_networks(space, USUAL)])


def random_networks(space: str, networks: int, seed: int = 0) -> list[Row]:
    """Networks of a space with their counts: so many, but no more than half of it."""
    size = search_spaces.get(space).size
    return synthetic.table(space, min(networks, size // 2) if size else networks, seed, CHAINS).rows


def expert(counts: Counts, rows: Sequence[Row], objectives: Sequence[str]) -> Expert:
    """An expert that learns from rows.

    Args:
        counts: what its features are.
        rows: measured networks of one space; of each number, `MOST` of those that have it are learnt from.
        objectives: K names, of numbers to tell of others.
    """
    drawn = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    measured = [[row for row in drawn if row.measured(name)][:MOST] for name in objectives]
    wanted = {id(row) for part in measured for row in part}
    some = Table("", [row for row in drawn if id(row) in wanted])
    values = np.stack([some.column(name) for name in objectives], 1)
    return Expert.fitted(counts, counts.read(tables.texts(some.rows)), values, objectives)


def beliefs(
    experts: Sequence[Expert], texts: Sequence[str], objectives: Sequence[str]
) -> list[Belief | None]:
    """What experts hold of numbers of networks: of each objective the last one that knows it, if any.

    Args:
        experts: of one space.
        texts: of N networks.
        objectives: K names.
    """
    knowing = {name: one for one in experts for name in one.objectives}
    asked = [knowing.get(name) for name in objectives]
    counted = [synthetic.metrics(text, CHAINS) for text in texts] if any(asked) else []
    features = {id(one): one.counts.features(counted) for one in asked if one}
    pairs = zip(asked, objectives, strict=True)
    return [one.believe(features[id(one)], name) if one else None for one, name in pairs]


@dataclass(frozen=True)
class Belief:
    """What an expert holds of a number of N networks: a normal distribution of each one's score.

    Args:
        scale: from scores to numbers.
        mean, deviation: of the scores, float64 [N].
        temperature: of what this and a network say together.
    """

    scale: Scale
    mean: np.ndarray
    deviation: np.ndarray
    temperature: float = 1.0

    @property
    def median(self) -> np.ndarray:
        """The numbers in the middle of the distributions, float64 [N]."""
        return self.scale.values(self.mean)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A number from each distribution, float64 [N]."""
        return self.scale.values(self.mean + self.deviation * rng.standard_normal(len(self.mean)))

    def shares(self, edges: np.ndarray) -> np.ndarray:
        """How likely a number is between edges that follow each other, if it is between the outer ones.

        Args:
            edges: float64 [N, n, E + 1], rising.

        Returns:
            float64 [N, n, E], each row with a sum of one where there is room between the edges.
        """
        z = (self.scale.scored(edges) - self.mean[:, None, None]) / np.maximum(self.deviation, TINY)[
            :, None, None
        ]
        # Of two edges above the mean, the tail beyond them tells the difference more exactly.
        above = z[..., :-1] > 0
        small = log_ndtr(np.where(above, -z[..., 1:], z[..., :-1]))
        large = log_ndtr(np.where(above, -z[..., :-1], z[..., 1:]))
        with np.errstate(divide="ignore"):
            logs = large + np.log(-np.expm1(np.minimum(small - large, 0)))
        total = logsumexp(logs, axis=-1, keepdims=True)
        told = np.exp(logs - np.where(np.isfinite(total), total, 0))
        share: np.ndarray = (1 - DOUBT) * told + DOUBT / told.shape[-1]
        return share


class Scale:
    """Values as the scores of a normal distribution, by their ranks.

    Beyond the known values the scale goes on as steeply as in its tails.

    Args:
        known: float64 [M].
        most: that there can be.
    """

    def __init__(self, known: np.ndarray, most: float = math.inf) -> None:
        self._most = most
        self.scores = norm.ppf((rankdata(known) - 0.5) / len(known))
        self._values, first = np.unique(known, return_index=True)
        self._scores = self.scores[first]
        tail = max(1, round(TAIL * len(self._values)))
        has_tails = len(self._values) > tail
        self._below = _slope(self._values[[0, tail]], self._scores[[0, tail]]) if has_tails else 0.0
        self._above = (
            _slope(self._values[[-1 - tail, -1]], self._scores[[-1 - tail, -1]]) if has_tails else 0.0
        )

    def values(self, scores: np.ndarray) -> np.ndarray:
        """From scores to values."""
        found = np.interp(scores, self._scores, self._values)
        found += self._above * np.clip(scores - self._scores[-1], 0, None)
        found -= self._below * np.clip(self._scores[0] - scores, 0, None)
        return np.clip(found, self._values[0] / 2, self._most)

    def scored(self, values: np.ndarray) -> np.ndarray:
        """From values to scores."""
        found: np.ndarray = np.interp(values, self._values, self._scores)
        found += np.clip(values - self._values[-1], 0, None) / max(self._above, 1e-9)
        found -= np.clip(self._values[0] - values, 0, None) / max(self._below, 1e-9)
        return found


def _slope(values: np.ndarray, scores: np.ndarray) -> float:
    return float(np.diff(values)[0] / np.diff(scores)[0])


def _rounded(features: Tensor) -> Tensor:
    """Features as they are saved, in half precision."""
    most = torch.finfo(torch.half).max
    return features.clamp(-most, most).half().double()


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
