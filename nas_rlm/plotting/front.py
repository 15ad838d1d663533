"""The picture of a search: evaluated architectures, the Pareto front, and the predictive distributions.

`front_info` computes what is shown, and `draw_front` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from nas_rlm.metrics import spearman
from nas_rlm.plotting.density import CONTOUR_MASSES, Density, contour_extent, contour_top, estimate_density
from nas_rlm.plotting.style import FAINT, FRONT, HUES, INK, MUTED, style_axis
from nas_rlm.search.pareto import is_non_dominated
from nas_rlm.search.result import MEASURED, SearchResult
from nas_rlm.search.settings import Constraint
from nas_rlm.utils.axes import axis_label, outlier_threshold, padded_limits
from nas_rlm.utils.validation import suggest

MAX_HIGHLIGHTS = 5  # architectures of the front whose predictive distributions are drawn
INFEASIBLE_LABELS = ("outside the constraints", "outside the constraints, or does not run")
CLOUD_COLOR, MEASURED_COLOR = "#8d99ae", "#111827"
NO_MEASUREMENTS: Mapping[str, Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True)
class Panel:
    """A scatter plot of two objectives.

    Args:
        x: objective on the x axis, or `evaluation` for a search with one objective.
        y: objective on the y axis.
        feasible: evaluated architectures that meet the constraints [N, 2].
        infeasible: the other ones [M, 2].
        front: the points of the front [F, 2].
        measured: whether each of them was measured, bool [F]; None if the search measured nothing.
        outline: points of the front that are non-dominated in these two objectives alone [G, 2], by x.
        densities: predictive densities of the highlighted points.
        constraints: constraints on x or y.
        xlim: limits of the x axis.
        ylim: limits of the y axis.
        num_hidden: number of points of the front outside the limits.
        is_x_maximised: whether x is maximised.
        predicted_and_measured: predicted and measured point of each labelled architecture of the front
            [T, 2, 2].
        rank_correlations: number of labelled architectures among the evaluated ones, and Spearman
            correlations of prediction and label in x and in y; None with fewer than 2.
    """

    x: str
    y: str
    feasible: np.ndarray
    infeasible: np.ndarray
    front: np.ndarray
    measured: np.ndarray | None
    outline: np.ndarray
    densities: list[Density]
    constraints: list[Constraint]
    xlim: tuple[float, float]
    ylim: tuple[float, float]
    num_hidden: int
    is_x_maximised: bool
    predicted_and_measured: np.ndarray
    rank_correlations: tuple[int, float, float] | None


@dataclass(frozen=True)
class FrontInfo:
    """What the picture of a search shows.

    Args:
        title: of the picture.
        subtitle: numbers of architectures.
        panels: scatter plots, side by side.
    """

    title: str
    subtitle: str
    panels: list[Panel]


def highlights(result: SearchResult) -> np.ndarray:
    """Return the indices of at most `MAX_HIGHLIGHTS` architectures, evenly spread along the front.

    Args:
        result: result of the search.
    """
    first, *others = result.settings.objectives
    outlines = [result.front[_outline(result, x, first)] for x in others]
    rows = np.unique(np.concatenate([np.empty(0, dtype=int), *outlines]))
    if len(rows) == 0:
        return rows
    costs = result.settings.costs(result.medians[rows], (first,))[:, 0]
    is_typical = costs <= outlier_threshold(costs)
    candidates = rows[is_typical][costs[is_typical].argsort(kind="stable")]
    positions = np.linspace(0, len(candidates) - 1, MAX_HIGHLIGHTS).round().astype(int)
    return candidates[np.unique(positions)]


def front_info(
    result: SearchResult,
    samples: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]] = (),
    measured: Mapping[str, Mapping[str, float]] = NO_MEASUREMENTS,
) -> FrontInfo:
    """Compute what the picture of a search shows.

    Args:
        result: result of the search.
        samples: joint samples [S, K] of some architectures, over `settings.all_objectives`.
        pairs: x and y objective of each panel; by default each other objective against the first, or the only
            objective against the number of the evaluation.
        measured: measured values by architecture and objective, drawn beside the predictions.

    Raises:
        ValueError: a pair has an objective that the search did not predict.
    """
    settings = result.settings
    for name in (name for pair in pairs for name in pair):
        if name not in settings.all_objectives:
            raise ValueError(f"the search has no {name}; {suggest(name, settings.all_objectives)}")
    first, *others = settings.objectives
    axes: list[tuple[str | None, str]] = [*pairs] or [(x, first) for x in others] or [(None, first)]
    panels = [_panel(result, samples if x else {}, x, y, measured) for x, y in axes]
    return FrontInfo(
        title=f"{settings.space}: {'' if settings.has_measurements else 'predicted '}Pareto front",
        subtitle=_subtitle(result),
        panels=panels,
    )


def _subtitle(result: SearchResult) -> str:
    """The numbers of evaluated, feasible, measured and non-dominated architectures."""
    settings = result.settings
    noun, on_front = " architectures", ""
    feasible = f", {result.feasible.sum():,} within the constraints" if settings.constraints else ""
    measured = ""
    if settings.has_measurements:
        noun = ""
        device = f" on {settings.device}" if settings.device else ""
        measured = f", {result.is_measured.sum()} measured{device}"
        on_front = f", {result.is_measured[result.front].sum()} of them measured"
    return (
        f"{len(result.architectures):,}{noun} evaluated by {settings.algorithm}{feasible}{measured};"
        f" {len(result.front)} on the front{on_front}"
    )


def draw_front(info: FrontInfo) -> Figure:
    """Draw the picture of a search.

    Args:
        info: see `front_info`.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Figure(figsize=(7.4 * len(info.panels) + 0.4, 6.4), layout=layout)
    figure.suptitle(f"{info.title}\n", x=0.02, ha="left", fontsize=15, fontweight="bold", color=INK)
    figure.text(0.02, 0.925, info.subtitle, fontsize=10.5, color=MUTED)
    axes = figure.subplots(1, len(info.panels), squeeze=False)[0]
    for axis, panel in zip(axes, info.panels, strict=True):
        _draw_panel(axis, panel)
    _draw_legend(figure, info.panels)
    return figure


def _panel(
    result: SearchResult,
    samples: Mapping[str, np.ndarray],
    x: str | None,
    y: str,
    measured: Mapping[str, Mapping[str, float]],
) -> Panel:
    settings = result.settings
    objectives = settings.all_objectives
    y_column = objectives.index(y)
    x_column = None if x is None else objectives.index(x)
    ys = result.medians[:, y_column]
    xs = np.arange(1.0, len(ys) + 1) if x_column is None else result.medians[:, x_column]
    points = np.stack([xs, ys], axis=1)
    front = points[result.front]
    outline = front if x is None else front[_outline(result, x, y)]
    indices = {name: i for i, name in enumerate(result.architectures)}
    densities = [
        replace(
            estimate_density(name, rows[:, [x_column, y_column]], points[indices[name]]),
            is_measured=result.status.get(name) == MEASURED if settings.has_measurements else None,
        )
        for name, rows in samples.items()
        if x_column is not None
    ]
    xlim, ylim = _axis_limits(points, outline, densities, settings.is_maximised(y))
    low, high = np.transpose([xlim, ylim])
    is_inside = ((front >= low) & (front <= high)).all(axis=1)
    return Panel(
        x=x or "evaluation",
        y=y,
        feasible=points[result.feasible],
        infeasible=points[~result.feasible],
        front=front,
        measured=result.is_measured[result.front] if settings.has_measurements else None,
        outline=outline[outline[:, 0].argsort()],
        densities=densities,
        constraints=[c for c in settings.parsed_constraints if c.objective in (x, y)],
        xlim=xlim,
        ylim=ylim,
        num_hidden=int((~is_inside).sum()),
        is_x_maximised=x is not None and settings.is_maximised(x),
        predicted_and_measured=_measured_pairs(result, points, x, y, measured, result.front),
        rank_correlations=_rank_correlations(
            _measured_pairs(result, points, x, y, measured, np.arange(len(points)))
        ),
    )


def _measured_pairs(
    result: SearchResult,
    points: np.ndarray,
    x: str | None,
    y: str,
    measured: Mapping[str, Mapping[str, float]],
    indices: np.ndarray,
) -> np.ndarray:
    """Predicted and measured points of the architectures that have labels of both objectives: [T, 2, 2]."""
    if x is None:
        return np.empty((0, 2, 2))
    labels = {i: measured.get(result.architectures[i], {}) for i in indices.tolist()}
    pairs = [
        (points[i], (values[x], values[y])) for i, values in labels.items() if x in values and y in values
    ]
    return np.array(pairs, dtype=float).reshape(-1, 2, 2)


def _rank_correlations(pairs: np.ndarray) -> tuple[int, float, float] | None:
    """Number of pairs and Spearman correlations in x and y; None with fewer than 2 pairs."""
    if len(pairs) < 2:
        return None
    in_x, in_y = (spearman(pairs[:, 0, k], pairs[:, 1, k]) for k in (0, 1))
    return len(pairs), in_x, in_y


def _outline(result: SearchResult, x: str, y: str) -> np.ndarray:
    """Whether each point of the front is non-dominated in two objectives alone: bool [F]."""
    return is_non_dominated(result.settings.costs(result.medians[result.front], (x, y)))


def _axis_limits(
    points: np.ndarray, outline: np.ndarray, densities: list[Density], is_y_maximised: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of x and y that show the front, its densities and the evaluated architectures near it."""
    sign = -1.0 if is_y_maximised else 1.0
    reference = outline if len(outline) >= MAX_HIGHLIGHTS else points
    costs = reference[:, 1] * sign
    shown = reference[costs <= outlier_threshold(costs)]
    near = points[points[:, 1] * sign <= (shown[:, 1] * sign).max()]
    xs = [
        *shown[:, 0],
        np.quantile(near[:, 0], 0.98),
        *(edge for d in densities for edge in contour_extent(d.x, d, 0)),
    ]
    ys = [*shown[:, 1], *(edge for d in densities for edge in contour_extent(d.y, d, 1))]
    return padded_limits(min(xs), max(xs)), padded_limits(min(ys), max(ys))


def _draw_panel(axis: Axes, panel: Panel) -> None:
    axis.set(xlim=panel.xlim, ylim=panel.ylim)
    axis.set_xlabel(axis_label(panel.x), fontsize=11, color=INK)
    axis.set_ylabel(axis_label(panel.y), fontsize=11, color=INK)
    style_axis(axis)
    for side in ("left", "bottom"):
        axis.spines[side].set(visible=True, color=FAINT)
    _draw_evaluated(axis, panel)
    for constraint in panel.constraints:
        line = axis.axvline if constraint.objective == panel.x else axis.axhline
        line(constraint.bound, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
    for density, hue in zip(panel.densities, HUES, strict=False):
        _draw_contours(axis, density, hue)
    if panel.x != "evaluation":
        step: Literal["pre", "post"] = "pre" if panel.is_x_maximised else "post"
        x, y = panel.outline.T
        axis.step(x, y, where=step, color=FRONT, linewidth=1.4, alpha=0.85)
    _draw_measured_pairs(axis, panel)
    is_filled = np.ones(len(panel.front), dtype=bool) if panel.measured is None else panel.measured
    for rows, face, edge in ((is_filled, FRONT, "white"), (~is_filled, "white", FRONT)):
        x, y = panel.front[rows].T
        axis.scatter(x, y, s=30, color=face, edgecolor=edge, linewidth=0.9, zorder=4)
    for density, hue in zip(panel.densities, HUES, strict=False):
        _draw_highlight(axis, density, hue)
    if panel.num_hidden:
        note = f"{panel.num_hidden} of the front outside the view"
        position: dict[str, Any] = {"transform": axis.transAxes, "ha": "right"}
        axis.text(0.99, 0.015, note, fontsize=9, color=MUTED, style="italic", **position)


def _draw_evaluated(axis: Axes, panel: Panel) -> None:
    x, y = panel.infeasible.T
    axis.scatter(x, y, s=14, marker="x", color=FAINT, linewidth=0.8, alpha=0.7)
    x, y = panel.feasible.T
    axis.scatter(x, y, s=12, color=CLOUD_COLOR, alpha=0.45, linewidth=0)


def _draw_contours(axis: Axes, density: Density, hue: str) -> None:
    levels = sorted({*density.levels, float(density.density.max()) * 1.001})
    if len(levels) > len(CONTOUR_MASSES):
        shades = [f"{hue}38", f"{hue}80"]
        axis.contourf(density.x, density.y, density.density, levels=levels, colors=shades)
    axis.contour(density.x, density.y, density.density, levels=levels[:1], colors=[hue], linewidths=1.0)


def _draw_measured_pairs(axis: Axes, panel: Panel) -> None:
    """Lines from predicted to measured points, and the rank correlations."""
    for predicted, measured in panel.predicted_and_measured:
        axis.plot(
            *np.transpose([predicted, measured]), color=MEASURED_COLOR, linewidth=0.8, alpha=0.6, zorder=3
        )
    x, y = panel.predicted_and_measured[:, 1].T
    axis.scatter(x, y, s=34, marker="*", color=MEASURED_COLOR, linewidth=0, zorder=4)
    if panel.rank_correlations:
        count, in_x, in_y = panel.rank_correlations
        note = f"Spearman of {count:,} evaluated and measured: {in_x:.3f} in x, {in_y:.3f} in y"
        axis.set_title(note, loc="left", fontsize=9.5, color=MUTED)


def _draw_highlight(axis: Axes, density: Density, hue: str) -> None:
    """A large point, and the correlation of its predictive distribution unless it was measured."""
    x, y = density.point
    face, edge = ("white", hue) if density.is_measured is False else (hue, "white")
    axis.scatter(x, y, s=64, color=face, edgecolor=edge, linewidth=1.2, zorder=5)
    if density.is_measured:
        return
    axis.annotate(
        f"ρ {density.correlation:+.2f}",
        contour_top(density),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color=hue,
        zorder=6,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )


def _draw_legend(figure: Figure, panels: list[Panel]) -> None:
    def dot(color: str, size: float, marker: str = "o") -> Line2D:
        return Line2D([], [], color=color, marker=marker, markersize=size, linestyle="")

    entries: list[tuple[Line2D | Patch, str]] = [(dot(CLOUD_COLOR, 5), "evaluated")]
    if any(len(p.infeasible) for p in panels):
        entries.append((dot(FAINT, 5, "x"), INFEASIBLE_LABELS[panels[0].measured is not None]))
    front_label = "predicted front"
    if panels[0].measured is not None:
        front_label = "front, measured"
        hollow = Line2D([], [], color=FRONT, marker="o", markerfacecolor="white", linestyle="")
        entries.append((hollow, "front, predicted"))
    entries.append((Line2D([], [], color=FRONT, marker="o", linewidth=1.4), front_label))
    if any(len(p.predicted_and_measured) for p in panels):
        entries.append((dot(MEASURED_COLOR, 8, "*"), "measured values of the front"))
    for constraint in dict.fromkeys(c for p in panels for c in p.constraints):
        line = Line2D([], [], color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
        entries.append((line, str(constraint)))
    if any(p.densities for p in panels):
        patch = Patch(facecolor=f"{HUES[0]}60", edgecolor=HUES[0])
        entries.append((patch, "50 % and 80 % of the model's joint samples, their rank correlation ρ"))
    handles, labels = zip(*entries, strict=True)
    num_columns = len(entries) if len(panels) > 1 else 2
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=num_columns,
        fontsize=9.5,
        frameon=False,
        labelcolor=INK,
    )
