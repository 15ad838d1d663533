"""How well programs are told that a model has not seen: of problems that it has seen, or of new ones.

Source: section 5.2 of the paper, which has the same problems on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nas_rlm.benchmarks import baselines
from nas_rlm.benchmarks.evaluation import LEVELS, by_space, predicted
from nas_rlm.benchmarks.ranking import LEAST, Within, within
from nas_rlm.data import tables
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import train_validation_test_split
from nas_rlm.data.tables import Table
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.surrogates.registry import predictive_distributions
from nas_rlm.training.recipe import Recipe
from nas_rlm.training.trainer import claim_run_directory, train_from_recipe

LEARNT = ("network", "rlm")  # what one training gives: the network alone, and with its expert
METHODS = ("length", "loops", "neighbours", "words", *LEARNT)
SPLITS = {"program": False, "problem": True}  # what is not on both sides
KEYS = ("split", "objective", "method", "seed")
Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class Judgement:
    """What a method tells of test rows.

    Args:
        rows: so many.
        spearman, kendall: over all of them.
        coverage: of 80 % intervals; 0 where a method has none.
        problems: with programs enough to be ranked among each other.
        good: the share of these with a Spearman above .5.
        best, lucky: how often the program that is told to take least does, and how often a random one.
        seconds: of learning, and of telling.
    """

    rows: int
    spearman: float
    kendall: float
    coverage: float
    problems: int
    good: float
    best: float
    lucky: float
    seconds: float


@dataclass(frozen=True)
class Told:
    """What a method tells of rows: quantiles at `LEVELS`, float64 [N, 3], alike where it has no doubts."""

    quantiles: np.ndarray
    seconds: float


def trials(
    path: Path,
    recipe: Recipe,
    folder: Path,
    split: str = "program",
    seeds: Sequence[int] = range(5),
    methods: Sequence[str] = METHODS,
    done: Collection[Key] = (),
) -> Iterator[tuple[Key, Judgement]]:
    """Learn from one side of a table and tell the other, for each seed.

    Args:
        path: of the table.
        recipe: of the training, of which the table is one.
        folder: where models are kept, so that trainings which were interrupted go on.
        split: one of `SPLITS`.
        seeds: of sides and training.
        methods: some of `METHODS`.
        done: what is left out.

    Returns:
        As each is done: split, objective, method and seed, and the judgement.

    Raises:
        ValueError: a model's folder holds another training, or the recipe has no surrogates.
    """
    table = tables.read(path)
    for seed in seeds:
        model, own, training, test = _parts(table, recipe, folder, split, seed)
        wanted = [
            (objective, method)
            for objective in table.objectives
            for method in methods
            if (split, objective, method, seed) not in done and len(test.where_measured(objective)) > 1
        ]
        for objective, method in wanted:
            known, asked = training.where_measured(objective), test.where_measured(objective)
            if method in LEARNT:
                told = _learnt(method, own, model, asked, objective)
            elif method == "words":
                told = _expert(own, known, asked, objective)
            else:
                told = _plain(method, known, asked, objective)
            yield (split, objective, method, seed), judged(told, asked, objective)


def judged(told: Told, asked: Table, objective: str, least: int = LEAST) -> Judgement:
    """What a method's numbers are worth."""
    true = asked.column(objective)
    low, median, high = told.quantiles.T
    inside = coverage(low, high, true) if (low < high).any() else 0.0
    ranked = in_problems(told, asked, objective, least)
    best, lucky = (float(np.mean(v)) if len(v) else 0.0 for v in (ranked.best, ranked.lucky))
    rho, tau = spearman(median, true), kendall(median, true)
    return Judgement(len(true), rho, tau, inside, len(ranked.ranks), ranked.good, best, lucky, told.seconds)


def in_problems(told: Told, asked: Table, objective: str, least: int = LEAST) -> Within:
    """What a method's ranking is worth within problems."""
    groups = [row.group for row in asked.rows]
    return within(groups, asked.column(objective), told.quantiles[:, 1], least)


def ranked(
    path: Path, recipe: Recipe, folder: Path, split: str, seeds: Sequence[int], objective: str = ""
) -> tuple[str, Within]:
    """What models' rankings are worth within problems; those that are not there are trained.

    Args:
        path: of the table.
        recipe: of the training, of which the table is one.
        folder: where models are kept.
        split: one of `SPLITS`.
        seeds: of sides and training.
        objective: the number; by default the table's first.

    Returns:
        Its name, and what is counted over all seeds, in each of which a problem counts anew.
    """
    table = tables.read(path)
    objective = objective or table.objectives[0]
    groups: list[str] = []
    true, told = [], []
    for seed in seeds:
        model, own, _, test = _parts(table, recipe, folder, split, seed)
        asked = test.where_measured(objective)
        found = _learnt("rlm", own, model, asked, objective)
        groups += [f"{seed}:{row.group}" for row in asked.rows]
        true.append(asked.column(objective))
        told.append(found.quantiles[:, 1])
    return objective, within(groups, np.concatenate(true), np.concatenate(told))


def _parts(
    table: Table, recipe: Recipe, folder: Path, split: str, seed: int
) -> tuple[Path, Recipe, Table, Table]:
    """Of a seed the model's folder, its recipe, and the rows that it learns from and is asked about."""
    training, _, test = train_validation_test_split(table, recipe.validation, seed, SPLITS[split])
    own = replace(recipe.for_table(table.name), seed=seed, by_group=SPLITS[split])
    return folder / f"{table.name}-{split}-{seed}", own, training, test


def _plain(method: str, known: Table, asked: Table, objective: str) -> Told:
    """What a baseline tells."""
    start, texts = time.perf_counter(), texts_of_rows(asked.rows)
    if method == "neighbours":
        found = baselines.neighbours(texts_of_rows(known.rows), known.column(objective), texts)
    else:
        found = {"length": baselines.length, "loops": baselines.loop_depth}[method](texts)
    return Told(np.repeat(found[:, None], len(LEVELS), 1), time.perf_counter() - start)


def _expert(recipe: Recipe, known: Table, asked: Table, objective: str) -> Told:
    """What surrogates tell, one for each language, which learn this number alone."""
    start = time.perf_counter()
    (use,) = recipe.tables
    surrogates = fit_surrogates(known.rows, use.surrogate_objectives([objective]), by_group=recipe.by_group)
    texts = texts_of_rows(asked.rows)
    found = np.full((len(texts), len(LEVELS)), np.nan)
    for space, part in by_space(asked.rows).items():
        (belief,) = predictive_distributions(surrogates.get(space, ()), [texts[i] for i in part], [objective])
        if belief:
            found[part] = belief.quantiles(LEVELS)
    if np.isnan(found).all():
        raise ValueError(f"no expert on {objective} has learnt: expected some in the recipe")
    found = np.where(np.isnan(found), np.nanmedian(found, axis=0), found)  # a language with few programs
    return Told(found, time.perf_counter() - start)


def _learnt(method: str, recipe: Recipe, folder: Path, asked: Table, objective: str) -> Told:
    """What a model tells, or its network alone; it is trained where it is not there."""
    from nas_rlm.rlm import RLM

    start = time.perf_counter()
    claim_run_directory(folder, recipe, resume=True)
    if not (folder / "config.json").is_file():
        train_from_recipe(recipe, folder, resume=True)
    rlm = RLM.load(folder)
    texts = texts_of_rows(asked.rows)
    rlm.surrogates = rlm.surrogates if method == "rlm" else {}
    found = predicted(rlm, asked.rows, texts, [objective])[:, 0]
    return Told(found, time.perf_counter() - start)
