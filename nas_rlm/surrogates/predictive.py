"""What is held of numbers: distributions of their scores, and the scale from these to numbers and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST = 10  # values of a number that tell of others
TAIL = 0.1  # share of the values that tells how a scale goes on beyond them
TINY = 1e-6
SHARED = 1.5  # temperature of what network and expert say together, where no rows tell it: they err alike
DOUBT = 1e-3  # share of the probability at each digit that a belief does not tell


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

    def quantiles(self, levels: Sequence[float]) -> np.ndarray:
        """Quantiles of the distributions, float64 [N, levels]."""
        return self.scale.values(self.mean[:, None] + self.deviation[:, None] * normal_quantiles(levels))

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
        import torch
        from torch.special import log_ndtr  # scipy has it too, but is slow to import

        scores = self.scale.scored(edges) - self.mean[:, None, None]
        z = torch.from_numpy(scores / np.maximum(self.deviation, TINY)[:, None, None])
        # Of two edges above the mean, the tail beyond them tells the difference more exactly.
        above = z[..., :-1] > 0
        small = log_ndtr(torch.where(above, -z[..., 1:], z[..., :-1]))
        large = log_ndtr(torch.where(above, -z[..., :-1], z[..., 1:]))
        logs = large + (-torch.expm1((small - large).clamp(max=0))).log()
        told = logs.softmax(-1).nan_to_num(0.0)  # no room between the edges
        share: np.ndarray = ((1 - DOUBT) * told + DOUBT / told.shape[-1]).numpy()
        return share


class Scale:
    """Values as the scores of a normal distribution, by their ranks.

    Beyond the known values the scale goes on as steeply as in its tails.

    Args:
        known: float64 [M].
        most: that there can be.
        few: by their logarithms as well: how far few values are from each other tells more than their ranks.
    """

    def __init__(self, known: np.ndarray, most: float = math.inf, few: bool = False) -> None:
        self.known, self._most = known, most
        self.scores = normal_scores(known)
        logs = np.log(np.maximum(known, TINY))
        if few and logs.std() > 0:
            both = self.scores / self.scores.std() + (logs - logs.mean()) / logs.std()
            self.scores = both / both.std()
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


def normal_quantiles(levels: Sequence[float] | np.ndarray) -> np.ndarray:
    """Quantiles of the normal distribution of mean 0 and deviation 1, of the shape of the levels."""
    import torch
    from torch.special import ndtri

    found: np.ndarray = ndtri(torch.as_tensor(levels, dtype=torch.float64)).numpy()
    return found


def normal_scores(values: np.ndarray) -> np.ndarray:
    """The normal quantiles of values' ranks, float64 [N]; equal values share the mean of theirs."""
    _, position, often = np.unique(values, return_inverse=True, return_counts=True)
    ranks = often.cumsum() - (often - 1) / 2
    return normal_quantiles((ranks[position] - 0.5) / len(values))


def _slope(values: np.ndarray, scores: np.ndarray) -> float:
    return float(np.diff(values)[0] / np.diff(scores)[0])
