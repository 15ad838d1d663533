"""Held-out measurements against predictions: the median, samples and baselines side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nas_rlm import baselines
from nas_rlm.data import tables
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.recipe import read_recipe
from nas_rlm.rlm import RLM

LEVELS = (0.1, 0.5, 0.9)
SAMPLES = 64
TOGETHER = 5  # latencies sampled in one pass after accuracy


@dataclass(frozen=True)
class Figures:
    """How one objective of one table is predicted.

    Args:
        table, objective: what.
        rows: held-out rows.
        ranks: method to (Spearman, Kendall).
        coverage: share of true values between the 0.1 and 0.9 quantiles; 0.8 is right.
    """

    table: str
    objective: str
    rows: int
    ranks: dict[str, tuple[float, float]]
    coverage: float


def report(rlm: RLM, data: Path | None = None, objectives: Sequence[str] = ()) -> str:
    """The table that `nas-rlm evaluate` prints.

    Args:
        rlm: the model.
        data: a parquet table, all of whose rows count; None for the rows that the shipped recipe holds out.
        objectives: what to judge; by default all that model and table share.
    """
    if data is not None:
        return show(evaluate(rlm, tables.read(data), objectives))
    recipe = read_recipe("nas")
    found: list[Figures] = []
    for entry in recipe.tables:
        whole = tables.read(tables.data_directory() / entry.path)
        training, held = tables.split(whole, recipe.validation, recipe.seed)
        found += evaluate(rlm, held, objectives, training)
    return show(found)


def evaluate(
    rlm: RLM, held: Table, objectives: Sequence[str] = (), training: Table | None = None
) -> list[Figures]:
    """Judge a model on a table.

    Args:
        rlm: the model.
        held: rows that it never saw.
        objectives: what to judge; all that model and table share by default.
        training: rows for baselines that learn; without it they are left out.
    """
    known = [
        o
        for o in held.objectives
        if o in rlm.objectives and o not in ("flops", "params") and "ep" not in o[-2:]
    ]
    asked = [o for o in objectives if o in held.objectives] if objectives else known
    if not asked:
        raise ValueError(
            f"{held.name} has none of {', '.join(objectives) or 'the objectives that the model knows'};"
            f" it has {', '.join(held.objectives) or 'no rows'}"
        )
    texts = tables.texts(held.rows)
    cost = {"flops": baselines.flops(held.rows), "params": baselines.params(held.rows)}
    drawn = _sampled(rlm, texts, asked)
    figures = []
    for objective in tqdm(asked, desc=f"evaluate {held.name}", unit="objective"):
        context = ["accuracy"] if objective.startswith("latency/") and "accuracy" in rlm.objectives else []
        quantiles = rlm.predict_text(texts, [*context, objective], LEVELS)[:, -1]
        measured = [i for i, row in enumerate(held.rows) if _counts(row, objective)]
        rows = [held.rows[i] for i in measured]
        true = np.array([row.targets[objective] for row in rows])
        methods = {"median": quantiles[measured, 1], f"{SAMPLES} samples": drawn[objective][measured]}
        methods |= {name: values[measured] for name, values in cost.items()}
        if training is not None and find_spec("sklearn"):
            seen = [row for row in training.rows if _counts(row, objective)]
            methods["trees"] = baselines.trees(seen, rows, objective)
        ranks = {name: (spearman(p, true), kendall(p, true)) for name, p in methods.items()}
        inside = coverage(quantiles[measured, 0], quantiles[measured, 2], true)
        figures.append(Figures(held.name, objective, len(rows), ranks, inside))
    return figures


def show(figures: Sequence[Figures]) -> str:
    """Figures as text: a line an objective, and the mean over each table's latencies."""
    methods = list(dict.fromkeys(m for f in figures for m in f.ranks))
    head = (
        f"{'table':<13}{'objective':<27}{'rows':>6}"
        + "".join(f"{m:>14}" for m in methods)
        + f"{'coverage':>10}"
    )
    lines = ["Spearman / Kendall of each method; coverage of the model's 80 % interval", head]
    lines += [_line(f, methods) for f in figures]
    for table in dict.fromkeys(f.table for f in figures):
        latencies = [f for f in figures if f.table == table and f.objective.startswith("latency/")]
        if len(latencies) > 1:
            ranks = {m: _mean([f.ranks[m] for f in latencies if m in f.ranks]) for m in methods}
            inside = float(np.mean([f.coverage for f in latencies]))
            rows = sum(f.rows for f in latencies)
            lines.append(
                _line(Figures(table, f"mean of {len(latencies)} latencies", rows, ranks, inside), methods)
            )
    return "\n".join(lines)


def _line(f: Figures, methods: Sequence[str]) -> str:
    shown = "".join(
        f"{f.ranks[m][0]:>7.3f} /{f.ranks[m][1]:>5.3f}" if m in f.ranks else " " * 14 for m in methods
    )
    return f"{f.table:<13}{f.objective:<27}{f.rows:>6}{shown}{f.coverage:>10.2f}"


def _mean(ranks: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return float(np.mean([r[0] for r in ranks])), float(np.mean([r[1] for r in ranks]))


def _counts(row: Row, objective: str) -> bool:
    """Measured, and not the near-zero latency of a network that is cut in two."""
    return objective in row.targets and not (
        objective.startswith("latency/") and row.targets[objective] < 1e-9
    )


def _sampled(rlm: RLM, texts: Sequence[str], objectives: Sequence[str]) -> dict[str, np.ndarray]:
    """The median of samples of each objective, latencies a few at a time after accuracy."""
    latencies = [o for o in objectives if o.startswith("latency/")]
    context = ["accuracy"] if "accuracy" in rlm.objectives else []
    passes = [[o] for o in objectives if o not in latencies]
    passes += [[*context, *latencies[i : i + TOGETHER]] for i in range(0, len(latencies), TOGETHER)]
    found: dict[str, np.ndarray] = {}
    for names in tqdm(passes, desc="sample", unit="pass"):
        medians = np.median(rlm.sample_text(texts, names, SAMPLES), axis=1)
        found.update((n, medians[:, k]) for k, n in enumerate(names) if n not in found)
    return found
