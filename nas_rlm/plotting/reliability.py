"""Coverage of predictive intervals against their probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from nas_rlm.plotting.style import FAINT, HUES, INK, MUTED

MAX_LEGEND_ENTRIES = 2 * len(HUES)


def draw_reliability(intervals: Sequence[float], coverages: Mapping[str, Sequence[float]]) -> Figure:
    """Draw a line for each objective; the diagonal is perfect.

    Args:
        intervals: probabilities of I central intervals.
        coverages: by label of the line, the share of true values within each interval [I].
    """
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    for k, (label, shares) in enumerate(coverages.items()):
        color = HUES[k % len(HUES)]
        axis.plot(intervals, shares, "o-", color=color, alpha=0.8, linewidth=1.2, label=label)
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="interval", ylabel="share of true values within it")
    axis.set_title("coverage of predictive intervals", loc="left", color=INK)
    axis.tick_params(colors=MUTED)
    if len(coverages) <= MAX_LEGEND_ENTRIES:
        axis.legend(frameon=False, fontsize=8)
    return figure
