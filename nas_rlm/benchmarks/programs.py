"""How well a model predicts programs: new programs of known problems, or programs of new problems.

Source: section 5.2 of the paper, in which training and test programs are of the same problems.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from nas_rlm.benchmarks import baselines
from nas_rlm.benchmarks.evaluation import QUANTILE_LEVELS, indices_by_space, predict_rows
from nas_rlm.benchmarks.ranking import (
    GOOD_SPEARMAN,
    MIN_PROGRAMS,
    ProblemRankings,
    rank_jointly_within_problems,
    rank_within_problems,
)
from nas_rlm.data import tables
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import sample_by_space, split_by_source, train_validation_test_split
from nas_rlm.data.tables import Table
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.surrogates.predictive import MIN_LABELS, PredictiveDistribution, normal_scores
from nas_rlm.surrogates.programs.ngrams import NgramSurrogate, log_sizes
from nas_rlm.surrogates.registry import Surrogate, predictive_distributions
from nas_rlm.training.recipe import Recipe
from nas_rlm.training.run_directory import claim_run_directory
from nas_rlm.training.trainer import train_from_recipe
from nas_rlm.utils.extras import require
from nas_rlm.utils.progress import progress_bar

TRAINED_METHODS = ("network", "rlm")  # of one training: the network, and the network with its surrogates
ALONE, MIXED, TRANSFER = "surrogate-alone", "surrogate-mixed", "surrogate-transfer"
# Fitted to all languages; to each alone; as in shipped models; and with other tables, as in fine-tuning.
SURROGATES = ("surrogate", ALONE, MIXED, TRANSFER)
SHIPPED_MODEL = "programs"
OTHER_LANGUAGES, INPUT_SIZE = "other-languages", "size"
METHODS = (
    *("length", "loops", INPUT_SIZE, "neighbours", OTHER_LANGUAGES, "ngrams"),
    *SURROGATES,
    *TRAINED_METHODS,
)
MIN_LANGUAGE_ROWS = 300  # of a table, above which a language counts in the mean
SOURCE = "source"
SPLITS = {"program": False, "problem": True, SOURCE: False}  # whether problems are not divided
Key = tuple[str, str, str, int]
KEY_NAMES = ("split", "objective", "method", "seed")
JOINT = "+"  # between the objectives of a joint ranking


@dataclass(frozen=True)
class ProgramResult:
    """How well a method predicts the test rows.

    Args:
        rows: number of test rows.
        spearman: Spearman correlation of predictions and measurements; of a joint ranking, the mean one of
            positions within the problems.
        kendall: Kendall's tau of them.
        coverage: share of true values in 80 % intervals; 0 for a method without intervals.
        problems: problems with enough programs for a ranking.
        good_share: share of these problems with a Spearman correlation above .5.
        top1: how often the program with the smallest prediction has the smallest value of its problem.
        random_top1: how often a random program has.
        seconds: time of training and prediction.
        language_spearman: Spearman correlation within a language, mean over the languages with at least
            `MIN_LANGUAGE_ROWS` rows in the table; 0 for tables of one language.
        language_kendall: the same of Kendall's tau.
    """

    rows: int
    spearman: float
    kendall: float
    coverage: float
    problems: int
    good_share: float
    top1: float
    random_top1: float
    seconds: float
    language_spearman: float = 0.0
    language_kendall: float = 0.0


@dataclass(frozen=True)
class TimedPredictions:
    """Predictions of a method.

    Args:
        quantiles: quantiles at `QUANTILE_LEVELS` [N, 3]; all equal for a method without intervals.
        seconds: time of training and prediction.
    """

    quantiles: np.ndarray
    seconds: float


def programs_benchmark(
    path: Path,
    recipe: Recipe,
    models_directory: Path,
    split: str = "program",
    seeds: Sequence[int] = range(5),
    methods: Sequence[str] = METHODS,
    finished: Collection[Key] = (),
    max_rows: int = 0,
    max_labels: int = 0,
    progress: bool = False,
) -> Iterator[tuple[Key, ProgramResult]]:
    """Train each method on the training rows of a table and evaluate it on the test rows.

    Args:
        path: the table.
        recipe: recipe of the training, which has the table.
        models_directory: directory of the trained models; interrupted trainings continue.
        split: one of `SPLITS`; by source there is one split, whatever the seed, and no training.
        seeds: seeds of splits and trainings.
        methods: some of `METHODS`.
        finished: keys to skip.
        max_rows: at most so many rows of each space, see `nas_rlm.data.splits.sample_by_space`; 0 for all.
        max_labels: train on so many rows, drawn at random from the training rows, without network; 0 for all.
        progress: show a progress bar.

    Yields:
        Split, objective, method and seed, and the result, as soon as each is available. For a table of
        several languages, the results of each large one follow, with an objective such as
        `memory of LeetCode/Go`. Joint rankings by all objectives, such as `memory+time`, come last.

    Raises:
        ValueError: a model's directory holds another training, or the recipe has no surrogates.
    """
    if "neighbours" in methods:
        require("baselines", "the method neighbours")
    table = tables.read(path)
    table = sample_by_space(table, max_rows, table.objectives) if max_rows else table
    splits = {seed: _split_table(table, recipe, models_directory, split, seed) for seed in seeds}
    if max_labels:
        splits = {seed: replace(s, train=_drawn(s.train, max_labels, seed)) for seed, s in splits.items()}
        methods = [method for method in methods if method not in TRAINED_METHODS]
    remaining = [
        (split, objective, method, seed)
        for seed in seeds
        for objective in table.objectives
        for method in methods
        if _is_applicable(method, table, split)
        if (split, objective, method, seed) not in finished
        and len(splits[seed].test.where_measured(objective)) > 1
    ]
    for key in progress_bar(remaining, "programs", unit="method", disable=not progress):
        _, objective, method, seed = key
        predictions = _predict(method, splits[seed], objective)
        test = splits[seed].test.where_measured(objective)
        languages = _large_languages(table)
        yield key, evaluate_predictions(predictions, test, objective, languages=languages)
        for space in languages if len(languages) > 1 else ():
            part = [i for i, row in enumerate(test.rows) if row.space == space]
            of_space = replace(test, rows=[test.rows[i] for i in part])
            own = TimedPredictions(predictions.quantiles[part], predictions.seconds)
            if len(part) > 1:
                name = f"{objective} of {space}"
                yield (split, name, method, seed), evaluate_predictions(own, of_space, objective)
    yield from _joint_results(table, split, splits, methods, finished)


def _joint_results(
    table: Table, split: str, splits: Mapping[int, _Split], methods: Sequence[str], finished: Collection[Key]
) -> Iterator[tuple[Key, ProgramResult]]:
    """Yield how well each method ranks programs by all objectives, if programs have several."""
    for seed, parts in splits.items():
        test = parts.test.where_measured(*table.objectives)
        for method in methods:
            key = split, JOINT.join(table.objectives), method, seed
            if len(table.objectives) < 2 or len(test) < 2 or key in finished:
                continue
            if _is_applicable(method, table, split):
                yield key, _evaluate_jointly(parts, method, test)


def _evaluate_jointly(parts: _Split, method: str, test: Table) -> ProgramResult:
    """Compare rankings by all objectives within the problems of a language with those by measurements."""
    predictions = [_predict(method, replace(parts, test=test), objective) for objective in test.objectives]
    rankings = rank_jointly_within_problems(
        _problems(test),
        np.column_stack([test.column(objective) for objective in test.objectives]),
        np.column_stack([p.quantiles[:, 1] for p in predictions]),
    )
    means = [float(np.mean(values)) if len(values) else 0.0 for values in vars(rankings).values()]
    return ProgramResult(
        rows=len(test),
        spearman=means[0],
        kendall=means[1],
        coverage=0.0,
        problems=len(rankings.top1),
        good_share=float(np.mean(rankings.spearman > GOOD_SPEARMAN)) if len(rankings.spearman) else 0.0,
        top1=means[2],
        random_top1=means[3],
        seconds=sum(p.seconds for p in predictions),
    )


def _problems(table: Table) -> list[str]:
    """Return the problem of each program, one for each language: values of different ones do not compare."""
    return [f"{row.space}:{row.group}" for row in table.rows]


def _drawn(table: Table, count: int, seed: int) -> Table:
    """Return a table with at most so many of its rows, drawn at random."""
    order = np.random.default_rng(seed).permutation(len(table.rows))[:count]
    return replace(table, rows=[table.rows[i] for i in order])


def _is_applicable(method: str, table: Table, split: str) -> bool:
    """Return whether a method says something of a table that no other one says."""
    if split == SOURCE and method in TRAINED_METHODS:
        return False
    if method in (OTHER_LANGUAGES, ALONE):
        return len(_large_languages(table)) > 1
    if method == INPUT_SIZE:
        return bool(log_sizes(texts_of_rows(table.rows)).any())
    return method != MIXED or SPLITS[split]


def _large_languages(table: Table) -> tuple[str, ...]:
    """Return the spaces of a table with at least `MIN_LANGUAGE_ROWS` rows."""
    counts = Counter(row.space for row in table.rows)
    return tuple(sorted(space for space, count in counts.items() if count >= MIN_LANGUAGE_ROWS))


def evaluate_predictions(
    predictions: TimedPredictions,
    test: Table,
    objective: str,
    min_programs: int = MIN_PROGRAMS,
    languages: Sequence[str] = (),
) -> ProgramResult:
    """Compare predictions with measurements.

    Args:
        predictions: predictions of the test rows.
        test: test rows with the objective.
        objective: the objective.
        min_programs: smallest number of programs of a problem that is ranked.
        languages: spaces whose mean correlation is computed, if there are several.
    """
    true = test.column(objective)
    low, median, high = predictions.quantiles.T
    rankings = rank_within_problems(_problems(test), true, median, min_programs)
    by_space = {space: np.array(part) for space, part in indices_by_space(test.rows).items()}
    within = {
        space: (spearman(median[part], true[part]), kendall(median[part], true[part]))
        for space in (languages if len(languages) > 1 else ())
        if len(part := by_space.get(space, ())) > 1
    }
    large = np.array([*within.values()] or [(0.0, 0.0)])
    top1, random_top1 = (float(np.mean(v)) if len(v) else 0.0 for v in (rankings.top1, rankings.random_top1))
    return ProgramResult(
        rows=len(true),
        spearman=spearman(median, true),
        kendall=kendall(median, true),
        coverage=coverage(low, high, true) if (low < high).any() else 0.0,
        problems=len(rankings.correlations),
        good_share=rankings.good_share,
        top1=top1,
        random_top1=random_top1,
        seconds=predictions.seconds,
        language_spearman=float(large[:, 0].mean()),
        language_kendall=float(large[:, 1].mean()),
    )


def problem_rankings(
    path: Path,
    recipe: Recipe,
    models_directory: Path,
    split: str,
    seeds: Sequence[int],
    objective: str = "",
) -> tuple[str, ProblemRankings]:
    """Return how well models rank programs within problems; models that are missing are trained.

    Args:
        path: the table.
        recipe: recipe of the training, which has the table.
        models_directory: directory of the trained models.
        split: one of `SPLITS`.
        seeds: seeds of splits and trainings.
        objective: the objective; by default the table's first.

    Returns:
        The objective, and the rankings of all seeds, in each of which a problem counts as another one.
    """
    table = tables.read(path)
    objective = objective or table.objectives[0]
    problems: list[str] = []
    true, predicted = [], []
    for seed in seeds:
        parts = _split_table(table, recipe, models_directory, split, seed)
        test = parts.test.where_measured(objective)
        predictions = _predict("rlm", parts, objective)
        problems += [f"{seed}:{problem}" for problem in _problems(test)]
        true.append(test.column(objective))
        predicted.append(predictions.quantiles[:, 1])
    return objective, rank_within_problems(problems, np.concatenate(true), np.concatenate(predicted))


@dataclass(frozen=True)
class _Split:
    """Training and test rows of one seed, and the training of its model."""

    train: Table
    test: Table
    recipe: Recipe
    model_directory: Path


def _split_table(table: Table, recipe: Recipe, models_directory: Path, split: str, seed: int) -> _Split:
    """Split a table, and make the recipe of its model."""
    by_group = SPLITS[split]
    if split == SOURCE:
        train, test = split_by_source(table)
    else:
        train, _, test = train_validation_test_split(table, recipe.validation, seed, by_group)
    own_recipe = replace(recipe.for_table(table.name), seed=seed, by_group=by_group)
    return _Split(train, test, own_recipe, models_directory / f"{table.name}-{split}-{seed}")


def _predict(method: str, split: _Split, objective: str) -> TimedPredictions:
    """Train a method and predict the test rows that have an objective."""
    train, test = split.train.where_measured(objective), split.test.where_measured(objective)
    start = time.perf_counter()
    if method in TRAINED_METHODS:
        quantiles = _predict_with_model(method, split, test, objective)
    elif method == "ngrams":
        groups = [row.group for row in train.rows] if split.recipe.by_group else []
        quantiles = _predict_with_ngrams(train, test, objective, groups)
    elif method in SURROGATES:
        quantiles = _predict_with_surrogates(method, split.recipe, train, test, objective)
    elif method == OTHER_LANGUAGES:
        values = _other_languages(train, test, objective)
        quantiles = np.repeat(values[:, None], len(QUANTILE_LEVELS), 1)
    else:
        values = _predict_with_baseline(method, train, test, objective)
        quantiles = np.repeat(values[:, None], len(QUANTILE_LEVELS), 1)
    return TimedPredictions(quantiles, time.perf_counter() - start)


def _predict_with_baseline(method: str, train: Table, test: Table, objective: str) -> np.ndarray:
    """Predictions of a baseline [N]."""
    texts = texts_of_rows(test.rows)
    if method == "neighbours":
        return baselines.neighbours(texts_of_rows(train.rows), train.column(objective), texts)
    functions = {"length": baselines.program_length, "loops": baselines.loop_depth, INPUT_SIZE: log_sizes}
    return functions[method](texts)


def _other_languages(train: Table, test: Table, objective: str) -> np.ndarray:
    """Return the median normal score of the solutions in other languages [N]; 0 where there is none."""
    values = train.column(objective)
    scores_of: dict[str, list[tuple[str, float]]] = {}
    for space, indices in indices_by_space(train.rows).items():
        for i, score in zip(indices, normal_scores(values[indices]), strict=True):
            scores_of.setdefault(train.rows[i].group, []).append((space, float(score)))
    found = [[s for space, s in scores_of.get(row.group, ()) if space != row.space] for row in test.rows]
    return np.array([float(np.median(scores)) if scores else 0.0 for scores in found])


def _predict_with_ngrams(train: Table, test: Table, objective: str, groups: Sequence[str]) -> np.ndarray:
    """Quantiles [N, 3] of an n-gram ridge regression for each language."""

    def predict(rows: Sequence[int], texts: Sequence[str]) -> PredictiveDistribution:
        values = {objective: train.column(objective)[list(rows)]}
        programs = texts_of_rows([train.rows[i] for i in rows])
        surrogate = NgramSurrogate.fit(programs, values, [groups[i] for i in rows] if groups else ())
        return surrogate.predict(surrogate.transform(texts), objective)

    indices = indices_by_space(train.rows)
    return _quantiles_by_space(
        test, lambda space, texts: predict(indices[space], texts) if _are_enough(indices, space) else None
    )


def _predict_with_surrogates(
    method: str, recipe: Recipe, train: Table, test: Table, objective: str
) -> np.ndarray:
    """Quantiles [N, 3] of surrogates of programs.

    They are fitted to all languages or to each alone; for the split, or as in shipped models for programs for
    known and for new problems. In the latter way also with the shipped surrogates of other tables.
    """
    (use,) = recipe.tables
    by_group = recipe.by_group and method not in (MIXED, TRANSFER)
    existing = _shipped_surrogates() if method == TRANSFER else None
    names = use.surrogate_objectives([objective])
    indices = indices_by_space(train.rows)
    parts = [train.rows] if method != ALONE else [[train.rows[i] for i in v] for v in indices.values()]
    surrogates = {k: v for p in parts for k, v in fit_surrogates(p, names, existing, by_group).items()}
    return _quantiles_by_space(
        test, lambda space, texts: predictive_distributions(surrogates.get(space, ()), texts, [objective])[0]
    )


@cache
def _shipped_surrogates() -> Mapping[str, Sequence[Surrogate]]:
    return RLM.load(SHIPPED_MODEL).surrogates


def _are_enough(indices: Mapping[str, Sequence[int]], space: str) -> bool:
    """Return whether a space has enough labelled rows for a surrogate."""
    return len(indices.get(space, ())) >= MIN_LABELS


def _quantiles_by_space(
    test: Table, predict: Callable[[str, Sequence[str]], PredictiveDistribution | None]
) -> np.ndarray:
    """Quantiles [N, 3] of the test rows, predicted space by space.

    A language with too few programs gets the median of the others.
    """
    texts = texts_of_rows(test.rows)
    quantiles = np.full((len(texts), len(QUANTILE_LEVELS)), np.nan)
    for space, indices in indices_by_space(test.rows).items():
        distribution = predict(space, [texts[i] for i in indices])
        if distribution:
            quantiles[indices] = distribution.quantiles(QUANTILE_LEVELS)
    if np.isnan(quantiles).all():
        raise ValueError("no surrogate was fitted: expected surrogates in the recipe, and enough rows")
    return np.where(np.isnan(quantiles), np.nanmedian(quantiles, axis=0), quantiles)


def _predict_with_model(method: str, split: _Split, test: Table, objective: str) -> np.ndarray:
    """Quantiles [N, 3] of the trained model, or of its network; a missing model is trained."""
    claim_run_directory(split.model_directory, split.recipe, resume=True)
    if not (split.model_directory / "config.json").is_file():
        train_from_recipe(split.recipe, split.model_directory, resume=True)
    rlm = RLM.load(split.model_directory)
    texts = texts_of_rows(test.rows)
    rlm.surrogates = rlm.surrogates if method == "rlm" else {}
    quantiles: np.ndarray = predict_rows(rlm, test.rows, texts, [objective])[:, 0]
    return quantiles
