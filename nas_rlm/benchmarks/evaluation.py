"""Held-out measurements against predictions: the median, samples and baselines side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.data import tables
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import train_validation_test_split
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row, Table
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.rlm import RLM
from nas_rlm.training.recipe import read_recipe
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import suggest

LEVELS = (0.1, 0.5, 0.9)
PROGRAMS = "programs"
RECIPES = ("nas", PROGRAMS)  # whose tables the shipped models learnt from
SAMPLES = 64
SHARED = 20  # rows with one uid, among several, were measured in one way and have figures of their own


@dataclass(frozen=True)
class Figures:
    """How one objective of one table is predicted.

    Args:
        table, objective: what.
        rows: held-out rows.
        ranks: method to (Spearman, Kendall).
        coverage: share of true values between the 0.1 and 0.9 quantiles; 0.8 is right.
        uid: what all the rows share, if they are a part of the table.
        points: measured and predicted values, float64 [2, rows]; none in a mean of several figures.
    """

    table: str
    objective: str
    rows: int
    ranks: dict[str, tuple[float, float]]
    coverage: float
    uid: str = ""
    points: np.ndarray = field(default_factory=lambda: np.empty((2, 0)))


def judge(
    rlm: RLM,
    data: Path | None = None,
    objectives: Sequence[str] = (),
    samples: int = SAMPLES,
    validation: bool = False,
) -> list[Figures]:
    """Judge a model on a table, or on rows that it has not seen of those that it learnt from.

    Args:
        rlm: the model.
        data: a parquet table, all of whose rows count; None for the test rows of the shipped recipe's tables
            of the spaces that the model has seen.
        objectives: what to judge; by default all that model and table share.
        samples: hold the median of so many samples beside the model's own median; 0 for none.
        validation: the recipe's validation rows, which told temperatures, instead of its test rows.
    """
    if samples < 0:
        raise ValueError(f"samples is {samples}: expected 0 or more")
    if data is not None:
        return evaluate(rlm, whole(data, validation), objectives, samples=samples)
    halves = sides(rlm, validation)
    measured = list(dict.fromkeys(name for _, held in halves for name in held.objectives))
    _check(objectives, measured, ", ".join(held.name for _, held in halves))
    found: list[Figures] = []
    for training, held in halves:
        shared = [name for name in objectives if name in held.objectives]
        if shared or not objectives:
            found += evaluate(rlm, held, shared, training, samples)
    return found


def whole(data: Path, validation: bool) -> Table:
    """A table all of whose rows are asked.

    Raises:
        ValueError: validation rows are asked for, which only the shipped model's tables have.
    """
    if validation:
        raise ValueError(f"validation rows are those of the shipped model's tables, not of {str(data)!r}")
    return tables.read(data)


def sides(rlm: RLM, validation: bool = False) -> list[tuple[Table, Table]]:
    """Training and test rows of the shipped models' tables, of those spaces that a model has seen.

    Args:
        rlm: the model.
        validation: rows that told temperatures instead of test rows.

    Raises:
        ValueError: the model has seen none of them.
    """
    found = []
    for name in RECIPES:
        recipe = read_recipe(name)
        for entry in recipe.tables:
            path = tables.data_directory() / entry.path
            if name == PROGRAMS and not path.is_file():
                continue  # who knows networks alone needs none of them
            table = tables.read(path)
            if any(row.space in rlm.trained_on for row in table.rows):
                training, told, test = train_validation_test_split(
                    table, recipe.validation, recipe.seed, recipe.by_group
                )
                found.append((training, told if validation else test))
    if not found:
        seen = ", ".join(rlm.trained_on) or "nothing"
        raise ValueError(
            f"the model has seen {seen}, none of the shipped models' tables: name one of your own"
        )
    return found


def evaluate(
    rlm: RLM,
    held: Table,
    objectives: Sequence[str] = (),
    training: Table | None = None,
    samples: int = SAMPLES,
) -> list[Figures]:
    """Judge a model on a table.

    Args:
        rlm: the model.
        held: rows that it never saw.
        objectives: what to judge; all that model and table share by default.
        training: rows for baselines that learn; without it they are left out.
        samples: hold the median of so many samples beside the model's own median; 0 for none.

    Raises:
        ValueError: the table or the model does not have an objective, or they share none.
    """
    _check(objectives, held.objectives, held.name)
    if objectives:
        rlm.check(objectives)
    known = [o for o in held.objectives if o in rlm.objectives and _is_final(o)]
    asked = list(objectives) or [o for o in known if len(held.where_measured(o)) > 1]
    if not asked:
        raise ValueError(
            f"{held.name} has no objective that the model knows, with 2 rows at least;"
            f" it has {', '.join(held.objectives) or 'no rows'}"
        )
    texts = texts_of_rows(held.rows)
    decoded = predicted(rlm, held.rows, texts, asked)
    drawn = _sampled(rlm, held.rows, texts, asked, samples) if samples else np.empty(0)
    costs = _of_programs(texts) if held.has_only_programs else _costs(held.rows)
    rival = _learner(training, held) if training and find_spec("sklearn") else None
    figures = []
    for k, objective in enumerate(progress_bar(asked, desc="compare", unit="objective")):
        measured, true = _measured(held, objective)
        if len(true) < 2:
            raise ValueError(f"{held.name} has {len(true)} rows with {objective}: ranks need 2 at least")
        low, median, high = decoded[measured, k].T
        methods = {"median": median}
        if samples:
            methods[f"{samples} samples"] = drawn[measured, k]
        methods |= {name: values[measured] for name, values in costs.items()}
        if rival:
            methods |= rival(objective, measured)
        for uid, part in _parts([held.rows[i] for i in measured]).items():
            t = true[part]
            ranks = {name: (spearman(p[part], t), kendall(p[part], t)) for name, p in methods.items()}
            inside = coverage(low[part], high[part], t)
            points = np.stack([t, median[part]])
            figures.append(Figures(held.name, objective, len(t), ranks, inside, uid, points))
    return figures


def _parts(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Positions of all rows, under no uid, and of those that were measured in one way."""
    parts = {uid: [i for i, row in enumerate(rows) if row.uid == uid] for uid in {row.uid for row in rows}}
    large = {uid: np.array(part) for uid, part in sorted(parts.items()) if len(part) >= SHARED}
    return {"": np.arange(len(rows))} | (
        {uid: part for uid, part in large.items() if uid} if len(large) > 1 else {}
    )


def _measured(table: Table, objective: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the rows that were measured for an objective, and their values."""
    rows = [i for i, row in enumerate(table.rows) if row.is_measured(objective)]
    return np.array(rows, dtype=int), np.array([table.rows[i].targets[objective] for i in rows])


def show(figures: Sequence[Figures]) -> str:
    """Figures as text: a line an objective, and means over each table's latencies, all and by batch size."""
    methods = list(dict.fromkeys(m for f in figures for m in f.ranks))
    wide = 1 + max([12, *(len(f.table) for f in figures)])
    head = (
        f"{'table':<{wide}}{'objective':<34}{'rows':>6}"
        + "".join(f"{m:>14}" for m in methods)
        + f"{'coverage':>10}"
    )
    lines = ["Spearman / Kendall of each method; coverage of the model's 80 % interval", head]
    lines += [_line(f, methods, wide) for f in figures]
    for table in dict.fromkeys(f.table for f in figures):
        latencies = [
            f for f in figures if f.table == table and f.objective.startswith("latency/") and not f.uid
        ]
        batches = [f.objective.rpartition("_")[2] for f in latencies]
        for batch in ["", *sorted({b for b in batches if b.isdecimal()}, key=int)]:
            some = [f for f, b in zip(latencies, batches, strict=True) if not batch or b == batch]
            if len(some) > 1:
                lines.append(_line(_mean_of(some, batch), methods, wide))
    return "\n".join(lines)


def _line(f: Figures, methods: Sequence[str], wide: int) -> str:
    shown = "".join(
        f"{f.ranks[m][0]:>7.3f} /{f.ranks[m][1]:>5.3f}" if m in f.ranks else " " * 14 for m in methods
    )
    objective = f"{f.objective} of {f.uid}" if f.uid else f.objective
    return f"{f.table:<{wide}}{objective:<34}{f.rows:>6}{shown}{f.coverage:>10.2f}"


def _mean_of(figures: Sequence[Figures], batch: str) -> Figures:
    """The mean of figures of one table, of one batch size if there is one."""
    methods = dict.fromkeys(m for f in figures for m in f.ranks)
    ranks = {m: np.mean([f.ranks[m] for f in figures if m in f.ranks], axis=0) for m in methods}
    pairs = {m: (float(rho), float(tau)) for m, (rho, tau) in ranks.items()}
    name = f"mean of {len(figures)} latencies" + (f", _{batch}" if batch else "")
    inside = float(np.mean([f.coverage for f in figures]))
    return Figures(figures[0].table, name, sum(f.rows for f in figures), pairs, inside)


def _check(objectives: Sequence[str], known: Sequence[str], name: str) -> None:
    for objective in objectives:
        if objective not in known:
            raise ValueError(f"{name}: no row has {objective!r}; {suggest(objective, known)}")


def _is_final(objective: str) -> bool:
    """Neither a cost that is counted, nor an accuracy after a part of the training."""
    return objective not in EXACT_OBJECTIVES and not objective.endswith("ep")


def _costs(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """The cost baselines that are known or can be counted for every row."""
    spaces = search_spaces.names()
    counters = {"flops": baselines.flops, "params": baselines.params}
    return {
        name: count(rows)
        for name, count in counters.items()
        if all(name in row.targets or row.space in spaces for row in rows)
    }


def _of_programs(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """What tells of programs without learning."""
    return {"length": baselines.length(texts), "loops": baselines.loop_depth(texts)}


def _learner(known: Table, held: Table) -> Callable[[str, np.ndarray], dict[str, np.ndarray]]:
    """What a baseline that learns from known rows tells of held-out ones: of a number, at some positions."""
    if held.has_only_programs:
        texts, others = texts_of_rows(known.rows), texts_of_rows(held.rows)

        def by_words(objective: str, asked: np.ndarray) -> dict[str, np.ndarray]:
            seen, values = _measured(known, objective)
            found = baselines.neighbours([texts[i] for i in seen], values, [others[i] for i in asked])
            return {"neighbours": found}

        return by_words
    features, of_others = np.array(baselines.features(known.rows)), np.array(baselines.features(held.rows))

    def by_counts(objective: str, asked: np.ndarray) -> dict[str, np.ndarray]:
        seen, values = _measured(known, objective)
        return {"trees": baselines.trees(features[seen], values, of_others[asked])}

    return by_counts


def predicted(rlm: RLM, rows: Sequence[Row], texts: Sequence[str], objectives: Sequence[str]) -> np.ndarray:
    """What a model tells of rows, each as one of its space: quantiles at `LEVELS`, float64 [N, K, 3]."""
    found = np.empty((len(rows), len(objectives), len(LEVELS)))
    for space, part in by_space(rows).items():
        some = [texts[i] for i in part]
        found[part] = rlm.predict_text(some, objectives, LEVELS, progress=True, space=space)
    return found


def _sampled(
    rlm: RLM, rows: Sequence[Row], texts: Sequence[str], objectives: Sequence[str], samples: int
) -> np.ndarray:
    """The medians of joint samples, float64 [N, K]."""
    found = np.empty((len(rows), len(objectives)))
    for space, part in by_space(rows).items():
        some = [texts[i] for i in part]
        joint = rlm.sample_text(some, objectives, samples, progress=True, space=space)
        found[part] = np.median(joint, axis=1)
    return found


def by_space(rows: Sequence[Row]) -> dict[str, list[int]]:
    """The positions of each space's rows."""
    found: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault(row.space, []).append(i)
    return found
