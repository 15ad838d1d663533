"""Weights of several Gaussian processes and the scale of their intervals, from cross-validation.

With few labels, leave-one-out errors are too small if hyperparameters were fitted to all labels. They are
fitted again without each fold. Source of the weights: pseudo-BMA+ (Yao et al. 2018, Using Stacking to Average
Bayesian Predictive Distributions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nas_rlm.surrogates.gaussian_process import GaussianProcess, compute_alpha

NUM_FOLDS = 5
NUM_BOOTSTRAPS = 300  # of the errors in cross-validation
UNIFORM_SHARE = 0.5  # of equal weights, since few errors are weak evidence
MIN_SQUARED_ERROR = 1e-8
EVIDENCE_PRIOR = 5  # weight of an unchanged standard deviation, in labels


@dataclass(frozen=True)
class MixtureWeights:
    """What cross-validation says about V Gaussian processes of one objective.

    Args:
        weights: weights of the Gaussian processes, which sum to 1, float64 [V].
        std_factor: factor of the standard deviations of their mixture.
    """

    weights: np.ndarray
    std_factor: float = 1.0

    @classmethod
    def equal(cls, num_processes: int) -> MixtureWeights:
        """Return equal weights and unchanged standard deviations."""
        return cls(np.full(num_processes, 1 / num_processes))

    def mixture(self, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the mixture, each float64 [N].

        Args:
            means: means of each Gaussian process, float64 [V, N].
            variances: variances of each Gaussian process, float64 [V, N].
        """
        mean: np.ndarray = self.weights @ means
        variance = self.weights @ (variances + (means - mean) ** 2)
        return mean, self.std_factor * np.sqrt(variance)


def cross_validate(
    features: Tensor, scores: Tensor, fits: Sequence[Callable[[Tensor, Tensor], Tensor]], num_linear: int
) -> MixtureWeights:
    """Return weights and the scale of intervals of Gaussian processes.

    Args:
        features: features of M labelled networks, float64 [M, D].
        scores: normal scores of their labels, float64 [M].
        fits: for each Gaussian process, a function from features and scores to hyperparameters [D + 1].
        num_linear: number of the last features, which the linear kernel uses.
    """
    fold_of = np.random.default_rng(0).permutation(len(scores)) % NUM_FOLDS
    means, variances = np.empty((2, len(fits), len(scores)))
    for fold in range(NUM_FOLDS):
        train, test = (torch.from_numpy(np.flatnonzero(f)) for f in (fold_of != fold, fold_of == fold))
        for k, fit in enumerate(fits):
            hyperparameters = fit(features[train], scores[train])
            alpha = compute_alpha(features[train], scores[train], hyperparameters, num_linear)
            process = GaussianProcess(features[train], scores[train], hyperparameters, alpha, num_linear)
            mean, std = process.posterior(features[test])
            means[k, test], variances[k, test] = mean.numpy(), std.square().numpy()
    true = scores.numpy()
    weights = pseudo_bma_weights(means - true)
    evidence = MixtureWeights((1 - UNIFORM_SHARE) * weights + UNIFORM_SHARE / len(weights))
    mixture_mean, mixture_std = evidence.mixture(means, variances)
    squares = ((true - mixture_mean) / mixture_std) ** 2
    variance = (squares.sum() + EVIDENCE_PRIOR) / (len(true) + EVIDENCE_PRIOR)
    return MixtureWeights(evidence.weights, float(np.sqrt(variance)))


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
