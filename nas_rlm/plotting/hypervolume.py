"""The hypervolume of a search against the number of evaluations."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from nas_rlm.plotting.style import FRONT, INK, style_axis
from nas_rlm.search.result import SearchResult

Curve = Sequence[tuple[int, float]]  # numbers of evaluations, and the hypervolume after them


def hypervolume_curve(result: SearchResult, reference: Sequence[float]) -> list[tuple[int, float]]:
    """Return the hypervolume of the front after each generation.

    Args:
        result: result of the search.
        reference: reference point, see `nas_rlm.search.reference_points`.

    Returns:
        Pairs of the number of evaluations and the hypervolume.
    """
    total, step = len(result.architectures), result.settings.population
    ends = [*range(step, total, step), total]
    return [(end, result.truncated(end).hypervolume(reference)) for end in ends]


def draw_hypervolume(curve: Curve, title: str) -> Figure:
    """Draw hypervolume against evaluations.

    Args:
        curve: see `hypervolume_curve`.
        title: title of the figure.
    """
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axis = figure.subplots()
    axis.plot(*zip(*curve, strict=True), color=FRONT, linewidth=1.8)
    axis.set_title(title, loc="left", fontsize=12, color=INK, wrap=True)
    axis.set_xlabel("evaluations", color=INK)
    axis.set_ylabel("hypervolume", color=INK)
    style_axis(axis)
    return figure
