"""Probability plot: predictions against measurements over all orders of magnitude.

Both axes show normal scores: the standard normal quantile of a value's rank among the measured values.
Source: figure 4 of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from nas_rlm.metrics import spearman
from nas_rlm.plotting.style import FAINT, HUES, INK, style_axis
from nas_rlm.surrogates.predictive import normal_quantiles, normal_scores

MAX_COLUMNS = 3  # panels side by side
TICK_LEVELS = (0.1, 0.5, 0.9)  # quantile levels of the measured values at the ticks
AXIS_LIMIT = 3  # normal scores


def probability_coordinates(measured: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the normal scores of measured and predicted values among the measured ones: float64 [2, N].

    Args:
        measured: [N].
        predicted: [N].
    """
    ordered = np.sort(measured)
    ranks = (np.searchsorted(ordered, predicted, "left") + np.searchsorted(ordered, predicted, "right")) / 2
    min_level = 0.5 / len(measured)
    levels = np.clip(ranks / len(measured), min_level, 1 - min_level)
    return np.stack([normal_scores(measured), normal_quantiles(levels)])


def draw_probability_plot(panels: Mapping[str, np.ndarray]) -> Figure:
    """Draw a probability plot with a panel for each data set.

    Args:
        panels: by title, measured and predicted values [2, N].
    """
    num_rows, num_columns = -(-len(panels) // MAX_COLUMNS), min(len(panels), MAX_COLUMNS)
    figure = Figure(figsize=(4 * num_columns, 4.2 * num_rows), layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    for unused in axes[len(panels) :]:
        unused.remove()
    for axis, (name, (measured, predicted)) in zip(axes, panels.items(), strict=False):
        x, y = probability_coordinates(measured, predicted)
        axis.plot([-AXIS_LIMIT, AXIS_LIMIT], [-AXIS_LIMIT, AXIS_LIMIT], color=FAINT, linewidth=1)
        axis.plot(x, y, "o", color=HUES[0], markersize=3, alpha=0.5, markeredgewidth=0)
        labels = [f"{v:.3g}" for v in np.quantile(measured, TICK_LEVELS)]
        axis.set_xticks(normal_quantiles(TICK_LEVELS), labels)
        axis.set_yticks(normal_quantiles(TICK_LEVELS), labels)
        axis.tick_params(labelsize=8)
        limits = (-AXIS_LIMIT, AXIS_LIMIT)
        axis.set(xlabel="measured", ylabel="predicted", xlim=limits, ylim=limits)
        title = f"{name}\nSpearman {spearman(predicted, measured):.3f}"
        axis.set_title(title, loc="left", fontsize=10, color=INK)
        style_axis(axis)
    return figure
