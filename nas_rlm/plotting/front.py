"""The picture of a search: what was evaluated, the front, and what the model is unsure of.

`front_info` decides what is shown and `draw` draws it, so that the first is tested without pixels.
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
from scipy.stats import gaussian_kde

from nas_rlm.metrics import spearman
from nas_rlm.plotting.style import FAINT, FRONT, HUES, INK, MUTED, plain
from nas_rlm.search.pareto import unbeaten
from nas_rlm.search.result import MEASURED, Result
from nas_rlm.search.settings import Constraint
from nas_rlm.utils.axes import fence, label, padded
from nas_rlm.utils.validation import hint

HIGHLIGHTS = 5
MASSES = (0.8, 0.5)  # share of the model's joint distribution inside each contour, the widest first
GRID = 96
BANDWIDTH = 0.45  # of the kernels, in standard deviations of the draws
FUZZ = 1e-3  # added to draws, relative to their median,
BLUR = 0.15  # and to their interquartile range
STRAY = 2.0  # interquartile ranges beyond the quartiles: a wrong exponent, not a doubt about the value
OUTSIDE = ("outside the constraints", "outside the constraints, or does not run")
TRUE = "#111827"
NOTHING_TRUE: Mapping[str, Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True)
class Density:
    """The joint distribution of two objectives of one architecture, as a density on a grid.

    Args:
        name: the architecture.
        x: grid [GRID], in the objective's unit.
        y: grid [GRID].
        density: [GRID, GRID], rows along y.
        levels: density at the edge of the region that holds each of `MASSES`.
        point: predicted medians (x, y).
        correlation: rank correlation of the draws, the slant; 0 where one of the two does not vary.
        is_measured: whether x or y was, so that there is no slant; None where the search measured nothing.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    density: np.ndarray
    levels: tuple[float, ...]
    point: tuple[float, float]
    correlation: float
    is_measured: bool | None = None


@dataclass(frozen=True)
class Panel:
    """Two objectives against each other.

    Args:
        x: objective along x, or `evaluation` where a search has one objective.
        y: objective along y.
        feasible: evaluated architectures within the constraints [N, 2].
        infeasible: the others [M, 2].
        front: the points of the front [F, 2].
        measured: which of them were measured on the device, bool [F], where the search measured at all.
        outline: those of them that no other beats in these two objectives alone [G, 2], by x.
        densities: of the highlighted points.
        bounds: constraints on x or y.
        xlim: what is shown.
        ylim: what is shown.
        hidden: points of the front that lie outside.
        grows: whether more of x is better.
        true: of points of the front that a table has, what was predicted and what is true [T, 2, 2].
        ranks: of the evaluated architectures that it has, how many they are, and Spearman of x and of y.
    """

    x: str
    y: str
    feasible: np.ndarray
    infeasible: np.ndarray
    front: np.ndarray
    measured: np.ndarray | None
    outline: np.ndarray
    densities: list[Density]
    bounds: list[Constraint]
    xlim: tuple[float, float]
    ylim: tuple[float, float]
    hidden: int
    grows: bool
    true: np.ndarray
    ranks: tuple[int, float, float] | None


@dataclass(frozen=True)
class FrontInfo:
    """What the picture of a search shows."""

    title: str
    subtitle: str
    panels: list[Panel]


def highlights(result: Result) -> np.ndarray:
    """A few points of the front, spread along it: indices into the result's architectures."""
    first, *others = result.settings.objectives
    outlines = [result.front[_outline(result, x, first)] for x in others]
    rows = np.unique(np.concatenate([np.empty(0, dtype=int), *outlines]))
    if len(rows) == 0:
        return rows
    costs = result.settings.costs(result.medians[rows], (first,))[:, 0]
    shown = rows[costs <= fence(costs)][costs[costs <= fence(costs)].argsort(kind="stable")]
    return shown[np.unique(np.linspace(0, len(shown) - 1, HIGHLIGHTS).round().astype(int))]


def front_info(
    result: Result,
    samples: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]] = (),
    truth: Mapping[str, Mapping[str, float]] = NOTHING_TRUE,
) -> FrontInfo:
    """What to draw of a search.

    Args:
        result: of the search.
        samples: joint draws [S, K] of some architectures, over `settings.predicted`.
        pairs: objectives across and up, a panel each; by default each one beside the first, and the first.
        truth: of architectures what was measured of them, to be drawn as well.

    Raises:
        ValueError: a pair has something that was not predicted.
    """
    settings = result.settings
    for name in (name for pair in pairs for name in pair):
        if name not in settings.predicted:
            raise ValueError(f"the search has no {name}; {hint(name, settings.predicted)}")
    first, *others = settings.objectives
    wanted: list[tuple[str | None, str]] = [*pairs] or [(x, first) for x in others] or [(None, first)]
    panels = [_panel(result, samples if x else {}, x, y, truth) for x, y in wanted]
    feasible = int(result.feasible.sum())
    within = f", {feasible:,} within the constraints" if settings.constraints else ""
    what, on_front = " architectures", ""
    if settings.measures:
        what = ""
        where = f" on {settings.device}" if settings.device else ""
        within += f", {result.is_measured.sum()} measured{where}"
        on_front = f", {result.is_measured[result.front].sum()} of them measured"
    return FrontInfo(
        title=f"{settings.space}: {'' if settings.measures else 'predicted '}Pareto front",
        subtitle=(
            f"{len(result.architectures):,}{what} evaluated by {settings.algorithm}{within};"
            f" {len(result.front)} on the front{on_front}"
        ),
        panels=panels,
    )


def draw(info: FrontInfo) -> Figure:
    """Draw the picture."""
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
    result: Result,
    samples: Mapping[str, np.ndarray],
    x: str | None,
    y: str,
    truth: Mapping[str, Mapping[str, float]],
) -> Panel:
    settings = result.settings
    names = settings.predicted
    row = names.index(y)
    column = None if x is None else names.index(x)
    ys = result.medians[:, row]
    xs = np.arange(1.0, len(ys) + 1) if column is None else result.medians[:, column]
    points = np.stack([xs, ys], axis=1)
    front = points[result.front]
    outline = front if x is None else front[_outline(result, x, y)]
    positions = {name: i for i, name in enumerate(result.architectures)}
    densities = [
        replace(
            _density(name, draws[:, [column, row]], points[positions[name]]),
            is_measured=result.status.get(name) == MEASURED if result.settings.measures else None,
        )
        for name, draws in samples.items()
        if column is not None
    ]
    xlim, ylim = _view(points, outline, densities, settings.is_maximised(y))
    low, high = np.transpose([xlim, ylim])
    inside = ((front >= low) & (front <= high)).all(axis=1)
    return Panel(
        x=x or "evaluation",
        y=y,
        feasible=points[result.feasible],
        infeasible=points[~result.feasible],
        front=front,
        measured=result.is_measured[result.front] if result.settings.measures else None,
        outline=outline[outline[:, 0].argsort()],
        densities=densities,
        bounds=[b for b in result.settings.bounds if b.objective in (x, y)],
        xlim=xlim,
        ylim=ylim,
        hidden=int((~inside).sum()),
        grows=x is not None and settings.is_maximised(x),
        true=_true(result, points, x, y, truth, result.front),
        ranks=_ranks(_true(result, points, x, y, truth, np.arange(len(points)))),
    )


def _true(
    result: Result,
    points: np.ndarray,
    x: str | None,
    y: str,
    truth: Mapping[str, Mapping[str, float]],
    some: np.ndarray,
) -> np.ndarray:
    """Of some architectures what was predicted and what is true, where both numbers are known: [T, 2, 2]."""
    if x is None:
        return np.empty((0, 2, 2))
    known = {i: truth.get(result.architectures[i], {}) for i in some.tolist()}
    found = [(points[i], (of[x], of[y])) for i, of in known.items() if x in of and y in of]
    return np.array(found, dtype=float).reshape(-1, 2, 2)


def _ranks(pairs: np.ndarray) -> tuple[int, float, float] | None:
    """How many architectures have true values, and how well predictions rank them; None with fewer than 2."""
    if len(pairs) < 2:
        return None
    across, up = (spearman(pairs[:, 0, k], pairs[:, 1, k]) for k in (0, 1))
    return len(pairs), across, up


def _outline(result: Result, x: str, y: str) -> np.ndarray:
    """Which points of the front no other beats in two objectives alone."""
    return unbeaten(result.settings.costs(result.medians[result.front], (x, y)))


def _density(name: str, draws: np.ndarray, point: np.ndarray) -> Density:
    """Smooth joint draws [S, 2] but for stray ones; some fuzz lets equal or collinear ones be smoothed."""
    lower, upper = np.quantile(draws, [0.25, 0.75], axis=0)
    fuzz = FUZZ * np.maximum(np.abs(np.median(draws, axis=0)), FUZZ) + BLUR * (upper - lower)
    reach = STRAY * (upper - lower) + fuzz
    kept = draws[((draws >= lower - reach) & (draws <= upper + reach)).all(axis=1)]
    cloud = kept + fuzz * np.random.default_rng(0).normal(size=kept.shape)
    kde = gaussian_kde(cloud.T, bw_method=BANDWIDTH)
    margin = 3 * BANDWIDTH * cloud.std(axis=0)
    floor = np.where(draws.min(axis=0) >= 0, 0.0, -np.inf)
    x, y = np.linspace(np.maximum(cloud.min(axis=0) - margin, floor), cloud.max(axis=0) + margin, GRID).T
    grid = kde(np.stack([g.ravel() for g in np.meshgrid(x, y)])).reshape(GRID, GRID)
    return Density(
        name=name,
        x=x,
        y=y,
        density=grid,
        levels=_levels(grid, len(kept) / len(draws)),
        point=(float(point[0]), float(point[1])),
        correlation=spearman(draws[:, 0], draws[:, 1]),
    )


def _levels(density: np.ndarray, share: float) -> tuple[float, ...]:
    """The density at the edge of the smallest region with each of `MASSES`, where a share of all is shown."""
    ordered = np.sort(density, axis=None)[::-1]
    mass = share * ordered.cumsum() / ordered.sum()
    return tuple(float(ordered[np.searchsorted(mass, min(m, 0.98 * share))]) for m in MASSES)


def _view(
    points: np.ndarray, front: np.ndarray, densities: list[Density], grows: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits that show the front and its densities, and of the cloud what lies near."""
    sign = -1.0 if grows else 1.0
    base = front if len(front) >= HIGHLIGHTS else points
    costs = base[:, 1] * sign
    shown = base[costs <= fence(costs)]
    near = points[points[:, 1] * sign <= (shown[:, 1] * sign).max()]
    xs = [
        *shown[:, 0],
        np.quantile(near[:, 0], 0.98),
        *(edge for d in densities for edge in _extent(d.x, d, 0)),
    ]
    ys = [*shown[:, 1], *(edge for d in densities for edge in _extent(d.y, d, 1))]
    return padded(min(xs), max(xs)), padded(min(ys), max(ys))


def _extent(axis: np.ndarray, density: Density, along: int) -> tuple[float, float]:
    """Where the widest contour begins and ends along one axis."""
    reached = axis[(density.density >= density.levels[0]).any(axis=along)]
    return float(reached.min()), float(reached.max())


def _draw_panel(axis: Axes, panel: Panel) -> None:
    axis.set(xlim=panel.xlim, ylim=panel.ylim)
    axis.set_xlabel(label(panel.x), fontsize=11, color=INK)
    axis.set_ylabel(label(panel.y), fontsize=11, color=INK)
    plain(axis)
    for side in ("left", "bottom"):
        axis.spines[side].set(visible=True, color=FAINT)
    axis.scatter(
        panel.infeasible[:, 0],
        panel.infeasible[:, 1],
        s=14,
        marker="x",
        color=FAINT,
        linewidth=0.8,
        alpha=0.7,
    )
    axis.scatter(panel.feasible[:, 0], panel.feasible[:, 1], s=12, color="#8d99ae", alpha=0.45, linewidth=0)
    for bound in panel.bounds:
        line = axis.axvline if bound.objective == panel.x else axis.axhline
        line(bound.bound, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
    for density, hue in zip(panel.densities, HUES, strict=False):
        levels = sorted({*density.levels, float(density.density.max()) * 1.001})
        if len(levels) > len(MASSES):
            shades = [f"{hue}38", f"{hue}80"]
            axis.contourf(density.x, density.y, density.density, levels=levels, colors=shades)
        axis.contour(density.x, density.y, density.density, levels=levels[:1], colors=[hue], linewidths=1.0)
    if panel.x != "evaluation":
        corner: Literal["pre", "post"] = "pre" if panel.grows else "post"
        x, y = panel.outline.T
        axis.step(x, y, where=corner, color=FRONT, linewidth=1.4, alpha=0.85)
    for predicted, true in panel.true:
        axis.plot(*np.transpose([predicted, true]), color=TRUE, linewidth=0.8, alpha=0.6, zorder=3)
    across, up = panel.true[:, 1].T
    axis.scatter(across, up, s=34, marker="*", color=TRUE, linewidth=0, zorder=4)
    if panel.ranks:
        count, *ranks = panel.ranks
        note = f"Spearman of {count:,} evaluated and measured: {ranks[0]:.3f} across, {ranks[1]:.3f} up"
        axis.set_title(note, loc="left", fontsize=9.5, color=MUTED)
    known = np.ones(len(panel.front), dtype=bool) if panel.measured is None else panel.measured
    for some, face, edge in ((known, FRONT, "white"), (~known, "white", FRONT)):
        x, y = panel.front[some].T
        axis.scatter(x, y, s=30, color=face, edgecolor=edge, linewidth=0.9, zorder=4)
    for density, hue in zip(panel.densities, HUES, strict=False):
        x, y = density.point
        face, edge = ("white", hue) if density.is_measured is False else (hue, "white")
        axis.scatter(x, y, s=64, color=face, edgecolor=edge, linewidth=1.2, zorder=5)
        if density.is_measured:
            continue
        axis.annotate(
            f"ρ {density.correlation:+.2f}",
            _top(density),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=hue,
            zorder=6,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
    if panel.hidden:
        note = f"{panel.hidden} of the front outside the view"
        place: dict[str, Any] = {"transform": axis.transAxes, "ha": "right"}
        axis.text(0.99, 0.015, note, fontsize=9, color=MUTED, style="italic", **place)


def _top(density: Density) -> tuple[float, float]:
    """The highest point of the widest contour."""
    rows, columns = np.nonzero(density.density >= density.levels[0])
    middle = int(np.median(columns[rows == rows.max()]))
    return float(density.x[middle]), float(density.y[rows.max()])


def _draw_legend(figure: Figure, panels: list[Panel]) -> None:
    def dot(color: str, size: float, marker: str = "o") -> Line2D:
        return Line2D([], [], color=color, marker=marker, markersize=size, linestyle="")

    entries: list[tuple[Line2D | Patch, str]] = [(dot("#8d99ae", 5), "evaluated")]
    if any(len(p.infeasible) for p in panels):
        entries.append((dot(FAINT, 5, "x"), OUTSIDE[panels[0].measured is not None]))
    words = "predicted front"
    if panels[0].measured is not None:
        words = "front, measured"
        hollow = Line2D([], [], color=FRONT, marker="o", markerfacecolor="white", linestyle="")
        entries.append((hollow, "front, predicted"))
    entries.append((Line2D([], [], color=FRONT, marker="o", linewidth=1.4), words))
    if any(len(p.true) for p in panels):
        entries.append((dot(TRUE, 8, "*"), "what is true of the front"))
    for bound in dict.fromkeys(b for p in panels for b in p.bounds):
        line = Line2D([], [], color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
        entries.append((line, str(bound)))
    if any(p.densities for p in panels):
        patch = Patch(facecolor=f"{HUES[0]}60", edgecolor=HUES[0])
        entries.append((patch, "50 % and 80 % of the model's joint draws, their rank correlation ρ"))
    handles, texts = zip(*entries, strict=True)
    columns = len(entries) if len(panels) > 1 else 2
    figure.legend(
        handles, texts, loc="outside lower left", ncols=columns, fontsize=9.5, frameon=False, labelcolor=INK
    )
