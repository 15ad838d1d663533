"""Relative hypervolume of several methods against a budget of evaluations or measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from nas_rlm.plotting.style import HUES, INK, plot_mean_band, style_axis

Statistics = Mapping[tuple[str, str, int], tuple[float, float]]  # of a panel, a method and a budget
Curves = Mapping[str, Mapping[str, Sequence[tuple[int, float, float]]]]

PANEL_WIDTH, HEIGHT = 5, 4.2  # inches


def hypervolume_curves(
    statistics: Statistics, methods: Sequence[str]
) -> dict[str, dict[str, list[tuple[int, float, float]]]]:
    """Return the curve of each method in each panel, sorted by budget.

    Args:
        statistics: mean and standard deviation of the relative hypervolume by panel, method and budget.
        methods: names of the methods, in their order.

    Returns:
        By title of the panel and method, triples of budget, mean and standard deviation; methods without any
        are left out.
    """
    panels = dict.fromkeys(panel for panel, _, _ in statistics)
    curves = {
        panel: {
            method: sorted(
                (b, *value) for (p, m, b), value in statistics.items() if (p, m) == (panel, method)
            )
            for method in methods
        }
        for panel in panels
    }
    return {panel: {m: c for m, c in by_method.items() if c} for panel, by_method in curves.items()}


def draw_hypervolume_curves(curves: Curves, methods: Sequence[str], xlabel: str, log: bool = False) -> Figure:
    """Draw mean and standard deviation of the relative hypervolume, in a panel for each title.

    Args:
        curves: see `hypervolume_curves`.
        methods: names of the methods, which decide their colours.
        xlabel: label of the x axes.
        log: use logarithmic x axes.
    """
    hues = dict(zip(methods, HUES, strict=False))
    figure = Figure(figsize=(PANEL_WIDTH * len(curves), HEIGHT), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, (title, by_method) in zip(axes, curves.items(), strict=True):
        for method, curve in by_method.items():
            budgets = [budget for budget, _, _ in curve]
            values = [(mean, deviation) for _, mean, deviation in curve]
            plot_mean_band(axis, budgets, values, hues[method], method)
        if log:
            axis.set_xscale("log")
        axis.set_title(title, fontsize=10, color=INK, loc="left")
        axis.set_xlabel(xlabel, color=INK)
        style_axis(axis)
    axes[0].set_ylabel("relative hypervolume in true values", color=INK)
    axes[0].legend(frameon=False, fontsize=9.5, labelcolor=INK)
    return figure
