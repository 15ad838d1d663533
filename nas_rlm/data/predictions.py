"""Predictions as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np


def predictions_csv(
    names: Sequence[str],
    objectives: Sequence[str],
    medians: np.ndarray,
    levels: Sequence[float] = (),
    quantiles: np.ndarray | None = None,
    status: Sequence[str] = (),
) -> str:
    """Predictions as CSV: `arch`, then the median of each objective, then `OBJECTIVE@level`.

    >>> print(predictions_csv(["a", "b"], ["accuracy"], np.array([[91.5], [90.0]])), end="")
    arch,accuracy
    a,91.5
    b,90

    Args:
        names: N architectures or files.
        objectives: K names.
        medians: [N, K], in the objectives' own units.
        levels: Q quantile levels.
        quantiles: [N, K, Q], where there are levels.
        status: of each, a last column, if there is one.
    """
    tails = np.empty((len(names), len(objectives), 0)) if quantiles is None else quantiles
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    last = [[word] for word in status] or [[]] * len(names)
    heads = ["arch", *objectives, *(f"{o}@{q:g}" for o in objectives for q in levels)]
    writer.writerow([*heads, *(["status"] if status else [])])
    for name, median, tail, word in zip(names, medians, tails, last, strict=True):
        writer.writerow([name, *(f"{v:.10g}" for v in (*median, *tail.reshape(-1))), *word])
    return table.getvalue()
