"""How well predictors rank a space after a handful of trained networks: the same splits for every method.

Source: the protocol of section 4.3 of the paper, of PINAT (Lu et al. 2023) and of FLAN (Akhauri and
Abdelfattah 2024): random labelled architectures, all the others ranked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from torch import Tensor

from nas_rlm.benchmarks import baselines
from nas_rlm.benchmarks.baselines.head import FEW
from nas_rlm.data.row_texts import keys_of_rows, texts_of_rows
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import kendall, spearman
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.features import GraphFeatures, graph_features_of_space
from nas_rlm.surrogates.fitting import space_sources, zero_label_surrogate
from nas_rlm.surrogates.graph_surrogate import ACCURACY, GraphSurrogate
from nas_rlm.surrogates.registry import graph_surrogates
from nas_rlm.utils.progress import progress_bar


@dataclass(frozen=True)
class Task:
    """Labelled architectures, and those to be ranked.

    Args:
        rows: of one space.
        known: positions of M labelled ones.
        asked: positions of the N others, none of which computes the same as a labelled one.
        objective: what is labelled.
        seed: of the draw, and of the methods.
    """

    rows: Sequence[Row]
    known: np.ndarray
    asked: np.ndarray
    objective: str
    seed: int

    @cached_property
    def values(self) -> np.ndarray:
        """What was measured of each row, float64."""
        return np.array([row.targets[self.objective] for row in self.rows])

    @property
    def labelled(self) -> list[Row]:
        """The labelled rows, with this one number and no other."""
        return [self.rows[i].select([self.objective]) for i in self.known]

    @property
    def labels(self) -> np.ndarray:
        """The labels, float64 [M]."""
        found: np.ndarray = self.values[self.known]
        return found


UNLABELLED = {"flops", "params", "process", "rlm"}  # methods that need no labels of the space
Method = Callable[[Task], np.ndarray]  # from a task to predictions for all its rows


@dataclass(frozen=True)
class Score:
    """How one method ranks the architectures of one task.

    Args:
        kendall, spearman: rank correlations over all asked rows.
        seconds: wall time of training and prediction. What methods share counts for the first that needs it:
            texts and features of a table, and for `rlm-alone` the training of `rlm`.
    """

    kendall: float
    spearman: float
    seconds: float


def few_shot(
    table: Table,
    labels: int,
    methods: dict[str, Method],
    seeds: Sequence[int] = range(5),
    objective: str = "accuracy",
    done: Collection[tuple[str, int]] = (),
    progress: bool = False,
) -> Iterator[tuple[str, int, Score]]:
    """Judge methods on the same random splits.

    Args:
        table: measured rows of one space.
        labels: so many are known to the methods; all others are asked. With 0 of them, only `UNLABELLED`.
        methods: name to method.
        seeds: a split each.
        objective: what to rank by.
        done: methods and seeds that are left out.
        progress: show a bar.

    Returns:
        As each is done: a method's name, the seed and the score.

    Raises:
        ValueError: fewer rows than labels and two to ask, or a method that needs labels where there are none.
    """
    if not labels and objective != ACCURACY:
        raise ValueError(f"without labels only {ACCURACY} can be asked for, not {objective}")
    if not labels and not methods.keys() <= UNLABELLED:
        raise ValueError(
            f"without labels there are {', '.join(sorted(UNLABELLED))}; got {', '.join(methods)}"
        )
    left = {seed: [name for name in methods if (name, seed) not in done] for seed in seeds}
    with progress_bar(total=sum(map(len, left.values())), unit="fit", disable=not progress) as bar:
        for task in tasks(table, labels, [seed for seed, names in left.items() if names], objective):
            true = task.values[task.asked]
            for name in left[task.seed]:
                bar.set_description(f"{name}, seed {task.seed}")
                start = time.perf_counter()
                found = methods[name](task)[task.asked]
                seconds = time.perf_counter() - start
                bar.update()
                yield name, task.seed, Score(kendall(found, true), spearman(found, true), seconds)


def tasks(table: Table, labels: int, seeds: Sequence[int], objective: str = "accuracy") -> Iterator[Task]:
    """Random splits: a task for each seed; see `few_shot`."""
    rows = table.where_measured(objective).rows
    spaces = {row.space for row in rows}
    if len(spaces) > 1:
        raise ValueError(f"{table.name} has rows of {', '.join(sorted(spaces))}; expected one space")
    if labels < 0 or labels == 1 or len(rows) < labels + 2:
        raise ValueError(
            f"{labels} labels of {len(rows)} rows with {objective} in {table.name};"
            " expected none or at least 2 labels, and 2 rows more than labels"
        )
    keys = np.array(keys_of_rows(rows))
    for seed in seeds:
        order = np.random.default_rng([seed, labels]).permutation(len(rows))
        known = order[:labels]
        asked = np.flatnonzero(~np.isin(keys, keys[known]))
        yield Task(rows, known, asked, objective, seed)


def methods_of(table: Table, rlm: RLM, objective: str = "accuracy") -> dict[str, Method]:
    """What can be held against each other on a table: costs, learners on features and graphs, text.

    Args:
        table: rows of one space.
        rlm: a model that has seen no label of it; its surrogates of other spaces advise.
        objective: of the tasks.
    """
    rows = table.where_measured(objective).rows
    space = rows[0].space

    @cache
    def texts() -> list[str]:
        return texts_of_rows(rows)

    @cache
    def features() -> np.ndarray:
        return baselines.features(rows)

    tuned: dict[tuple[int, int], RLM] = {}

    def fine_tuned(task: Task, alone: bool = False) -> np.ndarray:
        key = task.seed, len(task.known)
        if key not in tuned:
            tuned.clear()
            if task.labelled:
                tuned[key] = rlm.fine_tune(task.labelled, [task.objective], seed=task.seed)
            else:
                tuned[key] = rlm.with_objectives([task.objective])
                tuned[key].surrogates = {space: [zero_label_surrogate(space, graph_surrogates(rlm.surrogates))]}
        return tuned[key].predict_text(texts(), [task.objective], space="" if alone else space)[:, 0]

    @cache
    def counts() -> tuple[GraphFeatures, Tensor]:
        usual = graph_features_of_space(space)
        if objective == ACCURACY:
            usual = replace(usual, sources=space_sources(space, rows, graph_surrogates(rlm.surrogates)))
        return usual, usual.from_texts(texts())

    def process(task: Task) -> np.ndarray:
        if not task.labelled:
            known = zero_label_surrogate(space, graph_surrogates(rlm.surrogates))
            return known.predict(known.graph_features.from_texts(texts()), task.objective).median
        usual, every = counts()
        expert = GraphSurrogate.fit(usual, every[task.known], task.labels[:, None], [task.objective])
        return expert.predict(every, task.objective).median

    def head(task: Task, mean: float = 0.0, deviation: float = 1.0) -> np.ndarray:
        values = (task.labels - mean) / deviation
        found = baselines.head(rlm, texts(), task.known, values, replace(FEW, seed=task.seed))
        return mean + found * deviation

    found: dict[str, Method] = {
        "flops": lambda task: baselines.flops(rows),
        "params": lambda task: baselines.params(rows),
        "trees": lambda task: baselines.trees(features()[task.known], task.labels, features()),
        "mlp": lambda task: baselines.mlp(features()[task.known], task.labels, features(), task.seed),
    }
    if space in baselines.CELLS:
        found["gcn"] = lambda task: baselines.gcn(task.labelled, task.labels, rows, task.seed)
    found["process"] = process
    found["head-raw"] = head
    found["head-normalised"] = lambda task: head(task, task.labels.mean(), task.labels.std() or 1.0)
    found["rlm"] = fine_tuned
    found["rlm-alone"] = lambda task: fine_tuned(task, alone=True)
    return found
