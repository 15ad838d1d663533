"""How much better a few labels predict where other numbers of a network are measured.

Examples of such numbers are accuracies after few epochs, and latencies of another device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from nas_rlm.benchmarks.few_shot import Task, make_tasks
from nas_rlm.data.objective_kinds import LATENCY_PREFIX
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.data.tables import Table
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.surrogates.conditional import ConditionalSurrogate
from nas_rlm.surrogates.fitting import fit_features
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, GraphFeatures, graph_features_of_space
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.latency_fitting import latency_features
from nas_rlm.surrogates.predictive import PredictiveDistribution, normal_scores

INTERVAL = (0.1, 0.9)
ALONE, RIDGE, WITHOUT, WITH = METHODS = ("given-alone", "ridge", "without", "with")
RIDGE_PENALTIES = np.logspace(-3, 3, 13)


@dataclass(frozen=True)
class GivenResult:
    """How well a method predicts the test rows.

    Args:
        kendall: Kendall's tau of predictions and measurements.
        spearman: Spearman correlation of them.
        coverage: share of the measurements within 80 % intervals; 0 where a method has none.
    """

    kendall: float
    spearman: float
    coverage: float = 0.0


class GivenCase:
    """A table of one space, of which an objective is predicted from numbers that all rows have.

    Args:
        table: rows of one space.
        objective: the objective.
        given: the names of the given numbers; each is measured by itself.
        num_rows: maximum number of test rows, which are drawn at random.
        max_labels: largest number of labels.

    Raises:
        ValueError: there are too few rows with all numbers, or rows of several spaces.
    """

    def __init__(
        self, table: Table, objective: str, given: Sequence[str], num_rows: int, max_labels: int
    ) -> None:
        for name in given:
            table = table.where_measured(name)
        self.table = table.where_measured(objective).sample(num_rows + max_labels)
        self.objective, self.given = objective, tuple(given)
        next(make_tasks(self.table, max_labels, [0], objective))  # checks the rows
        self.values = {name: self.table.column(name) for name in (objective, *given)}

    @cached_property
    def _features(self) -> tuple[GraphFeatures | LatencyFeatures, Tensor]:
        """Features of the surrogate of the objective, and those of all rows, float64 [N, D]."""
        space, is_latency = self.table.rows[0].space, self.objective.startswith(LATENCY_PREFIX)
        raw_features = graph_features_of_texts(texts_of_rows(self.table.rows), MAX_CHAIN_LENGTH, is_latency)
        features = latency_features(space, raw_features, ()) if is_latency else graph_features_of_space(space)
        return features, features.transform(raw_features)

    @cached_property
    def _costs(self) -> np.ndarray:
        """Logarithms of the costs that vary, float64 [N, 1 or 2]."""
        costs = np.log([[row.targets.get(n, 1.0) for n in ("flops", "params")] for row in self.table.rows])
        varying: np.ndarray = costs[:, np.ptp(costs, axis=0) > 0]
        return varying

    def run(
        self, num_labels: int, seeds: Sequence[int], finished: Collection[tuple[str, str, int]] = ()
    ) -> Iterator[tuple[tuple[str, str, int], GivenResult]]:
        """Yield the given number, the method and the seed, and the result.

        Args:
            num_labels: number of labels.
            seeds: seeds of the draws of labels.
            finished: given numbers, methods and seeds to skip.
        """
        for task in make_tasks(self.table, num_labels, seeds, self.objective):
            without: list[GivenResult] = []  # it does not depend on the given number
            for given in self.given:
                for name, method in self._methods.items():
                    if (given, name, task.seed) in finished:
                        continue
                    if name != WITHOUT or not without:
                        result = self._result(task, method(task, given))
                    if name == WITHOUT:
                        without.append(result)
                        result = without[0]
                    yield (given, name, task.seed), result

    @property
    def _methods(self) -> Mapping[str, Callable[[Task, str], np.ndarray | PredictiveDistribution]]:
        return {
            ALONE: lambda task, given: self.values[given],
            RIDGE: self._ridge,
            WITHOUT: self._without,
            WITH: self._with,
        }

    def _result(self, task: Task, predicted: np.ndarray | PredictiveDistribution) -> GivenResult:
        true, rows = task.values[task.test_indices], task.test_indices
        if isinstance(predicted, PredictiveDistribution):
            low, high = predicted.quantiles(INTERVAL)[rows].T
            mean = predicted.mean[rows]
            return GivenResult(kendall(mean, true), spearman(mean, true), coverage(low, high, true))
        return GivenResult(kendall(predicted[rows], true), spearman(predicted[rows], true))

    def _ridge(self, task: Task, given: str) -> np.ndarray:
        """Ridge regression of normal scores on the given number and the logarithms of the costs."""
        from sklearn.linear_model import RidgeCV

        inputs = np.column_stack([self.values[given], self._costs])
        train = inputs[task.train_indices]
        inputs = (inputs - train.mean(0)) / np.maximum(train.std(0), 1e-9)
        model = RidgeCV(RIDGE_PENALTIES).fit(inputs[task.train_indices], normal_scores(task.labels))
        predicted: np.ndarray = model.predict(inputs)
        return predicted

    def _without(self, task: Task, given: str) -> PredictiveDistribution:
        definition, features = self._features
        labelled = features[task.train_indices]
        surrogate = (
            LatencySurrogate.fit(definition, labelled, task.labels, self.objective)
            if isinstance(definition, LatencyFeatures)
            else fit_features(definition, labelled, task.labels[:, None], [self.objective])
        )
        return surrogate.predict(features, self.objective)

    def _with(self, task: Task, given: str) -> PredictiveDistribution:
        definition, features = self._features
        values = {name: column[task.train_indices] for name, column in self.values.items()}
        surrogate = ConditionalSurrogate.fit(
            definition, features[task.train_indices], values, self.objective, [given]
        )
        return surrogate.predict(features, {given: self.values[given]})


def format_results(results: Mapping[tuple[str, int, str], Sequence[GivenResult]]) -> str:
    """Return a table of mean Kendall / Spearman of each case and method, and of the coverage of intervals.

    Args:
        results: results of all seeds by case, number of labels and method.
    """
    header = "".join(f"{method:>16}" for method in METHODS)
    lines = [f"{'':<48}{'labels':>6}{header}{'less best':>11}{'coverage':>10}"]
    differences, coverages = [], []
    for case, labels in dict.fromkeys((case, labels) for case, labels, _ in results):
        found = {method: results[case, labels, method] for method in METHODS}
        taus = {method: np.mean([r.kendall for r in group]) for method, group in found.items()}
        rhos = {method: np.mean([r.spearman for r in group]) for method, group in found.items()}
        differences.append(taus[WITH] - max(taus[ALONE], taus[WITHOUT]))
        coverages.append(np.mean([r.coverage for r in found[WITH]]))
        cells = "".join(f"{f'{taus[m]:.3f} / {rhos[m]:.3f}':>16}" for m in METHODS)
        lines.append(f"{case:<48}{labels:>6}{cells}{differences[-1]:>+11.3f}{coverages[-1]:>10.2f}")
    lines.append(
        f"with less the better of given-alone and without: mean {np.mean(differences):+.3f}, minimum"
        f" {min(differences):+.3f}; coverage {min(coverages):.2f} to {max(coverages):.2f}"
    )
    return "\n".join(lines)
