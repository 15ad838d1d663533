"""Latencies in a space without labels: sums of costs that are fitted to the same device in other spaces.

Surrogates of other spaces predict the latencies of random networks of theirs. A constant and four sums over
all executed operators, with coefficients of at least 0, are fitted to these: the overhead of an operator, its
multiply-accumulates, and its traffic of activations and of parameters. They extrapolate to networks of other
spaces, where Gaussian processes do not. Since a device may have been measured in another way in each table,
FLOPs count as well in the order of the networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

import search_spaces
from nas_rlm.graph.executed_layers import ALL, ANY, TERMS
from nas_rlm.surrogates.graphs.features import MIN_RELATIVE_STD, random_raw_features
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK, LogTransform, PredictiveDistribution
from search_spaces.wording import counted

# Chosen by leaving spaces out: nasbench201, fbnet, ofa_mbv3, gpt_s, gpt_m, gpt_l and networks measured here.
NUM_SOURCE_NETWORKS = 100  # random networks of each other space
NUM_BOOTSTRAP_SAMPLES = 20
FLOPS_WEIGHT = 0.25  # of standardised logarithms of FLOPs, beside those of latencies
LOG_STD = 0.5  # standard deviation of the logarithm of a latency
SMALLEST = 1e-9  # avoids division by zero and the logarithm of 0

RawFeatures = Sequence[Mapping[str, float]]


def costs_of(raw_features: RawFeatures) -> np.ndarray:
    """Return 1, the number of executed operators, their MACs, traffic and parameters, float64 [N, 5].

    The traffic is the number of elements of their inputs and outputs.

    Args:
        raw_features: raw features of N networks, with `nas_rlm.graph.executed_layers`.

    Raises:
        ValueError: none of them has executed layers.
    """
    if raw_features and not any(f"{ALL}/{ANY}:number" in raw for raw in raw_features):
        raise ValueError(
            f"{counted(len(raw_features), 'network')} without executed layers: expected raw features with"
            " them"
        )
    sums = np.array([[raw.get(f"{ALL}/{ANY}:{term}", 0.0) for term in TERMS] for raw in raw_features])
    by_term = dict(zip(TERMS, sums.reshape(-1, len(TERMS)).T, strict=True))
    number, traffic = by_term["number"], by_term["inputs"] + by_term["outputs"]
    return np.stack([np.ones(len(raw_features)), number, by_term["macs"], traffic, by_term["params"]], 1)


@dataclass(frozen=True)
class LatencyCosts:
    """The logarithm of a sum of costs, in a space blended with that of FLOPs.

    Args:
        coefficients: coefficients of `costs_of`, float64 [5].
        means: means of the logarithms of latencies and of FLOPs over random networks of the space, float64
            [2]; zeros for networks without a space.
        scales: factors of the differences from these means, float64 [2]; 1 and 0 for networks without a
            space.
    """

    coefficients: np.ndarray
    means: np.ndarray = field(default_factory=lambda: np.zeros(2))
    scales: np.ndarray = field(default_factory=lambda: np.array([1.0, 0.0]))

    def in_space(self, raw_features: RawFeatures) -> LatencyCosts:
        """Return the blend for a space, which leaves the spread of the logarithms as it is.

        Args:
            raw_features: raw features of random networks of the space.
        """
        logs = self._logs(raw_features)
        mean, std = logs.mean(0), logs.std(0)
        if std.min() <= MIN_RELATIVE_STD:
            return self
        standardised = (logs - mean) / std
        weights = np.array([1 - FLOPS_WEIGHT, FLOPS_WEIGHT])
        blended_std = max((standardised @ weights).std(), MIN_RELATIVE_STD)
        return replace(self, means=mean, scales=weights / std * std[0] / blended_std)

    def transform(self, raw_features: RawFeatures) -> Tensor:
        """Return the logarithms of the latencies of N networks, float64 [N, 1].

        Args:
            raw_features: raw features, with executed layers.
        """
        logs = self._logs(raw_features)
        return torch.from_numpy(self.means[:1] + (logs - self.means) @ self.scales[:, None])

    def _logs(self, raw_features: RawFeatures) -> np.ndarray:
        """Return the logarithms of the sum of costs and of FLOPs, float64 [N, 2]."""
        costs = costs_of(raw_features)
        return np.log(np.maximum(np.stack([costs @ self.coefficients, costs[:, 2]], 1), SMALLEST))


class OfOneObjective:
    """What surrogates have in common that predict one objective without the network."""

    objective: str

    @property
    def objectives(self) -> tuple[str, ...]:
        """The name of the objective."""
        return (self.objective,)

    @property
    def network_temperatures(self) -> dict[str, float]:
        """The network does not take part."""
        return {self.objective: WITHOUT_NETWORK}


@dataclass(frozen=True)
class ZeroLabelLatency(OfOneObjective):
    """A surrogate of a latency in a space without labels.

    Args:
        graph_features: the logarithm of the latency.
        objective: name of the latency.
        spaces: names of the spaces whose surrogates it learnt from.
    """

    graph_features: LatencyCosts
    objective: str
    spaces: tuple[str, ...]
    is_informative: bool = True
    temperatures: Mapping[str, float] = field(default_factory=dict)

    @property
    def basis(self) -> str:
        """What the predictions rest on, for messages."""
        return f"operators, FLOPs and memory traffic, as for the device on {', '.join(self.spaces)}"

    def predict(self, features: Tensor, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of the latency of N networks.

        Args:
            features: logarithms of their latencies, float64 [N, 1].
            objective: the name of the latency.
        """
        mean = features[:, 0].numpy()
        return PredictiveDistribution(LogTransform(), mean, np.full(len(mean), LOG_STD))


def zero_label_latency(
    sources: Mapping[str, tuple[GraphSurrogate, str]], objective: str, raw_features: RawFeatures
) -> ZeroLabelLatency | None:
    """Return a surrogate of a latency for a space without labels.

    Args:
        sources: for each other space its surrogate, and the name of the latency there.
        objective: name of the latency.
        raw_features: raw features of random networks of the space, with executed layers; empty for networks
            without a space.

    Returns:
        The surrogate, or None where none of the other spaces is registered.
    """
    weighted: list[np.ndarray] = []
    spaces = [name for name in sources if name in search_spaces.names()]
    for name in spaces:
        surrogate, label = sources[name]
        networks = _networks_of(name)
        latencies = surrogate.predict(surrogate.graph_features.transform(networks), label).median
        is_usable = np.isfinite(latencies) & (latencies > 0)
        costs = costs_of(networks)[is_usable] / latencies[is_usable, None]
        weighted.append(np.column_stack([costs, np.ones(len(costs))]) / max(1, len(costs)) ** 0.5)
    if not weighted:
        return None
    costs_of_space = LatencyCosts(_mean_coefficients(np.concatenate(weighted)))
    if raw_features:
        costs_of_space = costs_of_space.in_space(raw_features)
    is_informative = (
        not raw_features or float(costs_of_space.transform(raw_features).std()) > MIN_RELATIVE_STD
    )
    return ZeroLabelLatency(costs_of_space, objective, tuple(spaces), is_informative)


def _mean_coefficients(system: np.ndarray) -> np.ndarray:
    """Return the mean over bootstrap samples of the non-negative solution of a system of equations.

    Costs are nearly collinear in some spaces, so that a single solution uses an arbitrary one of them.

    Args:
        system: left-hand sides and right-hand side, float64 [M, D + 1].

    Returns:
        Coefficients, float64 [D].
    """
    from scipy.optimize import nnls  # is slow to import

    rng = np.random.default_rng(0)
    scales = np.abs(system[:, :-1]).max(0) + SMALLEST
    solutions = []
    for _ in range(NUM_BOOTSTRAP_SAMPLES):
        sample = system[rng.integers(0, len(system), len(system))]
        solutions.append(nnls(sample[:, :-1] / scales, sample[:, -1])[0] / scales)
    mean: np.ndarray = np.mean(solutions, axis=0)
    return mean


@lru_cache(maxsize=8)
def _networks_of(space: str) -> list[dict[str, float]]:
    """Return the raw features of random networks of a space, with executed layers."""
    return random_raw_features(search_spaces.get(space), NUM_SOURCE_NETWORKS, with_layers=True)
