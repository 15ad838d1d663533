"""Predictions against measurements over all orders of magnitude, by places in a normal distribution.

`probits` counts and `draw_probits` draws. Source: figure 4 of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from nas_rlm.metrics import spearman
from nas_rlm.plotting.style import FAINT, HUES, INK, plain
from nas_rlm.surrogates.predictive import normal_quantiles, normal_scores

ACROSS = 3  # panels beside each other


def probits(true: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Where values lie among the true ones, as places of a normal distribution: float64 [2, N]."""
    ordered = np.sort(true)
    among = (np.searchsorted(ordered, told, "left") + np.searchsorted(ordered, told, "right")) / 2
    edge = 0.5 / len(true)
    return np.stack([normal_scores(true), normal_quantiles(np.clip(among / len(true), edge, 1 - edge))])


def draw_probits(panels: Mapping[str, np.ndarray]) -> Figure:
    """Predictions against truth over all orders of magnitude: a panel for each true and told, [2, N].

    Ticks are the values below which a tenth, a half and nine tenths of the true ones lie.
    """
    down, across = -(-len(panels) // ACROSS), min(len(panels), ACROSS)
    figure = Figure(figsize=(4 * across, 4.2 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).ravel()
    for empty in places[len(panels) :]:
        empty.remove()
    for axis, (name, (true, told)) in zip(places, panels.items(), strict=False):
        x, y = probits(true, told)
        axis.plot([-3, 3], [-3, 3], color=FAINT, linewidth=1)
        axis.plot(x, y, "o", color=HUES[0], markersize=3, alpha=0.5, markeredgewidth=0)
        shown = (0.1, 0.5, 0.9)
        labels = [f"{v:.3g}" for v in np.quantile(true, shown)]
        axis.set_xticks(normal_quantiles(shown), labels)
        axis.set_yticks(normal_quantiles(shown), labels)
        axis.tick_params(labelsize=8)
        axis.set(xlabel="measured", ylabel="predicted", xlim=(-3, 3), ylim=(-3, 3))
        axis.set_title(f"{name}\nSpearman {spearman(told, true):.3f}", loc="left", fontsize=10, color=INK)
        plain(axis)
    return figure
