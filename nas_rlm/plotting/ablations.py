"""Kendall correlations of ablation trials: a panel for each ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from nas_rlm.plotting.style import HUES, INK, MUTED

SPACE_OFFSET = 0.3  # rows between the spaces of a trial

Key = tuple[str, str, int, str]  # ablation, trial, seed and space
Groups = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]


def group_trials(correlations: Mapping[Key, float]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return the correlations of all seeds by ablation, trial and space.

    Args:
        correlations: by ablation, trial, seed and space.
    """
    groups: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (ablation, trial, _, space), correlation in correlations.items():
        by_space = groups.setdefault(ablation, {}).setdefault(trial, {})
        by_space.setdefault(space, []).append(correlation)
    return groups


def draw_ablations(groups: Groups) -> Figure:
    """Draw the mean and the range over seeds of each trial and space.

    Args:
        groups: see `group_trials`.
    """
    spaces = list(dict.fromkeys(space for t in groups.values() for s in t.values() for space in s))
    heights = [len(trials) for trials in groups.values()]
    size = (7, 0.6 * sum(heights) + 0.7 * len(heights))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for panel, (name, trials) in zip(panels, groups.items(), strict=True):
        for row, by_space in enumerate(trials.values()):
            for k, (space, values) in enumerate(by_space.items()):
                hue, y = HUES[spaces.index(space)], row + SPACE_OFFSET * (k - (len(by_space) - 1) / 2)
                panel.plot([min(values), max(values)], [y, y], color=hue, linewidth=4, alpha=0.3)
                panel.plot(np.mean(values), y, "o", color=hue, label=space)
        panel.set_yticks(range(len(trials)), list(trials))
        panel.set_ylim(len(trials) - 0.5, -0.5)
        panel.set_title(name, loc="left", color=INK)
        panel.tick_params(colors=MUTED)
    panels[-1].set_xlabel("Kendall's tau on test networks; dot: mean, bar: range over seeds")
    handles = {label: h for p in panels for h, label in zip(*p.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper right", frameon=False, ncols=len(handles)
    )
    return figure
