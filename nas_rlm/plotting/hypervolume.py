"""How the hypervolume of a search grew, and its picture."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from nas_rlm.plotting.style import FRONT, INK, plain
from nas_rlm.search.result import Result

Curve = Sequence[tuple[int, float]]  # evaluations, and the hypervolume after them


def hypervolumes(result: Result, reference: Sequence[float]) -> list[tuple[int, float]]:
    """The hypervolume of the front after each generation.

    Args:
        result: of a search.
        reference: point, see `nas_rlm.search.reference_points`.
    """
    total, step = len(result.architectures), result.settings.population
    ends = [*range(step, total, step), total]
    return [(end, result.until(end).hypervolume(reference)) for end in ends]


def draw(curve: Curve, title: str) -> Figure:
    """Hypervolume against evaluations."""
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axis = figure.subplots()
    axis.plot(*zip(*curve, strict=True), color=FRONT, linewidth=1.8)
    axis.set_title(title, loc="left", fontsize=12, color=INK)
    axis.set_xlabel("evaluations", color=INK)
    axis.set_ylabel("hypervolume", color=INK)
    plain(axis)
    return figure
