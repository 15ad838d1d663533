"""Gaussian processes on the numbers of a program, of which the configurations are equal otherwise."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.field_target import fit_process, interval_width
from nas_rlm.surrogates.gaussian_process import GaussianProcess
from nas_rlm.surrogates.predictive import EPSILON, student_width

MAX_NUMBER = 1e100
MAX_LOGARITHM = 700.0  # of a predicted value
MAX_STANDARDISED, MAX_EXTRAPOLATED = 6.0, 50.0  # larger numbers are cut, for a Matérn and a linear kernel
LINEAR_PREFERENCE = 1.1  # factor of the error of a linear kernel, which extrapolates laws of sizes
SMALL_ERROR = 0.01  # of standardised scores, below which a kernel is linear
PROCESS_TENSORS = ("features", "scores", "hyperparameters", "alpha")


@dataclass(frozen=True)
class LogTransform:
    """Transform between values above 0 and their standardised logarithms.

    Args:
        smallest: the smallest label.
        largest: the largest label.
        mean: mean of the logarithms of the labels.
        std: their standard deviation.
    """

    smallest: float
    largest: float
    mean: float
    std: float

    @classmethod
    def fit(cls, labels: np.ndarray) -> LogTransform:
        """Fit to M labels above 0, float64 [M]."""
        logarithms = np.log(labels)
        std = float(logarithms.std()) or 1.0
        return cls(float(labels.min()), float(labels.max()), float(logarithms.mean()), std)

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Map values to scores, in the shape of the values; those that are not above 0 are the smallest."""
        scores: np.ndarray = (np.log(np.maximum(values, sys.float_info.min)) - self.mean) / self.std
        return scores

    def inverse(self, scores: np.ndarray) -> np.ndarray:
        """Map scores to values, in the shape of the scores."""
        return np.exp(np.clip(scores * self.std + self.mean, -MAX_LOGARITHM, MAX_LOGARITHM))

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> LogTransform:
        """Make a transform from its fields as JSON.

        Raises:
            ValueError: a number is out of range.
        """
        numbers = [float(saved[name]) for name in ("smallest", "largest", "mean", "std")]
        if not (all(map(math.isfinite, numbers)) and numbers[-1] > 0):
            raise ValueError("the numbers of a transform are not finite, or the deviation is not above 0")
        return cls(*numbers)


@dataclass(frozen=True)
class NumberScaling:
    """Standardisation of the numbers of a program that differ between its configurations.

    Args:
        positions: positions of these numbers in the program; of those that rank the configurations alike, the
            first one, int64 [D].
        is_log: whether the logarithm of each counts, bool [D].
        scaling: mean and standard deviation of each, float64 [2, D].
    """

    positions: np.ndarray
    is_log: np.ndarray
    scaling: np.ndarray

    @classmethod
    def fit(cls, numbers: np.ndarray) -> NumberScaling:
        """Fit to the numbers of M configurations, float64 [M, P]."""
        positions: list[int] = []
        ranks: list[tuple[int, ...]] = []
        for position, column in enumerate(numbers.T):
            codes = np.unique(column, return_inverse=True)[1]
            same = {tuple(codes.tolist()), tuple((codes.max() - codes).tolist())}
            if codes.max() > 0 and not same.intersection(ranks):
                positions.append(position)
                ranks.append(tuple(codes.tolist()))
        is_log = np.array([bool((numbers[:, position] > 0).all()) for position in positions])
        unscaled = cls(np.array(positions, int), is_log, np.repeat([[0.0], [1.0]], len(positions), axis=1))
        values = unscaled.transform(numbers)
        return replace(unscaled, scaling=np.stack([values.mean(0), values.std(0) + EPSILON]))

    def transform(self, numbers: np.ndarray) -> np.ndarray:
        """Return the standardised numbers of N configurations, float64 [N, D]."""
        values = numbers[:, self.positions]
        logarithms = np.log(np.maximum(values, 1 / MAX_NUMBER))
        centered = np.where(self.is_log, logarithms, values) - self.scaling[0]
        standardised: np.ndarray = centered / self.scaling[1]
        return standardised

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return {
            "positions": torch.from_numpy(self.positions),
            "is_log": torch.from_numpy(self.is_log.astype(np.uint8)),
            "scaling": torch.from_numpy(self.scaling),
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor]) -> NumberScaling:
        """Make a scaling from its `tensors`.

        Raises:
            ValueError: a tensor is missing or has another shape, or a value is out of range.
        """
        count = len(tensors.get("positions", ()))
        shapes = {"positions": (count,), "is_log": (count,), "scaling": (2, count)}
        check_shapes(tensors, shapes, {"positions": torch.int64, "is_log": torch.uint8})
        positions, is_log, scaling = (tensors[name].numpy() for name in shapes)
        if not (count and (positions >= 0).all() and (scaling[1] > 0).all()):
            raise ValueError("the positions of numbers or their deviations are not above 0")
        return cls(positions, is_log > 0, scaling.astype(float))


@dataclass(frozen=True)
class ConfigurationProcess:
    """The Gaussian process of one objective of the configurations of one program.

    Args:
        features: standardised numbers of M labelled configurations, float64 [M, D].
        scores: standardised scores of their labels, float64 [M].
        hyperparameters: see `nas_rlm.surrogates.gaussian_process`.
        alpha: see `nas_rlm.surrogates.gaussian_process`, float64 [M].
        is_linear: whether the kernel is linear, which extrapolates, instead of a Matérn kernel.
        center: mean of the scores.
        scale: standard deviation of the scores.
        width: factor of the standard deviations, which calibrates intervals.
    """

    features: Tensor
    scores: Tensor
    hyperparameters: Tensor
    alpha: Tensor
    is_linear: bool
    center: float
    scale: float
    width: float

    @classmethod
    def fit(cls, numbers: np.ndarray, scores: np.ndarray) -> tuple[ConfigurationProcess, np.ndarray]:
        """Fit to M labels, and return the process and the score of each label predicted from others [M].

        Args:
            numbers: standardised numbers, float64 [M, D].
            scores: scores of the labels, float64 [M].
        """
        center, scale = float(scores.mean()), float(scores.std()) or 1.0
        targets = torch.from_numpy((scores - center) / scale).float().double()
        columns = torch.from_numpy(numbers).float().double()
        count = columns.shape[1]
        smooth, linear = (fit_process(columns, [count], targets, num_linear) for num_linear in (0, count))
        errors = [float((left_out[0] - targets).square().mean()) for *_, left_out in (smooth, linear)]
        is_linear = errors[1] < max(LINEAR_PREFERENCE * errors[0], SMALL_ERROR)
        hyperparameters, alpha, (means, stds) = linear if is_linear else smooth
        width = max(1.0, interval_width((targets - means).numpy(), stds.numpy())) * student_width(
            len(targets)
        )
        process = cls(columns, targets, hyperparameters, alpha, is_linear, center, scale, width)
        return process, center + scale * means.numpy()

    def posterior(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the scores of N configurations, each float64 [N].

        Args:
            numbers: standardised numbers, float64 [N, D].
        """
        limit = MAX_EXTRAPOLATED if self.is_linear else MAX_STANDARDISED
        features = torch.from_numpy(numbers.clip(-limit, limit))
        num_linear = features.shape[1] if self.is_linear else 0
        process = GaussianProcess(
            self.features, self.scores, self.hyperparameters, self.alpha, num_linear=num_linear
        )
        means, stds = process.posterior(features)
        return self.center + self.scale * means.numpy(), self.scale * self.width * stds.numpy()

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return {name: getattr(self, name).float() for name in PROCESS_TENSORS}

    def description(self) -> dict[str, Any]:
        """Return the part that is saved as JSON."""
        return {name: getattr(self, name) for name in ("is_linear", "center", "scale", "width")}

    @classmethod
    def from_saved(
        cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any], num_numbers: int
    ) -> ConfigurationProcess:
        """Make a process from its `tensors` and its `description`.

        Args:
            tensors: the tensors by name.
            description: the part that was saved as JSON.
            num_numbers: how many numbers D differ.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        is_linear = description["is_linear"] is True
        count = len(tensors.get("scores", ()))
        shapes = {"features": (count, num_numbers), "hyperparameters": (num_numbers + 1,)}
        check_shapes(tensors, {**shapes, "scores": (count,), "alpha": (count,)})
        center, scale, factor = (float(description[name]) for name in ("center", "scale", "width"))
        if not (math.isfinite(center) and 0 < scale < math.inf and 0 < factor < math.inf):
            raise ValueError("the scale or the width of a process is not above 0")
        features, scores, hyperparameters, alpha = (tensors[name].double() for name in PROCESS_TENSORS)
        return cls(features, scores, hyperparameters, alpha, is_linear, center, scale, factor)
