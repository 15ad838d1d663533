"""A Gaussian process: what a few values of a smooth function of many features say of the others.

Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, algorithm 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

STEPS, RATE = 80, 0.1  # of Adam on the marginal likelihood
FEW, PARTS = 1000, 3  # values tell weights, so many times at most: their cost grows with the cube
SURE = 1000  # values tell how sure the means are; all tell the means
SPREAD = 0.5  # prior standard deviation of the logarithm of a feature's weight within its group
NOISE = 0.03  # share of the signal's variance from which the search starts
LEAST_NOISE, LEAST_VARIANCE, TINY = 1e-4, 1e-3, 1e-9
ROOT3 = 3**0.5


class Process:
    """A posterior with a Matérn kernel of smoothness 3/2, and a linear one beside it.

    It is learnt in double precision and told in single precision, which is twice as fast and off by a few
    hundredths of its standard deviations at most.

    Args:
        features: float64 [M, D], in no order.
        values: float64 [M], of about unit variance and mean zero.
        weights: see `weights_of`, float64 [D + 1].
        solved: see `solved`, float64 [M].
        linear: so many of the features, the last ones, are those of the linear kernel.
    """

    def __init__(
        self, features: Tensor, values: Tensor, weights: Tensor, solved: Tensor, linear: int = 0
    ) -> None:
        self.weights, self.noise, self.linear = weights[:-1], weights[-1], linear
        known = features * self.weights
        root = _root(known[:SURE], self.noise, linear)
        whitened = torch.linalg.solve_triangular(root, torch.eye(len(root), dtype=root.dtype), upper=False)
        self.known, self.solved, self.whitening = known.float(), solved.float(), whitened.T.float()
        self.variance = max(LEAST_VARIANCE, float(values @ solved) / len(values))

    def posterior(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations, each float64 [N], of new values, their noise among it."""
        asked = features * self.weights
        kernel = _kernel(asked.float(), self.known, self.linear)
        told = (kernel[:, :SURE] @ self.whitening).square().sum(1).double()
        before = 1 + asked[:, asked.shape[1] - self.linear :].square().sum(1)
        left = torch.maximum(before + self.noise - told, self.noise)
        return (kernel @ self.solved).double(), (self.variance * left).sqrt()


def weights_of(features: Tensor, groups: Sequence[int], values: Tensor, linear: int = 0) -> Tensor:
    """The weights of features, and the noise, under which values are likeliest.

    Each group of features has a gain of its own and each feature a weight near its group's, so that a group
    that tells nothing does no harm. Of many values several parts tell weights each, and these are averaged.

    Args:
        features: float64 [M, D], each of about the same spread.
        groups: sizes of the groups, in the order of the features.
        values: float64 [M], of about unit variance and mean zero.
        linear: as for `Process`.

    Returns:
        float64 [D + 1], the last one the noise as a share of the signal.
    """
    whole = max(1, min(PARTS, len(values) // FEW))
    parts = list(zip(features.split(FEW), values.split(FEW), strict=True))[:whole]
    each = [_likeliest(some, groups, theirs, linear) for some, theirs in parts]
    return torch.stack(each).log().mean(0).exp()


def _likeliest(features: Tensor, groups: Sequence[int], values: Tensor, linear: int) -> Tensor:
    """The weights under which all values are likeliest; see `weights_of`."""
    group = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor(groups))
    sizes = torch.tensor(groups, dtype=features.dtype).clamp(min=1)
    gains = (-0.5 * sizes.log() - 1).requires_grad_()
    logs = torch.zeros(features.shape[1], dtype=features.dtype, requires_grad=True)
    noise = torch.tensor(NOISE, dtype=features.dtype).log().requires_grad_()
    optimizer = torch.optim.Adam([gains, logs, noise], lr=RATE)
    for _ in range(STEPS):
        scaled = features * (logs + gains[group]).exp()
        root = _root(scaled, LEAST_NOISE + noise.exp(), linear)
        white = torch.linalg.solve_triangular(root, values[:, None], upper=False)
        likelihood = -0.5 * len(values) * (white.square().mean() + TINY).log() - root.diagonal().log().sum()
        loss = logs.square().sum() / (2 * SPREAD**2) - likelihood
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.cat([(logs + gains[group]).exp(), (LEAST_NOISE + noise.exp())[None]]).detach()


def solved(features: Tensor, values: Tensor, weights: Tensor, linear: int = 0) -> Tensor:
    """The values, divided by the matrix of how they vary together: float64 [M], arguments as for `Process`.

    It is all that the means need, so that whoever keeps it need not divide again.
    """
    return torch.cholesky_solve(values[:, None], _root(features * weights[:-1], weights[-1], linear))[:, 0]


def means(asked: Tensor, known: Tensor, weights: Tensor, solved: Tensor, linear: int = 0) -> Tensor:
    """What a process holds likeliest: float64 [N], for features [N, D] and known ones [M, D]."""
    return _kernel(asked * weights[:-1], known * weights[:-1], linear) @ solved


def _root(known: Tensor, noise: Tensor, linear: int) -> Tensor:
    kernel = _kernel(known, known, linear)
    return torch.linalg.cholesky(kernel + noise * torch.eye(len(known), dtype=known.dtype))


def _kernel(a: Tensor, b: Tensor, linear: int) -> Tensor:
    """How features vary together; the last ones linearly."""
    smooth = a.shape[1] - linear
    return _matern(a[:, :smooth], b[:, :smooth]) + a[:, smooth:] @ b[:, smooth:].T


def _matern(a: Tensor, b: Tensor) -> Tensor:
    squares = a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.T
    distance = ROOT3 * (squares.clamp(min=0) + 1e-8).sqrt()
    return (1 + distance) * torch.exp(-distance)
