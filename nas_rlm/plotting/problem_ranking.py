"""How well predictions rank the programs of one problem: correlations, best programs and best shares.

Source: figures 5 and 11 of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from nas_rlm.plotting.style import FAINT, FRONT, HUES, INK, style_axis

BIN_WIDTH, NUM_BINS = 3, 4  # programs per problem; the last bin has no upper limit
PREDICTED, AT_RANDOM = "predicted", "at random"


@dataclass(frozen=True)
class ProblemRankingInfo:
    """What the picture shows of P problems.

    Args:
        title: title of the picture.
        correlations: Spearman correlation within each problem [P].
        good_spearman: correlation that is marked.
        bins: label, mean top-1 rate of the predictions and of a random choice, for each number of programs;
            None where no problem has so many.
        shares: shares of a problem's programs [S].
        top_shares: how often the selected program is in each share of the best programs [S].
        random_top_shares: the same of a random program [S].
    """

    title: str
    correlations: np.ndarray
    good_spearman: float
    bins: list[tuple[str, float | None, float | None]]
    shares: Sequence[float]
    top_shares: np.ndarray
    random_top_shares: np.ndarray


def bin_top1(
    num_programs: np.ndarray, top1: np.ndarray, random_top1: np.ndarray, min_programs: int
) -> list[tuple[str, float | None, float | None]]:
    """Return the mean top-1 rates of problems by their number of programs, see `ProblemRankingInfo.bins`.

    Args:
        num_programs: programs of each problem [P].
        top1: 1 where the selected program is the best, else 0 [P].
        random_top1: probability that a random program is the best [P].
        min_programs: smallest number of programs of a problem.
    """
    starts = [min_programs + BIN_WIDTH * k for k in range(NUM_BINS)]
    labels = [f"{start} to {start + BIN_WIDTH - 1}" for start in starts[:-1]] + [f"from {starts[-1]}"]
    bins: list[tuple[str, float | None, float | None]] = []
    for label, (low, high) in zip(labels, pairwise([*starts, np.inf]), strict=True):
        inside = (num_programs >= low) & (num_programs < high)
        mean, random_mean = (float(v[inside].mean()) if inside.any() else None for v in (top1, random_top1))
        bins.append((label, mean, random_mean))
    return bins


def draw_problem_ranking(info: ProblemRankingInfo) -> Figure:
    """Draw the correlations, the top-1 rates by number of programs, and the rates of the best shares.

    Args:
        info: what to draw.
    """
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    figure.suptitle(info.title, x=0.01, ha="left", color=INK)
    histogram, best, tops = figure.subplots(1, 3)
    histogram.hist(info.correlations, bins=np.linspace(-1, 1, 21), color=HUES[0])
    histogram.axvline(info.good_spearman, color=FRONT, linewidth=1)
    histogram.set(xlabel="Spearman within a problem", ylabel="problems", xticks=(-1, -0.5, 0, 0.5, 1))
    good_share = np.mean(info.correlations > info.good_spearman) if len(info.correlations) else 0.0
    title = f"{good_share:.0%} above {info.good_spearman}"
    histogram.set_title(title, loc="left", fontsize=10, color=INK)
    for x, (_, top1, random_top1) in enumerate(info.bins):
        if top1 is not None and random_top1 is not None:
            best.bar(x - 0.2, top1, 0.4, color=HUES[0], label=PREDICTED)
            best.bar(x + 0.2, random_top1, 0.4, color=FAINT, label=AT_RANDOM)
    best.set_xticks(range(len(info.bins)), [label for label, *_ in info.bins])
    best.set(xlabel="programs of a problem", ylabel="selected program is the best")
    handles = dict(zip(*best.get_legend_handles_labels()[::-1], strict=True))
    best.legend(handles.values(), handles.keys(), frameon=False)
    tops.plot(info.shares, info.top_shares, "o-", color=HUES[0], label=PREDICTED)
    tops.plot(info.shares, info.random_top_shares, "--", color=FAINT, label=AT_RANDOM)
    tops.set(
        xlabel="best share of a problem's programs", ylabel="selected program is among them", ylim=(0, 1.02)
    )
    tops.legend(frameon=False)
    for axis in (histogram, best, tops):
        style_axis(axis)
    return figure
