"""Experts on programs: what measured ones say of others, by a ridge regression on words and their sequences.

What a program takes is told by little pieces of it, such as `[0] * n` or `map(int, input().split())`, and by
what tells which problem it solves. All pieces of one to three words are features, hashed to a fixed number of
places, so that an expert is a weight a place; and each again by how large the input is, where the first line
tells, since what a kernel takes grows with it. See `nas_rlm.surrogates.graph_surrogate` for its part in the decoding.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.predictive import SHARED, Belief, Scale

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix  # below where it is used: networks are told without scipy

PLACES = 1 << 17
FEATURES = 2 * PLACES + 1  # pieces, pieces by size, and size
LARGEST = 63.0  # logarithm of a size, at most
SIZED = (0.7, 0.55)  # how much these count beside pieces alone
LONGEST = 3  # words in a piece
MOST = 6000  # programs that are learnt from, at most
ASKED = 2400  # of them tell the ridge
FOLDS = 4
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)
KEPT = 1000  # quantiles of the known values
_WORD = re.compile(r"\w+|[^\w\s]")
_SHAPE = re.compile(r"[\[(]([\d,\s]*)[\])]")
_REMARK = re.compile(r"(?:#|//)[^\n]*")


@dataclass(frozen=True)
class Words:
    """A ridge regression for each number of programs.

    Args:
        objectives: K names.
        rarity: of the pieces at each place, by which they count, float32 [PLACES].
        usual: mean and deviation of the programs' sizes.
        weights: for each number, float32 [FEATURES].
        values: for each number, quantiles of what was measured, float64 [at most KEPT].
        doubts: for each number, how far scores of programs are from what was told of them.
        temperatures, beside: see `nas_rlm.surrogates.graph_surrogate.Expert`.
    """

    objectives: tuple[str, ...]
    rarity: np.ndarray
    usual: tuple[float, float]
    weights: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]
    doubts: Mapping[str, float]
    temperatures: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def fitted(
        cls, programs: Sequence[str], values: Mapping[str, np.ndarray], groups: Sequence[str] = ()
    ) -> Words:
        """An expert that learns from programs, of each number from `MOST` at most.

        Args:
            programs: M of them.
            values: for each number what was measured of each, float64 [M], NaN where nothing was.
            groups: of each program the problem that it solves, where problems are not to be known again.
        """
        drawn = {
            name: np.random.default_rng(0).permutation(np.flatnonzero(np.isfinite(measured)))[:MOST]
            for name, measured in values.items()
        }
        used = np.unique(np.concatenate([*drawn.values()]))
        read = [programs[i] for i in used]
        pieces, sizes = _pieces(read), _sizes(read)
        usual = (float(sizes.mean()), float(sizes.std()) or 1.0)
        found = cls(tuple(values), _rarity(pieces), usual, {}, {}, {})
        features = found._scaled(pieces, sizes)
        weights, kept, doubts = {}, {}, {}
        for name, measured in values.items():
            known = drawn[name]
            scores = Scale(measured[known]).scores
            rows = features[np.searchsorted(used, known)]
            folds = _folds([(groups or programs)[i] for i in known])
            ridge, doubts[name] = _ridge(rows[:ASKED], scores[:ASKED], folds[:ASKED])
            weights[name] = _half(rows.T @ _solved(_gram(rows), scores, ridge))
            kept[name] = np.quantile(measured[known], np.linspace(0, 1, min(KEPT, len(known))))
        return replace(found, weights=weights, values=kept, doubts=doubts)

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """For each number, how its values are spread."""
        return {name: Scale(values) for name, values in self.values.items()}

    def read(self, programs: Sequence[str]) -> csr_matrix:
        """The features of N programs, [N, FEATURES]."""
        return self._scaled(_pieces(programs), _sizes(programs))

    def believe(self, features: csr_matrix, objective: str) -> Belief:
        """What it holds of a number of other programs, whose features are [N, FEATURES]."""
        mean = features @ self.weights[objective]
        deviation = np.full(len(mean), self.doubts[objective])
        temperature = self.temperatures.get(objective, SHARED)
        return Belief(self.scales[objective], mean.astype(float), deviation, temperature)

    def without(self, objectives: Sequence[str]) -> Words | None:
        """An expert for its other numbers, if there are any."""
        left = tuple(name for name in self.objectives if name not in objectives)
        return replace(self, objectives=left) if left else None

    def tensors(self) -> dict[str, Tensor]:
        """All that it is made of, but for names."""
        found = {"rarity": torch.from_numpy(self.rarity).half()}
        for k, name in enumerate(self.objectives):
            found[f"weights{k}"] = torch.from_numpy(self.weights[name]).half()
            found[f"values{k}"] = torch.from_numpy(self.values[name])
        return found

    def described(self) -> dict[str, Any]:
        """Its names, and what is no tensor."""
        return {
            "kind": "words",
            "objectives": self.objectives,
            "usual": self.usual,
            "doubts": {name: self.doubts[name] for name in self.objectives},
            "temperatures": dict(self.temperatures),
            "beside": dict(self.beside),
        }

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> Words:
        """From its `tensors` and what is `described`.

        Raises:
            ValueError: they do not fit each other.
        """
        given = described["objectives"]
        if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
            raise ValueError(f"objectives {given!r} are no list of names")
        names = tuple(given)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"objectives {names} are not different names")
        of_values = {f"values{k}": (len(tensors.get(f"values{k}", ())),) for k in range(len(names))}
        of_weights = {f"weights{k}": (FEATURES,) for k in range(len(names))}
        check_shapes(tensors, {"rarity": (PLACES,), **of_weights, **of_values})
        if not (tensors["rarity"] > 0).all():
            raise ValueError("a rarity is not above 0")
        values = {name: tensors[f"values{k}"].double().numpy() for k, name in enumerate(names)}
        if not all(
            known.ndim == 1 and len(known) and (np.diff(known) >= 0).all() for known in values.values()
        ):
            raise ValueError("the values of a number are not quantiles")
        told = {
            part: {str(k): float(v) for k, v in described[part].items()}
            for part in ("doubts", "temperatures", "beside")
        }
        if not all(0 < v < np.inf for part in told.values() for v in part.values()) or told[
            "doubts"
        ].keys() != set(names):
            raise ValueError("a doubt or a temperature is missing or not above 0")
        mean, deviation = map(float, described["usual"])
        if not (np.isfinite(mean) and 0 < deviation < np.inf):
            raise ValueError(f"the usual sizes {mean}, {deviation} are no mean and deviation")
        weights = {name: tensors[f"weights{k}"].float().numpy() for k, name in enumerate(names)}
        return cls(names, tensors["rarity"].float().numpy(), (mean, deviation), weights, values, **told)

    def _scaled(self, pieces: csr_matrix, sizes: np.ndarray) -> csr_matrix:
        """Counts of pieces as features of length one, these by size, and size."""
        from scipy.sparse import csr_matrix, diags_array, hstack

        found = pieces.copy()
        found.data = (1 + np.log(found.data)) * self.rarity[found.indices]
        lengths = np.sqrt(np.asarray(found.multiply(found).sum(1)).ravel())
        found.data /= np.repeat(np.maximum(lengths, 1e-9), np.diff(found.indptr))
        mean, deviation = self.usual
        size = ((sizes - mean) / deviation).astype(np.float32)
        by_size = diags_array(SIZED[0] * size) @ found
        by_size.eliminate_zeros()  # all of them, where no program tells a size
        return csr_matrix(hstack([found, by_size, csr_matrix(SIZED[1] * size[:, None])]))


def _pieces(programs: Sequence[str]) -> csr_matrix:
    """How often each program has pieces of each place, float32 [N, PLACES]."""
    from scipy.sparse import csr_matrix

    places: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    for text in programs:
        words = _WORD.findall(text)
        found = Counter(
            crc32(" ".join(words[i : i + n]).encode()) % PLACES
            for n in range(1, LONGEST + 1)
            for i in range(len(words) - n + 1)
        )
        places.append(np.fromiter(found.keys(), np.int32, len(found)))
        counts.append(np.fromiter(found.values(), np.float32, len(found)))
    ends = np.cumsum([0, *map(len, places)])
    parts = (
        np.concatenate([np.empty(0, np.float32), *counts]),
        np.concatenate([np.empty(0, np.int32), *places]),
    )
    return csr_matrix((*parts, ends), shape=(len(programs), PLACES))


def _sizes(programs: Sequence[str]) -> np.ndarray:
    """The logarithm of how many elements the largest input has, float32 [N], 0 where nothing tells it.

    A remark in the first line does: `# input: [[4096, 64], [64]]`.
    """
    return np.array([_size(text) for text in programs], np.float32)


def _size(text: str) -> float:
    remark = _REMARK.match(text)
    shapes = _SHAPE.findall(remark[0]) if remark else []
    logs = [sum(np.log2(max(1.0, float(n))) for n in re.findall(r"\d+", shape)) for shape in shapes]
    return float(min(max(logs, default=0.0), LARGEST))


def _rarity(pieces: csr_matrix) -> np.ndarray:
    """The logarithm of how many programs there are for each that has a place's pieces, float32 [PLACES]."""
    having = np.bincount(pieces.indices, minlength=PLACES)
    return _half(np.log((1 + pieces.shape[0]) / (1 + having)) + 1)


def _half(values: np.ndarray) -> np.ndarray:
    """As they are saved."""
    return np.asarray(values, dtype=np.float16).astype(np.float32)


def _gram(rows: csr_matrix) -> np.ndarray:
    return np.asarray((rows @ rows.T).todense(), dtype=np.float64)


def _solved(gram: np.ndarray, scores: np.ndarray, ridge: float) -> np.ndarray:
    """How much each program counts, float64 [M]."""
    from scipy.linalg import cho_factor, cho_solve

    ridged = gram.copy()
    np.fill_diagonal(ridged, gram.diagonal() + ridge)
    found: np.ndarray = cho_solve(cho_factor(ridged, overwrite_a=True), scores)
    return found


def _folds(groups: Sequence[str]) -> np.ndarray:
    """A part for each program, the same for all of a group, int [M]."""
    return np.array([crc32(group.encode()) % FOLDS for group in groups])


def _ridge(rows: csr_matrix, scores: np.ndarray, folds: np.ndarray) -> tuple[float, float]:
    """The ridge that tells programs of other folds best, and how far it is off there."""
    gram = _gram(rows)
    errors = {}
    for ridge in RIDGES:
        off = np.concatenate(
            [
                gram[np.ix_(folds == k, folds != k)]
                @ _solved(gram[np.ix_(folds != k, folds != k)], scores[folds != k], ridge)
                - scores[folds == k]
                for k in np.unique(folds)
                if (folds != k).any()
            ]
            or [scores]
        )
        errors[ridge] = float(np.sqrt(np.mean(off**2)))
    best = min(reversed(RIDGES), key=errors.__getitem__)  # the strongest, where nothing tells
    return best, max(errors[best], 1e-3)
