"""Gaussian processes of one objective of texts, from features of the texts.

The features are fields of the text and what ridge regressions on n-grams and on counts predict for it, see
`nas_rlm.surrogates.fields.surrogate`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.gaussian_process import (
    GaussianProcess,
    compute_alpha,
    fit_hyperparameters,
    leave_one_out,
    leave_one_out_posterior,
)
from nas_rlm.surrogates.predictive import EPSILON, normal_quantiles, student_width
from nas_rlm.surrogates.target_transform import LINEAR, RANKS, SCALES, TargetTransform

MAX_SCALE_TEXTS = 300  # that the scale of a target is chosen on
OTHER_SCALE_PENALTY = 1.05  # of errors on a scale that is not that of the values
MAX_REFITTED_TEXTS = 500  # for which hyperparameters are fitted without each fold: few texts overfit them
MIN_WIDTH, MAX_WIDTH = 1e-3, 10.0  # of intervals, relative to those of the Gaussian process
INTERVAL_SHARE = 0.8  # of values that intervals contain
KNOWN_SHARE = 0.95  # of labelled texts whose standard deviations intervals were calibrated for
FEW_TEXTS = 10  # below which left-out errors say little: intervals are those of Student's t distribution
NUM_FOLDS = 4  # that are left out in turn
NUM_IMPUTED = 64  # labelled texts of which fields are taken that a text lacks
MAX_IMPUTED_FIELDS = 32  # that are replaced in turn at once
NUM_REGRESSIONS = 2  # whose predictions are features: on n-grams and on counts
PROCESS_TENSORS = (
    "features",
    "scores",
    "hyperparameters",
    "alpha",
    "regression_hyperparameters",
    "regression_alpha",
)
TARGET_TENSORS = ("finite", *PROCESS_TENSORS)
EARLIER_VERSION = "the surrogate of texts is that of an earlier version: fit the model again"


@dataclass(frozen=True)
class FieldTarget:
    """The Gaussian processes of one objective.

    A process on many fields overfits few texts that fields do not explain, such as sentences. A second one
    is linear in the last two features alone, what the regressions predict. The means of both are averaged.

    Args:
        transform: transform between values and scores.
        features: features of the M labelled texts, float64 [M, D + 2]: fields, and what n-grams and counts
            predict.
        scores: scores of their labels, float64 [M].
        hyperparameters: see `nas_rlm.surrogates.gaussian_process`, float64 [D + 3].
        alpha: as for the hyperparameters, float64 [M].
        regression_hyperparameters: those of the second process, float64 [3].
        regression_alpha: as for these hyperparameters, float64 [M].
        share: weight of the first process in the mean, from 0 to 1.
        width: factor of the standard deviations, which calibrates intervals.
        known_std: the largest standard deviation for which a narrower `width` holds: that of most labelled
            texts, predicted from the others.
    """

    transform: TargetTransform
    features: Tensor
    scores: Tensor
    hyperparameters: Tensor
    alpha: Tensor
    regression_hyperparameters: Tensor
    regression_alpha: Tensor
    share: float
    width: float
    known_std: float

    @classmethod
    def fit(cls, features: Tensor, group_sizes: Sequence[int], values: np.ndarray) -> FieldTarget:
        """Fit Gaussian processes to M labels, float64 [M], on the scale whose left-out labels they rank best.

        Args:
            features: features of the M texts in random order, float64 [M, D + 2].
            group_sizes: number of features in each group that shares a length scale.
            values: the labels; infinite ones are the largest or smallest.
        """
        transform = _choose_transform(features, group_sizes, values)
        scores = torch.from_numpy(transform.label_scores(values)).float().double()
        features = features.float().double()  # the precision of checkpoints
        regressions, sizes = features[:, -NUM_REGRESSIONS:], [1] * NUM_REGRESSIONS
        hyperparameters, alpha, left_out = fit_process(features, group_sizes, scores)
        of_regressions, regression_alpha, other = fit_process(regressions, sizes, scores, NUM_REGRESSIONS)
        is_enough = len(scores) >= FEW_TEXTS
        share = _best_share(left_out[0] - scores, other[0] - scores) if is_enough else 1.0
        means, stds = (share * a + (1 - share) * b for a, b in zip(left_out, other, strict=True))
        width = interval_width((scores - means).numpy(), stds.numpy())
        if not is_enough:
            width = max(1.0, width) * student_width(len(scores))
        known_std = float(stds.quantile(KNOWN_SHARE))
        processes = hyperparameters, alpha, of_regressions, regression_alpha
        return cls(transform, features, scores, *processes, share, width, known_std)

    def posterior(self, features: Tensor, lacking: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the scores of N texts, each float64 [N].

        A text that lacks a field is predicted with the fields of labelled texts, and has the mean and the
        variance of the mixture. For a number beyond all labelled ones the variance grows with the distance
        and with the effect of the field on the labelled texts.

        Args:
            features: features of the texts, float64 [N, D + 2].
            lacking: fields that they lack, bool [N, D].
        """
        features = (
            features.float().double()
        )  # as labelled texts are saved, so that none is beyond by rounding
        means, stds = self._posterior(features)
        fields = self.features[:, :-NUM_REGRESSIONS]
        texts = features[:, :-NUM_REGRESSIONS]
        distances = torch.maximum(texts - fields.amax(0), fields.amin(0) - texts).clamp(min=0)
        beyond = (distances / (torch.from_numpy(fields.numpy().std(0)) + EPSILON) * ~lacking).numpy()
        for i in lacking.any(1).nonzero().ravel().tolist():
            mixture, noise = self._imputed(features[i], lacking[i : i + 1])
            means[i], stds[i] = mixture.mean(), np.hypot(np.sqrt(np.square(noise).mean()), mixture.std())
        for i in np.flatnonzero(beyond.any(1)):
            columns = np.flatnonzero(beyond[i])
            one_each = torch.eye(beyond.shape[1], dtype=torch.bool)[columns]
            parts = one_each.split(MAX_IMPUTED_FIELDS)
            effects = np.concatenate([self._imputed(features[i], part)[0].std(1) for part in parts])
            stds[i] = np.hypot(stds[i], np.linalg.norm(effects * beyond[i, columns]))
        return means, stds

    def _imputed(self, features: Tensor, replaced: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Predict a text with some of its fields replaced by those of I labelled texts.

        Args:
            features: features of the text, float64 [D + 2].
            replaced: K times, which fields are replaced, bool [K, D].

        Returns:
            Means and standard deviations of the scores, each float64 [K, I].
        """
        labelled = self.features[:NUM_IMPUTED, :-NUM_REGRESSIONS]
        own = features.repeat(len(replaced), len(labelled), 1)
        own[..., :-NUM_REGRESSIONS] = torch.where(replaced[:, None], labelled, own[..., :-NUM_REGRESSIONS])
        means, stds = self._posterior(own.flatten(0, 1))
        return means.reshape(own.shape[:2]), stds.reshape(own.shape[:2])

    def _posterior(self, features: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the scores of N texts that lack no field."""
        first = GaussianProcess(self.features, self.scores, self.hyperparameters, self.alpha)
        second = GaussianProcess(
            self.features[:, -NUM_REGRESSIONS:],
            self.scores,
            self.regression_hyperparameters,
            self.regression_alpha,
            num_linear=NUM_REGRESSIONS,
        )
        both = first.posterior(features), second.posterior(features[:, -NUM_REGRESSIONS:])
        means, stds = (self.share * a + (1 - self.share) * b for a, b in zip(*both, strict=True))
        unknown = (stds - self.known_std).clamp(min=0)
        return means.numpy(), (self.width * (stds - unknown) + max(1.0, self.width) * unknown).numpy()

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return {
            "finite": torch.from_numpy(self.transform.finite),
            **{name: getattr(self, name).float() for name in PROCESS_TENSORS},
        }

    def description(self) -> dict[str, Any]:
        """Return the part that is saved as JSON."""
        scalars = {"share": self.share, "width": self.width, "known_std": self.known_std}
        return {**self.transform.description(), **scalars}

    @classmethod
    def from_saved(
        cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any], num_fields: int
    ) -> FieldTarget:
        """Make the target from its `tensors` and its `description`.

        Args:
            tensors: the tensors by name.
            description: the part that was saved as JSON.
            num_fields: number of fields D.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        if "known_std" not in description:
            raise ValueError(EARLIER_VERSION)
        count, width = len(tensors.get("scores", ())), num_fields + NUM_REGRESSIONS
        shapes = {
            "features": (count, width),
            "scores": (count,),
            "hyperparameters": (width + 1,),
            "alpha": (count,),
            "regression_hyperparameters": (NUM_REGRESSIONS + 1,),
            "regression_alpha": (count,),
            "finite": (len(tensors.get("finite", ())),),
        }
        check_shapes(tensors, shapes)
        share, factor, known_std = (float(description[key]) for key in ("share", "width", "known_std"))
        for key, value in (("width", factor), ("known_std", known_std)):
            if not 0 < value < math.inf:
                raise ValueError(f"the {key} is {value}: expected a number above 0")
        if not 0 <= share <= 1:
            raise ValueError(f"the share is {share}: expected a number from 0 to 1")
        return cls(
            TargetTransform.from_saved(tensors["finite"].double().numpy(), description),
            features=tensors["features"].double(),
            scores=tensors["scores"].double(),
            hyperparameters=tensors["hyperparameters"].double(),
            alpha=tensors["alpha"].double(),
            regression_hyperparameters=tensors["regression_hyperparameters"].double(),
            regression_alpha=tensors["regression_alpha"].double(),
            share=share,
            width=factor,
            known_std=known_std,
        )


def fit_process(
    features: Tensor,
    group_sizes: Sequence[int],
    scores: Tensor,
    num_linear: int = 0,
    num_folds: int = NUM_FOLDS,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return hyperparameters and alpha of a Gaussian process, and its posterior of each score from others.

    Args:
        features: features of M texts, float64 [M, D].
        group_sizes: see `nas_rlm.surrogates.gaussian_process`.
        scores: scores of the texts, float64 [M].
        num_linear: number of the last features, which the linear kernel uses.
        num_folds: number of folds, of which each is predicted from the others.
    """
    hyperparameters = fit_hyperparameters(features, group_sizes, scores, num_linear).float().double()
    alpha = compute_alpha(features, scores, hyperparameters, num_linear).float().double()
    if len(scores) > MAX_REFITTED_TEXTS:
        left_out = leave_one_out_posterior(features, scores, hyperparameters, num_linear)
    else:
        left_out = _left_out_posterior(features, group_sizes, scores, num_linear, num_folds)
    return hyperparameters, alpha, left_out


def _best_share(first: Tensor, second: Tensor) -> float:
    """Return the weight of the first of two predictors that minimises the squared error of their mean.

    Args:
        first: errors of the first predictor [M].
        second: errors of the second.
    """
    difference = second - first
    return float(((second * difference).sum() / (difference.square().sum() + EPSILON)).clamp(0, 1))


def _left_out_posterior(
    features: Tensor, group_sizes: Sequence[int], scores: Tensor, num_linear: int, num_folds: int
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each score from the texts of other folds, each float64 [M]."""
    fold = torch.arange(len(scores)) % num_folds
    means, stds = torch.zeros_like(scores), torch.ones_like(scores)
    for k in range(min(num_folds, len(scores))):
        others = fold != k
        known = features[others], scores[others]
        hyperparameters = fit_hyperparameters(known[0], group_sizes, known[1], num_linear)
        alpha = compute_alpha(*known, hyperparameters, num_linear)
        process = GaussianProcess(*known, hyperparameters, alpha, num_linear=num_linear)
        means[~others], stds[~others] = process.posterior(features[~others])
    return means, stds


def interval_width(errors: np.ndarray, stds: np.ndarray) -> float:
    """Return the factor of standard deviations at which 80 % intervals contain 80 % of the errors.

    Args:
        errors: errors of M means, float64 [M].
        stds: predicted standard deviations, float64 [M].
    """
    sizes = np.abs(errors) / np.maximum(stds, EPSILON)
    width = np.quantile(sizes, INTERVAL_SHARE) / normal_quantiles([(1 + INTERVAL_SHARE) / 2])[0]
    return float(np.clip(width, MIN_WIDTH, MAX_WIDTH))


def _choose_transform(features: Tensor, group_sizes: Sequence[int], values: np.ndarray) -> TargetTransform:
    """Return the transform with the smallest error of left-out labels, in their normal scores."""
    ranks = TargetTransform(values, RANKS)
    if np.isinf(values).any() or np.ptp(values) == 0:
        return ranks
    part = slice(MAX_SCALE_TEXTS)
    true = ranks.forward(values[part])
    errors = {}
    for scale in SCALES:
        transform = TargetTransform(values, scale)
        scores = torch.from_numpy(transform.label_scores(values[part]))
        if not scores.isfinite().all() or scores.std() == 0:
            continue
        hyperparameters = fit_hyperparameters(features[part], group_sizes, scores)
        predicted = transform.inverse(leave_one_out(features[part], scores, hyperparameters).numpy())
        error = float(np.mean(np.abs(ranks.forward(predicted) - true)))
        errors[scale] = error if scale == LINEAR else OTHER_SCALE_PENALTY * error
    return TargetTransform(values, min(errors, key=errors.__getitem__)) if errors else ranks
