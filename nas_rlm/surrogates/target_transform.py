"""Transform between the values of a target and standard scores, also for infinite values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from nas_rlm.surrogates.predictive import MAX_SCORE, NormalScoreTransform, normal_quantiles

LINEAR, LOGARITHMIC, RANKS = "linear", "logarithmic", "ranks"
SCALES = (LINEAR, LOGARITHMIC, RANKS)
MAX_QUANTILES = 1000  # of the values, that are saved
MAX_FLOOR = 0.5  # of what is predicted for positive values, relative to the smallest one
FLOOR_PER_VALUE = 0.05  # of few values, for each
SMALL_QUANTILE = 0.1  # of the magnitudes, below which a logarithmic scale is linear


class TargetTransform:
    """Map values of a target to scores of mean about 0 and variance about 1, and back.

    An infinite value is the largest or smallest rank of all: scores above that of the share of finite values
    are infinity. The scores of a target with 10 % infinite values are therefore those of an ordered probit
    model, in which infinity is a category of its own.

    Examples:
        >>> import numpy as np
        >>> transform = TargetTransform(np.array([1.0, 2.0, 3.0, np.inf]), "ranks")
        >>> transform.inverse(np.array([-5.0, -0.3, 2.0])).round(1)
        array([0.4, 2. , inf])

    Args:
        observed: values that define the transform, of which at least one is not NaN, float64 [M].
        scale: one of `SCALES`: linear, logarithmic (of both signs, and linear around 0), or by normal scores
            of ranks.
    """

    def __init__(self, observed: np.ndarray, scale: str) -> None:
        known = np.sort(observed[~np.isnan(observed)])
        if len(known) > MAX_QUANTILES:
            positions = np.linspace(0, len(known) - 1, MAX_QUANTILES).round().astype(int)
            known = known[positions]
        self.observed, self.scale = known, scale
        finite = known[np.isfinite(known)]
        self._share_low, self._share_high = (float(np.mean(known == end)) for end in (-np.inf, np.inf))
        self._finite = finite if len(finite) else np.zeros(1)
        magnitudes = np.abs(self._finite[self._finite != 0])
        self._unit = float(np.quantile(magnitudes, SMALL_QUANTILE)) if len(magnitudes) else 1.0
        warped = self._warp(self._finite)
        self._ranks = NormalScoreTransform(warped) if scale == RANKS else None
        self._size = float(np.abs(warped).max()) or 1.0
        relative = warped / self._size  # squares of large values would overflow
        self._mean, self._std = float(relative.mean()), float(relative.std()) or 1.0

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Map values to scores, in the shape of the values; infinity is the end of the scores."""
        finite = np.clip(values, -sys.float_info.max, sys.float_info.max)
        with np.errstate(over="ignore"):
            scores = np.clip(self._score(self._warp(finite)), -MAX_SCORE, MAX_SCORE)
        if self._has_infinity:
            share = 1 - self._share_low - self._share_high
            scores = _normal_quantiles(self._share_low + share * _normal_shares(scores))
        return np.where(np.isinf(values), np.copysign(MAX_SCORE, values), scores)

    def label_scores(self, values: np.ndarray) -> np.ndarray:
        """Return the scores of labels: as `forward`, but infinite ones share the mean of their ranks."""
        scores = self.forward(values)
        for end, level in ((-np.inf, self._share_low / 2), (np.inf, 1 - self._share_high / 2)):
            scores = np.where(values == end, _normal_quantiles(np.array(level)), scores)
        return scores

    def inverse(self, scores: np.ndarray) -> np.ndarray:
        """Map scores to values, in the shape of the scores."""
        if not self._has_infinity:
            return self._value(np.asarray(scores, dtype=float))
        share = 1 - self._share_low - self._share_high
        levels = (_normal_shares(scores) - self._share_low) / max(share, sys.float_info.epsilon)
        inside = _normal_quantiles(np.clip(levels, 1e-12, 1 - 1e-12))
        values = np.where(levels < 0, -np.inf, np.where(levels > 1, np.inf, self._value(inside)))
        return np.asarray(values)

    def description(self) -> dict[str, Any]:
        """Return the part of the transform that is saved as JSON; `observed` is saved as a tensor."""
        counts = {
            "minus": int((self.observed == -np.inf).sum()),
            "plus": int((self.observed == np.inf).sum()),
        }
        return {"scale": self.scale, "infinite": counts}

    @property
    def finite(self) -> np.ndarray:
        """The finite values that define the transform, ascending, float64."""
        return self.observed[np.isfinite(self.observed)]

    @classmethod
    def from_saved(cls, finite: np.ndarray, description: Mapping[str, Any]) -> TargetTransform:
        """Make a transform from its finite values and its `description`.

        Raises:
            ValueError: the scale is unknown, or there are no values.
        """
        if description["scale"] not in SCALES:
            raise ValueError(f"scale is {description['scale']!r}: expected one of {', '.join(SCALES)}")
        minus, plus = (int(description["infinite"][key]) for key in ("minus", "plus"))
        if minus < 0 or plus < 0 or minus + len(finite) + plus == 0:
            raise ValueError("a transform has no values")
        return cls(np.concatenate([[-np.inf] * minus, finite, [np.inf] * plus]), description["scale"])

    @cached_property
    def _has_infinity(self) -> bool:
        return self._share_low + self._share_high > 0

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        """The smallest and the largest finite value: positive values stay positive, none overflows.

        The fewer values are known, the farther below the smallest one others may be.
        """
        smallest = self._finite.min()
        if smallest < 0:
            return -sys.float_info.max, sys.float_info.max
        return smallest * min(MAX_FLOOR, FLOOR_PER_VALUE * len(self._finite)), sys.float_info.max

    def _warp(self, finite: np.ndarray) -> np.ndarray:
        """Return finite values on the scale; ranks are interpolated on the logarithmic one."""
        if self.scale == LINEAR:
            return finite
        magnitudes = np.abs(finite)
        with np.errstate(over="ignore"):
            ratio = magnitudes / self._unit
        small = np.log1p(np.minimum(ratio, 1e15))
        large = np.log(np.maximum(magnitudes, sys.float_info.min)) - np.log(self._unit)
        return np.sign(finite) * np.where(ratio < 1e15, small, large)

    def _unwarp(self, warped: np.ndarray) -> np.ndarray:
        """Return finite values from those on the scale."""
        if self.scale == LINEAR:
            return warped
        size = np.abs(warped)
        with np.errstate(over="ignore"):
            values = np.where(size < 30, np.expm1(np.minimum(size, 30)) * self._unit, 0.0)
            large = np.exp(np.minimum(size + np.log(self._unit), np.log(sys.float_info.max)))
        return np.sign(warped) * np.where(size < 30, values, large)

    def _score(self, warped: np.ndarray) -> np.ndarray:
        if self._ranks is not None:
            return self._ranks.forward(warped)
        return (warped / self._size - self._mean) / self._std

    def _value(self, scores: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            if self._ranks is not None:
                warped = self._ranks.inverse(scores)
            else:
                warped = (scores * self._std + self._mean) * self._size
            return np.clip(self._unwarp(warped), *self._bounds)


def _normal_shares(scores: np.ndarray) -> np.ndarray:
    """Return the distribution function of the standard normal distribution."""
    import torch
    from torch.special import ndtr

    shares: np.ndarray = ndtr(torch.as_tensor(np.asarray(scores, dtype=float))).numpy()
    return shares


def _normal_quantiles(levels: np.ndarray) -> np.ndarray:
    """Return standard normal quantiles within ±MAX_SCORE, also at the levels 0 and 1."""
    return np.clip(normal_quantiles(levels), -MAX_SCORE, MAX_SCORE)
