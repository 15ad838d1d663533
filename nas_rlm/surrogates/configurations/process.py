"""Gaussian processes on the features of the configurations of a program."""

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
from nas_rlm.surrogates.fields.target import NUM_FOLDS, fit_process, interval_width
from nas_rlm.surrogates.gaussian_process import GaussianProcess
from nas_rlm.surrogates.predictive import student_width

MAX_LOGARITHM = 700.0  # of a predicted value
MAX_STANDARDISED, MAX_EXTRAPOLATED = 6.0, 50.0  # larger numbers are cut, for a Matérn and a linear kernel
# Folds of at most so many labels, which are predicted from the others: the fewest one by one.
FOLDS_OF_FEW, FEW_LABELS = 20, 100
LINEAR_ADVANTAGE = 0.5  # error of a linear kernel, which extrapolates laws of sizes, relative to the other
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
class ConfigurationProcess:
    """The Gaussian process of one objective of the configurations of one program.

    Args:
        features: standardised features of M labelled configurations, float64 [M, D].
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
    def fit(cls, features: np.ndarray, scores: np.ndarray) -> tuple[ConfigurationProcess, np.ndarray]:
        """Fit to M labels, and return the process and the score of each label predicted from others [M].

        Args:
            features: standardised features, float64 [M, D].
            scores: scores of the labels, float64 [M].
        """
        center, scale = float(scores.mean()), float(scores.std()) or 1.0
        targets = torch.from_numpy((scores - center) / scale).float().double()
        columns = torch.from_numpy(features).float().double()
        count = columns.shape[1]
        num_folds = FOLDS_OF_FEW if len(targets) <= FEW_LABELS else NUM_FOLDS
        smooth, linear = (
            fit_process(columns, [count], targets, num_linear, num_folds) for num_linear in (0, count)
        )
        errors = [float((left_out[0] - targets).square().mean()) for *_, left_out in (smooth, linear)]
        is_linear = errors[1] < max(LINEAR_ADVANTAGE * errors[0], SMALL_ERROR)
        hyperparameters, alpha, (means, stds) = linear if is_linear else smooth
        width = max(1.0, interval_width((targets - means).numpy(), stds.numpy())) * student_width(
            len(targets)
        )
        process = cls(columns, targets, hyperparameters, alpha, is_linear, center, scale, width)
        return process, center + scale * means.numpy()

    def posterior(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the scores of N configurations, each float64 [N].

        Args:
            features: standardised features, float64 [N, D].
        """
        limit = MAX_EXTRAPOLATED if self.is_linear else MAX_STANDARDISED
        num_linear = features.shape[1] if self.is_linear else 0
        process = GaussianProcess(
            self.features, self.scores, self.hyperparameters, self.alpha, num_linear=num_linear
        )
        means, stds = process.posterior(torch.from_numpy(features.clip(-limit, limit)))
        return self.center + self.scale * means.numpy(), self.scale * self.width * stds.numpy()

    def with_scores_of(self, former: LogTransform, transform: LogTransform) -> ConfigurationProcess:
        """Return the same process with scores of another transform.

        Args:
            former: the transform that its scores are of.
            transform: the other transform.
        """
        center = (self.center * former.std + former.mean - transform.mean) / transform.std
        return replace(self, center=center, scale=self.scale * former.std / transform.std)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return {name: getattr(self, name).float() for name in PROCESS_TENSORS}

    def description(self) -> dict[str, Any]:
        """Return the part that is saved as JSON."""
        return {name: getattr(self, name) for name in ("is_linear", "center", "scale", "width")}

    @classmethod
    def from_saved(
        cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any], num_features: int
    ) -> ConfigurationProcess:
        """Make a process from its `tensors` and its `description`.

        Args:
            tensors: the tensors by name.
            description: the part that was saved as JSON.
            num_features: number of features D.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        is_linear = description["is_linear"] is True
        count = len(tensors.get("scores", ()))
        shapes = {"features": (count, num_features), "hyperparameters": (num_features + 1,)}
        check_shapes(tensors, {**shapes, "scores": (count,), "alpha": (count,)})
        center, scale, factor = (float(description[name]) for name in ("center", "scale", "width"))
        if not (math.isfinite(center) and 0 < scale < math.inf and 0 < factor < math.inf):
            raise ValueError("the scale or the width of a process is not above 0")
        features, scores, hyperparameters, alpha = (tensors[name].double() for name in PROCESS_TENSORS)
        return cls(features, scores, hyperparameters, alpha, is_linear, center, scale, factor)
