"""How well accuracies are predicted in a space that a model has no labels of, and with a few labels.

Each space is predicted with the surrogates of the other spaces only (leave one space out).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.benchmarks.few_shot import Task, make_tasks
from nas_rlm.data.tables import Table
from nas_rlm.metrics import coverage, kendall
from nas_rlm.surrogates.fitting import fit_features, graph_features_of
from nas_rlm.surrogates.graphs.features import random_raw_features, raw_features_of_rows
from nas_rlm.surrogates.graphs.surrogate import MAX_FEW_LABELS, GraphSurrogate
from nas_rlm.surrogates.predictive import PredictiveDistribution
from nas_rlm.surrogates.source_selection import accuracy_sources
from nas_rlm.surrogates.zero_label import zero_label_surrogate

INTERVAL = (0.1, 0.9)
BEST_LEVEL = 0.9  # quantile of the measurements above which a network is one of the best
COSTS = ("flops", "params")
SURROGATE = "surrogate"
METHODS = (*COSTS, "gene-gp", "gene-trees", "graf", SURROGATE)


@dataclass(frozen=True)
class SpaceResult:
    """How well a method predicts the test rows.

    Args:
        kendall: Kendall's tau of predictions and measurements.
        coverage: share of the measurements within 80 % intervals; 0 where a method has none.
        best_coverage: the same of the tenth of the test rows with the largest measurements.
    """

    kendall: float
    coverage: float = 0.0
    best_coverage: float = 0.0


class NewSpace:
    """A table of a space that is predicted by surrogates of other spaces.

    Args:
        table: rows of one space.
        objective: the accuracy.
        surrogates: surrogates by space; those of the table's space are not used.
        num_rows: maximum number of test rows, which are drawn at random.
        max_labels: largest number of labels.

    Raises:
        ValueError: there are too few rows, or rows of several spaces.
    """

    def __init__(
        self,
        table: Table,
        objective: str,
        surrogates: Mapping[str, Sequence[GraphSurrogate]],
        num_rows: int,
        max_labels: int,
    ) -> None:
        measured = table.where_measured(objective)
        self.table, self.objective = measured.sample(num_rows + max_labels), objective
        next(make_tasks(self.table, max_labels, [0], objective))  # checks the rows
        self.rows = self.table.rows
        self.space = self.rows[0].space
        self.surrogates = {name: group for name, group in surrogates.items() if name != self.space}
        self.raw_features = raw_features_of_rows(self.rows)
        sources = accuracy_sources(self.space, self.rows, objective, self.surrogates)
        self.graph_features = graph_features_of(self.space, self.rows, sources, max_labels <= MAX_FEW_LABELS)
        self.features = self.graph_features.transform(self.raw_features)
        self.genes = baselines.gene_features(self.rows, self.raw_features)

    def run(
        self, num_labels: int, seeds: Sequence[int], finished: Collection[tuple[str, int]] = ()
    ) -> Iterator[tuple[tuple[str, int], SpaceResult]]:
        """Yield method and seed, and the result.

        Args:
            num_labels: number of labels; 0 for none.
            seeds: seeds of the draws of labels.
            finished: methods and seeds to skip.
        """
        for task in make_tasks(self.table, num_labels, seeds, self.objective):
            true = task.values[task.test_indices]
            for name, method in self._methods(num_labels).items():
                if (name, task.seed) in finished:
                    continue
                predicted = method(task)
                if isinstance(predicted, PredictiveDistribution):
                    low, high = predicted.quantiles(INTERVAL)[task.test_indices].T
                    tau = kendall(predicted.mean[task.test_indices], true)
                    best = true >= np.quantile(true, BEST_LEVEL)
                    covered = coverage(low, high, true), coverage(low[best], high[best], true[best])
                    yield (name, task.seed), SpaceResult(tau, *covered)
                else:
                    yield (name, task.seed), SpaceResult(kendall(predicted[task.test_indices], true))

    def _methods(self, num_labels: int) -> dict[str, Callable[[Task], np.ndarray | PredictiveDistribution]]:
        methods: dict[str, Callable[[Task], np.ndarray | PredictiveDistribution]] = {
            name: lambda task, name=name: np.array([f[name] for f in self.raw_features])  # type: ignore[misc]
            for name in COSTS
        }
        if not num_labels:
            return methods | {SURROGATE: self._predict_without_labels}
        methods["gene-gp"] = lambda task: baselines.gene_process(self.genes, task.train_indices, task.labels)
        methods["gene-trees"] = lambda task: baselines.gene_boosting(
            self.genes, task.train_indices, task.labels
        )
        if self.space in baselines.CELL_SPACES:
            methods["graf"] = lambda task: baselines.graf_forest(self.graf, task.train_indices, task.labels)
        return methods | {SURROGATE: self._predict}

    @cached_property
    def graf(self) -> np.ndarray:
        """Features of cells, see `nas_rlm.benchmarks.baselines.graf_features`."""
        return baselines.graf_features(self.rows)

    def _predict_without_labels(self, task: Task) -> PredictiveDistribution:
        raw_features = random_raw_features(search_spaces.get(self.space))
        surrogate = zero_label_surrogate(self.space, raw_features, self.surrogates, self.objective)
        if surrogate is None:
            raise ValueError(f"the model has no surrogates of other spaces than {self.space}")
        return surrogate.predict(surrogate.graph_features.transform(self.raw_features), self.objective)

    def _predict(self, task: Task) -> PredictiveDistribution:
        labelled, labels = self.features[task.train_indices], task.labels[:, None]
        surrogate = fit_features(self.graph_features, labelled, labels, [self.objective])
        alone = replace(surrogate, temperatures={self.objective: 1.0})
        return alone.predict(self.features, self.objective)


def format_results(results: Mapping[tuple[str, int, str], Sequence[SpaceResult]]) -> str:
    """Return a table of mean results of each space, then their mean and minimum over the spaces.

    Args:
        results: results of all seeds by case, number of labels and method.
    """
    lines = []
    for num_labels in dict.fromkeys(count for _, count, _ in results):
        header = "".join(f"{method:>12}" for method in METHODS)
        lines.append(f"{f'{num_labels} labels':<38}{header}{'coverage':>12}{'of the best':>12}")
        cases = list(dict.fromkeys(case for case, count, _ in results if count == num_labels))
        table = np.full((len(cases), len(METHODS) + 2), np.nan)
        for i, case in enumerate(cases):
            for k, method in enumerate(METHODS):
                if found := results.get((case, num_labels, method)):
                    table[i, k] = np.mean([result.kendall for result in found])
            of_surrogate = results[case, num_labels, SURROGATE]
            table[i, -2] = np.mean([result.coverage for result in of_surrogate])
            table[i, -1] = np.mean([result.best_coverage for result in of_surrogate])
            lines.append(f"{case:<38}" + "".join(map(_cell, table[i])))
        used = np.isfinite(table).any(0)
        for name, function in (("mean", np.nanmean), ("minimum", np.nanmin)):
            values = np.full(table.shape[1], np.nan)
            values[used] = function(table[:, used], axis=0)
            lines.append(f"{name:<38}" + "".join(map(_cell, values)))
        gains = table[:, -3] - np.nanmax(table[:, :-3], axis=1)
        lines.append(f"surrogate less the best other one: mean {gains.mean():.3f}, minimum {gains.min():.3f}")
    return "\n".join(lines)


def _cell(value: float) -> str:
    return f"{'':>12}" if np.isnan(value) else f"{value:>12.3f}"
