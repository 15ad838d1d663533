"""Predictive distributions of surrogates, and the transforms between values and scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

MIN_LABELS = 10  # labels of an objective that a surrogate needs
TAIL_SHARE = 0.1  # share of the distinct values that sets the slope beyond the smallest and the largest
LINEAR_RANGE = 2.0  # deviations from the median up to which a robust transform is linear
MAX_EXPONENT = 50.0  # avoids overflow far beyond the observed values
EPSILON = 1e-6
MAX_SCORE = 1e6
# Temperatures for few labels: of network and surrogate combined, whose errors are correlated, and of the
# network's own logits within that combination.
DEFAULT_COMBINED_TEMPERATURE = 1.5
DEFAULT_NETWORK_TEMPERATURE = 6.0
WITHOUT_NETWORK = 1e6  # network temperature where the surrogate alone predicts
# Share of each digit's probability that is spread evenly, so that none is 0: of a surrogate that the network
# refines, and of one that predicts alone, whose samples would have outliers of any size.
UNIFORM_SHARE, UNIFORM_SHARE_ALONE = 1e-3, 1e-12


class ScoreTransform(Protocol):
    """A monotone transform between values of an objective and scores with normal predictive distributions."""

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Map values to scores, in the shape of the values."""

    def inverse(self, scores: np.ndarray) -> np.ndarray:
        """Map scores to values, in the shape of the scores."""


class FittedTransform(ScoreTransform, Protocol):
    """A transform that observed values define.

    Attributes:
        observed: the values, float64 [M].
        scores: their scores, float64 [M], with mean 0 and deviation about 1.
    """

    observed: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class PredictiveDistribution:
    """A surrogate's prediction of one objective for N rows: a normal distribution of each row's normal score.

    Args:
        transform: transform between normal scores and values of the objective.
        mean: means of the scores, float64 [N].
        std: standard deviations of the scores, float64 [N].
        temperature: divisor of the sum of the log-probabilities of network and surrogate.
        novelty: how unlike the labelled networks each row is, see `LayerSurrogate.transform`, float64 [N];
            None if the surrogate does not know.
        network_weight: factor of the network's log-probabilities for each row, between 0 and 1, float64 [N];
            where it is 0, the temperature does not count either. None for 1.
        is_alone: whether the network does not count at all, see `WITHOUT_NETWORK`.
    """

    transform: ScoreTransform
    mean: np.ndarray
    std: np.ndarray
    temperature: float = 1.0
    novelty: np.ndarray | None = None
    network_weight: np.ndarray | None = None
    is_alone: bool = False

    @property
    def median(self) -> np.ndarray:
        """The medians in units of the objective, float64 [N]."""
        return self.transform.inverse(self.mean)

    def quantiles(self, levels: Sequence[float]) -> np.ndarray:
        """Return the quantiles at Q levels in units of the objective, float64 [N, Q]."""
        return self.transform.inverse(self.mean[:, None] + self.std[:, None] * normal_quantiles(levels))

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value for each row in units of the objective, float64 [N]."""
        return self.transform.inverse(self.mean + self.std * rng.standard_normal(len(self.mean)))

    def interval_probabilities(self, edges: np.ndarray) -> np.ndarray:
        """Return the probability of each interval if the value is between the outer edges.

        Args:
            edges: ascending edges of n sets of E intervals for each row, in units of the objective,
                float64 [N, n, E + 1].

        Returns:
            float64 [N, n, E]; each set sums to 1 unless all of its intervals are empty.
        """
        import torch
        from torch.special import log_ndtr  # scipy has it too, but is slow to import

        scores = self._edge_scores(edges) - self.mean[:, None, None]
        z = torch.from_numpy(scores / np.maximum(self.std, EPSILON)[:, None, None])
        # Above the mean, upper tails lose fewer digits in the difference than lower ones.
        above = z[..., :-1] > 0
        small = log_ndtr(torch.where(above, -z[..., 1:], z[..., :-1]))
        large = log_ndtr(torch.where(above, -z[..., :-1], z[..., 1:]))
        logs = large + (-torch.expm1((small - large).clamp(max=0))).log()
        probabilities = logs.softmax(-1).nan_to_num(0.0)  # NaN where all intervals are empty
        share = UNIFORM_SHARE_ALONE if self.is_alone else UNIFORM_SHARE
        smoothed: np.ndarray = ((1 - share) * probabilities + share / probabilities.shape[-1]).numpy()
        return smoothed

    def _edge_scores(self, edges: np.ndarray) -> np.ndarray:
        """Return the scores of edges; all scores beyond the bounds of the values belong to the bounds."""
        scores = self.transform.forward(edges)
        if not self.is_alone:
            return scores
        with np.errstate(over="ignore"):  # of values that have no bound
            low, high = self.transform.inverse(np.array([-MAX_SCORE, MAX_SCORE]))
        bounded: np.ndarray = np.where(edges <= low, -MAX_SCORE, np.where(edges >= high, MAX_SCORE, scores))
        return bounded


class LogTransform:
    """Map positive values to their logarithms, and back."""

    def inverse(self, scores: np.ndarray) -> np.ndarray:
        """Map logarithms to values, in the shape of the scores."""
        values: np.ndarray = np.exp(scores)
        return values

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Map values to logarithms, in the shape of the values."""
        logs: np.ndarray = np.log(np.maximum(values, EPSILON))
        return logs


class NormalScoreTransform:
    """Map values to normal scores by rank, and back; a rank-based quantile transform.

    Values between the observed ones are interpolated; beyond them the transform is linear with the slope of
    its tails.

    Examples:
        >>> import numpy as np
        >>> NormalScoreTransform(np.array([1.0, 2.0, 4.0])).inverse(np.array([0.0]))
        array([2.])

    Args:
        observed: the values that define the transform, float64 [M].
        maximum: the largest possible value.
        minimum: the smallest possible value. Half of the smallest observed value bounds the values as well if
            it is positive.
        distances: other scores of these values, which keep their distances, such as their logarithms; the
            scores are then the mean of both after standardisation, float64 [M].

    Attributes:
        observed: the values that define the transform, float64 [M].
        scores: normal scores of these values, float64 [M].
    """

    def __init__(
        self,
        observed: np.ndarray,
        maximum: float = math.inf,
        distances: np.ndarray | None = None,
        minimum: float = -math.inf,
    ) -> None:
        self.observed, self._maximum = observed, maximum
        self.scores = normal_scores(observed)
        if distances is not None and distances.std() > 0:
            combined = self.scores / self.scores.std() + (distances - distances.mean()) / distances.std()
            self.scores = combined / combined.std()
        self._knots, first = np.unique(observed, return_index=True)
        self._knot_scores = self.scores[first]
        self._minimum = _smallest_value(observed, minimum)
        tail = max(1, round(TAIL_SHARE * len(self._knots)))
        has_tails = len(self._knots) > tail
        self._lower_slope = self._slope(0, tail) if has_tails else 0.0
        self._upper_slope = self._slope(-1 - tail, -1) if has_tails else 0.0

    def inverse(self, scores: np.ndarray) -> np.ndarray:
        """Map scores to values, in the shape of the scores."""
        values = np.interp(scores, self._knot_scores, self._knots)
        values += self._upper_slope * np.clip(scores - self._knot_scores[-1], 0, None)
        values -= self._lower_slope * np.clip(self._knot_scores[0] - scores, 0, None)
        return np.clip(values, self._minimum, self._maximum)

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Map values to scores, in the shape of the values."""
        scores: np.ndarray = np.interp(values, self._knots, self._knot_scores)
        scores += np.clip(values - self._knots[-1], 0, None) / max(self._upper_slope, 1e-9)
        scores -= np.clip(self._knots[0] - values, 0, None) / max(self._lower_slope, 1e-9)
        return scores

    def _slope(self, first: int, last: int) -> float:
        """Return the slope of the values over the scores between two observed values."""
        ends = [first, last]
        return float(np.diff(self._knots[ends])[0] / np.diff(self._knot_scores[ends])[0])


class RobustTransform:
    """Map values to scores that keep distances: linear around the median, logarithmic far from it.

    A search needs it: what it selects has nearly equal values, which ranks would spread over half of the
    scores, so that predictions above the best value would be close to it. Outliers, such as trainings that
    failed, stay apart from the other values and have little weight.

    Examples:
        >>> import numpy as np
        >>> transform = RobustTransform(np.array([10.0, 90.0, 92.0, 93.0, 94.0]))
        >>> transform.inverse(transform.scores).round(6)
        array([10., 90., 92., 93., 94.])

    Args:
        observed: the values that define the transform, float64 [M].
        maximum: the largest possible value.
        minimum: the smallest possible value. Half of the smallest observed value bounds the values as well if
            it is positive.

    Attributes:
        observed: the values that define the transform, float64 [M].
        scores: scores of these values, float64 [M].
    """

    def __init__(self, observed: np.ndarray, maximum: float = math.inf, minimum: float = -math.inf) -> None:
        self.observed = observed
        self._bounds = _smallest_value(observed, minimum), maximum
        self._median = float(np.median(observed))
        # The half of the values with the smaller deviation sets the scale: the other one has the outliers.
        halves = observed[observed >= self._median], observed[observed <= self._median]
        deviations = [float(np.sqrt(np.square(half - self._median).mean())) for half in halves]
        self._deviation = min((d for d in deviations if d > 0), default=1.0)
        relative = self._compress(observed)
        self._mean, self._std = float(relative.mean()), float(relative.std()) or 1.0
        self.scores = self.forward(observed)

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Map values to scores, in the shape of the values."""
        scores: np.ndarray = (self._compress(values) - self._mean) / self._std
        return scores

    def inverse(self, scores: np.ndarray) -> np.ndarray:
        """Map scores to values, in the shape of the scores."""
        relative = scores * self._std + self._mean
        beyond = np.clip(np.abs(relative) - LINEAR_RANGE, 0, MAX_EXPONENT)
        relative = np.clip(relative, -LINEAR_RANGE, LINEAR_RANGE) + np.sign(relative) * np.expm1(beyond)
        return np.clip(self._median + self._deviation * relative, *self._bounds)

    def _compress(self, values: np.ndarray) -> np.ndarray:
        """Deviations from the median, of which those beyond the linear range are logarithmic."""
        relative = (values - self._median) / self._deviation
        beyond = np.clip(np.abs(relative) - LINEAR_RANGE, 0, None)
        compressed: np.ndarray = np.clip(relative, -LINEAR_RANGE, LINEAR_RANGE)
        return compressed + np.sign(relative) * np.log1p(beyond)


def _smallest_value(observed: np.ndarray, minimum: float) -> float:
    """Return half of the smallest observed value if it is positive, else the smallest possible value."""
    smallest = float(observed.min())
    return smallest / 2 if smallest > 0 else minimum


def normal_quantiles(levels: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return quantiles of the standard normal distribution, float64 in the shape of the levels.

    Args:
        levels: probabilities between 0 and 1.
    """
    import torch
    from torch.special import ndtri

    quantiles: np.ndarray = ndtri(torch.as_tensor(levels, dtype=torch.float64)).numpy()
    return quantiles


def temperatures_from_saved(description: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the temperatures and the network temperatures of a saved description, by objective.

    Args:
        description: the saved description.

    Raises:
        ValueError: one is not above 0.
    """
    temperatures, network = (
        {str(name): float(t) for name, t in description[key].items()}
        for key in ("temperatures", "network_temperatures")
    )
    if not all(0 < t < math.inf for t in (*temperatures.values(), *network.values())):
        raise ValueError("a temperature is not above 0")
    return temperatures, network


def student_width(count: int) -> float:
    """Return the width of 80 % intervals of Student's t distribution with `count` values, in normal ones."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 0.9) / normal_quantiles([0.9])[0])


def normal_scores(values: np.ndarray) -> np.ndarray:
    """Return the normal quantiles of the values' ranks; ties share the mean of their ranks.

    Args:
        values: float64 [N].

    Returns:
        float64 [N].
    """
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = counts.cumsum() - (counts - 1) / 2
    return normal_quantiles((ranks[position] - 0.5) / len(values))
