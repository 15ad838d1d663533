"""Predictor of an active search: surrogates that learn from measurements, beside a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.objective_kinds import LATENCY_PREFIX, is_accuracy
from nas_rlm.data.tables import Row
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.lookup import insert_measurements
from nas_rlm.search.result import FAILED, MEASURED, SearchResult
from nas_rlm.search.settings import MEDIAN_LEVEL, QUANTILE_LEVELS
from nas_rlm.search.success_probability import SuccessModel
from nas_rlm.surrogates.fitting import fit_features, graph_features_of
from nas_rlm.surrogates.graphs.features import GraphFeatures
from nas_rlm.surrogates.graphs.surrogate import MAX_FEW_LABELS, GraphSurrogate
from nas_rlm.surrogates.graphs.transfer import SourceSurrogate
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.latency_fitting import is_few_label_latency, latency_features
from nas_rlm.surrogates.predictive import MIN_LABELS, PredictiveDistribution
from nas_rlm.surrogates.registry import FeatureSurrogate
from nas_rlm.surrogates.source_selection import accuracy_sources, device_sources
from search_spaces import SearchSpace

MIN_FAILURES = (
    3  # failed networks with an operator that no running network has, before it counts as unsupported
)
REFIT_GROWTH = 1.3  # of the number of labels, after which hyperparameters are fitted again


def _mean_row(rows: Sequence[Row]) -> Row:
    """The mean of several measurements of one network; those that failed count only if all did."""
    names = dict.fromkeys(name for row in rows for name in row.targets if row.is_measured(name))
    targets = {
        name: float(np.mean([row.targets[name] for row in rows if row.is_measured(name)])) for name in names
    }
    return replace(rows[-1], targets=targets) if len(rows) > 1 else rows[0]


class OnlineSurrogate:
    """A predictor that learns some objectives from measurements, and leaves the others to a model.

    Args:
        cached_predictor: predictions of the model for the space whose networks are measured.
        objectives: the objectives to learn, such as `latency/onnxruntime-cpu-1t`.
        surrogates: existing surrogates by space. They serve as sources of transfer. So do those of an
            objective with the same name, since they may be of another machine.

    Attributes:
        measurements: by architecture, a row for each measured network; without values where it failed.
        space_surrogates: the existing surrogates of this space.
    """

    def __init__(
        self,
        cached_predictor: CachedPredictor,
        objectives: Sequence[str],
        surrogates: Mapping[str, Sequence[GraphSurrogate]],
    ) -> None:
        self.cached_predictor, self.objectives = cached_predictor, tuple(objectives)
        self.space = cached_predictor.space
        earlier_names = {name: f"{name} before" for name in self.objectives}
        self.space_surrogates = [s.renamed(earlier_names) for s in surrogates.get(self.space.name, ())]
        self.measurements: dict[str, Row] = {}
        self._sources = {**surrogates, self.space.name: self.space_surrogates}
        self._features: dict[tuple[str, str], Tensor] = {}
        self._known_operators: dict[str, set[str]] = {}
        self._repetitions: dict[str, list[Row]] = {}
        self._num_first = self._num_fitted = 0  # labels of the first and of the last fit of hyperparameters
        self._fitted: dict[str, tuple[int, FeatureSurrogate]] = {}
        self._surrogates: dict[str, FeatureSurrogate] = {}
        self._distributions: dict[str, dict[str, tuple[float, float]]] = {}
        self._templates: dict[str, PredictiveDistribution] = {}
        self._success_models: dict[int, SuccessModel] = {}  # by level of budgets

    @property
    def is_ready(self) -> bool:
        """Whether there were enough measurements to fit surrogates."""
        return self._num_fitted > 0

    @property
    def surrogates(self) -> dict[str, FeatureSurrogate]:
        """By objective, the surrogate that is fitted to all labels; empty while these are too few."""
        return {name: self.surrogate_of(name) for name in self.objectives} if self.is_ready else {}

    @property
    def successful_rows(self) -> list[Row]:
        """The measurements that have all objectives."""
        rows = self.measurements.values()
        return [row for row in rows if all(row.is_measured(name) for name in self.objectives)]

    @property
    def _labelled_rows(self) -> list[Row]:
        """The rows that surrogates are fitted to."""
        return self.successful_rows

    @property
    def failed_names(self) -> set[str]:
        """The architectures that were measured and lack an objective."""
        return set(self.measurements).difference(row.arch_str for row in self.successful_rows)

    def update(self, rows: Sequence[Row]) -> None:
        """Add measurements; surrogates learn from them when they are used next.

        Hyperparameters are fitted again only once the number of labels has grown by `REFIT_GROWTH`. Labels of
        the first fit select the sources of transfer.

        Args:
            rows: measured networks; a row that lacks an objective is a network that the device cannot run.
                Of several measurements of one network the mean counts.
        """
        for row in rows:
            self._repetitions.setdefault(row.arch_str, []).append(row)
            self.measurements[row.arch_str] = _mean_row(self._repetitions[row.arch_str])
        self._count_labels()

    def _count_labels(self) -> None:
        """Decide whether hyperparameters are fitted again, from the number of labels."""
        count = len(self._labelled_rows)
        if count >= max(MIN_LABELS, REFIT_GROWTH * self._num_fitted):
            self._num_first, self._num_fitted = self._num_first or count, count
        self.forget_predictions()
        self._surrogates = {}

    def forget_predictions(self) -> None:
        """Compute predictions anew, so that they do not depend on which ones were computed before."""
        self._distributions, self._templates = {}, {}

    def surrogate_of(self, objective: str) -> FeatureSurrogate:
        """Return the surrogate of an objective, fitted to all labels; there are at least `MIN_LABELS`."""
        if objective not in self._surrogates:
            self._surrogates[objective] = self._fit(objective, self._labelled_rows)
        return self._surrogates[objective]

    def _fit(self, objective: str, rows: Sequence[Row]) -> FeatureSurrogate:
        """Fit a surrogate to the labels of the last fit, and add those that came after it."""
        names = [row.arch_str for row in rows]
        values = np.array([row.targets[objective] for row in rows])
        count = self._num_fitted
        num_labels, fitted = self._fitted.get(objective, (0, None))
        if fitted is None or num_labels < count:
            features = fitted.graph_features if fitted else None
            is_latency = is_few_label_latency(rows[:count], objective)
            if features is None or isinstance(features, LatencyFeatures) != is_latency:
                self._features = {key: value for key, value in self._features.items() if key[0] != objective}
                select = self._latency_features if is_latency else self._graph_features
                features = select(objective, rows[: self._num_first])
            inputs = self._transform(features, objective, names[:count])
            if isinstance(features, LatencyFeatures):
                complete = LatencySurrogate.fit(features, inputs, values[:count], objective)
                fitted = complete.without_unlikely_models()
            else:
                labels = values[:count, None]
                fitted = fit_features(
                    features, inputs, labels, [objective], weighted=False, are_selected=True
                )
                fitted = fitted.conditioned(inputs, labels)
            self._fitted[objective] = count, fitted
        if len(rows) == count:
            return fitted
        inputs = self._transform(fitted.graph_features, objective, names)
        if isinstance(fitted, LatencySurrogate):
            return fitted.extended(inputs, values)
        return fitted.conditioned(inputs, values[:, None], weighted=False)

    def _latency_features(self, objective: str, rows: Sequence[Row]) -> LatencyFeatures:
        """Features of a latency with few labels; the sources are other devices."""
        raw_features = self.cached_predictor.raw_features([row.arch_str for row in rows])
        sources = device_sources(self.space.name, rows, raw_features, objective, self._sources)
        return latency_features(self.space.name, raw_features, sources)

    def _graph_features(self, objective: str, rows: Sequence[Row]) -> GraphFeatures:
        """The space's features and sources: other devices for a latency, accuracies for an accuracy."""
        sources: tuple[SourceSurrogate, ...] = ()
        if objective.startswith(LATENCY_PREFIX):
            raw_features = self.cached_predictor.raw_features([row.arch_str for row in rows])
            sources = device_sources(self.space.name, rows, raw_features, objective, self._sources)
        elif is_accuracy(objective):
            sources = accuracy_sources(self.space.name, rows, objective, self._sources)
        is_few = len(rows) <= MAX_FEW_LABELS
        return graph_features_of(self.space.name, rows, sources, is_few)

    def _transform(
        self, graph_features: GraphFeatures | LatencyFeatures, objective: str, names: Sequence[str]
    ) -> Tensor:
        """Cached features of architectures, float64 [N, D] with the precision of float32.

        Single precision makes them independent of which features were computed together.
        """
        new = [name for name in dict.fromkeys(names) if (objective, name) not in self._features]
        features = graph_features.transform(self.cached_predictor.raw_features(new)).float()
        self._features.update(zip(((objective, name) for name in new), features, strict=True))
        return torch.stack([self._features[objective, name] for name in names]).double()

    def prior_medians(self, names: Sequence[str], objective: str) -> np.ndarray | None:
        """Return what is known of an objective without labels: float64 [N], or None.

        These are the model's predictions, or FLOPs for a latency that it does not predict.

        Args:
            names: N architectures in the space's notation.
            objective: name of the objective.
        """
        try:
            return self.cached_predictor.predict(names, [objective], [MEDIAN_LEVEL])[:, 0, 0]
        except ValueError:  # the model does not know the objective
            if not objective.startswith(LATENCY_PREFIX):
                return None
        raw_features = self.cached_predictor.raw_features(names)
        return np.array([features.get("flops", 0.0) for features in raw_features])

    def status(self, names: Sequence[str]) -> dict[str, str]:
        """Return `measured` or `failed` for architectures that were measured, failed or are expected to fail.

        An architecture is expected to fail if it has an operator or layer that at least `MIN_FAILURES` failed
        networks have and no running one.
        """
        running, failed = {row.arch_str for row in self.successful_rows}, self.failed_names
        failure_counts = Counter(operator for name in failed for operator in self._operators(name))
        unsupported = {operator for operator, count in failure_counts.items() if count >= MIN_FAILURES}
        if unsupported:
            unsupported = unsupported.difference(*map(self._operators, running))
        status = {}
        for name in names:
            if name in running:
                status[name] = MEASURED
            elif name in failed or (unsupported and unsupported & self._operators(name)):
                status[name] = FAILED
        return status

    def success_probabilities(self, names: Sequence[str]) -> np.ndarray:
        """Return the probability that architectures do not fail, float64 [N]; 1 while none has failed.

        Args:
            names: N architectures in the space's notation.
        """
        failed = self.failed_names
        outcomes = {name: name not in failed for name in self.measurements}
        return self._success_model(0).probabilities(outcomes, names)

    def _success_model(self, level: int) -> SuccessModel:
        """The model of the outcomes with a budget."""
        return self._success_models.setdefault(level, SuccessModel(self.space.name, self._transform))

    def _operators(self, name: str) -> set[str]:
        """The kinds of operators and layers of an architecture: features other than sums, chains, paths."""
        if name not in self._known_operators:
            (features,) = self.cached_predictor.raw_features([name])
            self._known_operators[name] = {
                feature for feature, count in features.items() if count and not {"-", "/"} & set(feature)
            }
        return self._known_operators[name]

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] = QUANTILE_LEVELS,
    ) -> np.ndarray:
        """Return quantiles of each objective: float64 [N, K, Q]; those of a measured value are all equal.

        Args:
            space: ignored; it is the space of `cached_predictor`.
            architectures: N architectures.
            objectives: K names.
            quantiles: Q quantile levels.
        """
        return self.predict_names([str(a) for a in architectures], objectives, quantiles)

    def predict_names(
        self, names: Sequence[str], objectives: Sequence[str], quantiles: Sequence[float] = QUANTILE_LEVELS
    ) -> np.ndarray:
        """Return the same as `predict` for architectures in the space's notation."""
        values = np.empty((len(names), len(objectives), len(quantiles)))
        predicted = self._predicted_by_model(objectives)
        if predicted:
            values[:, predicted] = self.cached_predictor.predict(
                names, [objectives[k] for k in predicted], quantiles
            )
        for k, objective in enumerate(objectives):
            if objective in self.objectives:
                unknown = [i for i, name in enumerate(names) if not self._is_measured(name, objective)]
                if unknown:
                    distribution = self._predictive_distribution([names[i] for i in unknown], objective)
                    values[unknown, k] = distribution.quantiles(quantiles)
                insert_measurements(values[:, k], names, objective, self.measurements)
        return values

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
    ) -> np.ndarray:
        """Return samples: float64 [N, num_samples, K]; those of a measured value are all equal.

        Samples of the model are joint samples of its objectives; those of each surrogate are independent.

        Args:
            space: the search space.
            architectures: N architectures.
            objectives: K names.
            num_samples: samples per architecture.
            seed: seed of the samples.
        """
        names = [str(a) for a in architectures]
        values = np.empty((len(names), num_samples, len(objectives)))
        predicted = self._predicted_by_model(objectives)
        if predicted:
            model_objectives = [objectives[k] for k in predicted]
            values[:, :, predicted] = self.cached_predictor.model.sample(
                space, architectures, model_objectives, num_samples, seed
            )
        rng = np.random.default_rng(seed)
        for k, objective in enumerate(objectives):
            if objective in self.objectives:
                distribution = self._predictive_distribution(names, objective)
                values[:, :, k] = np.stack([distribution.sample(rng) for _ in range(num_samples)], axis=1)
                insert_measurements(values[:, :, k], names, objective, self.measurements)
        return values

    def _is_measured(self, name: str, objective: str) -> bool:
        """Whether an architecture has a measured value of an objective."""
        row = self.measurements.get(name)
        return row is not None and row.is_measured(objective)

    def _predictive_distribution(self, names: Sequence[str], objective: str) -> PredictiveDistribution:
        """The predictive distribution of architectures, of which each is predicted once for given labels."""
        known = self._distributions.setdefault(objective, {})
        new = [name for name in dict.fromkeys(names) if name not in known]
        if new or objective not in self._templates:
            predicted = self._predict_new(new, objective)
            self._templates[objective] = predicted
            known.update(zip(new, zip(predicted.mean, predicted.std, strict=True), strict=True))
        mean, std = np.array([known[name] for name in names]).reshape(-1, 2).T
        return replace(self._templates[objective], mean=mean, std=std)

    def _predict_new(self, names: Sequence[str], objective: str) -> PredictiveDistribution:
        """The predictive distribution of architectures by the surrogate of an objective."""
        surrogate = self.surrogate_of(objective)
        return surrogate.predict(self._transform(surrogate.graph_features, objective, names), objective)

    def _predicted_by_model(self, objectives: Sequence[str]) -> list[int]:
        """Positions of the objectives that the model predicts."""
        return [k for k, name in enumerate(objectives) if name not in self.objectives]

    def store_predictions(self, result: SearchResult) -> None:
        """Store the model's predictions of a result, so that a replayed search predicts the same."""
        objectives = result.settings.all_objectives
        predicted = self._predicted_by_model(objectives)
        if predicted:
            model_objectives = [objectives[k] for k in predicted]
            levels, values = result.settings.quantile_levels, result.values[:, predicted]
            self.cached_predictor.store(result.architectures, model_objectives, levels, values)
