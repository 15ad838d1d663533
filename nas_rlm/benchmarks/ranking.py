"""Which of a problem's programs takes least: what rankings within problems are worth, and pictures of them.

`within` counts and `draw_within` draws, so that the first is tested without pixels. Source: figures 5 and 11
of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from nas_rlm.metrics import spearman
from nas_rlm.plotting.style import FAINT, FRONT, HUES, INK, style_axis

LEAST = 8  # programs of a problem that is looked at
GOOD = 0.5  # Spearman
TOPS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # shares of a problem's programs


@dataclass(frozen=True)
class Within:
    """What a ranking is worth within problems.

    Args:
        ranks: Spearman of each problem.
        counts: programs of each problem.
        best: whether the program that is told to take least does, or as little as that which does.
        lucky: how likely a random choice is to.
        tops: for each of `TOPS` how often the choice is among the truly best so many.
        lucky_tops: the same of a random choice.
    """

    ranks: np.ndarray
    counts: np.ndarray
    best: np.ndarray
    lucky: np.ndarray
    tops: np.ndarray
    lucky_tops: np.ndarray

    @property
    def good(self) -> float:
        """The share of problems with a Spearman above `GOOD`."""
        return float(np.mean(self.ranks > GOOD)) if len(self.ranks) else 0.0


def within(groups: Sequence[str], true: np.ndarray, told: np.ndarray, least: int = LEAST) -> Within:
    """Count within each problem that has enough programs, which do not all take the same.

    Args:
        groups: of N programs the problem.
        true: what they take, float64 [N].
        told: what they are told to take, float64 [N].
        least: programs.
    """
    parts: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        parts.setdefault(group, []).append(i)
    some = [part for part in parts.values() if len(part) >= least and np.ptp(true[part])]
    hits = [_hits(true[part], told[part]) for part in some]
    first = np.array([hit[0] for hit in hits]).reshape(len(some), 2)
    tops = np.array([hit[1:] for hit in hits]).reshape(len(some), len(TOPS), 2)
    means = tops.mean(0) if some else np.zeros((len(TOPS), 2))
    return Within(
        ranks=np.array([spearman(told[part], true[part]) for part in some]),
        counts=np.array([len(part) for part in some]),
        best=first[:, 0],
        lucky=first[:, 1],
        tops=means[:, 0],
        lucky_tops=means[:, 1],
    )


def _hits(true: np.ndarray, told: np.ndarray) -> list[tuple[float, float]]:
    """Whether the choice is the best, and among the best of each share; and how likely a random one is."""
    chosen, ordered = true[np.argmin(told)], np.sort(true)
    found = []
    for share in (0.0, *TOPS):
        worst = ordered[max(1, int(np.ceil(share * len(true)))) - 1]
        found.append((float(chosen <= worst), float(np.mean(true <= worst))))
    return found


def draw_within(found: Within, title: str) -> Figure:
    """Spearman within problems, the best program by how many there are, and the best shares."""
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", color=INK)
    ranks, best, tops = figure.subplots(1, 3)
    ranks.hist(found.ranks, bins=np.linspace(-1, 1, 21), color=HUES[0])
    ranks.axvline(GOOD, color=FRONT, linewidth=1)
    ranks.set(xlabel="Spearman within a problem", ylabel="problems", xticks=(-1, -0.5, 0, 0.5, 1))
    ranks.set_title(f"{found.good:.0%} above {GOOD}", loc="left", fontsize=10, color=INK)
    edges = [*range(LEAST, LEAST + 12, 3), 10**6]
    bars = [(found.counts >= low) & (found.counts < high) for low, high in pairwise(edges)]
    for place, part in enumerate(bars):
        if part.any():
            best.bar(place - 0.2, found.best[part].mean(), 0.4, color=HUES[0], label="told")
            best.bar(place + 0.2, found.lucky[part].mean(), 0.4, color=FAINT, label="at random")
    labels = [f"{low} to {low + 2}" for low in edges[:-2]] + [f"{edges[-2]} on"]
    best.set_xticks(range(len(bars)), labels)
    best.set(xlabel="programs of a problem", ylabel="chosen program takes least")
    told = dict(zip(*best.get_legend_handles_labels()[::-1], strict=True))
    best.legend(told.values(), told.keys(), frameon=False)
    tops.plot(TOPS, found.tops, "o-", color=HUES[0], label="told")
    tops.plot(TOPS, found.lucky_tops, "--", color=FAINT, label="at random")
    tops.set(
        xlabel="best share of a problem's programs", ylabel="chosen program is among them", ylim=(0, 1.02)
    )
    tops.legend(frameon=False)
    for axis in (ranks, best, tops):
        style_axis(axis)
    return figure
