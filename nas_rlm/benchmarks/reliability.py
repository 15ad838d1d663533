"""Whether a model's intervals hold what they say, and whether it knows where it errs.

`reliability` counts and `draw` draws, so that the first is tested without pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import Table
from nas_rlm.metrics import coverage, spearman
from nas_rlm.plotting.style import FAINT, HUES, INK, MUTED
from nas_rlm.rlm import RLM

INTERVALS = (0.2, 0.4, 0.6, 0.8, 0.9)
LEVELS = (*(0.5 - i / 2 for i in INTERVALS), 0.5, *(0.5 + i / 2 for i in INTERVALS))


@dataclass(frozen=True)
class Reliability:
    """What one objective's intervals hold on the rows of one table.

    Args:
        table, objective: what.
        rows: so many.
        held: the share of true values within each of `INTERVALS`.
        certain: median relative error of the half of the rows with the narrower 80 % intervals.
        uncertain: the same of the other half.
        shared: Spearman of the signed errors with those of accuracy on the rows that have both; None of
            accuracy itself and where it was not asked for.
    """

    table: str
    objective: str
    rows: int
    held: tuple[float, ...]
    certain: float
    uncertain: float
    shared: float | None = None


def reliability(rlm: RLM, held: Table, objectives: Sequence[str]) -> list[Reliability]:
    """Count for each objective.

    Args:
        rlm: the model.
        held: rows of one space that it did not learn from.
        objectives: names that the model knows and two rows have at least.
    """
    texts, space = texts_of_rows(held.rows), held.rows[0].space
    decoded = rlm.predict_text(texts, objectives, LEVELS, progress=True, space=space)
    found = []
    errors: dict[str, dict[int, float]] = {}
    for name, of_name in zip(objectives, decoded.transpose(1, 0, 2), strict=True):
        measured = [i for i, row in enumerate(held.rows) if row.is_measured(name)]
        true = np.array([held.rows[i].targets[name] for i in measured])
        errors[name] = dict(zip(measured, of_name[measured, len(INTERVALS)] - true, strict=True))
        quantiles = np.sort(of_name[measured], axis=1)
        counted = tuple(
            coverage(quantiles[:, len(INTERVALS) - 1 - k], quantiles[:, len(INTERVALS) + 1 + k], true)
            for k in range(len(INTERVALS))
        )
        halves = _halves(quantiles, true)
        found.append(Reliability(held.name, name, len(measured), counted, *halves))
    of_accuracy = errors.pop("accuracy", {})
    shared = {name: _shared(of_name, of_accuracy) for name, of_name in errors.items()}
    return [replace(r, shared=shared.get(r.objective)) for r in found]


def _shared(one: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """Spearman of errors, by position, on the rows that have both."""
    both = [i for i in one if i in other]
    if len(both) < 2:
        return None
    return spearman(np.array([one[i] for i in both]), np.array([other[i] for i in both]))


def _halves(quantiles: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Median relative errors of the half that the model is more certain of, and of the other."""
    middle, wide = len(INTERVALS), INTERVALS.index(0.8) + 1
    median = quantiles[:, middle]
    width = (quantiles[:, middle + wide] - quantiles[:, middle - wide]) / np.maximum(np.abs(median), 1e-9)
    error = np.abs(median - true) / np.maximum(np.abs(true), 1e-9)
    order = width.argsort(kind="stable")
    half = len(order) // 2
    return float(np.median(error[order[:half]])), float(np.median(error[order[half:]]))


def draw(found: Sequence[Reliability]) -> Figure:
    """A line for each table and objective: what intervals say against what they hold."""
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    for k, r in enumerate(found):
        name = f"{r.table} {r.objective}"
        axis.plot(INTERVALS, r.held, "o-", color=HUES[k % len(HUES)], alpha=0.8, linewidth=1.2, label=name)
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="interval", ylabel="share of true values within it")
    axis.set_title("what intervals say and what they hold", loc="left", color=INK)
    axis.tick_params(colors=MUTED)
    if len(found) <= 2 * len(HUES):
        axis.legend(frameon=False, fontsize=8)
    return figure
