"""Layer surrogates: latencies of networks of any family as sums over their layers, for many labels.

The latency of a layer is a non-negative combination of its costs, times a factor that a small network
predicts from the layer's description. For layers unlike those of the labelled networks the factor counts less
or is 1, as families that were left out show: costs extrapolate to networks of other families, the network
often does not. How unlike they are is the leverage of the network's hidden values, averaged over the layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.graph.executed_layers import TERMS, Layer
from nas_rlm.model.checkpoint import check_shapes
from nas_rlm.surrogates.latency.features import CLASSES
from nas_rlm.surrogates.latency.layer_calibration import (
    FamilyEvidence,
    factor_weights,
    predicted_stds,
)
from nas_rlm.surrogates.latency.layer_network import (
    SMALLEST,
    WIDTH,
    LayerCounts,
    LayerNetwork,
    describe,
    terms_by_type,
)
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    LogTransform,
    PredictiveDistribution,
)

CONSTANT = "constant"  # type of the layer with the latency that does not depend on the layers
CALIBRATION = ("threshold", "strength", "std", "exponent", "known std", "strength for unlike networks")
ARRAYS = ("coefficients", "constants", "hidden_mean", "hidden_std", "precision", "calibration")


@dataclass(frozen=True)
class LayerSurrogate:
    """Latencies of K devices as sums over layers.

    Args:
        objectives: names of the K latencies.
        types: T layer types, and their classes in brackets, for layers of other types.
        coefficients: coefficients of `nas_rlm.graph.executed_layers.TERMS`, float64 [K, T, 6].
        constants: latencies that do not depend on the layers, float64 [K].
        network: predicts the factors.
        hidden_mean: means of the averaged hidden values of labelled networks, float64 [K, H].
        hidden_std: their standard deviations, float64 [K, H].
        precision: inverse covariance of the standardised values and a constant, float64 [K, H + 1, H + 1].
        calibration: for each device the `CALIBRATION`: the leverage up to which a network counts as known,
            the strength of their factors; the standard deviation of the log latency of a network that is not
            known, and the exponent with which it grows with the leverage; the standard deviation of known
            networks; and the strength of the factors of networks unlike all known ones, float64 [K, 6].
        evidence: for each device how well families that were left out are predicted.
        temperatures: combined temperature of each objective, see `nas_rlm.surrogates.calibration`.
        network_temperatures: network temperature of each objective in combination with this surrogate.
    """

    objectives: tuple[str, ...]
    types: tuple[str, ...]
    coefficients: np.ndarray
    constants: np.ndarray
    network: LayerNetwork
    hidden_mean: np.ndarray
    hidden_std: np.ndarray
    precision: np.ndarray
    calibration: np.ndarray
    evidence: Mapping[str, FamilyEvidence]
    temperatures: Mapping[str, float] = field(default_factory=dict)
    network_temperatures: Mapping[str, float] = field(default_factory=dict)

    def with_strengths(self, strengths: np.ndarray, unlike: float = 0.0) -> LayerSurrogate:
        """Return a copy with other strengths of the factors, float64 [K], and for unlike networks."""
        calibration = self.calibration.copy()
        calibration[:, 1], calibration[:, 5] = strengths, unlike * strengths
        return replace(self, calibration=calibration)

    @torch.inference_mode()
    def _by_layer(self, counts: LayerCounts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return latencies by costs and log factors of U layers, each [U, K], and hidden values [U, H]."""
        terms = terms_by_type(counts.layers, self.types)
        linear = terms @ self.coefficients.reshape(len(self.objectives), -1).T
        factors, hidden = self.network(torch.from_numpy(describe(counts.layers)).float())
        return linear, factors.double().numpy(), hidden.double().numpy()

    def sums(self, counts: LayerCounts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log latencies by costs and with factors, each [N, K], and hidden values [N, K, H]."""
        linear, factors, hidden = self._by_layer(counts)
        by_costs, by_factors = counts.sums(linear), counts.sums(linear * np.exp(factors))
        averaged = [
            counts.sums(linear[:, k : k + 1] * hidden) / np.maximum(by_costs[:, k : k + 1], SMALLEST)
            for k in range(len(self.objectives))
        ]
        log_costs, log_factors = (
            np.log(np.maximum(total + self.constants, SMALLEST)) for total in (by_costs, by_factors)
        )
        return log_costs, log_factors, np.stack(averaged, 1)

    def log_latencies(self, counts: LayerCounts) -> tuple[np.ndarray, np.ndarray]:
        """Return log latencies and novelties of N networks, each float64 [N, K].

        A novelty is a leverage relative to those of labelled networks. Up to 1 a network counts as known.
        """
        by_costs, by_factors, hidden = self.sums(counts)
        novelties = self.novelties(hidden)
        return by_costs + self._factor_weights(novelties) * (by_factors - by_costs), novelties

    def novelties(self, hidden: np.ndarray) -> np.ndarray:
        """Return the novelties of N networks from their hidden values, float64 [N, K]."""
        novelties = np.empty(hidden.shape[:2])
        for k in range(len(self.objectives)):
            scaled = standardised(hidden[:, k], self.hidden_mean[k], self.hidden_std[k])
            novelties[:, k] = leverages(scaled, self.precision[k]) / self.calibration[k, 0]
        return novelties

    def _factor_weights(self, novelties: np.ndarray) -> np.ndarray:
        """Return how much the log factors count for networks with the given novelties, float64 [N, K]."""
        return factor_weights(novelties, self.calibration[:, 1], self.calibration[:, 5])

    def transform(self, texts: Sequence[str]) -> Tensor:
        """Return means and standard deviations of log latencies, and novelties, of N networks.

        A novelty says how unlike the labelled networks of a device a network is. Up to 1 it counts as known.
        Above `nas_rlm.surrogates.latency.layer_calibration.MAX_NOVELTY` its factors count less, or not at
        all.

        Args:
            texts: texts of the networks.

        Returns:
            float64 [N, K, 3].
        """
        return self.transform_counts(LayerCounts.of_texts(texts))

    def transform_counts(self, counts: LayerCounts) -> Tensor:
        """Return the result of `transform` for the layers of N networks."""
        mean, novelties = self.log_latencies(counts)
        std = predicted_stds(novelties, self.calibration[:, 2:5])
        return torch.from_numpy(np.stack([mean, std, novelties], 2))

    def layer_latencies(self, text: str, objective: str) -> list[tuple[Layer, int, float]]:
        """Return the layers of a network with their latencies.

        Args:
            text: text of the network.
            objective: one of this surrogate's objectives.

        Returns:
            The layers in the order of their first execution, each with the number of its executions and the
            latency of one execution in ms. A last one, of type `CONSTANT`, has the
            latency that does not depend on the layers. The latencies of all executions sum to the prediction.
        """
        k, counts = self.objectives.index(objective), LayerCounts.of_texts([text])
        linear, factors, _ = self._by_layer(counts)
        mean, novelties = self.log_latencies(counts)
        own = linear[:, k] * np.exp(self._factor_weights(novelties)[0, k] * factors[:, k])
        sum_of_layers = float(counts.counts @ own + self.constants[k])
        own = own * np.exp(mean[0, k]) / max(SMALLEST, sum_of_layers)
        constant = float(np.exp(mean[0, k]) - counts.counts @ own)
        times = counts.counts.astype(int).tolist()
        found = list(zip(counts.layers, times, own.tolist(), strict=True))
        return [*found, (Layer(CONSTANT, 0), 1, constant)]

    def predict(self, features: Tensor, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of a latency of N networks.

        Args:
            features: result of `transform`, float64 [N, K, 3].
            objective: one of this surrogate's objectives.
        """
        own = features[:, self.objectives.index(objective)].numpy()
        temperature = self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE)
        return PredictiveDistribution(LogTransform(), own[:, 0], own[:, 1], temperature, own[:, 2])

    def without(self, objectives: Sequence[str]) -> LayerSurrogate | None:
        """Return a copy without the given objectives, or None if no objective is left.

        Args:
            objectives: names of objectives, also of those that this surrogate does not predict.
        """
        kept = [k for k, name in enumerate(self.objectives) if name not in objectives]
        if len(kept) == len(self.objectives):
            return self
        if not kept:
            return None
        network = LayerNetwork(self.network.mean, self.network.std, len(kept))
        state = dict(self.network.state_dict())
        for name in ("head.weight", "head.bias"):
            state[name] = state[name][kept]
        network.load_state_dict(state)
        arrays = {name: getattr(self, name)[kept] for name in ARRAYS}
        arrays["evidence"] = {self.objectives[k]: self.evidence[self.objectives[k]] for k in kept}
        names = tuple(self.objectives[k] for k in kept)
        return replace(self, objectives=names, network=network.eval(), **arrays)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        arrays = {name: torch.from_numpy(getattr(self, name)).float() for name in ARRAYS}
        return arrays | {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON: kind and names."""
        return {
            "kind": "layers",
            "objectives": self.objectives,
            "types": self.types,
            "evidence": {name: asdict(self.evidence[name]) for name in self.objectives},
            "temperatures": dict(self.temperatures),
            "network_temperatures": dict(self.network_temperatures),
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> LayerSurrogate:
        """Make a surrogate from its `tensors` and its `description`.

        Args:
            tensors: the saved tensors by name.
            description: the saved description.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        objectives, types = description["objectives"], description["types"]
        if not all(isinstance(name, str) for name in (*objectives, *types)) or not objectives:
            raise ValueError(f"objectives {objectives} and types {types} are not all names")
        if not {f"[{name}]" for name in CLASSES} <= {*types}:
            raise ValueError(f"the types lack one of the classes {', '.join(CLASSES)}")
        k, size = len(objectives), WIDTH + 1
        zeros = torch.zeros(describe([Layer("Relu", 0)]).shape[1])
        network = LayerNetwork(zeros, zeros, k)
        shapes: dict[str, tuple[int, ...]] = {
            "coefficients": (k, len(types), len(TERMS)),
            "constants": (k,),
            "hidden_mean": (k, WIDTH),
            "hidden_std": (k, WIDTH),
            "precision": (k, size, size),
            "calibration": (k, len(CALIBRATION)),
        }
        shapes |= {f"network.{name}": tuple(t.shape) for name, t in network.state_dict().items()}
        check_shapes(tensors, shapes)
        if not all(tensors[name].isfinite().all() for name in shapes):
            raise ValueError("a number of the surrogate is not finite")
        calibration = tensors["calibration"]
        positive = tensors["hidden_std"], tensors["network.std"], calibration[:, [0, 2, 4]]
        if any((t <= 0).any() for t in positive):
            raise ValueError("a standard deviation or a leverage is not above 0")
        if any((tensors[name] < 0).any() for name in ("coefficients", "constants", "calibration")):
            raise ValueError("a coefficient or a value of the calibration is below 0")
        temperatures, network_temperatures = description["temperatures"], description["network_temperatures"]
        if not all(0 < t < np.inf for t in (*temperatures.values(), *network_temperatures.values())):
            raise ValueError("a temperature is not above 0")
        network.load_state_dict({name: tensors[f"network.{name}"] for name in network.state_dict()})
        arrays = [tensors[name].double().numpy() for name in ARRAYS]
        coefficients, constants, hidden_mean, hidden_std, precision, own = arrays
        return cls(
            tuple(objectives),
            tuple(types),
            coefficients,
            constants,
            network.eval(),
            hidden_mean,
            hidden_std,
            precision,
            own,
            {name: FamilyEvidence(**description["evidence"][name]) for name in objectives},
            dict(temperatures),
            dict(network_temperatures),
        )


def standardised(hidden: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return a constant 1 and standardised hidden values, float64 [N, H + 1]."""
    return np.column_stack([np.ones(len(hidden)), (hidden - mean) / std])


def leverages(scaled: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Return the leverages of N networks relative to their mean over labelled ones, float64 [N]."""
    leverages: np.ndarray = ((scaled @ precision) * scaled).sum(1) / scaled.shape[1]
    return leverages
