"""Gaussian-process regression with a Matérn-3/2 kernel and a linear kernel.

Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, algorithm 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nas_rlm.surrogates.adam import adam

ADAM_STEPS, LEARNING_RATE = 80, 0.1  # of the search for hyperparameters
# Hyperparameters are fitted on at most MAX_BLOCKS blocks of rows: the cost grows with the cube of a block's
# size.
BLOCK_SIZE, MAX_BLOCKS = 1000, 3
MAX_VARIANCE_ROWS = 1000  # training rows that predictive variances use; means use all
LOG_SCALE_PRIOR_STD = 0.5  # of a feature's log inverse length scale within its group
INITIAL_NOISE = 0.03  # noise variance relative to the signal variance
NOISE_FLOOR, VARIANCE_FLOOR, EPSILON = 1e-4, 1e-3, 1e-9
SQRT3 = 3**0.5
# A squared distance is a difference of squared norms: their rounding errors are a millionth of this.
MAX_SINGLE_PRECISION_SQUARE = 1000.0


class GaussianProcess:
    """The posterior of a Gaussian process for training rows and hyperparameters.

    Hyperparameters and alpha are computed in double precision. Predictions use single precision, which is
    twice as fast and differs by a few hundredths of a standard deviation at most, unless length scales are so
    short that it would round off the distances between rows.

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
        largest = scaled[:, : scaled.shape[1] - num_linear].square().sum(1).max()
        self.precision = torch.float32 if largest < MAX_SINGLE_PRECISION_SQUARE else torch.float64
        self.scaled_features, self.alpha, self.whitening = (
            tensor.to(self.precision) for tensor in (scaled, alpha, whitening)
        )
        self.variance = max(VARIANCE_FLOOR, float(targets @ alpha) / len(targets))

    def posterior(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and standard deviations of noisy targets, each float64 [N].

        Args:
            features: features of N rows to predict, float64 [N, D].
        """
        scaled = features * self.inverse_length_scales
        kernel = _kernel(scaled.to(self.precision), self.scaled_features, self.num_linear)
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
    fitted = [_fit_block(rows, group_sizes, row_targets, num_linear) for rows, row_targets in blocks]
    return torch.stack(fitted).log().mean(0).exp()


def fit_to_subsets(
    features: Tensor, group_sizes: Sequence[int], targets: Tensor, subsets: Tensor, num_linear: int = 0
) -> Tensor:
    """Fit hyperparameters to several subsets of training rows, such as those of cross-validation.

    Args:
        features: as for `fit_hyperparameters`.
        group_sizes: as for `fit_hyperparameters`.
        targets: as for `fit_hyperparameters`.
        subsets: whether a row is in each of the B subsets, bool [B, M].
        num_linear: as for `GaussianProcess`.

    Returns:
        D inverse length scales, then the noise variance, for each subset, float64 [B, D + 1].
    """
    fitted = [
        fit_hyperparameters(features[subset], group_sizes, targets[subset], num_linear) for subset in subsets
    ]
    return torch.stack(fitted)


def _fit_block(features: Tensor, group_sizes: Sequence[int], targets: Tensor, num_linear: int) -> Tensor:
    """Fit hyperparameters on one block of rows; see `fit_hyperparameters`."""
    group = torch.repeat_interleave(torch.arange(len(group_sizes)), torch.tensor(group_sizes))
    sizes = torch.tensor(group_sizes, dtype=features.dtype).clamp(min=1)
    lengths = [len(sizes), features.shape[1], 1]

    def gradient(parameters: Tensor) -> Tensor:
        log_gains, log_scales, log_noise = parameters.split(lengths)
        scaled = features * (log_scales + log_gains[group]).exp()
        by_scale, by_noise = _likelihood_gradient(scaled, targets, NOISE_FLOOR + log_noise.exp(), num_linear)
        by_gain = torch.zeros_like(log_gains).index_add(0, group, by_scale)
        prior = log_scales / LOG_SCALE_PRIOR_STD**2
        return torch.cat([-by_gain, prior - by_scale, -by_noise * log_noise.exp()])

    log_noise = torch.tensor([INITIAL_NOISE], dtype=features.dtype).log()
    initial = torch.cat([-0.5 * sizes.log() - 1, torch.zeros(lengths[1], dtype=features.dtype), log_noise])
    log_gains, log_scales, log_noise = adam(gradient, initial, ADAM_STEPS, LEARNING_RATE).split(lengths)
    return torch.cat([(log_scales + log_gains[group]).exp(), NOISE_FLOOR + log_noise.exp()])


def _likelihood_gradient(
    scaled: Tensor, targets: Tensor, noise: Tensor, num_linear: int
) -> tuple[Tensor, Tensor]:
    """Return the gradient of the log marginal likelihood for the signal variance that maximises it.

    Args:
        scaled: features times their inverse length scales, float64 [M, D].
        targets: float64 [M].
        noise: noise variance, float64 [1].
        num_linear: as for `GaussianProcess`.

    Returns:
        The derivatives by the log inverse length scales [D], and by the noise variance [1].
    """
    matern, linear = scaled.split([scaled.shape[1] - num_linear, num_linear], 1)
    distance = _scaled_distance(matern, matern)
    decay = torch.exp(-distance)
    kernel = (1 + distance).mul_(decay).addmm_(linear, linear.T)
    kernel.diagonal().add_(noise)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(kernel))
    alpha = inverse @ targets
    variance = targets @ alpha / len(targets) + EPSILON
    by_kernel = inverse.addr_(alpha, alpha, beta=-0.5, alpha=float(0.5 / variance))
    by_linear = 2 * (linear * (by_kernel @ linear)).sum(0)
    by_noise = by_kernel.diagonal().sum()[None]
    # The derivative of the Matérn kernel by a squared distance is -1.5 times the decay.
    weighted = decay.mul_(by_kernel)
    by_matern = -6 * (weighted.sum(1) @ matern.square() - (matern * (weighted @ matern)).sum(0))
    return torch.cat([by_matern, by_linear]), by_noise


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


def leave_one_out(features: Tensor, targets: Tensor, hyperparameters: Tensor, num_linear: int = 0) -> Tensor:
    """Return the posterior mean of each target from all other rows, float64 [M].

    Args:
        features: features of M training rows, float64 [M, D].
        targets: their targets, float64 [M].
        hyperparameters: D inverse length scales, then the noise variance, float64 [D + 1].
        num_linear: as for `GaussianProcess`.
    """
    return leave_one_out_posterior(features, targets, hyperparameters, num_linear)[0]


def leave_one_out_posterior(
    features: Tensor, targets: Tensor, hyperparameters: Tensor, num_linear: int = 0
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each noisy target from all other rows, each float64 [M].

    Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, equation 5.12.

    Args:
        features: as for `leave_one_out`.
        targets: as for `leave_one_out`.
        hyperparameters: as for `leave_one_out`.
        num_linear: as for `GaussianProcess`.
    """
    factor = _cholesky_factor(features * hyperparameters[:-1], hyperparameters[-1], num_linear)
    inverse = torch.cholesky_inverse(factor)
    alpha, precision = inverse @ targets, inverse.diagonal()
    variance = max(VARIANCE_FLOOR, float(targets @ alpha) / len(targets))
    return targets - alpha / precision, (variance / precision).sqrt()


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
    """Return the sum of a Matérn kernel on the first features and a linear kernel on the last, [A, B]."""
    num_matern = a.shape[1] - num_linear
    return _matern(a[:, :num_matern], b[:, :num_matern]) + a[:, num_matern:] @ b[:, num_matern:].T


def _matern(a: Tensor, b: Tensor) -> Tensor:
    """Return the Matérn-3/2 kernel of unit variance and length scale, [A, B]."""
    distance = _scaled_distance(a, b)
    return (1 + distance) * torch.exp(-distance)


def _scaled_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return √3 times the distances between rows, [A, B]."""
    squares = a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.T
    return SQRT3 * (squares.clamp(min=0) + 1e-8).sqrt()
