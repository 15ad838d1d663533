"""Graph surrogates: a Gaussian process on graph features for each objective of a space's networks.

With few labels, a Gaussian process on graph features predicts better than a network with millions of weights;
with many labels, worse. Therefore both are combined: the predictive distribution of a surrogate is a factor
of the digit probabilities in the decoding, see `nas_rlm.model.decoding`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.surrogates.gaussian_process import GaussianProcess, compute_alpha, posterior_mean
from nas_rlm.surrogates.graphs.evidence import (
    NUM_FOLDS,
    HeldOutErrors,
    MixtureWeights,
    cross_validate,
    training_folds,
)
from nas_rlm.surrogates.graphs.features import COSTS, GraphFeatures
from nas_rlm.surrogates.graphs.label_transforms import transform_of_labels
from nas_rlm.surrogates.graphs.network_sizes import NetworkSizes
from nas_rlm.surrogates.graphs.saved_surrogate import check_saved, num_processes, stacked, unstacked
from nas_rlm.surrogates.graphs.transfer import (
    SourceSurrogate,
    labels_from_saved,
    sources_from_saved,
    tensors_of_labels,
    tensors_of_sources,
)
from nas_rlm.surrogates.graphs.views import GRAPH_GROUPS, fit_view
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    FittedTransform,
    PredictiveDistribution,
)

MAX_COST_SHIFT = 1.25  # of labelled networks without a warning; of random ones it is about 0.3
MAX_FEW_LABELS = 500  # up to which they are used and weighted by cross-validation


@dataclass(frozen=True)
class GraphSurrogate:
    """Gaussian processes on graph features, V for each of K objectives, whose mixture predicts.

    Args:
        graph_features: definition of the D features, with predictions of sources.
        features: features of M labelled networks, float64 [M, D].
        values: labels of K objectives, float64 [M, K], NaN where a network is not labelled.
        objectives: names of K objectives.
        hyperparameters: for each objective, the D inverse length scales and the noise variance of its V
            Gaussian processes, float64 [V, D + 1]; the inverse length scale is 0 for a feature outside of
            the view of a Gaussian process.
        alpha: for each objective, see `nas_rlm.surrogates.gaussian_process.compute_alpha`, float64 [V, M],
            0 where a network is not labelled.
        temperatures: combined temperature of each objective, see `nas_rlm.surrogates.calibration`.
        network_temperatures: network temperature of each objective in combination with this surrogate; by
            default the one without surrogate.
        evidence: weights of the Gaussian processes of an objective; by default equal ones.
        others: labels of objectives that other surrogates predict, by name, float64 [M], NaN where a network
            has none; see `nas_rlm.surrogates.conditional`.
        sizes: sizes of the labelled networks, where they need not be of one space.
        distance_weight: how far scores of labels keep distances, see
            `nas_rlm.surrogates.graphs.label_transforms.transform_of_labels`.
    """

    graph_features: GraphFeatures
    features: Tensor
    values: np.ndarray
    objectives: tuple[str, ...]
    hyperparameters: Mapping[str, Tensor]
    alpha: Mapping[str, Tensor]
    temperatures: Mapping[str, float] = field(default_factory=dict)
    network_temperatures: Mapping[str, float] = field(default_factory=dict)
    evidence: Mapping[str, MixtureWeights] = field(default_factory=dict)
    others: Mapping[str, np.ndarray] = field(default_factory=dict)
    sizes: NetworkSizes | None = None
    distance_weight: float = 0.0

    @classmethod
    def fit(
        cls,
        graph_features: GraphFeatures,
        features: Tensor,
        values: np.ndarray,
        objectives: Sequence[str],
        views: Sequence[Collection[int]] = (GRAPH_GROUPS,),
        weighted: bool = False,
        distance_weight: float = 0.0,
    ) -> GraphSurrogate:
        """Fit a surrogate to labelled networks.

        Args:
            graph_features: definition of the D features.
            features: features of M labelled networks, float64 [M, D].
            values: labels of K objectives, float64 [M, K], NaN where a network is not labelled.
            objectives: names of K objectives.
            views: the view of each of the V Gaussian processes of an objective: indices of the feature groups
                that it uses, see `nas_rlm.surrogates.graphs.features`; by default one, with all groups.
            weighted: weight the Gaussian processes and scale their intervals by cross-validation, which takes
                `NUM_FOLDS` more fits; see `nas_rlm.surrogates.graphs.evidence`.
            distance_weight: see the class.
        """
        features, values = _to_half_precision(features), values.astype(np.float32).astype(float)
        unfitted = cls(
            graph_features, features, values, tuple(objectives), {}, {}, distance_weight=distance_weight
        )
        hyperparameters, evidence = {}, {}
        num_linear = graph_features.num_linear
        for name, labelled in zip(objectives, unfitted._labelled, strict=True):
            transform = unfitted.transforms[name]
            scores = torch.from_numpy(transform.scores)
            folds = training_folds(len(labelled)) if weighted else None
            fits = [fit_view(graph_features, features[labelled], scores, view, folds) for view in views]
            hyperparameters[name] = torch.stack([of_view[0] for of_view in fits])
            if weighted:
                of_folds = torch.stack([of_view[1:] for of_view in fits])
                evidence[name] = cross_validate(features[labelled], transform, of_folds, num_linear)
        return replace(unfitted, hyperparameters=hyperparameters, evidence=evidence)._with_alpha()

    def conditioned(self, features: Tensor, values: np.ndarray, weighted: bool = True) -> GraphSurrogate:
        """Return a surrogate of other labels with the same hyperparameters, which takes milliseconds.

        Cross-validation weights the Gaussian processes again, without fitting hyperparameters for each fold.

        Args:
            features: features of M labelled networks, float64 [M, D].
            values: labels of the K objectives, float64 [M, K], NaN where a network is not labelled.
            weighted: whether it does; otherwise the weights stay as they are.
        """
        features, values = _to_half_precision(features), values.astype(np.float32).astype(float)
        unfitted = replace(self, features=features, values=values)
        if not weighted:
            return unfitted._with_alpha()
        evidence = {}
        for name, labelled in zip(self.objectives, unfitted._labelled, strict=True):
            of_folds = self.hyperparameters[name][:, None].expand(-1, NUM_FOLDS, -1)
            evidence[name] = cross_validate(
                features[labelled], unfitted.transforms[name], of_folds, self.graph_features.num_linear
            )
        return replace(unfitted, evidence=evidence)._with_alpha()

    def _with_alpha(self) -> GraphSurrogate:
        """Return a copy with alpha computed from hyperparameters and labels."""
        alpha = {}
        for name, labelled in zip(self.objectives, self._labelled, strict=True):
            scores = torch.from_numpy(self.transforms[name].scores)
            alphas = [
                compute_alpha(self.features[labelled], scores, h, self.graph_features.num_linear)
                for h in self.hyperparameters[name]
            ]
            alpha[name] = torch.zeros(len(alphas), len(self.features), dtype=torch.float64)
            alpha[name][:, labelled] = torch.stack(alphas).float().double()  # the precision of checkpoints
        return replace(self, alpha=alpha)

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """All labels of the M networks by name, float64 [M], NaN where a network has none."""
        return {**self.others, **dict(zip(self.objectives, self.values.T, strict=True))}

    @property
    def _labelled(self) -> list[np.ndarray]:
        """For each objective, the indices of the networks that have a label."""
        return [np.flatnonzero(np.isfinite(column)) for column in self.values.T]

    @cached_property
    def transforms(self) -> dict[str, FittedTransform]:
        """For each objective, the transform between values and scores."""
        return {
            name: transform_of_labels(name, column[labelled], self.distance_weight)
            for name, column, labelled in zip(self.objectives, self.values.T, self._labelled, strict=True)
        }

    @cached_property
    def _gaussian_processes(self) -> dict[str, list[GaussianProcess]]:
        return {}

    def gaussian_processes(self, objective: str) -> list[GaussianProcess]:
        """Return the V Gaussian processes of an objective, which are built at the first call."""
        if objective not in self._gaussian_processes:
            labelled = self._labelled[self.objectives.index(objective)]
            scores = torch.from_numpy(self.transforms[objective].scores)
            num_linear = self.graph_features.num_linear
            self._gaussian_processes[objective] = [
                GaussianProcess(self.features[labelled], scores, hyperparameters, alpha[labelled], num_linear)
                for hyperparameters, alpha in zip(
                    self.hyperparameters[objective], self.alpha[objective], strict=True
                )
            ]
        return self._gaussian_processes[objective]

    def _training_data(self, objective: str) -> tuple[Tensor, Tensor]:
        """Return the features and normal scores of the networks with a label of the objective."""
        labelled = self._labelled[self.objectives.index(objective)]
        return self.features[labelled], torch.from_numpy(self.transforms[objective].scores)

    @property
    def weaknesses(self) -> list[str]:
        """Messages on few labels that explain an objective badly, or only in a part of the space."""
        messages = []
        for name, errors in self.held_out.items():
            networks = f"the {errors.labels} labelled networks of {name}"
            if errors.spread == 0 and errors.error == 0:
                messages.append(f"{networks} have equal values: predictions rank nothing")
            elif errors.is_weak:
                messages.append(f"{networks} explain it badly ({errors}): label more networks")
            shift = self.cost_shift(name)
            if shift > MAX_COST_SHIFT:
                messages.append(
                    f"{networks} are from one corner of the space, costs {shift:.1f} standard deviations"
                    " from those of random networks: predictions for others are unreliable, label random ones"
                    " too"
                )
        return messages

    def cost_shift(self, objective: str) -> float:
        """Return how far the costs of labelled networks are from those of random ones, in their deviations.

        It is the root mean square over costs. Where the space is not registered, it is about 0.

        Args:
            objective: one of this surrogate's objectives.
        """
        labelled = self._labelled[self.objectives.index(objective)]
        costs = self.features[labelled][:, : self.graph_features.group_sizes[COSTS]]
        return float(costs.mean(0).square().mean().sqrt()) if costs.numel() else 0.0

    @property
    def held_out(self) -> dict[str, HeldOutErrors]:
        """Errors of cross-validation of the objectives with few labels."""
        return {
            name: evidence.held_out
            for name, evidence in self.evidence.items()
            if evidence.held_out and name in self.objectives
        }

    def source_for_space(
        self, objective: str, target_raw_features: Sequence[Mapping[str, float]]
    ) -> SourceSurrogate | None:
        """Return a source surrogate that predicts an objective for another space, see `SourceSurrogate.fit`.

        Args:
            objective: one of this surrogate's objectives.
            target_raw_features: raw features of random networks of the other space.
        """
        names = self.graph_features.names
        return SourceSurrogate.fit(names, *self._training_data(objective), target_raw_features)

    def source_for_device(self, objective: str, target_features: Tensor) -> SourceSurrogate | None:
        """Return a source surrogate that predicts a latency for another device in the same space.

        Args:
            objective: one of this surrogate's latencies.
            target_features: features of N random networks of the space, float64 [N, D].

        Returns:
            The surrogate, or None where its predictions do not vary.
        """
        data, hyperparameters = self._training_data(objective), self.hyperparameters[objective][0]
        return SourceSurrogate.from_hyperparameters(
            self.graph_features, *data, hyperparameters, target_features
        )

    def mean_scores(self, features: Tensor, objective: str) -> Tensor:
        """Return the normal scores that the first Gaussian process of an objective predicts, float64 [N].

        Args:
            features: features of N networks, float64 [N, D].
            objective: one of this surrogate's objectives.
        """
        hyperparameters, alpha = self.hyperparameters[objective][0], self.alpha[objective][0]
        labelled = self._labelled[self.objectives.index(objective)]
        num_linear = self.graph_features.num_linear
        return posterior_mean(features, self.features[labelled], hyperparameters, alpha[labelled], num_linear)

    def renamed(self, names: Mapping[str, str]) -> GraphSurrogate:
        """Return a copy with renamed objectives.

        Args:
            names: new names by present name.
        """
        return replace(
            self,
            objectives=tuple(names.get(name, name) for name in self.objectives),
            hyperparameters={names.get(name, name): t for name, t in self.hyperparameters.items()},
            alpha={names.get(name, name): t for name, t in self.alpha.items()},
            evidence={names.get(name, name): e for name, e in self.evidence.items()},
            others={names.get(name, name): values for name, values in self.others.items()},
        )

    def without(self, objectives: Sequence[str]) -> GraphSurrogate | None:
        """Return a copy without the given objectives, or None if no objective is left."""
        columns = [k for k, name in enumerate(self.objectives) if name not in objectives]
        if len(columns) == len(self.objectives):
            return self
        names = tuple(self.objectives[k] for k in columns)
        return replace(self, values=self.values[:, columns], objectives=names) if columns else None

    def predict(self, features: Tensor, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of an objective for N networks.

        Networks whose genome is unknown are predicted by the Gaussian processes that do not use it.

        Args:
            features: features of the networks, float64 [N, D].
            objective: one of this surrogate's objectives.
        """
        is_unknown = features.isnan()
        known = features.nan_to_num()
        processes = self.gaussian_processes(objective)
        means, stds = (
            torch.stack(tensors).numpy()
            for tensors in zip(*(process.posterior(known) for process in processes), strict=True)
        )
        uses = torch.stack([process.inverse_length_scales > 0 for process in processes])
        is_usable = (uses.double() @ is_unknown.double().T == 0).numpy()
        evidence = self.evidence.get(objective) or MixtureWeights.equal(len(processes))
        mean, std = evidence.mixture(means, stds**2, is_usable)
        temperature = self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE)
        transform = self.transforms[objective]
        return PredictiveDistribution(transform, mean, std, temperature)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return tensors_of_sources(self.graph_features.sources) | {
            **tensors_of_labels(self.others),
            "mean": torch.tensor(self.graph_features.mean),
            "std": torch.tensor(self.graph_features.std),
            "features": self.features.half(),
            "values": torch.tensor(self.values).float(),
            "hyperparameters": stacked(self.hyperparameters, self.objectives),
            "alpha": stacked(self.alpha, self.objectives).float(),
        }

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON: kind, names and temperatures."""
        return {
            "kind": "graph",
            "features": self.graph_features.names,
            "sources": [source.graph_features.names for source in self.graph_features.sources],
            "objectives": self.objectives,
            "others": list(self.others),
            "temperatures": dict(self.temperatures),
            "network_temperatures": dict(self.network_temperatures),
            "evidence": {
                name: evidence.description()
                for name, evidence in self.evidence.items()
                if name in self.objectives
            },
            **({"sizes": self.sizes.description()} if self.sizes else {}),
            **({"distance_weight": self.distance_weight} if self.distance_weight else {}),
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> GraphSurrogate:
        """Make a surrogate from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        check_saved(tensors, description)
        objectives = tuple(description["objectives"])
        graph_features = GraphFeatures(
            tuple(description["features"]),
            tensors["mean"].numpy(),
            tensors["std"].numpy(),
            sources_from_saved(tensors, description["sources"]),
        )
        evidence = {
            name: MixtureWeights.from_saved(saved, num_processes(tensors), name)
            for name, saved in description.get("evidence", {}).items()  # absent from older checkpoints
        }
        return cls(
            graph_features,
            tensors["features"].double(),
            tensors["values"].double().numpy(),
            objectives,
            unstacked(tensors["hyperparameters"], objectives),
            unstacked(tensors["alpha"], objectives),
            dict(description["temperatures"]),
            dict(description["network_temperatures"]),
            evidence,
            labels_from_saved(tensors, description, len(tensors["features"])),
            NetworkSizes.from_saved(description["sizes"]) if "sizes" in description else None,
            float(description.get("distance_weight", 0.0)),  # older ones have none
        )


def _to_half_precision(features: Tensor) -> Tensor:
    """Round features to the precision of checkpoints, float64."""
    limit = torch.finfo(torch.half).max
    return features.clamp(-limit, limit).half().double()
