"""Coverage of a model's predictive intervals, and whether narrow intervals have smaller errors.

`nas_rlm.plotting.reliability` draws the coverage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nas_rlm.data.genome import genome_features_of_rows
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import Table
from nas_rlm.metrics import coverage, spearman
from nas_rlm.rlm import RLM

INTERVALS = (0.2, 0.4, 0.6, 0.8, 0.9)  # probabilities of central intervals
QUANTILE_LEVELS = (*(0.5 - i / 2 for i in INTERVALS), 0.5, *(0.5 + i / 2 for i in INTERVALS))
WIDTH_INTERVAL = 0.8  # the interval whose width sorts rows by certainty


@dataclass(frozen=True)
class Reliability:
    """How well the intervals of an objective fit the rows of a table.

    Args:
        table: name of the table.
        objective: the objective.
        rows: number of rows.
        coverage: share of true values within each of `INTERVALS`.
        narrow_error: median relative error of the half of the rows with the narrower 80 % intervals.
        wide_error: the same of the other half.
        error_correlation: Spearman correlation of the signed errors with those of accuracy, on rows that have
            both; None for accuracy itself, and where accuracy is not evaluated.
    """

    table: str
    objective: str
    rows: int
    coverage: tuple[float, ...]
    narrow_error: float
    wide_error: float
    error_correlation: float | None = None


def measure_reliability(rlm: RLM, test: Table, objectives: Sequence[str]) -> list[Reliability]:
    """Return the reliability of each objective.

    Args:
        rlm: the model.
        test: rows of one space on which the model was not trained.
        objectives: objectives of the model that at least two rows have.
    """
    texts, space = texts_of_rows(test.rows), test.rows[0].space
    genomes = genome_features_of_rows(test.rows)
    predictions = rlm.predict_text(
        texts, objectives, QUANTILE_LEVELS, progress=True, space=space, genomes=genomes
    )
    results = []
    errors: dict[str, dict[int, float]] = {}
    for name, predicted in zip(objectives, predictions.transpose(1, 0, 2), strict=True):
        measured = [i for i, row in enumerate(test.rows) if row.is_measured(name)]
        true = np.array([test.rows[i].targets[name] for i in measured])
        errors[name] = dict(zip(measured, predicted[measured, len(INTERVALS)] - true, strict=True))
        quantiles = np.sort(predicted[measured], axis=1)
        shares = tuple(
            coverage(quantiles[:, len(INTERVALS) - 1 - k], quantiles[:, len(INTERVALS) + 1 + k], true)
            for k in range(len(INTERVALS))
        )
        narrow_error, wide_error = _errors_by_width(quantiles, true)
        results.append(Reliability(test.name, name, len(measured), shares, narrow_error, wide_error))
    accuracy_errors = errors.pop("accuracy", {})
    correlations = {name: _error_correlation(e, accuracy_errors) for name, e in errors.items()}
    return [replace(r, error_correlation=correlations.get(r.objective)) for r in results]


def _error_correlation(errors: Mapping[int, float], accuracy_errors: Mapping[int, float]) -> float | None:
    """Spearman correlation of errors by row, on the rows that have both."""
    both = [i for i in errors if i in accuracy_errors]
    if len(both) < 2:
        return None
    return spearman(np.array([errors[i] for i in both]), np.array([accuracy_errors[i] for i in both]))


def _errors_by_width(quantiles: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Median relative errors of the half with the narrower intervals, and of the other half."""
    center, offset = len(INTERVALS), INTERVALS.index(WIDTH_INTERVAL) + 1
    median = quantiles[:, center]
    width = (quantiles[:, center + offset] - quantiles[:, center - offset]) / np.maximum(np.abs(median), 1e-9)
    error = np.abs(median - true) / np.maximum(np.abs(true), 1e-9)
    order = width.argsort(kind="stable")
    half = len(order) // 2
    return float(np.median(error[order[:half]])), float(np.median(error[order[half:]]))
