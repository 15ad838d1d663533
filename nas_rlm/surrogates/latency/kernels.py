"""Gaussian processes whose kernels are sums of kernels on groups of features of latencies.

Targets are latencies relative to their mean, and the standard deviation of their noise grows with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nas_rlm.graph.executed_layers import MODES
from nas_rlm.surrogates.adam import adam
from nas_rlm.surrogates.latency.features import CRITICAL, TRANSFER, LatencyFeatures

ADAM_STEPS, LEARNING_RATE = 80, 0.15  # of the search for gains and noise
INITIAL_LOG_GAIN, INITIAL_LOG_NOISE = -1.0, -3.0
LOG_GAIN_STD, LOG_NOISE_STD = 0.7, 2.0  # of their priors
LENGTH_SCALE = 2.0  # of the Matérn kernels, for features of unit variance
MIN_SCALE = 0.25  # smallest noise scale, relative to the mean latency; the noise of a latency grows with it
NOISE_FLOOR, JITTER = 1e-4, 1e-8
CONSTANT, MATERN = "", "matern "  # the constant kernel, and the prefix of Matérn kernels; others are linear


def models_of(graph_features: LatencyFeatures) -> list[list[str]]:
    """Return the names of the kernels of each Gaussian process."""
    groups = graph_features.groups
    modes = [mode for mode in MODES if mode in groups]
    layers = [[group for group in groups if group.startswith(f"{mode}/")] for mode in modes]
    critical = [CRITICAL] if CRITICAL in groups else []
    models = [*layers, modes]
    if critical:
        models += [[*modes, CRITICAL], *([mode, CRITICAL] for mode in modes[1:])]
    nonlinear = [*modes, *critical, *(MATERN + group for group in (*modes[:2], *critical))]
    models.append(nonlinear)
    if TRANSFER in groups:
        models += [[TRANSFER], [TRANSFER, *(layers[0] if layers else [])]]
        models += [[group] for group in groups if group.startswith(f"{TRANSFER}/")]
        models.append([*nonlinear, TRANSFER, MATERN + TRANSFER])
    return [[CONSTANT, *model] for model in models]


def kernel_names(graph_features: LatencyFeatures) -> list[str]:
    """Return the names of all kernels: the constant, a linear one for each group, and Matérn kernels."""
    groups = graph_features.groups
    return [CONSTANT, *groups, *(MATERN + group for group in groups if "/" not in group)]


def kernels_between(
    a: Tensor, b: Tensor, graph_features: LatencyFeatures, names: Sequence[str] | None = None
) -> Tensor:
    """Return kernels between networks a and b, float64 [G, A, B].

    Args:
        a: features of A networks, float64 [A, D].
        b: features of B networks, float64 [B, D].
        graph_features: definition of the features.
        names: some of `kernel_names`; by default all.
    """
    kernels = []
    for name in kernel_names(graph_features) if names is None else names:
        if name == CONSTANT:
            kernels.append(torch.ones(len(a), len(b), dtype=a.dtype))
            continue
        columns = graph_features.groups[name.removeprefix(MATERN)]
        x, y = (features[:, columns] / len(columns) ** 0.5 for features in (a, b))
        kernels.append(_matern(x, y) if name.startswith(MATERN) else x @ y.T)
    return torch.stack(kernels) if kernels else torch.empty(0, len(a), len(b), dtype=a.dtype)


def _matern(a: Tensor, b: Tensor) -> Tensor:
    """Return the Matérn-3/2 kernel of unit variance, [A, B]."""
    distance = 3**0.5 * torch.cdist(a, b) / LENGTH_SCALE
    return (1 + distance) * torch.exp(-distance)


def kernel_diagonals(features: Tensor, graph_features: LatencyFeatures) -> Tensor:
    """Return each kernel of N networks with themselves, float64 [G, N]."""
    ones = torch.ones_like(features[:, 0])
    diagonals = []
    for name in kernel_names(graph_features):
        columns = graph_features.groups.get(name)
        diagonals.append(ones if columns is None else features[:, columns].square().mean(1))
    return torch.stack(diagonals)


def relative_targets(values: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return latencies relative to their mean, and the scales of their noise, each float64 [M]."""
    targets = torch.from_numpy(values / values.mean())
    return targets, targets.clamp(min=MIN_SCALE)


def with_noise(gains: Tensor, kernels: Tensor, noise: Tensor, scales: Tensor) -> Tensor:
    """Return the kernel matrices with noise of V Gaussian processes, [V, M, M]."""
    variances = noise[:, None] * scales.square() + JITTER
    return torch.tensordot(gains, kernels, 1) + torch.diag_embed(variances)


def fit_gains(kernels: Tensor, used: Tensor, targets: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Fit gains and noise of Gaussian processes by maximum a posteriori marginal likelihood.

    Args:
        kernels: the kernels, float64 [G, M, M].
        used: 1 for the kernels that a Gaussian process uses, float64 [V, G].
        targets: float64 [M].
        scales: scales of the noise, float64 [M].

    Returns:
        Gains [V, G] and noise variances [V].
    """
    initial = torch.full_like(used, INITIAL_LOG_GAIN)
    initial[:, 0] = 0.0  # of the constant

    @torch.enable_grad()
    def gradient(parameters: Tensor) -> Tensor:
        variables = parameters.detach().requires_grad_()
        log_gains, log_noise = variables[:, :-1], variables[:, -1]
        gains, noise = log_gains.exp() * used, log_noise.exp() + NOISE_FLOOR
        factors = torch.linalg.cholesky(with_noise(gains, kernels, noise, scales))
        white = torch.linalg.solve_triangular(factors, targets.expand(len(used), -1)[..., None], upper=False)
        log_likelihood = -0.5 * len(targets) * white.square().mean((1, 2)).log()
        log_likelihood = log_likelihood - factors.diagonal(dim1=1, dim2=2).log().sum(1)
        penalty = (log_gains - initial).square().sum(1) / (2 * LOG_GAIN_STD**2)
        penalty = penalty + (log_noise - INITIAL_LOG_NOISE).square() / (2 * LOG_NOISE_STD**2)
        return torch.autograd.grad((penalty - log_likelihood).sum(), variables)[0]

    log_noise = torch.full((len(used), 1), INITIAL_LOG_NOISE, dtype=used.dtype)
    found = adam(gradient, torch.cat([initial, log_noise], 1), ADAM_STEPS, LEARNING_RATE).detach()
    return found[:, :-1].exp() * used, found[:, -1].exp() + NOISE_FLOOR
