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
from nas_rlm.surrogates.latency_features import CLASSES
from nas_rlm.surrogates.layer_calibration import (
    FamilyEvidence,
    LeftOutPredictions,
    factor_weights,
    predicted_stds,
    spread,
)
from nas_rlm.surrogates.layer_costs import choose_free_share, fit_coefficients
from nas_rlm.surrogates.layer_network import (
    NUM_EPOCHS,
    SMALLEST,
    WIDTH,
    LayerCounts,
    LayerNetwork,
    describe,
    fit_layer_network,
    terms_by_type,
)
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    MIN_LABELS,
    LogTransform,
    PredictiveDistribution,
)
from nas_rlm.utils.progress import progress_bar

KNOWN_QUANTILE = 0.95  # of the labelled networks' leverages, up to which a network counts as known
RIDGE = 1e-2  # of the covariances of hidden values
NUM_FOLDS = 10  # of the cross-validation over families
MAX_FOLD_NETWORKS, NUM_FOLD_EPOCHS = 4000, 12
HELD_OUT_SHARE = 0.1  # that the strength of the factors is chosen on
CONSTANT = "constant"  # type of the layer with the latency that does not depend on the layers
CALIBRATION = ("threshold", "strength", "std", "exponent", "known std", "strength for unlike networks")
ARRAYS = ("coefficients", "constants", "hidden_mean", "hidden_std", "precision", "calibration")


@dataclass(frozen=True)
class _HeldOut:
    """How surrogates predict networks that they were not fitted to.

    Args:
        shares: shares of free coefficients, chosen on families left out, float64 [K].
        strengths: strengths of the factors of known networks, float64 [K].
        unlike: strength for unlike networks, relative to those.
        known_errors: errors of log latencies of single networks that were left out, float64 [H, K].
        known_novelties: their novelties, float64 [H, K].
        left_out: predictions of all networks without their families.
    """

    shares: np.ndarray
    strengths: np.ndarray
    unlike: float
    known_errors: np.ndarray
    known_novelties: np.ndarray
    left_out: LeftOutPredictions

    def errors(self, latencies: np.ndarray) -> np.ndarray:
        """Return the errors of log latencies of all networks without their families, float64 [N, K]."""
        return self.left_out.errors(self.strengths, self.unlike, latencies)

    def with_strengths(self, surrogate: LayerSurrogate) -> LayerSurrogate:
        """Return a surrogate with these strengths of the factors."""
        return surrogate._with_strengths(self.strengths, self.unlike)


def families_and_folds(groups: Sequence[str], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the family of each of N networks, and the fold in which it is left out, int64 [N].

    Args:
        groups: names of the networks' families; if empty each network is a family.
        count: number N of networks.
    """
    families = np.unique([*groups] if groups else np.arange(count), return_inverse=True)[1]
    return families, (np.random.default_rng(0).permutation(families.max() + 1) % NUM_FOLDS)[families]


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

    @classmethod
    def fit(
        cls, texts: Sequence[str], values: Mapping[str, np.ndarray], groups: Sequence[str] = ()
    ) -> LayerSurrogate:
        """Fit a surrogate to measured networks.

        Args:
            texts: texts of N networks.
            values: latencies above 0 by objective, float64 [N], NaN where a network is not measured.
            groups: names of the N networks' families, which the intervals are calibrated across. By default
                each network is a family.
        """
        return cls.fit_counts(LayerCounts.of_texts(texts), values, groups)

    @classmethod
    def fit_counts(
        cls, counts: LayerCounts, values: Mapping[str, np.ndarray], groups: Sequence[str] = ()
    ) -> LayerSurrogate:
        """Fit a surrogate to the layers of N measured networks; other arguments as for `fit`."""
        latencies, count, names = np.stack([*values.values()], 1), len(counts.ends), tuple(values)
        families, _ = families_and_folds(groups, count)
        held_out = cls._held_out(names, counts, latencies, groups)
        fitted = cls._fit(names, counts, latencies, np.arange(count), NUM_EPOCHS, held_out.shares)
        errors, novelties = held_out.errors(latencies), held_out.left_out.novelties
        calibration, evidence = held_out.with_strengths(fitted).calibration, {}
        for k, name in enumerate(names):
            is_measured, is_predicted = np.isfinite(latencies[:, k]), np.isfinite(errors[:, k])
            evidence[name] = FamilyEvidence.of(errors[:, k], families[is_measured])
            if is_predicted.any():
                is_known = np.isfinite(held_out.known_errors[:, k])
                calibration[k, 2:5] = spread(
                    *(errors[is_predicted, k], novelties[is_predicted, k]),
                    *(held_out.known_errors[is_known, k], held_out.known_novelties[is_known, k]),
                )
        return replace(fitted, calibration=calibration, evidence=evidence)

    @classmethod
    def errors_of_left_out(
        cls, counts: LayerCounts, values: Mapping[str, np.ndarray], groups: Sequence[str]
    ) -> np.ndarray:
        """Return the errors of log latencies by surrogates without each family, float64 [N, K].

        The evidence of a fitted surrogate sums them up. They are NaN where they are not known. Arguments are
        those of `fit_counts`; `families_and_folds` has the parts that are left out.
        """
        latencies = np.stack([*values.values()], 1)
        return cls._held_out(tuple(values), counts, latencies, groups).errors(latencies)

    @classmethod
    def _held_out(
        cls, names: tuple[str, ...], counts: LayerCounts, latencies: np.ndarray, groups: Sequence[str]
    ) -> _HeldOut:
        """Return predictions of networks and of families that surrogates were fitted without."""
        count = len(counts.ends)
        families, folds = families_and_folds(groups, count)
        is_held_out = np.random.default_rng(0).random(count) < HELD_OUT_SHARE
        shares = cls._free_shares(counts, latencies, families, folds)
        part = cls._fit_part(names, counts, latencies, ~is_held_out, shares)
        strengths, held_out = part._strengths(counts, latencies, is_held_out), np.flatnonzero(is_held_out)
        known, novelties = part._with_strengths(strengths)._predict(counts.select(held_out))
        left_out = cls._leave_families_out(names, counts, latencies, folds, shares)
        unlike = left_out.best_strength(strengths, latencies, families)
        known_errors = known - np.log(latencies[held_out])
        return _HeldOut(shares, strengths, unlike, known_errors, novelties, left_out)

    @classmethod
    def _leave_families_out(
        cls,
        names: tuple[str, ...],
        counts: LayerCounts,
        latencies: np.ndarray,
        folds: np.ndarray,
        shares: np.ndarray,
    ) -> LeftOutPredictions:
        """Return the predictions of each network by surrogates without its family.

        They are NaN where a device has too few labels in other families.
        """
        found = LeftOutPredictions(*(np.full_like(latencies, np.nan) for _ in range(3)))
        for fold in progress_bar(range(NUM_FOLDS), "leave families out", unit="fold", delay=2):
            is_left_out = folds == fold
            if not is_left_out.any() or is_left_out.all():
                continue
            part = cls._fit_part(names, counts, latencies, ~is_left_out, shares)
            is_known = np.isfinite(latencies[~is_left_out]).sum(0) >= MIN_LABELS
            cells = np.ix_(np.flatnonzero(is_left_out), np.flatnonzero(is_known))
            by_costs, by_factors, hidden = part._sums(counts)
            found.by_costs[cells], found.by_factors[cells] = by_costs[cells], by_factors[cells]
            found.novelties[cells] = part._novelties(hidden)[cells]
        return found

    def _with_strengths(self, strengths: np.ndarray, unlike: float = 0.0) -> LayerSurrogate:
        """Return a copy with other strengths of the factors, float64 [K], and for unlike networks."""
        calibration = self.calibration.copy()
        calibration[:, 1], calibration[:, 5] = strengths, unlike * strengths
        return replace(self, calibration=calibration)

    @staticmethod
    def _free_shares(
        counts: LayerCounts, latencies: np.ndarray, families: np.ndarray, folds: np.ndarray
    ) -> np.ndarray:
        """Return for each device the share of free coefficients, chosen on families left out, float64 [K]."""
        types = sorted({layer.type for layer in counts.layers})
        costs, shares = counts.sums(terms_by_type(counts.layers, types)), np.zeros(latencies.shape[1])
        for k in progress_bar(range(len(shares)), "choose coefficients", unit="device", delay=2):
            measured = np.flatnonzero(np.isfinite(latencies[:, k]))
            own = costs[measured], latencies[measured, k], types, families[measured], folds[measured]
            shares[k] = choose_free_share(*own)
        return shares

    @classmethod
    def _fit_part(
        cls,
        names: tuple[str, ...],
        counts: LayerCounts,
        latencies: np.ndarray,
        is_used: np.ndarray,
        shares: np.ndarray,
    ) -> LayerSurrogate:
        """Fit to at most `MAX_FOLD_NETWORKS` of the used networks, to predict others."""
        networks = np.random.default_rng(0).permutation(np.flatnonzero(is_used))[:MAX_FOLD_NETWORKS]
        return cls._fit(names, counts, latencies, networks, NUM_FOLD_EPOCHS, shares)

    @classmethod
    def _fit(
        cls,
        names: tuple[str, ...],
        counts: LayerCounts,
        latencies: np.ndarray,
        networks: np.ndarray,
        num_epochs: int,
        shares: np.ndarray,
    ) -> LayerSurrogate:
        """Fit to the given networks, without a calibration of strengths and intervals.

        Args:
            names: names of the K latencies.
            counts: layers of N networks.
            latencies: their latencies, float64 [N, K].
            networks: indices of the networks to fit to, int64 [M].
            num_epochs: passes over them.
            shares: shares of free coefficients, float64 [K].
        """
        used = {counts.layers[i].type for i in np.unique(counts.rows_of(networks)[1].numpy())}
        types = (*sorted(used), *(f"[{name}]" for name in CLASSES))
        terms = terms_by_type(counts.layers, types)
        costs, num_devices = counts.sums(terms), len(names)
        coefficients = np.zeros((num_devices, 1 + costs.shape[1]))
        for k in range(num_devices):
            measured = networks[np.isfinite(latencies[networks, k])]
            if len(measured):
                coefficients[k] = fit_coefficients(costs[measured], latencies[measured, k], types, shares[k])
        constants, own = coefficients[:, 0], coefficients[:, 1:]
        network = fit_layer_network(counts, networks, terms @ own.T, constants, latencies, num_epochs)
        empty = np.zeros((num_devices, WIDTH))
        surrogate = cls(
            names,
            types,
            own.reshape(num_devices, len(types), len(TERMS)),
            constants,
            network,
            empty,
            empty + 1,
            np.zeros((num_devices, WIDTH + 1, WIDTH + 1)),
            np.tile([np.inf, 1.0, 1.0, 0.0, 1.0, 0.0], (num_devices, 1)),
            {},
        )
        return surrogate._with_leverages(counts, networks, np.isfinite(latencies))

    def _with_leverages(
        self, counts: LayerCounts, networks: np.ndarray, is_measured: np.ndarray
    ) -> LayerSurrogate:
        """Return the surrogate with the distribution of the hidden values of its labelled networks."""
        hidden = self._sums(counts)[2]
        mean, std, precision = self.hidden_mean.copy(), self.hidden_std.copy(), self.precision.copy()
        calibration = self.calibration.copy()
        for k in range(len(self.objectives)):
            own = hidden[networks[is_measured[networks, k]], k]
            if not len(own):
                continue
            mean[k], std[k] = own.mean(0), own.std(0) + SMALLEST
            scaled = _standardised(own, mean[k], std[k])
            precision[k] = np.linalg.inv(scaled.T @ scaled / len(scaled) + RIDGE * np.eye(WIDTH + 1))
            calibration[k, 0] = np.quantile(_leverages(scaled, precision[k]), KNOWN_QUANTILE)
        return replace(self, hidden_mean=mean, hidden_std=std, precision=precision, calibration=calibration)

    @torch.inference_mode()
    def _by_layer(self, counts: LayerCounts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return latencies by costs and log factors of U layers, each [U, K], and hidden values [U, H]."""
        terms = terms_by_type(counts.layers, self.types)
        linear = terms @ self.coefficients.reshape(len(self.objectives), -1).T
        factors, hidden = self.network(torch.from_numpy(describe(counts.layers)).float())
        return linear, factors.double().numpy(), hidden.double().numpy()

    def _sums(self, counts: LayerCounts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    def _predict(self, counts: LayerCounts) -> tuple[np.ndarray, np.ndarray]:
        """Return log latencies and novelties of N networks, each float64 [N, K].

        A novelty is a leverage relative to those of labelled networks. Up to 1 a network counts as known.
        """
        by_costs, by_factors, hidden = self._sums(counts)
        novelties = self._novelties(hidden)
        return by_costs + self._factor_weights(novelties) * (by_factors - by_costs), novelties

    def _novelties(self, hidden: np.ndarray) -> np.ndarray:
        """Return the novelties of N networks from their hidden values, float64 [N, K]."""
        novelties = np.empty(hidden.shape[:2])
        for k in range(len(self.objectives)):
            scaled = _standardised(hidden[:, k], self.hidden_mean[k], self.hidden_std[k])
            novelties[:, k] = _leverages(scaled, self.precision[k]) / self.calibration[k, 0]
        return novelties

    def _factor_weights(self, novelties: np.ndarray) -> np.ndarray:
        """Return how much the log factors count for networks with the given novelties, float64 [N, K]."""
        return factor_weights(novelties, self.calibration[:, 1], self.calibration[:, 5])

    def _strengths(self, counts: LayerCounts, latencies: np.ndarray, is_used: np.ndarray) -> np.ndarray:
        """Return for each device the multiple of the log factors that fits the used networks best, [K]."""
        by_costs, by_factors, _ = self._sums(counts)
        strengths = np.zeros(len(self.objectives))
        for k in range(len(strengths)):
            used = is_used & np.isfinite(latencies[:, k])
            change = by_factors[used, k] - by_costs[used, k]
            missing = np.log(latencies[used, k]) - by_costs[used, k]
            strengths[k] = np.clip(change @ missing / max(change @ change, SMALLEST), 0, 1)
        return strengths

    def transform(self, texts: Sequence[str]) -> Tensor:
        """Return means and standard deviations of log latencies, and novelties, of N networks.

        A novelty says how unlike the labelled networks of a device a network is. Up to 1 it counts as known.
        Above `nas_rlm.surrogates.layer_calibration.MAX_NOVELTY` its factors count less, or not at all.

        Args:
            texts: texts of the networks.

        Returns:
            float64 [N, K, 3].
        """
        return self.transform_counts(LayerCounts.of_texts(texts))

    def transform_counts(self, counts: LayerCounts) -> Tensor:
        """Return the result of `transform` for the layers of N networks."""
        mean, novelties = self._predict(counts)
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
        mean, novelties = self._predict(counts)
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


def _standardised(hidden: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return a constant 1 and standardised hidden values, float64 [N, H + 1]."""
    return np.column_stack([np.ones(len(hidden)), (hidden - mean) / std])


def _leverages(scaled: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Return the leverages of N networks relative to their mean over labelled ones, float64 [N]."""
    leverages: np.ndarray = ((scaled @ precision) * scaled).sum(1) / scaled.shape[1]
    return leverages
