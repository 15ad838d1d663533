"""Predictions as a CSV table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from nas_rlm.data.tables import EXACT_OBJECTIVES

MAX_DIGITS = 10


def predictions_csv(
    names: Sequence[str],
    objectives: Sequence[str],
    medians: np.ndarray,
    levels: Sequence[float] = (),
    quantiles: np.ndarray | None = None,
    status: Sequence[str] = (),
    name_column: str = "arch",
    digits: int = MAX_DIGITS,
) -> str:
    """Return predictions as CSV with the columns `arch`, each OBJECTIVE (its median), and `OBJECTIVE@level`.

    Examples:
        >>> print(predictions_csv(["a", "b"], ["accuracy"], np.array([[91.5], [90.0]])), end="")
        arch,accuracy
        a,91.5
        b,90

    Args:
        names: N architectures, files or texts.
        objectives: K objective names.
        medians: [N, K], in the units of the objectives.
        levels: Q quantile levels.
        quantiles: [N, K, Q]; None without levels.
        status: a value for each name in a last column `status`; empty for no such column.
        name_column: name of the first column.
        digits: significant digits of predictions; costs, which are exact, have all.
    """
    no_quantiles = np.empty((len(names), len(objectives), 0))
    header = [name_column, *objectives, *(f"{o}@{q:g}" for o in objectives for q in levels)]
    statuses = [[value] for value in status] or [[]] * len(names)
    of_objectives = [MAX_DIGITS if o in EXACT_OBJECTIVES else digits for o in objectives]
    precision = [*of_objectives, *(n for n in of_objectives for _ in levels)]
    csv_text = io.StringIO()
    writer = csv.writer(csv_text, lineterminator="\n")
    writer.writerow([*header, *(["status"] if status else [])])
    rows = zip(names, medians, no_quantiles if quantiles is None else quantiles, statuses, strict=True)
    for name, median, row_quantiles, row_status in rows:
        values = [f"{v:.{n}g}" for v, n in zip((*median, *row_quantiles.reshape(-1)), precision, strict=True)]
        writer.writerow([name, *values, *row_status])
    return csv_text.getvalue()
