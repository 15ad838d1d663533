"""Advice: what labels let expect of other numbers: of another space's, or of another device's.

Networks that are dear and deep among those of their own space are often the more accurate ones there, and how
carries over: a Gaussian process on counts, each in units of how it varies in its own space, ranks networks of
spaces of which it has no label, as far as costs and paths tell it. And what is slow on one device is slow on
another, more or less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.features import STILL, Counts
from nas_rlm.surrogates.gaussian_process import means, solved, weights_of

ADVISING = 1000  # labels of a space, at most, that tell of another
WEIGHING = 300  # of them tell the weights


@dataclass(frozen=True)
class Adviser:
    """A process that knows one number of one space and is asked about another number or space.

    Args:
        counts: D counts, as they vary in the space that it is asked about.
        features: of M labelled networks of the space that it knows, float64 [M, D].
        weights: of the features, and the noise, float64 [D + 1].
        solved: see `nas_rlm.surrogates.gaussian_process.solved`, float64 [M].
        middle: the mean of what it holds of usual networks of the space that it is asked about, float64 [].
    """

    counts: Counts
    features: Tensor
    weights: Tensor
    solved: Tensor
    middle: Tensor

    @classmethod
    def of(
        cls, names: Sequence[str], features: Tensor, scores: Tensor, usual: Sequence[Mapping[str, float]]
    ) -> Adviser | None:
        """An adviser, if what it goes by and what it says vary in the space that it is asked about.

        Args:
            names: of D counts.
            features: of M labelled networks, float64 [M, D].
            scores: of their labels, float64 [M].
            usual: the counts of networks of the space that it will be asked about.
        """
        counts = Counts.carried(usual, names)
        if not counts.names:
            return None
        columns = [names.index(name) for name in counts.names]
        some, known = features[:ADVISING, columns], scores[:ADVISING]
        weights = weights_of(some[:WEIGHING], counts.groups, known[:WEIGHING])
        return cls.weighted(counts, some, known, weights, counts.features(usual))

    @classmethod
    def weighted(
        cls,
        counts: Counts,
        features: Tensor,
        scores: Tensor,
        weights: Tensor,
        usual: Tensor,
    ) -> Adviser | None:
        """An adviser whose weights are known, if what it says varies among usual networks.

        Args:
            counts: D of them, without advisers of their own.
            features: of M labelled networks, float64 [M, D].
            scores: of their labels, float64 [M].
            weights: of the features, and the noise, float64 [D + 1].
            usual: features of networks of the space that it will be asked about, float64 [N, D].
        """
        some, known = features[:ADVISING], scores[:ADVISING]
        found = solved(some, known, weights, counts.linear)
        told = means(usual, some, weights, found, counts.linear)
        if not told.std() > STILL:
            return None
        return cls(counts, some, weights, found / told.std(), told.mean() / told.std())

    def advice(self, features: Tensor) -> Tensor:
        """What it holds of N networks, float64 [N], of mean zero and unit variance among usual ones.

        Args:
            features: `counts` of them, float64 [N, D].
        """
        told = means(features, self.features, self.weights, self.solved, self.counts.linear)
        return told - self.middle

    def tensors(self) -> dict[str, Tensor]:
        """All that it is made of, but for names."""
        return {
            "mean": torch.tensor(self.counts.mean),
            "deviation": torch.tensor(self.counts.deviation),
            "features": self.features.half(),
            "weights": self.weights,
            "solved": self.solved,
            "middle": self.middle,
        }

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], names: Sequence[str]) -> Adviser:
        """From its `tensors` and the names of its counts.

        Raises:
            ValueError: they do not fit each other.
        """
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"counts {names} are not all names")
        m, d = len(tensors.get("features", ())), len(names)
        shapes = {"mean": (d,), "deviation": (d,), "features": (m, d), "weights": (d + 1,), "solved": (m,)}
        check_tensors(tensors, {**shapes, "middle": ()})
        counts = Counts(tuple(names), tensors["mean"].numpy(), tensors["deviation"].numpy())
        parts = (tensors[name].double() for name in ("weights", "solved", "middle"))
        return cls(counts, tensors["features"].double(), *parts)


def check_tensors(tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse what no process is made of.

    Raises:
        ValueError: one is missing or has another shape, a deviation or noise is not above 0, or a weight is
            below 0.
    """
    check_shapes(tensors, shapes)
    weights = tensors["weights"]
    if not (tensors["deviation"] > 0).all() or not (weights >= 0).all() or not (weights[..., -1] > 0).all():
        raise ValueError("a deviation or noise is not above 0, or a weight is below 0")
