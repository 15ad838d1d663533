"""Weights of several Gaussian processes and the scale of their intervals, from cross-validation.

With few labels, leave-one-out errors are too small if hyperparameters were fitted to all labels. They are
fitted again without each fold. Source of the weights: pseudo-BMA+ (Yao et al. 2018, Using Stacking to Average
Bayesian Predictive Distributions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.metrics import spearman
from nas_rlm.surrogates.gaussian_process import GaussianProcess, compute_alpha
from nas_rlm.surrogates.predictive import FittedTransform

NUM_FOLDS = 5
NUM_BOOTSTRAPS = 300  # of the errors in cross-validation
PRIOR_SHARE = 0.5  # of weights that change slowly with errors, since few errors are weak evidence
PRIOR_EXPONENT = 2  # of a process's squared error in these weights
MIN_SQUARED_ERROR = 1e-8
EVIDENCE_PRIOR = 5  # weight of an unchanged standard deviation, in labels
FITTED_PARAMETERS = 2  # by which variances of few labels are increased
MAX_UNEXPLAINED, MIN_SPEARMAN = 0.9, 0.5  # errors in cross-validation that are worse deserve a warning


@dataclass(frozen=True)
class HeldOutErrors:
    """How well labelled networks are predicted from the others.

    Args:
        labels: number of labelled networks.
        spearman: Spearman correlation of predicted and measured values; 0 where either does not vary.
        error: mean absolute error, in units of the objective.
        spread: the error if the median value were predicted for each network.
    """

    labels: int
    spearman: float
    error: float
    spread: float

    @classmethod
    def of(cls, predicted: np.ndarray, measured: np.ndarray) -> HeldOutErrors:
        """Return the errors of predicted and measured values, each float64 [M]."""
        varies = np.ptp(predicted) > 0 and np.ptp(measured) > 0
        return cls(
            len(measured),
            spearman(predicted, measured) if varies else 0.0,
            float(np.abs(predicted - measured).mean()),
            float(np.abs(np.median(measured) - measured).mean()),
        )

    @property
    def is_weak(self) -> bool:
        """Whether the labels explain little: their error is not much below the one of the median."""
        return not (self.error <= MAX_UNEXPLAINED * self.spread and self.spearman >= MIN_SPEARMAN)

    def __str__(self) -> str:
        ranks = f"Spearman {self.spearman:.3f}" if self.spread else "no ranks, since all values are equal"
        return (
            f"{NUM_FOLDS}-fold cross-validation on {self.labels} networks: {ranks}, mean"
            f" error {self.error:.3g}, {self.spread:.3g} if the median is predicted for each"
        )


@dataclass(frozen=True)
class MixtureWeights:
    """What cross-validation says about V Gaussian processes of one objective.

    Args:
        weights: weights of the Gaussian processes, which sum to 1, float64 [V].
        std_factor: factor of the standard deviations of their mixture.
        held_out: errors of the mixture; None in older checkpoints.
    """

    weights: np.ndarray
    std_factor: float = 1.0
    held_out: HeldOutErrors | None = None

    @classmethod
    def equal(cls, num_processes: int) -> MixtureWeights:
        """Return equal weights and unchanged standard deviations."""
        return cls(np.full(num_processes, 1 / num_processes))

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], num_processes: int, objective: str) -> MixtureWeights:
        """Make the evidence of an objective from its `description`.

        Raises:
            ValueError: it is not that of as many Gaussian processes.
        """
        weights, std_factor = np.array(saved["weights"], dtype=float), float(saved["std_factor"])
        if weights.shape != (num_processes,) or not (weights >= 0).all() or not std_factor > 0:
            raise ValueError(f"evidence of {objective} is not {num_processes} weights and a factor above 0")
        held_out = saved.get("held_out")
        return cls(weights, std_factor, HeldOutErrors(**held_out) if held_out else None)

    def description(self) -> dict[str, Any]:
        """Return what is saved as JSON."""
        return {
            "weights": self.weights.tolist(),
            "std_factor": self.std_factor,
            "held_out": asdict(self.held_out) if self.held_out else None,
        }

    def mixture(
        self, means: np.ndarray, variances: np.ndarray, is_usable: np.ndarray | bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the mixture, each float64 [N].

        Args:
            means: means of each Gaussian process, float64 [V, N].
            variances: variances of each Gaussian process, float64 [V, N].
            is_usable: whether a Gaussian process takes part, bool [V, N]; by default all do.
        """
        weights = np.where(is_usable, self.weights[:, None], 0.0)
        weights = weights / weights.sum(0)
        mean: np.ndarray = (weights * means).sum(0)
        variance = (weights * (variances + (means - mean) ** 2)).sum(0)
        return mean, self.std_factor * np.sqrt(variance)


def training_folds(num_labels: int) -> Tensor:
    """Return for each fold of cross-validation which labels are fitted, bool [NUM_FOLDS, num_labels]."""
    fold_of = np.random.default_rng(0).permutation(num_labels) % NUM_FOLDS
    return torch.from_numpy(fold_of != np.arange(NUM_FOLDS)[:, None])


def cross_validate(
    features: Tensor, transform: FittedTransform, hyperparameters: Tensor, num_linear: int
) -> MixtureWeights:
    """Return weights and the scale of intervals of Gaussian processes.

    Args:
        features: features of M labelled networks, float64 [M, D].
        transform: transform between their labels and normal scores.
        hyperparameters: hyperparameters of V Gaussian processes that were fitted to each of
            `training_folds`, float64 [V, NUM_FOLDS, D + 1].
        num_linear: number of the last features, which the linear kernel uses.
    """
    scores = torch.from_numpy(transform.scores)
    means, variances = np.empty((2, len(hyperparameters), len(scores)))
    for fold, is_train in enumerate(training_folds(len(scores))):
        train, test = is_train.nonzero()[:, 0], (~is_train).nonzero()[:, 0]
        for k, fitted in enumerate(hyperparameters[:, fold]):
            alpha = compute_alpha(features[train], scores[train], fitted, num_linear)
            process = GaussianProcess(features[train], scores[train], fitted, alpha, num_linear)
            mean, std = process.posterior(features[test])
            means[k, test], variances[k, test] = mean.numpy(), std.square().numpy()
    true = transform.scores
    evidence = MixtureWeights(weights_of_errors(means - true))
    mixture_mean, mixture_std = evidence.mixture(means, variances)
    squares = ((true - mixture_mean) / mixture_std) ** 2
    variance = (squares.sum() + EVIDENCE_PRIOR) / (len(true) + EVIDENCE_PRIOR)
    variance *= 1 + FITTED_PARAMETERS / len(true)
    held_out = HeldOutErrors.of(transform.inverse(mixture_mean), transform.observed)
    return MixtureWeights(evidence.weights, float(np.sqrt(variance)), held_out)


def weights_of_errors(errors: np.ndarray) -> np.ndarray:
    """Return the weights of V models: those of pseudo-BMA+ and, in equal parts, slowly changing ones.

    The latter are nearly equal for models of similar errors, whose mixture ranks better than the best one. A
    model that lacks what the labels depend on, such as a gene that the text does not show, has nearly none:
    it would draw all predictions to the mean.

    Args:
        errors: see `pseudo_bma_weights`.

    Returns:
        float64 [V].
    """
    squares = np.square(errors).mean(1) + MIN_SQUARED_ERROR
    slow = (squares.min() / squares) ** PRIOR_EXPONENT
    weights: np.ndarray = (1 - PRIOR_SHARE) * pseudo_bma_weights(errors) + PRIOR_SHARE * slow / slow.sum()
    return weights


def pseudo_bma_weights(
    errors: np.ndarray, priors: np.ndarray | float = 1.0, trust: float = 1.0
) -> np.ndarray:
    """Return the weights of V models by pseudo-BMA+, float64 [V].

    Args:
        errors: errors of each model for M labels that it was not fitted to, float64 [V, M].
        priors: prior weights of the models, float64 [V]; by default equal ones.
        trust: factor of the log-likelihoods; below 1 models with similar errors have similar weights.
    """
    num_labels = errors.shape[1]
    shares = np.random.default_rng(0).dirichlet(np.ones(num_labels), NUM_BOOTSTRAPS)
    logs = np.log(priors) - trust * num_labels / 2 * np.log(shares @ (errors**2 + MIN_SQUARED_ERROR).T)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    mean: np.ndarray = (weights / weights.sum(1, keepdims=True)).mean(0)
    return mean
