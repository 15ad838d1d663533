"""Latency surrogates: models of a latency with few labels, weighted by leave-one-out evidence.

A network's latency is nearly a sum over the layers that a device executes. Devices differ in which operators
they remove or fuse before, in whether branches run in parallel, and in how much they resemble known devices.
There is a model for each of these cases, and their predictions are averaged. The weight of a model follows
from how well it predicts each labelled network from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.graphs.evidence import pseudo_bma_weights
from nas_rlm.surrogates.graphs.transfer import (
    labels_from_saved,
    sources_from_saved,
    tensors_of_labels,
    tensors_of_sources,
)
from nas_rlm.surrogates.latency.features import CRITICAL, TRANSFER, LatencyFeatures
from nas_rlm.surrogates.latency.kernels import (
    MIN_SCALE,
    NOISE_FLOOR,
    fit_gains,
    kernel_diagonals,
    kernel_names,
    kernels_between,
    models_of,
    relative_targets,
    with_noise,
)
from nas_rlm.surrogates.latency.mixture import mixture, std_factor
from nas_rlm.surrogates.latency.nearest_devices import NearestDevices
from nas_rlm.surrogates.latency.nonnegative import fit_nonnegative, predict_held_out
from nas_rlm.surrogates.latency.samples import LeaveOneOutEvidence
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    WITHOUT_NETWORK,
    LogTransform,
    PredictiveDistribution,
)

MAX_FIT_LABELS = 150  # that gains and noise are fitted on
MAX_KERNEL_ELEMENTS = 100_000  # of one kernel that are computed at once
MIN_WEIGHT = 1e-4  # of a Gaussian process, below which it may be left out
MAX_LOG_STD = 1.0  # of a prediction, before it is scaled
TRUST = 0.7  # in the evidence for models, of which there are many
MAX_LOG_ERROR = 1.0  # of one sample that counts in the evidence for a model
TRANSFER_PRIOR = 5.0  # prior weight of models that use known devices, beside 1 for each other one
OTHER_NETWORKS_STD = 3.0  # for networks of another space than the labelled ones


@dataclass(frozen=True)
class LatencySurrogate:
    """V additive Gaussian processes and W sums of costs for one latency, and their weights.

    The kernel of each Gaussian process is a sum of G kernels, each on one group of features, times their
    gains. Each sum of costs is of another mode of execution, see `LatencyFeatures`.

    Args:
        graph_features: definition of the D features, with predictions of sources.
        features: features of M labelled networks, float64 [M, D].
        values: their latencies, float64 [M].
        objective: name of the latency.
        gains: gains of each Gaussian process; 0 for a kernel that it does not use, float64 [V, G].
        noise: noise variance of each Gaussian process, relative to the mean latency, float64 [V].
        prior: prior weight of each Gaussian process, float64 [V].
        coefficients: for each mode of execution a constant and the coefficients of its costs, at least 0.
        held_out: for each mode of execution the labels that the sum of costs predicts in cross-validation,
            float64 [W, M].
        temperatures: combined temperature, see `nas_rlm.surrogates.calibration`.
        network_temperatures: network temperature in combination with this surrogate.
        std_scale: factor of the standard deviations, which is not saved; see `for_other_networks`.
        others: labels of objectives that other surrogates predict, by name, float64 [M], NaN where a network
            has none; see `nas_rlm.surrogates.conditional`.
    """

    graph_features: LatencyFeatures
    features: Tensor
    values: np.ndarray
    objective: str
    gains: Tensor
    noise: Tensor
    prior: Tensor
    coefficients: Mapping[str, Tensor]
    held_out: Tensor
    temperatures: Mapping[str, float] = field(default_factory=dict)
    network_temperatures: Mapping[str, float] = field(default_factory=dict)
    std_scale: float = 1.0
    others: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def fit(
        cls, graph_features: LatencyFeatures, features: Tensor, values: np.ndarray, objective: str
    ) -> LatencySurrogate:
        """Fit a surrogate to labelled networks.

        Args:
            graph_features: definition of the D features.
            features: features of M labelled networks, float64 [M, D].
            values: their latencies, float64 [M].
            objective: name of the latency.
        """
        features, values = features.float().double(), values.astype(np.float32).astype(float)
        names, models = kernel_names(graph_features), models_of(graph_features)
        used = torch.tensor([[float(name in model) for name in names] for model in models]).double()
        selected = np.random.default_rng(0).permutation(len(values))[:MAX_FIT_LABELS]
        kernels = kernels_between(features[selected], features[selected], graph_features)
        targets, scales = relative_targets(values)
        gains, noise = fit_gains(kernels, used, targets[selected], scales[selected])
        transferred = [any(group.startswith(TRANSFER) for group in model) for model in models]
        prior = [
            TRANSFER_PRIOR if transfers and CRITICAL not in model else 1.0
            for transfers, model in zip(transferred, models, strict=True)
        ]
        gains, noise, priors = (t.float().double() for t in (gains, noise, torch.tensor(prior)))
        none = torch.empty(0, len(values), dtype=torch.float64)
        unfitted = cls(graph_features, features, values, objective, gains, noise, priors, {}, none)
        return unfitted.conditioned(features, values)

    def conditioned(self, features: Tensor, values: np.ndarray) -> LatencySurrogate:
        """Return a surrogate of other labels with the same gains and noise, which takes milliseconds.

        Args:
            features: features of M labelled networks, float64 [M, D].
            values: their latencies, float64 [M].
        """
        features, values = features.float().double(), values.astype(np.float32).astype(float)
        coefficients, held_out = {}, []
        for mode, columns in self.graph_features.costs.items():
            costs, groups = features[:, columns].numpy(), self.graph_features.cost_groups(mode)
            coefficients[mode] = torch.from_numpy(fit_nonnegative(costs, values, groups)).float().double()
            held_out.append(torch.from_numpy(predict_held_out(costs, values, groups)).float().double())
        stacked = torch.stack(held_out) if held_out else torch.empty(0, len(values), dtype=torch.float64)
        return replace(self, features=features, values=values, coefficients=coefficients, held_out=stacked)

    def extended(self, features: Tensor, values: np.ndarray) -> LatencySurrogate:
        """Return a surrogate with further labels, and the same gains, noise and sums of costs.

        The Gaussian processes learn from the further labels. The sums of costs, which were not fitted to
        them, predict them as they are.

        Args:
            features: features of M labelled networks, of which the first ones are those of this surrogate,
                float64 [M, D].
            values: their latencies, float64 [M].
        """
        features, values = features.float().double(), values.astype(np.float32).astype(float)
        further = torch.from_numpy(self.sums_of_costs(features[len(self.values) :])).float().double()
        held_out = torch.cat([self.held_out, further], 1)
        return replace(self, features=features, values=values, held_out=held_out)

    def without_unlikely_models(self) -> LatencySurrogate:
        """Return a surrogate without the Gaussian processes whose weight is below `MIN_WEIGHT`."""
        kept = np.flatnonzero(self.weights[: len(self.gains)] >= MIN_WEIGHT)
        return replace(self, gains=self.gains[kept], noise=self.noise[kept], prior=self.prior[kept])

    @property
    def objectives(self) -> tuple[str, ...]:
        """The name of the latency."""
        return (self.objective,)

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """All labels of the M networks by name, float64 [M], NaN where a network has none."""
        return {**self.others, self.objective: self.values}

    def without(self, objectives: Sequence[str]) -> LatencySurrogate | None:
        """Return this surrogate, or None if its latency is one of the objectives."""
        return None if self.objective in objectives else self

    @cached_property
    def for_other_networks(self) -> LatencySurrogate:
        """The sums of costs alone, for networks that are not of the labelled ones' space.

        They extrapolate, the Gaussian processes and known devices do not. Intervals are wider by
        `OTHER_NETWORKS_STD`.
        """
        none = slice(0, 0)
        return replace(
            self,
            gains=self.gains[none],
            noise=self.noise[none],
            prior=self.prior[none],
            temperatures={self.objective: 1.0},
            network_temperatures={self.objective: WITHOUT_NETWORK},
            std_scale=OTHER_NETWORKS_STD,
        )

    @cached_property
    def evidence(self) -> LeaveOneOutEvidence:
        """How well each labelled network is predicted from the others."""
        return LeaveOneOutEvidence.of(np.exp(self.log_left_out), self.values)

    @property
    def log_left_out(self) -> np.ndarray:
        """The logarithm of each label, predicted from the others, float64 [M]."""
        return self._left_out[0]

    @property
    def left_out_stds(self) -> np.ndarray:
        """Standard deviations of `log_left_out`, float64 [M]."""
        return self._left_out[1] * self._std_factor

    @cached_property
    def _used_kernels(self) -> tuple[Tensor, list[str]]:
        """Which kernels a Gaussian process uses, bool [G], and their names."""
        used = self.gains.any(0)
        names = kernel_names(self.graph_features)
        return used, [name for name, is_used in zip(names, used.tolist(), strict=True) if is_used]

    @cached_property
    def _fitted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Alpha [V, M], inverse kernel matrices with noise [V, M, M], and variances [V]."""
        targets, scales = relative_targets(self.values)
        used, names = self._used_kernels
        kernels = kernels_between(self.features, self.features, self.graph_features, names)
        matrices = with_noise(self.gains[:, used], kernels, self.noise, scales)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrices))
        alpha = inverse @ targets
        return alpha, inverse, (alpha @ targets / len(targets)).clamp(min=NOISE_FLOOR)

    @cached_property
    def _left_out_by_model(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the log of each label, from the others, each [V + W + R, M]."""
        alpha, inverse, variance = self._fitted
        diagonal = inverse.diagonal(dim1=1, dim2=2)
        means = relative_targets(self.values)[0] - alpha / diagonal
        logs = self._logarithms(means, (variance[:, None] / diagonal).sqrt())
        return self._with_others(*logs, self.held_out.numpy(), self._nearest.left_out)

    def _with_others(
        self, means: np.ndarray, stds: np.ndarray, sums: np.ndarray, by_devices: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Append other models to means and standard deviations of logarithms, each [V, N].

        Args:
            means: means of the Gaussian processes.
            stds: their standard deviations.
            sums: sums of costs, [W, N].
            by_devices: logarithms that follow from the nearest devices, [R, N].
        """
        floor = np.log(self._floor)
        held_out = np.log(np.maximum(self.held_out.numpy(), self._floor))
        logs = np.concatenate([np.log(np.maximum(sums, self._floor)), np.maximum(by_devices, floor)])
        left_out = np.concatenate([held_out, self._nearest.left_out])
        errors = ((left_out - np.log(self.values)) ** 2).mean(1, keepdims=True) ** 0.5 + NOISE_FLOOR
        return np.concatenate([means, logs]), np.concatenate([stds, np.broadcast_to(errors, logs.shape)])

    @cached_property
    def _nearest(self) -> NearestDevices:
        """Regressions on the nearest devices; none for networks of another space."""
        return NearestDevices(self._source_features(self.features), np.log(self.values))

    def _source_features(self, features: Tensor) -> np.ndarray:
        """Return the predictions of the sources, without those for networks of another space: [N, S]."""
        columns = self.graph_features.source_columns if len(self.gains) else []
        return features[:, columns].numpy()

    @property
    def _floor(self) -> float:
        """Smallest latency that is predicted."""
        return float(self.values.min() / 2)

    @cached_property
    def weights(self) -> np.ndarray:
        """Weight of each Gaussian process, sum of costs and nearest device, float64 [V + W + R]."""
        of_devices = TRANSFER_PRIOR / np.arange(1, len(self._nearest.columns) + 1)
        priors = np.concatenate([self.prior.numpy(), np.ones(len(self.held_out)), of_devices])
        errors = (self._left_out_by_model[0] - np.log(self.values)).clip(-MAX_LOG_ERROR, MAX_LOG_ERROR)
        return pseudo_bma_weights(errors, priors, TRUST)

    @cached_property
    def _left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the logarithm of each label, from the others, each [M]."""
        return self._mixture(*self._left_out_by_model)

    @cached_property
    def _std_factor(self) -> float:
        """Factor of the standard deviations, so that they fit the errors of labels that are left out."""
        mean, std = self._left_out
        return std_factor(np.log(self.values) - mean, std)

    def _logarithms(self, means: Tensor, stds: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of log latencies from those of targets, each [V, N]."""
        scale = float(self.values.mean())
        means = means.clamp(min=self._floor / scale)
        return (means * scale).log().numpy(), (stds / means).clamp(max=MAX_LOG_STD).numpy()

    def _mixture(self, means: np.ndarray, stds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the mixture of all models, each [N]."""
        return mixture(self.weights, means, stds, self._left_out_stds)

    @cached_property
    def _left_out_stds(self) -> np.ndarray:
        """Median standard deviation of the logarithm of a label that each model predicts, [V + W + R]."""
        median: np.ndarray = np.median(self._left_out_by_model[1], 1)
        return median

    def predict(self, features: Tensor, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of the latency of N networks.

        Args:
            features: features of the networks, float64 [N, D].
            objective: the name of the latency.
        """
        size = max(1, MAX_KERNEL_ELEMENTS // len(self.values))
        parts = [self._posteriors(chunk) for chunk in features.split(size)]
        means, stds = (torch.cat(tensors, 1) for tensors in zip(*parts, strict=True))
        logs = self._logarithms(means, stds)
        by_devices = self._nearest.predict(self._source_features(features))
        mean, std = self._mixture(*self._with_others(*logs, self.sums_of_costs(features), by_devices))
        temperature = self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE)
        return PredictiveDistribution(
            LogTransform(), mean, std * self._std_factor * self.std_scale, temperature
        )

    def sums_of_costs(self, features: Tensor) -> np.ndarray:
        """Return the sum of costs of N networks in each mode of execution, float64 [W, N].

        Args:
            features: features of the networks, float64 [N, D].
        """
        sums = [
            self.coefficients[mode][0] + features[:, columns] @ self.coefficients[mode][1:]
            for mode, columns in self.graph_features.costs.items()
        ]
        return torch.stack(sums).numpy() if sums else np.empty((0, len(features)))

    def _posteriors(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and standard deviations of the noisy targets of N networks, each [V, N]."""
        alpha, inverse, variance = self._fitted
        used, names = self._used_kernels
        kernels = kernels_between(features, self.features, self.graph_features, names)
        priors = kernel_diagonals(features, self.graph_features)[used]
        means, stds = torch.empty(2, len(self.gains), len(features), dtype=features.dtype)
        for k, gains in enumerate(self.gains[:, used]):
            kernel = torch.tensordot(gains, kernels, 1)
            mean = kernel @ alpha[k]
            unexplained = (gains @ priors - ((kernel @ inverse[k]) * kernel).sum(1)).clamp(min=0)
            noise = self.noise[k] * mean.clamp(min=MIN_SCALE).square()
            means[k] = mean
            stds[k] = (variance[k] * (unexplained + noise)).sqrt()
        return means, stds

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return tensors_of_sources(self.graph_features.sources) | {
            **tensors_of_labels(self.others),
            "mean": torch.tensor(self.graph_features.mean),
            "std": torch.tensor(self.graph_features.std),
            "components": torch.tensor(self.graph_features.components),
            "features": self.features.float(),
            "values": torch.tensor(self.values).float(),
            "gains": self.gains.float(),
            "noise": self.noise.float(),
            "prior": self.prior.float(),
            "held_out": self.held_out.float(),
            **{f"coefficients.{mode}": values.float() for mode, values in self.coefficients.items()},
        }

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON: kind, names, temperatures and evidence."""
        return {
            "kind": "latency",
            "features": self.graph_features.names,
            "costs": self.graph_features.cost_names,
            "sources": [source.graph_features.names for source in self.graph_features.sources],
            "objective": self.objective,
            "others": list(self.others),
            "temperatures": dict(self.temperatures),
            "network_temperatures": dict(self.network_temperatures),
            "evidence": asdict(self.evidence),
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> LatencySurrogate:
        """Make a surrogate from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        names, costs, source_names = description["features"], description["costs"], description["sources"]
        if not all(isinstance(name, str) for name in (*names, *costs, description["objective"])):
            raise ValueError(f"one of {names}, {costs} and {description['objective']} is not a name")
        sources = sources_from_saved(tensors, source_names)
        if "components" not in tensors:
            raise ValueError(
                f"the surrogate of {description['objective']} is of an older version: fit it again to its"
                " measurements"
            )
        num_components = tensors["components"].shape[-1] if tensors["components"].dim() else 0
        shapes_of_features = {"mean": (len(names),), "std": (len(names),)}
        check_shapes(tensors, {**shapes_of_features, "components": (len(sources), num_components)})
        mean, std, components = (tensors[name].double().numpy() for name in ("mean", "std", "components"))
        graph_features = LatencyFeatures(tuple(names), mean, std, tuple(costs), sources, components)
        m, v = len(tensors.get("values", ())), len(tensors.get("noise", ()))
        g, d = len(kernel_names(graph_features)), graph_features.num_features
        counts = {mode: len(columns) + 1 for mode, columns in graph_features.costs.items()}
        shapes: dict[str, tuple[int, ...]] = {
            f"coefficients.{mode}": (count,) for mode, count in counts.items()
        }
        shapes |= {"features": (m, d), "values": (m,), "gains": (v, g), "noise": (v,), "prior": (v,)}
        check_shapes(tensors, shapes | {"held_out": (len(counts), m)})
        positive = ("std", "values", "noise", "prior")
        if not (m and v) or not all((tensors[name] > 0).all() for name in positive):
            raise ValueError(f"one of {', '.join(positive)} is empty or not above 0")
        finite = (*shapes, "mean", "std", "components", "held_out")
        if not all(tensors[name].isfinite().all() for name in finite) or (tensors["gains"] < 0).any():
            raise ValueError(f"one of {', '.join(finite)} is not finite, or a gain is below 0")
        temperatures, network_temperatures = description["temperatures"], description["network_temperatures"]
        if not all(0 < t < np.inf for t in (*temperatures.values(), *network_temperatures.values())):
            raise ValueError("a temperature is not above 0")
        return cls(
            graph_features,
            tensors["features"].double(),
            tensors["values"].double().numpy(),
            description["objective"],
            tensors["gains"].double(),
            tensors["noise"].double(),
            tensors["prior"].double(),
            {mode: tensors[f"coefficients.{mode}"].double() for mode in counts},
            tensors["held_out"].double(),
            dict(temperatures),
            dict(network_temperatures),
            others=labels_from_saved(tensors, description, m),
        )
