"""Conditional surrogates: an objective predicted from a network's graph and from numbers measured of it.

Such numbers are accuracies after few epochs, latencies of another device, or accuracies on a smaller data
set. With few labels, the given numbers become features beside those of the graph, and the surrogate is
fitted again. With many labels, the surrogate's prediction is corrected by how far the given numbers are from
their own predictions. Both are forms of co-kriging.

Source: Kennedy and O'Hagan 2000, Predicting the Output from a Complex Computer Code When Fast Approximations
Are Available (the autoregressive model of two fidelities).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.objective_kinds import kind_of
from nas_rlm.data.tables import Table
from nas_rlm.metrics import kendall
from nas_rlm.surrogates.gaussian_process import leave_one_out
from nas_rlm.surrogates.graphs.features import COSTS, MAX_CHAIN_LENGTH, PATHS, TRANSFER, GraphFeatures
from nas_rlm.surrogates.graphs.surrogate import MAX_FEW_LABELS, GraphSurrogate
from nas_rlm.surrogates.graphs.transfer import SourceSurrogate
from nas_rlm.surrogates.graphs.views import GRAPH_GROUPS
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.predictive import (
    MIN_LABELS,
    FittedTransform,
    NormalScoreTransform,
    PredictiveDistribution,
)

# Given numbers are in the group TRANSFER, which each view has; the last view has nothing else.
VIEWS = (GRAPH_GROUPS, (COSTS, PATHS, TRANSFER), (*range(COSTS, MAX_CHAIN_LENGTH), TRANSFER), (TRANSFER,))
MAX_EXTRAPOLATION = 0.5  # of the score of a given number beyond those of the labelled networks
MORE_LABELS = 2  # times as many labels of a given number, from which its own surrogate predicts it as well
# Of the score of the median of M labels, times M: normal scores of few labels are uncertain themselves.
MEDIAN_VARIANCE = math.pi / 2
MAX_ROWS = 1500  # labelled networks that corrections are fitted on
OUTLIER_STDS = 3.0  # beyond which a residual is clipped
MAD_PER_STD = 0.6745  # median absolute deviation of a normal distribution
SHRINKAGES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)  # factors of a correction; the first of equals is chosen
MIN_GAIN = 5e-4  # of Kendall's tau on labels that are left out, below which nothing is corrected


class Conditional(Protocol):
    """A surrogate that predicts an objective of networks of which other numbers are given."""

    def predict(self, features: Tensor, given: Mapping[str, np.ndarray]) -> PredictiveDistribution:
        """Return the predictive distribution for N networks.

        Args:
            features: features of the networks, float64 [N, D].
            given: the given numbers by name, float64 [N], finite.
        """


@dataclass(frozen=True)
class ConditionalSurrogate:
    """A surrogate of one objective that is fitted to graph features and given numbers.

    Args:
        surrogate: surrogate whose last features are the scores of the given numbers, and predictions of
            them where they have many more labels than the objective.
        transforms: transform of each given number to its score.
        predicted: surrogates of given numbers that have many more labels than the objective.
    """

    surrogate: GraphSurrogate | LatencySurrogate
    transforms: Mapping[str, NormalScoreTransform]
    predicted: Mapping[str, SourceSurrogate] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        graph_features: GraphFeatures | LatencyFeatures,
        features: Tensor,
        values: Mapping[str, np.ndarray],
        objective: str,
        given: Sequence[str],
        predicted: Mapping[str, SourceSurrogate] | None = None,
    ) -> ConditionalSurrogate:
        """Fit a surrogate to at most `MAX_FEW_LABELS` networks that have all labels.

        Args:
            graph_features: definition of the D features.
            features: features of M networks, float64 [M, D].
            values: labels by name, float64 [M], NaN where a network has none.
            objective: name of the objective.
            given: names of the given numbers.
            predicted: surrogates that predict given numbers from the same features.

        Raises:
            ValueError: fewer than `MIN_LABELS` networks have labels of the objective and all given numbers.
        """
        rows, predicted = _complete_rows(values, objective, given)[:MAX_FEW_LABELS], predicted or {}
        transforms = {name: given_transform(name, values[name]) for name in given}
        of_rows = {name: values[name][rows] for name in given}
        inputs = _with_given(features[rows], of_rows, transforms, predicted)
        names, labels = (*given, *(f"{name} predicted" for name in predicted)), values[objective][rows]
        if isinstance(graph_features, LatencyFeatures):
            latency_features = replace(graph_features, given=names)
            fitted = LatencySurrogate.fit(latency_features, inputs, labels, objective)
            return cls(fitted, transforms, predicted)
        extended = replace(graph_features, given=names)
        surrogate = GraphSurrogate.fit(extended, inputs, labels[:, None], [objective], VIEWS, weighted=True)
        return cls(surrogate, transforms, predicted)

    def predict(self, features: Tensor, given: Mapping[str, np.ndarray]) -> PredictiveDistribution:
        """Return the predictive distribution for N networks, see `Conditional`."""
        inputs = _with_given(features, given, self.transforms, self.predicted)
        predicted = self.surrogate.predict(inputs, self.surrogate.objectives[0])
        if isinstance(self.surrogate, LatencySurrogate):
            return predicted
        variance = predicted.std**2 + MEDIAN_VARIANCE / len(self.surrogate.values)
        return replace(predicted, std=np.sqrt(variance))


@dataclass(frozen=True)
class CorrectedSurrogate:
    """A surrogate with many labels, corrected by how far given numbers are from its predictions of them.

    Args:
        surrogate: the surrogate of the objective and of the given numbers.
        objective: name of the objective.
        coefficients: change of the objective's score with the residual of each given number's score.
        limits: magnitude at which the residual of each given number is clipped.
        std_factor: factor of the standard deviations.
    """

    surrogate: GraphSurrogate
    objective: str
    coefficients: Mapping[str, float]
    limits: Mapping[str, float]
    std_factor: float

    @classmethod
    def fit(cls, surrogate: GraphSurrogate, objective: str, given: Sequence[str]) -> CorrectedSurrogate:
        """Fit the correction to residuals of labels that are left out, as strong as it ranks them best.

        Args:
            surrogate: a surrogate of the objective and of the given numbers.
            objective: name of the objective.
            given: names of the given numbers.

        Raises:
            ValueError: as `ConditionalSurrogate.fit`.
        """
        rows = _complete_rows(surrogate.labels, objective, given)[:MAX_ROWS]
        means, residuals = _left_out(surrogate, objective, rows)
        _, of_given = zip(*(_left_out(surrogate, name, rows) for name in given), strict=True)
        limits = [OUTLIER_STDS * float(np.median(np.abs(r))) / MAD_PER_STD for r in of_given]
        inputs = np.stack([np.clip(r, -c, c) for r, c in zip(of_given, limits, strict=True)], 1)
        limit = OUTLIER_STDS * float(np.median(np.abs(residuals))) / MAD_PER_STD
        targets = np.clip(residuals, -limit, limit)
        solved = np.linalg.lstsq(inputs, targets, rcond=None)[0]
        values = surrogate.labels[objective][rows]
        correlations = np.array([kendall(means + factor * inputs @ solved, values) for factor in SHRINKAGES])
        best = int(correlations.argmax()) if correlations.max() > correlations[0] + MIN_GAIN else 0
        coefficients = SHRINKAGES[best] * solved
        left = float(np.square(targets - inputs @ coefficients).mean() / np.square(targets).mean())
        return cls(
            surrogate,
            objective,
            dict(zip(given, coefficients.tolist(), strict=True)),
            dict(zip(given, limits, strict=True)),
            min(1.0, left**0.5),
        )

    def predict(self, features: Tensor, given: Mapping[str, np.ndarray]) -> PredictiveDistribution:
        """Return the predictive distribution for N networks, see `Conditional`."""
        predicted = self.surrogate.predict(features, self.objective)
        mean = predicted.mean.copy()
        for name, coefficient in self.coefficients.items():
            scores = given_scores(self.surrogate.transforms[name], given[name])
            residuals = scores - self.surrogate.predict(features, name).mean
            mean += coefficient * np.clip(residuals, -self.limits[name], self.limits[name])
        return replace(predicted, mean=mean, std=self.std_factor * predicted.std)


def conditional_surrogate(
    surrogate: GraphSurrogate | LatencySurrogate, objective: str, given: Sequence[str]
) -> Conditional:
    """Return the surrogate of an objective of networks of which other numbers are given.

    Args:
        surrogate: the surrogate that predicts the objective without them. It has labels of the given
            numbers, see `GraphSurrogate.labels`.
        objective: name of the objective.
        given: names of the given numbers, at least one.

    Raises:
        ValueError: as `ConditionalSurrogate.fit`.
    """
    predicted: dict[str, SourceSurrogate] = {}
    if isinstance(surrogate, GraphSurrogate):
        count = len(_complete_rows(surrogate.labels, objective, given))
        if count > MAX_FEW_LABELS and set(given) <= set(surrogate.objectives):
            return CorrectedSurrogate.fit(surrogate, objective, given)
        for name in given:
            labels = np.isfinite(surrogate.labels[name]).sum()
            if name in surrogate.objectives and labels >= MORE_LABELS * count:
                source = surrogate.source_for_device(name, surrogate.features)
                predicted |= {name: source} if source else {}
    arguments = surrogate.graph_features, surrogate.features, surrogate.labels
    fitted = ConditionalSurrogate.fit(*arguments, objective, given, predicted)
    with_temperatures = replace(fitted.surrogate, temperatures=dict(surrogate.temperatures))
    return replace(fitted, surrogate=with_temperatures)


def _complete_rows(values: Mapping[str, np.ndarray], objective: str, given: Sequence[str]) -> np.ndarray:
    """Return the indices of the networks that have labels of the objective and of all given numbers."""
    names = [objective, *given]
    measured = [np.isfinite(values[name]) for name in names if name in values]
    rows = np.flatnonzero(np.all(measured, axis=0)) if len(measured) == len(names) else np.empty(0, int)
    if len(rows) < MIN_LABELS:
        raise ValueError(
            f"{len(rows)} labelled networks have {objective} and {', '.join(given)}: expected at least"
            f" {MIN_LABELS}, fine-tune on a table that has them all"
        )
    return rows


def given_transform(name: str, values: np.ndarray) -> NormalScoreTransform:
    """Return the transform of a given number to its score."""
    kind = kind_of(name)
    return NormalScoreTransform(values[np.isfinite(values)], kind.maximum, minimum=kind.minimum)


def given_scores(transform: FittedTransform, values: np.ndarray) -> np.ndarray:
    """Return the scores of given numbers, with bounds, since the slope of the tails may be 0."""
    low, high = transform.scores.min() - MAX_EXTRAPOLATION, transform.scores.max() + MAX_EXTRAPOLATION
    return np.clip(transform.forward(values), low, high)


def _with_given(
    features: Tensor,
    given: Mapping[str, np.ndarray],
    transforms: Mapping[str, NormalScoreTransform],
    predicted: Mapping[str, SourceSurrogate],
) -> Tensor:
    """Return features of N networks with the scores of given numbers and with predictions of them."""
    scores = [torch.from_numpy(given_scores(t, given[name])) for name, t in transforms.items()]
    predictions = [source.predict(features.nan_to_num()) for source in predicted.values()]
    return torch.cat([features, *(column[:, None] for column in (*scores, *predictions))], 1)


def _left_out(surrogate: GraphSurrogate, objective: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions of scores from the other rows and their errors, each float64 [R]."""
    scores = torch.from_numpy(surrogate.transforms[objective].forward(surrogate.labels[objective][rows]))
    hyperparameters, num_linear = surrogate.hyperparameters[objective][0], surrogate.graph_features.num_linear
    means = leave_one_out(surrogate.features[rows], scores, hyperparameters, num_linear)
    return means.numpy(), (scores - means).numpy()


def other_labels(table: Table, names: Sequence[str], objectives: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the labels of those named objectives that are not in `objectives`, where there are any."""
    labels = {
        name: table.column(name).astype(np.float32).astype(float) for name in names if name not in objectives
    }
    return {name: values for name, values in labels.items() if np.isfinite(values).sum() >= MIN_LABELS}
