"""Predictive densities of two objectives on a grid, from joint samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nas_rlm.metrics import spearman

CONTOUR_MASSES = (0.8, 0.5)  # probability inside each contour, the widest first
GRID_SIZE = 96
KERNEL_BANDWIDTH = 0.45  # in standard deviations of the samples
MEDIAN_JITTER = 1e-3  # noise added to samples, relative to their median
QUARTILE_JITTER = 0.15  # noise added to samples, relative to their interquartile range
MAX_DEVIATION = 2.0  # interquartile ranges beyond the quartiles; samples further out have a wrong exponent


@dataclass(frozen=True)
class Density:
    """The joint predictive density of two objectives of one architecture, on a grid.

    Args:
        name: the architecture.
        x: grid [GRID_SIZE], in the objective's unit.
        y: grid [GRID_SIZE].
        density: [GRID_SIZE, GRID_SIZE], rows along y.
        levels: density at the edge of the region with each of `CONTOUR_MASSES`.
        point: predicted medians (x, y).
        correlation: Spearman correlation of the samples, 0 if an objective does not vary.
        is_measured: whether the architecture was measured; None if the search measured nothing.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    density: np.ndarray
    levels: tuple[float, ...]
    point: tuple[float, float]
    correlation: float
    is_measured: bool | None = None


def estimate_density(name: str, samples: np.ndarray, point: np.ndarray) -> Density:
    """Return the kernel density of joint samples without outliers.

    Noise is added to the samples, since equal or collinear ones have no kernel density.

    Args:
        name: the architecture.
        samples: joint samples of two objectives [S, 2].
        point: predicted medians [2].
    """
    lower, upper = np.quantile(samples, [0.25, 0.75], axis=0)
    median = np.abs(np.median(samples, axis=0))
    jitter = MEDIAN_JITTER * np.maximum(median, MEDIAN_JITTER) + QUARTILE_JITTER * (upper - lower)
    reach = MAX_DEVIATION * (upper - lower) + jitter
    inliers = samples[((samples >= lower - reach) & (samples <= upper + reach)).all(axis=1)]
    cloud = inliers + jitter * np.random.default_rng(0).normal(size=inliers.shape)
    from scipy.stats import gaussian_kde  # slow to import

    kde = gaussian_kde(cloud.T, bw_method=KERNEL_BANDWIDTH)
    margin = 3 * KERNEL_BANDWIDTH * cloud.std(axis=0)
    floor = np.where(samples.min(axis=0) >= 0, 0.0, -np.inf)
    low, high = np.maximum(cloud.min(axis=0) - margin, floor), cloud.max(axis=0) + margin
    x, y = np.linspace(low, high, GRID_SIZE).T
    grid = kde(np.stack([g.ravel() for g in np.meshgrid(x, y)])).reshape(GRID_SIZE, GRID_SIZE)
    return Density(
        name=name,
        x=x,
        y=y,
        density=grid,
        levels=_contour_levels(grid, len(inliers) / len(samples)),
        point=(float(point[0]), float(point[1])),
        correlation=spearman(samples[:, 0], samples[:, 1]),
    )


def _contour_levels(density: np.ndarray, inlier_share: float) -> tuple[float, ...]:
    """The density at the edge of the smallest region with each of `CONTOUR_MASSES`.

    Args:
        density: on the grid.
        inlier_share: probability of the whole grid.
    """
    ordered = np.sort(density, axis=None)[::-1]
    mass = inlier_share * ordered.cumsum() / ordered.sum()
    edges = [np.searchsorted(mass, min(m, 0.98 * inlier_share)) for m in CONTOUR_MASSES]
    return tuple(float(ordered[edge]) for edge in edges)


def contour_extent(grid: np.ndarray, density: Density, axis: int) -> tuple[float, float]:
    """Return the range of the widest contour along an axis.

    Args:
        grid: `x` or `y` of the density.
        density: the density.
        axis: the axis of its array that is reduced: 0 for `x`, 1 for `y`.
    """
    inside = grid[(density.density >= density.levels[0]).any(axis=axis)]
    return float(inside.min()), float(inside.max())


def contour_top(density: Density) -> tuple[float, float]:
    """Return the point (x, y) of the widest contour with the highest y."""
    rows, columns = np.nonzero(density.density >= density.levels[0])
    median_column = int(np.median(columns[rows == rows.max()]))
    return float(density.x[median_column]), float(density.y[rows.max()])
