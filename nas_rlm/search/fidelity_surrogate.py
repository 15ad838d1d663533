"""A surrogate of trainings at several budgets, such as 1, 4 and 16 epochs.

The value of each budget has a Gaussian process on graph features and on the value of the budget before. Where
that was not measured, its prediction stands for it, with its uncertainty. The values of the largest budget
with enough labels are predicted: with few complete trainings, those of a smaller one.

Source: Le Gratiet and Garnier 2014, Recursive Co-kriging Model for Design of Computer Experiments with
Multiple Levels of Fidelity.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.tables import Row
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.online_surrogate import REFIT_GROWTH, OnlineSurrogate
from nas_rlm.surrogates.conditional import VIEWS, given_scores, given_transform
from nas_rlm.surrogates.fitting import fit_features
from nas_rlm.surrogates.graphs.features import COSTS, GENOME, PATHS, TRANSFER, GraphFeatures
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.predictive import MIN_LABELS, NormalScoreTransform, PredictiveDistribution

GENOME_VIEWS = ((COSTS, GENOME, TRANSFER), (PATHS, GENOME, TRANSFER))


def level_name(objective: str, budgets: Sequence[float], level: int) -> str:
    """Return the name of an objective's value at a budget; the one at the last budget has the objective's.

    Examples:
        >>> level_name("accuracy", (1, 4, 16), 0), level_name("accuracy", (1, 4, 16), 2)
        ('accuracy/budget1', 'accuracy')

    Args:
        objective: name of the objective.
        budgets: all budgets, ascending.
        level: position of the budget.
    """
    return objective if level == len(budgets) - 1 else f"{objective}/budget{budgets[level]:g}"


@dataclass(frozen=True)
class _Level:
    """A Gaussian process of the values of one budget.

    Args:
        surrogate: predicts them from graph features and the value of a smaller budget.
        before: position of the smaller budget, the next one with enough labels; None if there is none.
        transform: transform of the value of the smaller budget to its score.
        num_fitted: number of labels that hyperparameters were fitted to.
    """

    surrogate: GraphSurrogate
    before: int | None
    transform: NormalScoreTransform | None
    num_fitted: int

    def predict(self, features: Tensor, given: np.ndarray | None) -> PredictiveDistribution:
        """Predict N networks from their features [N, D] and the values of the smaller budget, float64 [N]."""
        if self.transform is not None and given is not None:
            features = _extended(features, self.transform, given)
        return self.surrogate.predict(features, self.surrogate.objectives[0])


class FidelitySurrogate(OnlineSurrogate):
    """Learns objectives from trainings that were continued from one budget to the next.

    Args:
        cached_predictor: see `OnlineSurrogate`.
        objectives: the objectives to learn.
        surrogates: see `OnlineSurrogate`.
        varying: those of the objectives that depend on the budget.
        budgets: at least two budgets, ascending.

    Attributes:
        target: position of the budget whose values are predicted: the largest with enough labels.
        observed: by architecture, its values at all budgets so far, with names of `level_name`; none if it
            failed.
    """

    def __init__(
        self,
        cached_predictor: CachedPredictor,
        objectives: Sequence[str],
        surrogates: Mapping[str, Sequence[GraphSurrogate]],
        varying: Collection[str],
        budgets: Sequence[float],
    ) -> None:
        super().__init__(cached_predictor, objectives, surrogates)
        self.varying, self.budgets, self.target = tuple(varying), tuple(budgets), 0
        self.observed: dict[str, Row] = {}
        self._outcomes: list[dict[str, bool]] = [{} for _ in budgets]  # of each budget, by architecture
        self._levels: dict[tuple[str, int], _Level] = {}
        self._definitions: dict[str, GraphFeatures] = {}

    def update(self, rows: Sequence[Row]) -> None:
        """Add values and learn from them.

        Args:
            rows: architectures with all values that they have so far, see `observed`.
        """
        for row in rows:
            self._add_outcomes(row)
            self.observed[row.arch_str] = row
        for objective in self.varying:
            for level in range(len(self.budgets)):
                self._update_level(objective, level)
        fitted = [all((o, level) in self._levels for o in self.varying) for level in range(len(self.budgets))]
        self._set_target(max((level for level, is_fitted in enumerate(fitted) if is_fitted), default=0))
        if self._fixed:
            self._count_labels()

    @property
    def _fixed(self) -> list[str]:
        """The objectives that do not depend on the budget."""
        return [name for name in self.objectives if name not in self.varying]

    @property
    def _labelled_rows(self) -> list[Row]:
        """The rows that have all objectives which do not depend on the budget."""
        rows = self.observed.values()
        return [row for row in rows if all(row.is_measured(name) for name in self._fixed)]

    @property
    def is_ready(self) -> bool:
        """Whether there are enough labels at a budget."""
        is_fitted = all((objective, self.target) in self._levels for objective in self.varying)
        return is_fitted and (self._num_fitted > 0 or not self._fixed)

    @property
    def predicts_full_budget(self) -> bool:
        """Whether there are enough labels at the last budget."""
        return self.is_ready and self.target == len(self.budgets) - 1

    @property
    def levels(self) -> dict[str, int]:
        """By architecture whose training did not fail, the position of the largest budget that it reached."""
        names = [level_name(self.varying[0], self.budgets, level) for level in range(len(self.budgets))]
        return {
            name: max(level for level, key in enumerate(names) if key in row.targets)
            for name, row in self.observed.items()
            if row.targets
        }

    def success_probabilities(self, names: Sequence[str]) -> np.ndarray:
        """Return the probability that the complete training of architectures does not fail, float64 [N].

        It is the product over the budgets that are left. While all trainings fail with a budget, those that
        reached the one before and have not failed count as successes.

        Args:
            names: N architectures in the space's notation.
        """
        probabilities, before = np.ones(len(names)), dict[str, bool]()
        for level, outcomes in enumerate(self._outcomes):
            succeeded = {name: True for name, is_success in outcomes.items() if is_success}
            assumed = {} if succeeded else before
            probabilities *= self._success_model(level).probabilities(outcomes, names, assumed)
            before = succeeded
        return probabilities

    def _add_outcomes(self, row: Row) -> None:
        """Record at which budgets an architecture has values, or that it failed at the one after these."""
        name = row.arch_str
        if not row.targets:
            others = [outcomes for outcomes in self._outcomes if not outcomes.get(name)]
            if others:  # otherwise it was complete before
                others[0][name] = False
            return
        for level, outcomes in enumerate(self._outcomes):
            if level_name(self.varying[0], self.budgets, level) in row.targets:
                outcomes[name] = True

    def with_target(self, level: int) -> FidelitySurrogate:
        """Return a copy that predicts the values at another budget of the architectures that reached it."""
        other = copy(self)
        other._set_target(level)
        return other

    def _set_target(self, level: int) -> None:
        self.target = level
        self.forget_predictions()
        self.measurements = {name: self._at_target(row) for name, row in self.observed.items()}

    @property
    def failed_names(self) -> set[str]:
        """The architectures whose training failed."""
        return {name for name, row in self.observed.items() if not row.targets}

    def _at_target(self, row: Row) -> Row:
        """A row with the values at the target budget under the names of the objectives."""
        values = {
            name: row.targets[key] for name in self.objectives if (key := self._key(name)) in row.targets
        }
        return replace(row, targets=values)

    def _key(self, objective: str) -> str:
        return level_name(objective, self.budgets, self.target) if objective in self.varying else objective

    def _labelled(self, objective: str, level: int) -> list[Row]:
        name = level_name(objective, self.budgets, level)
        return [row for row in self.observed.values() if row.is_measured(name)]

    def _update_level(self, objective: str, level: int) -> None:
        """Fit the Gaussian process of a budget again if it has other labels than before."""
        rows, name = self._labelled(objective, level), level_name(objective, self.budgets, level)
        if len(rows) < MIN_LABELS:
            return
        before = max((other for other in range(level) if (objective, other) in self._levels), default=None)
        former, values = self._levels.get((objective, level)), np.array([row.targets[name] for row in rows])
        if former and former.before != before:
            former = None
        if former and np.array_equal(former.surrogate.values[:, 0], values.astype(np.float32)):
            return
        names = [row.arch_str for row in rows]
        graph_features = self._definition(objective, rows)
        features, transform = self._transform(graph_features, objective, names), None
        if before is not None:
            given_name = level_name(objective, self.budgets, before)
            given = self._values(given_name, names)
            if np.isnan(given).any():  # trials that were trained with a larger budget at once
                predicted = self._at_level(objective, names, features, before)
                given = np.where(np.isnan(given), predicted.median, given)
            transform = given_transform(given_name, given)
            graph_features = replace(graph_features, given=(given_name,))
            features = _extended(features, transform, given)
        if former is None or len(rows) >= REFIT_GROWTH * former.num_fitted:
            fitted = self._fit_level(graph_features, features, values, name)
            surrogate, num_fitted = fitted.conditioned(features, values[:, None]), len(rows)
        else:
            surrogate = former.surrogate.conditioned(features, values[:, None], weighted=False)
            num_fitted = former.num_fitted
        self._levels[objective, level] = _Level(surrogate, before, transform, num_fitted)

    def _fit_level(
        self, graph_features: GraphFeatures, features: Tensor, values: np.ndarray, name: str
    ) -> GraphSurrogate:
        if not graph_features.given:
            return fit_features(
                graph_features, features, values[:, None], [name], weighted=False, are_selected=True
            )
        views = (*VIEWS, *GENOME_VIEWS) if graph_features.group_sizes[GENOME] else VIEWS
        labels = values[:, None]
        return GraphSurrogate.fit(graph_features, features, labels, [name], views, distance_weight=1.0)

    def _definition(self, objective: str, rows: Sequence[Row]) -> GraphFeatures:
        """The graph features of all budgets, selected at the first call."""
        if objective not in self._definitions:
            self._definitions[objective] = self._graph_features(objective, rows)
        return self._definitions[objective]

    def _predict_new(self, names: Sequence[str], objective: str) -> PredictiveDistribution:
        """The predictive distribution of values at the target budget."""
        if objective not in self.varying:
            return super()._predict_new(names, objective)
        features = self._transform(self._definitions[objective], objective, names)
        return self._at_level(objective, names, features, self.target)

    def _at_level(
        self, objective: str, names: Sequence[str], features: Tensor, level: int
    ) -> PredictiveDistribution:
        """The predictive distribution of values at a budget."""
        fitted = self._levels[objective, level]
        if fitted.before is None:
            return fitted.predict(features, None)
        given = self._values(level_name(objective, self.budgets, fitted.before), names)
        is_unknown = np.isnan(given)
        if not is_unknown.any():
            return fitted.predict(features, given)
        unknown = np.flatnonzero(is_unknown)
        unknown_names = [names[i] for i in unknown.tolist()]
        before = self._at_level(objective, unknown_names, features[unknown], fitted.before)
        given[unknown] = before.median
        predicted = fitted.predict(features, given)
        # The score of the given value is a linear feature.
        shifted = fitted.predict(features[unknown], before.transform.inverse(before.mean + before.std))
        variance = predicted.std**2
        variance[unknown] += (shifted.mean - predicted.mean[unknown]) ** 2
        return replace(predicted, std=np.sqrt(variance))

    def _values(self, name: str, names: Sequence[str]) -> np.ndarray:
        """The values at a budget by its `level_name`, float64 [N], NaN where there is none."""
        rows = [self.observed.get(architecture) for architecture in names]
        return np.array([row.targets.get(name, np.nan) if row else np.nan for row in rows], dtype=float)


def _extended(features: Tensor, transform: NormalScoreTransform, given: np.ndarray) -> Tensor:
    """Features of N networks with the score of the value of the budget before."""
    return torch.cat([features, torch.from_numpy(given_scores(transform, given))[:, None]], 1)
