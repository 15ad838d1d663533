"""Predictions compared with measurements: the model's median, the median of samples, and baselines."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nas_rlm.benchmarks import baselines
from nas_rlm.data import tables
from nas_rlm.data.genome import genome_features_of_rows
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import train_validation_test_split
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row, Table
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.model.batching import TruncationWarning, named_texts
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.ensemble.checks import check_surrogates
from nas_rlm.training.recipe import read_recipe
from nas_rlm.utils.extras import is_installed
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import listed, suggest
from search_spaces.wording import counted

QUANTILE_LEVELS = (0.1, 0.5, 0.9)
PROGRAMS = "programs"
SHIPPED_RECIPES = ("nas", PROGRAMS)  # whose tables the shipped models were trained on
DEFAULT_SAMPLES = 64
MIN_UID_ROWS = 20  # rows with one uid that are evaluated separately
COLUMN_WIDTH = 14  # of a method, in characters


@dataclass(frozen=True)
class Evaluation:
    """How well one objective of one table is predicted.

    Args:
        table: name of the table.
        objective: the objective.
        rows: number of test rows.
        correlations: method to Spearman and Kendall correlation.
        coverage: share of true values between the model's .1 and .9 quantiles; .8 is right.
        uid: uid of the rows, or the space of programs, if they are only a part of the table's.
        points: measured and predicted values [2, rows]; empty in a mean of several evaluations.
    """

    table: str
    objective: str
    rows: int
    correlations: dict[str, tuple[float, float]]
    coverage: float
    uid: str = ""
    points: np.ndarray = field(default_factory=lambda: np.empty((2, 0)))


def evaluate_model(
    rlm: RLM,
    data: Path | None = None,
    objectives: Sequence[str] = (),
    num_samples: int = DEFAULT_SAMPLES,
    validation: bool = False,
) -> list[Evaluation]:
    """Evaluate a model on a table, or on the test rows of the shipped models' tables.

    Examples:
        >>> print(format_evaluations(evaluate_model(RLM.load("nas-fast"), num_samples=0)))  # doctest: +SKIP

    Args:
        rlm: the model.
        data: a table, with all of its rows; None for the test rows of the shipped models' tables that have
            spaces on which the model was trained.
        objectives: objectives to evaluate; by default all that model and table share.
        num_samples: samples whose median is compared with the model's median; 0 for none.
        validation: use the validation rows, which decided the temperatures, instead of the test rows.

    Raises:
        ValueError: an argument is invalid, or no row has an objective.
    """
    if num_samples < 0:
        raise ValueError(f"samples is {num_samples}: expected 0 or more")
    if data is not None:
        return evaluate_table(rlm, read_test_table(data, validation), objectives, num_samples=num_samples)
    if not is_installed("baselines"):
        warnings.warn(
            "the baselines trees and neighbours are left out: they need pip install 'nas-rlm[baselines]'",
            stacklevel=2,
        )
    pairs = train_test_tables(rlm, validation)
    measured = list(dict.fromkeys(name for _, test in pairs for name in test.objectives))
    _check_measured(objectives, measured, ", ".join(test.name for _, test in pairs))
    evaluations: list[Evaluation] = []
    for train, test in progress_bar(pairs, "evaluate", unit="table"):
        shared = [name for name in objectives if name in test.objectives]
        if shared or not objectives:
            evaluations += evaluate_table(rlm, test, shared, train, num_samples)
    return evaluations


def read_test_table(data: Path, validation: bool) -> Table:
    """Read a table whose rows are all test rows.

    Args:
        data: the table.
        validation: whether validation rows were requested.

    Raises:
        ValueError: validation rows were requested, which only the shipped models' tables have.
    """
    if validation:
        raise ValueError(f"validation rows are those of the shipped model's tables, not of {str(data)!r}")
    return tables.read(data)


def train_test_tables(rlm: RLM, validation: bool = False) -> list[tuple[Table, Table]]:
    """Return training and test rows of the shipped models' tables with spaces on which a model was trained.

    Args:
        rlm: the model.
        validation: validation rows instead of test rows.

    Raises:
        ValueError: the model was trained on none of the spaces.
    """
    pairs = []
    for name in SHIPPED_RECIPES:
        recipe = read_recipe(name)
        for use in recipe.tables:
            path = tables.data_directory() / use.path
            if name == PROGRAMS and not path.is_file():
                continue  # a model of networks needs no table of programs
            table = tables.read(path)
            if any(row.space in rlm.trained_on for row in table.rows):
                train, validation_rows, test = train_validation_test_split(
                    table, recipe.validation, recipe.seed, recipe.by_group
                )
                pairs.append((train, validation_rows if validation else test))
    if not pairs:
        spaces = ", ".join(rlm.trained_on) or "no space"
        raise ValueError(
            f"the model was trained on {spaces}, and not on the shipped models' tables: give a table to"
            " evaluate on"
        )
    return pairs


def evaluate_table(
    rlm: RLM,
    test: Table,
    objectives: Sequence[str] = (),
    train: Table | None = None,
    num_samples: int = DEFAULT_SAMPLES,
) -> list[Evaluation]:
    """Evaluate a model on a table.

    Args:
        rlm: the model.
        test: rows on which the model was not trained.
        objectives: objectives to evaluate; by default all that model and table share.
        train: training rows of baselines; without them only baselines that need no training are compared.
        num_samples: samples whose median is compared with the model's median; 0 for none.

    Returns:
        An evaluation of each objective, and of each large group of rows with one uid.

    Raises:
        ValueError: the table or the model does not have an objective, or they share none.

    Warns:
        UserWarning: by default, objectives that the model learnt for other spaces alone are left out.
    """
    names = _evaluated_objectives(rlm, test, objectives)
    texts = texts_of_rows(test.rows)
    quantiles = predict_rows(rlm, test.rows, texts, names)
    samples = _sample_medians(rlm, test.rows, texts, names, num_samples) if num_samples else np.empty(0)
    if test.has_only_programs:
        costs = {"length": baselines.program_length(texts), "loops": baselines.loop_depth(texts)}
    else:
        costs = _network_costs(test.rows, texts)
    predict_baseline = _trained_baseline(train, test) if train and is_installed("baselines") else None
    evaluations = []
    for k, objective in enumerate(progress_bar(names, desc="baselines", unit="objective", delay=2)):
        measured, true = _measured(test, objective)
        if len(true) < 2:
            raise ValueError(
                f"{test.name} has {counted(len(true), 'row')} with {objective}: ranks need 2 at least"
            )
        predictions = {"median": quantiles[measured, k, 1]}
        if num_samples:
            predictions[f"{num_samples} samples"] = samples[measured, k]
        predictions |= {name: values[measured] for name, values in costs.items()}
        if predict_baseline:
            predictions |= predict_baseline(objective, measured)
        for uid, part in _indices_by_uid([test.rows[i] for i in measured]).items():
            part_predictions = {name: values[part] for name, values in predictions.items()}
            low, _, high = quantiles[measured[part], k].T
            share = coverage(low, high, true[part])
            evaluations.append(_evaluation(test.name, objective, true[part], part_predictions, share, uid))
    return evaluations


def _evaluation(
    table: str,
    objective: str,
    true: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    share: float,
    uid: str,
) -> Evaluation:
    """The evaluation of predictions by method."""
    correlations = {name: (spearman(p, true), kendall(p, true)) for name, p in predictions.items()}
    points = np.stack([true, predictions["median"]])
    return Evaluation(table, objective, len(true), correlations, share, uid, points)


def _evaluated_objectives(rlm: RLM, test: Table, objectives: Sequence[str]) -> list[str]:
    """The given objectives, or all final ones that model and table share and that the model predicts.

    Raises:
        ValueError: the table or the model does not have an objective, or they share none.

    Warns:
        UserWarning: shared objectives that the model learnt for other spaces alone are left out.
    """
    _check_measured(objectives, test.objectives, test.name)
    if objectives:
        rlm.check(objectives)
        return list(objectives)
    shared = [o for o in test.objectives if o in rlm.objectives and _is_final(o)]
    names = [o for o in shared if len(test.where_measured(o)) > 1]
    if not names:
        raise ValueError(
            f"{test.name} has no objective that the model knows, with 2 rows at least;"
            f" it has {', '.join(test.objectives) or 'no rows'}"
        )
    return _predictable(rlm, test, names)


def _predictable(rlm: RLM, test: Table, objectives: Sequence[str]) -> list[str]:
    """The objectives that a model predicts in all spaces of a table.

    Raises:
        ValueError: it predicts none of them.

    Warns:
        UserWarning: it cannot predict others.
    """
    unknown_in: dict[str, list[str]] = {}
    errors = []
    for space in dict.fromkeys(row.space for row in test.rows):
        model = rlm.transferred_to(space, objectives) if space else rlm
        for name in objectives:
            try:
                check_surrogates(model.selection, space, [name])
            except ValueError as error:
                errors.append(error)
                unknown_in.setdefault(name, []).append(space or "networks without a space")
    names = [name for name in objectives if name not in unknown_in]
    if not names:
        raise errors[0]
    if unknown_in:
        reasons = [f"{name} for {listed(spaces)}" for name, spaces in unknown_in.items()]
        warnings.warn(
            f"objectives of {test.name} that the model cannot predict are left out: {', '.join(reasons)}",
            stacklevel=4,
        )
    return names


def _indices_by_uid(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Indices of all rows, under the empty uid, and of the rows of each frequent uid if there are several.

    The uid of a program is its space if it has no other: numbers of two languages cannot be compared.
    """
    by_uid: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        by_uid.setdefault(row.uid or (row.space if row.is_program else ""), []).append(i)
    frequent = {uid: np.array(part) for uid, part in sorted(by_uid.items()) if len(part) >= MIN_UID_ROWS}
    separate = {uid: part for uid, part in frequent.items() if uid} if len(frequent) > 1 else {}
    return {"": np.arange(len(rows))} | separate


def _measured(table: Table, objective: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows with an objective, and their values."""
    rows = [i for i, row in enumerate(table.rows) if row.is_measured(objective)]
    return np.array(rows, dtype=int), np.array([table.rows[i].targets[objective] for i in rows])


def format_evaluations(evaluations: Sequence[Evaluation]) -> str:
    """Return a text table: a line for each objective, and means over each table's latencies.

    Args:
        evaluations: evaluations of any tables.
    """
    methods = list(dict.fromkeys(method for e in evaluations for method in e.correlations))
    width = 1 + max([12, *(len(e.table) for e in evaluations)])
    header = (
        f"{'table':<{width}}{'objective':<34}{'rows':>6}"
        + "".join(f"{method:>{COLUMN_WIDTH}}" for method in methods)
        + f"{'coverage':>10}"
    )
    lines = ["Spearman / Kendall of each method; coverage of the model's 80 % interval", header]
    lines += [_format_line(e, methods, width) for e in evaluations]
    for table in dict.fromkeys(e.table for e in evaluations):
        latencies = [
            e for e in evaluations if e.table == table and e.objective.startswith("latency/") and not e.uid
        ]
        batch_sizes = [e.objective.rpartition("_")[2] for e in latencies]
        for size in ["", *sorted({s for s in batch_sizes if s.isdecimal()}, key=int)]:
            group = [e for e, s in zip(latencies, batch_sizes, strict=True) if not size or s == size]
            if len(group) > 1:
                lines.append(_format_line(_mean_of_latencies(group, size), methods, width))
    return "\n".join(lines)


def _format_line(e: Evaluation, methods: Sequence[str], width: int) -> str:
    cells = "".join(
        f"{e.correlations[m][0]:>7.3f} /{e.correlations[m][1]:>5.3f}"
        if m in e.correlations
        else " " * COLUMN_WIDTH
        for m in methods
    )
    objective = f"{e.objective} of {e.uid}" if e.uid else e.objective
    return f"{e.table:<{width}}{objective:<34}{e.rows:>6}{cells}{e.coverage:>10.2f}"


def _mean_of_latencies(evaluations: Sequence[Evaluation], batch_size: str) -> Evaluation:
    """The mean of evaluations of one table's latencies, with one batch size if it is given."""
    methods = dict.fromkeys(m for e in evaluations for m in e.correlations)
    means = {
        m: np.mean([e.correlations[m] for e in evaluations if m in e.correlations], axis=0) for m in methods
    }
    correlations = {m: (float(rho), float(tau)) for m, (rho, tau) in means.items()}
    name = f"mean of {len(evaluations)} latencies" + (f", _{batch_size}" if batch_size else "")
    share = float(np.mean([e.coverage for e in evaluations]))
    return Evaluation(evaluations[0].table, name, sum(e.rows for e in evaluations), correlations, share)


def _check_measured(objectives: Sequence[str], measured: Sequence[str], name: str) -> None:
    """Refuse an objective that no row has.

    Raises:
        ValueError: no row has it.
    """
    for objective in objectives:
        if objective not in measured:
            raise ValueError(f"{name}: no row has {objective!r}; {suggest(objective, measured)}")


def _is_final(objective: str) -> bool:
    """Whether an objective is neither an exact cost nor the accuracy after a part of the training."""
    return objective not in EXACT_OBJECTIVES and not re.fullmatch(r"accuracy/.*\dep", objective)


def _network_costs(rows: Sequence[Row], texts: Sequence[str]) -> dict[str, np.ndarray]:
    """The costs that every row has or that can be computed for every row.

    Warns:
        UserWarning: a cost cannot be computed.
    """
    costs = {}
    for name, compute in {"flops": baselines.flops, "params": baselines.params}.items():
        try:
            costs[name] = compute(rows, texts)
        except ValueError as error:
            warnings.warn(f"{name} are not compared: {error}", stacklevel=2)
    return costs


def _trained_baseline(train: Table, test: Table) -> Callable[[str, np.ndarray], dict[str, np.ndarray]]:
    """A function from an objective and indices of test rows to predictions of a trained baseline."""
    if test.has_only_programs:
        train_texts, test_texts = texts_of_rows(train.rows), texts_of_rows(test.rows)

        def predict_neighbours(objective: str, indices: np.ndarray) -> dict[str, np.ndarray]:
            measured, values = _measured(train, objective)
            known_texts, queried_texts = [train_texts[i] for i in measured], [test_texts[i] for i in indices]
            return {"neighbours": baselines.neighbours(known_texts, values, queried_texts)}

        return predict_neighbours
    train_features = np.array(baselines.space_features(train.rows))
    test_features = np.array(baselines.space_features(test.rows))

    def predict_trees(objective: str, indices: np.ndarray) -> dict[str, np.ndarray]:
        measured, values = _measured(train, objective)
        return {"trees": baselines.trees(train_features[measured], values, test_features[indices])}

    return predict_trees


def predict_rows(
    rlm: RLM, rows: Sequence[Row], texts: Sequence[str], objectives: Sequence[str]
) -> np.ndarray:
    """Return predicted quantiles of rows, each predicted as part of its space.

    Args:
        rlm: the model.
        rows: N rows of any spaces.
        texts: their texts.
        objectives: K objectives.

    Returns:
        Quantiles at `QUANTILE_LEVELS` [N, K, 3].
    """
    quantiles = np.empty((len(rows), len(objectives), len(QUANTILE_LEVELS)))
    for space, indices in indices_by_space(rows).items():
        space_texts, genomes = (
            [texts[i] for i in indices],
            genome_features_of_rows([rows[i] for i in indices]),
        )
        with named_texts([rows[i].arch_str or f"row {i}" for i in indices]):
            model = rlm.transferred_to(space, objectives) if space else rlm
            quantiles[indices] = model.predict_text(
                space_texts, objectives, QUANTILE_LEVELS, progress=True, space=space, genomes=genomes
            )
    return quantiles


def _sample_medians(
    rlm: RLM, rows: Sequence[Row], texts: Sequence[str], objectives: Sequence[str], num_samples: int
) -> np.ndarray:
    """Medians of joint samples [N, K], without the warnings of `predict_rows`."""
    medians = np.empty((len(rows), len(objectives)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        for space, indices in indices_by_space(rows).items():
            space_texts = [texts[i] for i in indices]
            genomes = genome_features_of_rows([rows[i] for i in indices])
            samples = rlm.sample_text(
                space_texts, objectives, num_samples, progress=True, space=space, genomes=genomes
            )
            medians[indices] = np.median(samples, axis=1)
    return medians


def indices_by_space(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return the indices of the rows of each space."""
    indices: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        indices.setdefault(row.space, []).append(i)
    return indices
