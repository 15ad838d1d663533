"""Experts: what measured networks of a space say of its others, by a Gaussian process on what is counted.

A few labels tell a network of millions of weights little, and a process on counts a lot; many labels tell the
network more. So an expert's belief is a factor in the decoding, digit by digit: what the model has not learnt
to tell apart, the expert decides.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data import synthetic
from nas_rlm.model.checkpoint import part_of
from nas_rlm.surrogates.features import ADVICE, CHAINS, SUMS, Counts
from nas_rlm.surrogates.gaussian_process import Process, solved, weights_of
from nas_rlm.surrogates.ngrams import Words
from nas_rlm.surrogates.predictive import SHARED, Belief, Scale
from nas_rlm.surrogates.transfer import Adviser, check_tensors

ADVISED = "accuracy"  # what experts of other spaces are asked
MOST_ACCURATE = 100.0
BESIDE = 6.0  # temperature of a network that learnt from few rows or none, beside an expert that knows more
LATENCY = "latency/"  # how numbers of devices begin
FEW = 100  # latencies or fewer are told by what is known of other devices as well
ALL = range(ADVICE + 1)  # groups of features


@dataclass(frozen=True)
class Expert:
    """A Gaussian process for each number of a space's networks.

    Args:
        counts: what its features are.
        features: of M measured networks, float64 [M, D], D of them with advice.
        values: K numbers of each, float64 [M, K], NaN where one was not measured.
        objectives: their names.
        weights: of the features in each number's S processes, and their noise, float64 [S, D + 1]; 0 of what
            one of several does not go by.
        solved: the means of each number's processes, see `nas_rlm.surrogates.gaussian_process.solved`, float64 [S, M], 0 where
            the number was not measured.
        temperatures: of what network and expert say together of each number, see `nas_rlm.surrogates.calibration`.
        beside: of the network for each number, where it is heard with this expert; elsewhere its own.
    """

    counts: Counts
    features: Tensor
    values: np.ndarray
    objectives: tuple[str, ...]
    weights: Mapping[str, Tensor]
    solved: Mapping[str, Tensor]
    temperatures: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def fitted(
        cls,
        counts: Counts,
        features: Tensor,
        values: np.ndarray,
        objectives: Sequence[str],
        views: Sequence[Collection[int]] = (ALL,),
    ) -> Expert:
        """With the weights under which the values are likeliest.

        Args:
            counts: what its features are.
            features: float64 [M, D].
            values: float64 [M, K].
            objectives: K names.
            views: for each of S processes the groups of features that it goes by.
        """
        features, values = _rounded(features), values.astype(np.float32).astype(float)
        unfitted = cls(counts, features, values, tuple(objectives), {}, {})
        weights, means = {}, {}
        for name, known in zip(objectives, unfitted._known, strict=True):
            scores = torch.from_numpy(unfitted.scales[name].scores)
            each = [_weighed(counts, features[known], scores, view) for view in views]
            weights[name] = torch.stack(each)
            means[name] = torch.zeros(len(views), len(features), dtype=torch.float64)
            found = [solved(features[known], scores, one, counts.linear) for one in each]
            means[name][:, known] = torch.stack(found).float().double()  # as saved
        return replace(unfitted, weights=weights, solved=means)

    @property
    def _known(self) -> list[np.ndarray]:
        """For each number, the positions of the networks that have it."""
        return [np.flatnonzero(np.isfinite(column)) for column in self.values.T]

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """For each number, how its values are spread."""
        return {
            name: Scale(
                column[known],
                MOST_ACCURATE if name.startswith(ADVISED) else math.inf,
                few=name.startswith(LATENCY) and len(known) <= FEW,
            )
            for name, column, known in zip(self.objectives, self.values.T, self._known, strict=True)
        }

    @cached_property
    def _processes(self) -> dict[str, list[Process]]:
        return {}

    def processes(self, objective: str) -> list[Process]:
        """The processes of a number, made when they are first asked for."""
        if objective not in self._processes:
            known = self._known[self.objectives.index(objective)]
            scores = torch.from_numpy(self.scales[objective].scores)
            self._processes[objective] = [
                Process(self.features[known], scores, weights, means[known], self.counts.linear)
                for weights, means in zip(self.weights[objective], self.solved[objective], strict=True)
            ]
        return self._processes[objective]

    def _scored(self, objective: str) -> tuple[Tensor, Tensor]:
        """The features of the networks that have a number, and its scores."""
        known = self._known[self.objectives.index(objective)]
        return self.features[known], torch.from_numpy(self.scales[objective].scores)

    def adviser(self, objective: str, usual: Sequence[Mapping[str, float]]) -> Adviser | None:
        """What it knows of a number, for another space, whose usual networks have such counts."""
        return Adviser.of(self.counts.names, *self._scored(objective), usual)

    def neighbour(self, objective: str, usual: Tensor) -> Adviser | None:
        """What it knows of a number, for others of its own space, whose usual networks have such features."""
        return Adviser.weighted(self.counts, *self._scored(objective), self.weights[objective][0], usual)

    def called(self, names: Mapping[str, str]) -> Expert:
        """The same with other names of some objectives."""
        return replace(
            self,
            objectives=tuple(names.get(name, name) for name in self.objectives),
            weights={names.get(name, name): weights for name, weights in self.weights.items()},
            solved={names.get(name, name): means for name, means in self.solved.items()},
        )

    def without(self, objectives: Sequence[str]) -> Expert | None:
        """An expert for its other numbers, if there are any."""
        left = [k for k, name in enumerate(self.objectives) if name not in objectives]
        if len(left) == len(self.objectives):
            return self
        names = tuple(self.objectives[k] for k in left)
        return replace(self, values=self.values[:, left], objectives=names) if left else None

    def tensors(self) -> dict[str, Tensor]:
        """All that it is made of, but for names."""
        advice = {
            f"adviser{i}.{name}": tensor
            for i, one in enumerate(self.counts.advisers)
            for name, tensor in one.tensors().items()
        }
        return advice | {
            "mean": torch.tensor(self.counts.mean),
            "deviation": torch.tensor(self.counts.deviation),
            "features": self.features.half(),
            "values": torch.tensor(self.values).float(),
            "weights": _single(torch.stack([self.weights[name] for name in self.objectives])),
            "solved": _single(torch.stack([self.solved[name] for name in self.objectives])).float(),
        }

    def described(self) -> dict[str, Any]:
        """Its names, and what is no tensor."""
        return {
            "kind": "process",
            "counts": self.counts.names,
            "advisers": [adviser.counts.names for adviser in self.counts.advisers],
            "objectives": self.objectives,
            "temperatures": dict(self.temperatures),
            "beside": dict(self.beside),
        }

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> Expert:
        """From its `tensors` and what is `described`.

        Raises:
            ValueError: they do not fit each other, or no process has such numbers.
        """
        names, objectives = described["counts"], described["objectives"]
        advisers, beside = described.get("advisers", []), described.get("beside", {})
        temperatures = described["temperatures"]
        if not all(isinstance(name, str) for name in (*names, *objectives)):
            raise ValueError(f"counts {names} and objectives {objectives} are not all names")
        if len(set(objectives)) < len(objectives):
            raise ValueError(f"objectives {objectives} are not different names")
        m, d, k = len(tensors.get("features", ())), len(names), len(objectives)
        of_weights = tensors.get("weights", torch.empty(0)).shape
        several = of_weights[1:2] if len(of_weights) == 3 else ()
        shapes = {
            "mean": (d,),
            "deviation": (d,),
            "features": (m, d + len(advisers)),
            "values": (m, k),
            "weights": (k, *several, d + len(advisers) + 1),
            "solved": (k, *several, m),
        }
        check_tensors(tensors, shapes)
        if not tensors["values"].isfinite().any(0).all():
            raise ValueError("an objective has no values")
        if not all(0 < t < math.inf for known in (temperatures, beside) for t in known.values()):
            raise ValueError("a temperature is not above 0")
        advice = tuple(
            Adviser.restored(part_of(tensors, f"adviser{i}."), known) for i, known in enumerate(advisers)
        )
        counts = Counts(tuple(names), tensors["mean"].numpy(), tensors["deviation"].numpy(), advice)
        each = (tensors[name] if several else tensors[name][:, None] for name in ("weights", "solved"))
        weights, means = (dict(zip(objectives, found.double(), strict=True)) for found in each)
        features, values = tensors["features"].double(), tensors["values"].double().numpy()
        return cls(
            counts,
            features,
            values,
            tuple(objectives),
            weights,
            means,
            dict(temperatures),
            dict(beside),
        )

    def believe(self, features: Tensor, objective: str) -> Belief:
        """What it holds of a number of other networks, whose features are float64 [N, D]."""
        told = [process.posterior(features) for process in self.processes(objective)]
        means, deviations = (torch.stack(found) for found in zip(*told, strict=True))
        mean = means.mean(0)
        variance = (deviations.square() + (means - mean).square()).mean(0)
        temperature = self.temperatures.get(objective, SHARED)
        return Belief(self.scales[objective], mean.numpy(), variance.sqrt().numpy(), temperature)


Knowing = Expert | Words  # of networks by counts, of programs by words
One = TypeVar("One", Expert, Words, Knowing)
KINDS: dict[str, type[Expert] | type[Words]] = {"process": Expert, "words": Words}


def restored(tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> Knowing:
    """A surrogate from its tensors and description, see `nas_rlm.model.checkpoint.load`."""
    return KINDS[described.get("kind", "process")].restored(tensors, described)


def _weighed(counts: Counts, features: Tensor, scores: Tensor, view: Collection[int]) -> Tensor:
    """The weights of all features, 0 of those in groups that are not in the view; see `weights_of`."""
    sizes = [size if group in view else 0 for group, size in enumerate(counts.groups)]
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(counts.groups))
    some = torch.isin(group, torch.tensor(sorted(view)))
    found = weights_of(features[:, some], sizes, scores, sum(sizes[SUMS:]))
    weights = torch.zeros(features.shape[1] + 1, dtype=features.dtype)
    weights[:-1][some], weights[-1] = found[:-1], found[-1]
    return weights


def _single(tensor: Tensor) -> Tensor:
    """[K, S, …], without the second dimension where it is one."""
    return tensor[:, 0] if tensor.shape[1] == 1 else tensor


def knowing(experts: Sequence[One]) -> dict[str, One]:
    """Of each number the expert who is asked: the last one of a space that knows it."""
    return {name: one for one in experts for name in one.objectives}


def on_networks(experts: Mapping[str, Sequence[Knowing]]) -> dict[str, list[Expert]]:
    """Of each space the experts that go by counts of networks."""
    return {space: [one for one in known if isinstance(one, Expert)] for space, known in experts.items()}


def beliefs(
    experts: Sequence[Knowing], texts: Sequence[str], objectives: Sequence[str]
) -> list[Belief | None]:
    """What experts hold of numbers of networks: of each objective the last one that knows it, if any.

    Args:
        experts: of one space.
        texts: of N networks.
        objectives: K names.
    """
    known = knowing(experts)
    asked = [known.get(name) for name in objectives]
    counts = any(isinstance(one, Expert) for one in asked)
    counted = [synthetic.metrics(text, CHAINS) for text in texts] if counts else []
    features = {
        id(one): one.counts.features(counted) if isinstance(one, Expert) else one.read(texts)
        for one in asked
        if one
    }
    pairs = zip(asked, objectives, strict=True)
    return [one.believe(features[id(one)], name) if one else None for one, name in pairs]


def _rounded(features: Tensor) -> Tensor:
    """Features as they are saved, in half precision."""
    most = torch.finfo(torch.half).max
    return features.clamp(-most, most).half().double()
