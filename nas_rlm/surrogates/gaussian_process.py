"""Gaussian-process regression with a Matérn-3/2 kernel and a linear kernel.

Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, algorithm 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ADAM_STEPS, LEARNING_RATE = 80, 0.1  # of the search for hyperparameters
# Hyperparameters are fitted on at most MAX_BLOCKS blocks of rows: the cost grows with the cube of a block's
# size.
BLOCK_SIZE, MAX_BLOCKS = 1000, 3
MAX_VARIANCE_ROWS = 1000  # training rows that predictive variances use; means use all
LOG_SCALE_PRIOR_STD = 0.5  # of a feature's log inverse length scale within its group
INITIAL_NOISE = 0.03  # noise variance relative to the signal variance
NOISE_FLOOR, VARIANCE_FLOOR, EPSILON = 1e-4, 1e-3, 1e-9
SQRT3 = 3**0.5


class GaussianProcess:
    """The posterior of a Gaussian process for training rows and hyperparameters.

    Hyperparameters and alpha are computed in double precision. Predictions use single precision, which is
    twice as fast and differs by a few hundredths of a standard deviation at most.

    Args:
        features: features of M training rows in random order, float64 [M, D].
        targets: targets with mean about 0 and variance about 1, float64 [M].
        hyperparameters: D inverse length scales, then the noise variance, float64 [D + 1]; see
            `fit_hyperparameters`.
        alpha: inverse kernel matrix times the targets, see `compute_alpha`, float64 [M].
        num_linear: number of the last features, which the linear kernel uses; the Matérn kernel uses the
            others.
    """

    def __init__(
        self, features: Tensor, targets: Tensor, hyperparameters: Tensor, alpha: Tensor, num_linear: int = 0
    ) -> None:
        self.inverse_length_scales, self.noise = hyperparameters[:-1], hyperparameters[-1]
        self.num_linear = num_linear
        scaled = features * self.inverse_length_scales
        factor = _cholesky_factor(scaled[:MAX_VARIANCE_ROWS], self.noise, num_linear)
        identity = torch.eye(len(factor), dtype=factor.dtype)
        whitening = torch.linalg.solve_triangular(factor, identity, upper=False).T
        self.scaled_features, self.alpha, self.whitening = scaled.float(), alpha.float(), whitening.float()
        self.variance = max(VARIANCE_FLOOR, float(targets @ alpha) / len(targets))

    def posterior(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and standard deviations of noisy targets, each float64 [N].

        Args:
            features: features of N rows to predict, float64 [N, D].
        """
        scaled = features * self.inverse_length_scales
        kernel = _kernel(scaled.float(), self.scaled_features, self.num_linear)
        explained = (kernel[:, :MAX_VARIANCE_ROWS] @ self.whitening).square().sum(1).double()
        prior = 1 + scaled[:, scaled.shape[1] - self.num_linear :].square().sum(1)
        relative = torch.maximum(prior + self.noise - explained, self.noise)
        return (kernel @ self.alpha).double(), (self.variance * relative).sqrt()


def fit_hyperparameters(
    features: Tensor, group_sizes: Sequence[int], targets: Tensor, num_linear: int = 0
) -> Tensor:
    """Fit inverse length scales and noise by maximum a posteriori marginal likelihood.

    A prior keeps the inverse length scales of a group of features close to each other, so a group without
    information does little harm. With many rows, several blocks of rows are fitted, and the geometric mean of
    the results is returned.

    Args:
        features: standardised features of M training rows, float64 [M, D].
        group_sizes: number of features in each group, in the order of the features.
        targets: targets with mean about 0 and variance about 1, float64 [M].
        num_linear: as for `GaussianProcess`.

    Returns:
        D inverse length scales, then the noise variance relative to the signal variance, float64 [D + 1].
    """
    num_blocks = max(1, min(MAX_BLOCKS, len(targets) // BLOCK_SIZE))
    blocks = list(zip(features.split(BLOCK_SIZE), targets.split(BLOCK_SIZE), strict=True))[:num_blocks]
    fitted = [
        fit_to_subsets(rows, group_sizes, row_targets, torch.ones(1, len(rows), dtype=torch.bool), num_linear)
        for rows, row_targets in blocks
    ]
    return torch.cat(fitted).log().mean(0).exp()


def fit_to_subsets(
    features: Tensor, group_sizes: Sequence[int], targets: Tensor, subsets: Tensor, num_linear: int = 0
) -> Tensor:
    """Fit hyperparameters to several subsets of training rows at once, such as those of cross-validation.

    Args:
        features: as for `fit_hyperparameters`.
        group_sizes: as for `fit_hyperparameters`.
        targets: as for `fit_hyperparameters`.
        subsets: whether a row is in each of the B subsets, bool [B, M].
        num_linear: as for `GaussianProcess`.

    Returns:
        D inverse length scales, then the noise variance, for each subset, float64 [B, D + 1].
    """
    num_subsets, dtype = len(subsets), features.dtype
    group = torch.repeat_interleave(torch.arange(len(group_sizes)), torch.tensor(group_sizes))
    sizes = torch.tensor(group_sizes, dtype=dtype).clamp(min=1)
    log_gains = (-0.5 * sizes.log() - 1).repeat(num_subsets, 1).requires_grad_()
    log_scales = torch.zeros(num_subsets, features.shape[1], dtype=dtype, requires_grad=True)
    log_noise = torch.full((num_subsets,), INITIAL_NOISE, dtype=dtype).log().requires_grad_()
    optimizer = torch.optim.Adam([log_gains, log_scales, log_noise], lr=LEARNING_RATE)
    for _ in range(ADAM_STEPS):
        scaled = features * (log_scales + log_gains[:, group]).exp()[:, None]
        noise = NOISE_FLOOR + log_noise.exp()
        log_likelihoods = _log_likelihoods(scaled, targets, noise, subsets, num_linear)
        loss = log_scales.square().sum() / (2 * LOG_SCALE_PRIOR_STD**2) - log_likelihoods.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    inverse_length_scales = (log_scales + log_gains[:, group]).exp()
    return torch.cat([inverse_length_scales, (NOISE_FLOOR + log_noise.exp())[:, None]], 1).detach()


def _log_likelihoods(
    scaled: Tensor, targets: Tensor, noise: Tensor, subsets: Tensor, num_linear: int
) -> Tensor:
    """Return log marginal likelihoods for the signal variances that maximise them, up to a constant, [B].

    Args:
        scaled: features times inverse length scales, float64 [B, M, D].
        targets: float64 [M].
        noise: noise variances, float64 [B].
        subsets: whether a row is in each subset, bool [B, M].
        num_linear: as for `GaussianProcess`.
    """
    identity = torch.eye(len(targets), dtype=scaled.dtype)
    matrices = _kernel(scaled, scaled, num_linear) + noise[:, None, None] * identity
    is_within = subsets[:, :, None] & subsets[:, None, :]
    factors = torch.linalg.cholesky(torch.where(is_within, matrices, identity))
    white = torch.linalg.solve_triangular(factors, (targets * subsets)[..., None], upper=False)
    counts = subsets.sum(1)
    fits = -0.5 * counts * (white.square().sum((1, 2)) / counts + EPSILON).log()
    return fits - factors.diagonal(dim1=1, dim2=2).log().sum(1)


def compute_alpha(features: Tensor, targets: Tensor, hyperparameters: Tensor, num_linear: int = 0) -> Tensor:
    """Return alpha, the inverse of the kernel matrix with noise, times the targets.

    Posterior means need only alpha and the features, so it is saved with the model.

    Args:
        features: features of M training rows, float64 [M, D].
        targets: their targets, float64 [M].
        hyperparameters: D inverse length scales, then the noise variance, float64 [D + 1].
        num_linear: as for `GaussianProcess`.

    Returns:
        float64 [M].
    """
    factor = _cholesky_factor(features * hyperparameters[:-1], hyperparameters[-1], num_linear)
    return torch.cholesky_solve(targets[:, None], factor)[:, 0]


def posterior_mean(
    features: Tensor, train_features: Tensor, hyperparameters: Tensor, alpha: Tensor, num_linear: int = 0
) -> Tensor:
    """Return posterior means in double precision, float64 [N].

    Args:
        features: features of N rows to predict, float64 [N, D].
        train_features: features of M training rows, float64 [M, D].
        hyperparameters: D inverse length scales, then the noise variance, float64 [D + 1].
        alpha: see `compute_alpha`, float64 [M].
        num_linear: as for `GaussianProcess`.
    """
    scales = hyperparameters[:-1]
    return _kernel(features * scales, train_features * scales, num_linear) @ alpha


def _cholesky_factor(scaled: Tensor, noise: Tensor, num_linear: int) -> Tensor:
    """Return the lower Cholesky factor of the kernel matrix with noise, [M, M]."""
    kernel = _kernel(scaled, scaled, num_linear)
    return torch.linalg.cholesky(kernel + noise * torch.eye(len(scaled), dtype=scaled.dtype))


def _kernel(a: Tensor, b: Tensor, num_linear: int) -> Tensor:
    """Return the sum of a Matérn kernel on the first features and a linear kernel on the last, […, A, B]."""
    num_matern = a.shape[-1] - num_linear
    return _matern(a[..., :num_matern], b[..., :num_matern]) + a[..., num_matern:] @ b[..., num_matern:].mT


def _matern(a: Tensor, b: Tensor) -> Tensor:
    """Return the Matérn-3/2 kernel of unit variance and length scale, […, A, B]."""
    squares = a.square().sum(-1)[..., None] + b.square().sum(-1)[..., None, :] - 2 * a @ b.mT
    distance = SQRT3 * (squares.clamp(min=0) + 1e-8).sqrt()
    return (1 + distance) * torch.exp(-distance)
