"""Validation during training: rank correlations on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import EXACT_OBJECTIVES, Table
from nas_rlm.metrics import kendall, spearman
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.training.recipe import Recipe

MAX_LATENCIES, MAX_OBJECTIVES = 3, 4  # of a validation set


@dataclass(frozen=True)
class ValidationSet:
    """Held-out rows of a table, as texts and true values.

    Args:
        name: name of the table.
        texts: texts of N rows.
        values: measured values of each objective, float64 [N], NaN where there is none.
    """

    name: str
    texts: list[str]
    values: dict[str, np.ndarray]


def make_validation_set(held_out: Table, objectives: Sequence[str]) -> ValidationSet:
    """Make a validation set from rows, without objectives that fewer than two rows have.

    Args:
        held_out: the rows.
        objectives: names of the objectives.
    """
    values = {name: held_out.column(name) for name in objectives}
    ranked = {name: v for name, v in values.items() if np.isfinite(v).sum() > 1}
    return ValidationSet(held_out.name, texts_of_rows(held_out.rows), ranked)


def sample_validation_set(held_out: Table, recipe: Recipe) -> ValidationSet:
    """Draw a fixed sample of held-out rows.

    Its objectives are accuracy and up to three latencies; if there are none, up to four others.

    Args:
        held_out: rows that are not trained on.
        recipe: recipe with seed and number of validation rows.
    """
    rng = np.random.default_rng(recipe.seed)
    order = rng.permutation(len(held_out))[: recipe.validation_rows]
    sample = Table(held_out.name, [held_out.rows[i] for i in order])
    latencies = [n for n in held_out.objectives if n.startswith("latency/")]
    accuracy = ["accuracy"] if "accuracy" in held_out.objectives else []
    others = [n for n in held_out.objectives if n not in EXACT_OBJECTIVES]
    objectives = [*accuracy, *_spread(latencies, MAX_LATENCIES)] or _spread(others, MAX_OBJECTIVES)
    return make_validation_set(sample, objectives)


def _spread(names: Sequence[str], count: int) -> list[str]:
    """Return at most `count` of the names, at evenly spaced positions."""
    return [*names[:: max(1, len(names) // count)][:count]]


def validate(rlm: Ensemble, validation_sets: Sequence[ValidationSet]) -> dict[str, dict[str, float]]:
    """Return rank correlations of median predictions with true values.

    Args:
        rlm: the model.
        validation_sets: validation sets of the tables.

    Returns:
        The correlations `spearman` and `kendall` for each "TABLE:OBJECTIVE".
    """
    metrics = {}
    for validation_set in validation_sets:
        names = list(validation_set.values)
        predictions = rlm.predict_text(validation_set.texts, names) if names else np.empty((0, 0))
        for name, predicted in zip(names, predictions.T, strict=True):
            true = validation_set.values[name]
            measured = np.isfinite(true)
            metrics[f"{validation_set.name}:{name}"] = {
                "spearman": round(spearman(predicted[measured], true[measured]), 5),
                "kendall": round(kendall(predicted[measured], true[measured]), 5),
            }
    return metrics
