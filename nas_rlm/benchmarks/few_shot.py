"""How well predictors rank a space after a few labels, with the same random splits for every method.

Source: the protocol of section 4.3 of the paper, of PINAT (Lu et al. 2023) and of FLAN (Akhauri and
Abdelfattah 2024): random labelled architectures, and all others as test rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from torch import Tensor

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.benchmarks.baselines.regression_head import FEW_LABELS_RECIPE
from nas_rlm.data.genome import genome_features_of_rows
from nas_rlm.data.objective_kinds import ACCURACY, is_accuracy
from nas_rlm.data.row_texts import keys_of_rows, texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import kendall, partial_spearman, spearman
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.fitting import fit_features, graph_features_of
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, GraphFeatures, random_raw_features
from nas_rlm.surrogates.graphs.surrogate import MAX_FEW_LABELS
from nas_rlm.surrogates.registry import graph_surrogates
from nas_rlm.surrogates.source_selection import space_sources
from nas_rlm.surrogates.zero_label import source_labels, zero_label_surrogate
from nas_rlm.utils.extras import require
from nas_rlm.utils.progress import progress_bar
from search_spaces.wording import counted

SKLEARN_METHODS = ("trees", "mlp")  # methods that need scikit-learn
ZERO_LABEL_METHODS = {
    "flops",
    "params",
    "zero-label",
}  # methods that need no labels of the space


@dataclass(frozen=True)
class Task:
    """A random split of a table into labelled rows and test rows.

    Args:
        rows: rows of one space.
        train_indices: indices of the M labelled rows.
        test_indices: indices of the N test rows; none computes the same function as a labelled one.
        objective: the label.
        seed: seed of the split and of the methods.
    """

    rows: Sequence[Row]
    train_indices: np.ndarray
    test_indices: np.ndarray
    objective: str
    seed: int

    @cached_property
    def values(self) -> np.ndarray:
        """The measured values of all rows."""
        return np.array([row.targets[self.objective] for row in self.rows])

    @property
    def train_rows(self) -> list[Row]:
        """The labelled rows, with the objective as their only target."""
        return [self.rows[i].select([self.objective]) for i in self.train_indices]

    @property
    def labels(self) -> np.ndarray:
        """The labels [M]."""
        labels: np.ndarray = self.values[self.train_indices]
        return labels


Method = Callable[[Task], np.ndarray]  # from a task to predictions of all its rows


@dataclass(frozen=True)
class FewShotResult:
    """How well a method ranks the test rows.

    Args:
        kendall: Kendall's tau of predictions and measurements.
        spearman: Spearman correlation of them.
        seconds: time of training and prediction.
        beyond_params: Spearman correlation of what the number of parameters does not explain.
    """

    kendall: float
    spearman: float
    seconds: float
    beyond_params: float = 0.0


def run_few_shot(
    table: Table,
    num_labels: int,
    methods: dict[str, Method],
    seeds: Sequence[int] = range(5),
    objective: str = "accuracy",
    finished: Collection[tuple[str, int]] = (),
    progress: bool = False,
) -> Iterator[tuple[tuple[str, int], FewShotResult]]:
    """Evaluate methods on the same random splits.

    Args:
        table: measured rows of one space.
        num_labels: number of labelled rows; all others are test rows. With 0, only `ZERO_LABEL_METHODS`.
        methods: name to method, see `make_methods`.
        seeds: seeds, one split each.
        objective: the objective to rank by.
        finished: methods and seeds to skip.
        progress: show a progress bar.

    Yields:
        Method and seed, and the result, as soon as each is available.

    Raises:
        ValueError: the table has fewer rows than labels and two test rows, a method needs labels, or
            scikit-learn is not installed.
    """
    for name in SKLEARN_METHODS:
        if name in methods:
            require("baselines", f"the method {name}")
    if not num_labels and objective != ACCURACY:
        raise ValueError(f"without labels only {ACCURACY} can be predicted, not {objective}")
    if not num_labels and not methods.keys() <= ZERO_LABEL_METHODS:
        raise ValueError(
            f"without labels the methods are {', '.join(sorted(ZERO_LABEL_METHODS))};"
            f" got {', '.join(methods)}"
        )
    remaining = {seed: [name for name in methods if (name, seed) not in finished] for seed in seeds}
    num_fits = sum(map(len, remaining.values()))
    with progress_bar(total=num_fits, desc="few-shot", unit="fit", disable=not progress) as bar:
        seeds_left = [seed for seed, names in remaining.items() if names]
        for task in make_tasks(table, num_labels, seeds_left, objective):
            true, params = task.values[task.test_indices], baselines.params(task.rows)
            for name in remaining[task.seed]:
                bar.set_description(f"{name}, seed {task.seed}")
                start = time.perf_counter()
                predicted = methods[name](task)[task.test_indices]
                seconds = time.perf_counter() - start
                bar.update()
                beyond = partial_spearman(predicted, true, params[task.test_indices])
                measures = kendall(predicted, true), spearman(predicted, true), seconds, beyond
                yield (name, task.seed), FewShotResult(*measures)


def make_tasks(
    table: Table, num_labels: int, seeds: Sequence[int], objective: str = "accuracy"
) -> Iterator[Task]:
    """Yield a random split for each seed.

    Args:
        table: measured rows of one space.
        num_labels: number of labelled rows.
        seeds: seeds of the splits.
        objective: the label.

    Raises:
        ValueError: the table has rows of several spaces, or too few rows.
    """
    rows = table.where_measured(objective).rows
    spaces = {row.space for row in rows}
    if len(spaces) > 1:
        names = ", ".join(space or "no space" for space in sorted(spaces))
        raise ValueError(f"{table.name} has rows of {names}; expected one space")
    if num_labels < 0 or num_labels == 1 or len(rows) < num_labels + 2:
        raise ValueError(
            f"{counted(num_labels, 'label')} of {counted(len(rows), 'row')} with {objective} in {table.name};"
            " expected none or at least 2 labels, and 2 rows more than labels"
        )
    keys = np.array(keys_of_rows(rows))
    for seed in seeds:
        order = np.random.default_rng([seed, num_labels]).permutation(len(rows))
        train_indices = order[:num_labels]
        test_indices = np.flatnonzero(~np.isin(keys, keys[train_indices]))
        yield Task(rows, train_indices, test_indices, objective, seed)


def make_methods(table: Table, rlm: RLM, objective: str = "accuracy") -> dict[str, Method]:
    """Return the methods that can be compared on a table, by name.

    `flops` and `params` rank by cost; `trees` and `mlp` learn from the genome, `gcn` from the cell's graph;
    `zero-label` uses surrogates of other spaces and costs, without labels of this space;
    `gaussian-process` is the model's surrogate on graph features; `head-raw` and `head-normalised` are a
    regression head on the model's encoder; `rlm` is the fine-tuned model, `rlm-network` without surrogates.

    Args:
        table: rows of one space.
        rlm: a model that was not trained on labels of the table. Its surrogates of other spaces are source
            surrogates.
        objective: the objective of the tasks.
    """
    rows = table.where_measured(objective).rows
    space = rows[0].space
    sources = graph_surrogates(rlm.surrogates)

    @cache
    def texts() -> list[str]:
        return texts_of_rows(rows)

    @cache
    def space_features() -> np.ndarray:
        return baselines.space_features(rows)

    @cache
    def graph_features(is_few: bool) -> tuple[GraphFeatures, Tensor]:
        transferred = space_sources(space, rows, sources) if objective == ACCURACY else ()
        features = graph_features_of(space, rows, transferred, is_few)
        return features, features.of_rows(rows)

    fine_tuned: dict[tuple[int, int], RLM] = {}  # only the model of the current task

    def predict_fine_tuned(task: Task, with_surrogates: bool = True) -> np.ndarray:
        key = task.seed, len(task.train_indices)
        if key not in fine_tuned:
            fine_tuned.clear()
            fine_tuned[key] = rlm.fine_tune(task.train_rows, [task.objective], seed=task.seed)
        model_space, genomes = (space, genome_features_of_rows(rows)) if with_surrogates else ("", ())
        predicted = fine_tuned[key].predict_text(
            texts(), [task.objective], space=model_space, genomes=genomes
        )
        return predicted[:, 0]

    def gaussian_process(task: Task) -> np.ndarray:
        features, values = graph_features(len(task.labels) <= MAX_FEW_LABELS)
        labels = task.labels[:, None]
        surrogate = fit_features(features, values[task.train_indices], labels, [task.objective])
        return surrogate.predict(values, task.objective).median

    def zero_label(task: Task) -> np.ndarray:
        with_layers = not is_accuracy(task.objective)
        raw_features = random_raw_features(search_spaces.get(space), with_layers=with_layers)
        surrogate = zero_label_surrogate(space, raw_features, sources, task.objective)
        assert surrogate is not None  # there are source labels
        of_task = graph_features_of_texts(texts(), MAX_CHAIN_LENGTH, with_layers)
        features = surrogate.graph_features.transform(of_task)
        return surrogate.predict(features, task.objective).mean

    def head(task: Task, mean: float = 0.0, deviation: float = 1.0) -> np.ndarray:
        labels = (task.labels - mean) / deviation
        recipe = replace(FEW_LABELS_RECIPE, seed=task.seed)
        predicted = baselines.regression_head(rlm, texts(), task.train_indices, labels, recipe)
        return mean + predicted * deviation

    def trees(task: Task) -> np.ndarray:
        return baselines.trees(space_features()[task.train_indices], task.labels, space_features())

    def mlp(task: Task) -> np.ndarray:
        train_features = space_features()[task.train_indices]
        return baselines.mlp(train_features, task.labels, space_features(), task.seed)

    methods: dict[str, Method] = {
        "flops": lambda task: baselines.flops(rows),
        "params": lambda task: baselines.params(rows),
        "trees": trees,
        "mlp": mlp,
    }
    if space in baselines.CELL_SPACES:
        methods["gcn"] = lambda task: baselines.gcn(task.train_rows, task.labels, rows, task.seed)
    if source_labels(space, sources, objective):
        methods["zero-label"] = zero_label
    methods["gaussian-process"] = gaussian_process
    methods["head-raw"] = head
    methods["head-normalised"] = lambda task: head(task, task.labels.mean(), task.labels.std() or 1.0)
    methods["rlm"] = predict_fine_tuned
    methods["rlm-network"] = lambda task: predict_fine_tuned(task, with_surrogates=False)
    return methods
