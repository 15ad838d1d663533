"""Zero-label surrogates: predictions for a space without labels, from other spaces and from costs.

The network of a model ranks the architectures of a space that it has not seen worse than their costs do. What
carries over better: wider, deeper and costlier architectures are the more accurate ones of their space, and
so are those that surrogates of other spaces predict from features standardised within this space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data import synthetic
from nas_rlm.data.objective_kinds import is_accuracy, kind_of
from nas_rlm.surrogates.features import MAX_CHAIN_LENGTH, MIN_RELATIVE_STD, FeatureSource, source_predictions
from nas_rlm.surrogates.graph_surrogate import ACCURACY, LATENCY_PREFIX, GraphSurrogate
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK, NormalScoreTransform, PredictiveDistribution
from nas_rlm.text import from_architectures
from search_spaces import SearchSpace

RawFeatures = Sequence[Mapping[str, float]]
NUM_LABELS_TO_LEARN = 20  # that messages suggest
NUM_RANDOM_NETWORKS = 200  # of a space, that features are standardised on
CONVOLUTIONS = ("convs", "pointwise", "depthwise")  # raw features that count operators
# Weights of standardised features of an accuracy. They were chosen for the worst of seven benchmarks.
ACCURACY_WEIGHTS = {"size": 1.0, "flops": 0.25, "params": 0.25}
# Of networks that need not be of one space, where width and depth say less.
UNRELATED_WEIGHTS = {"flops": 1.0, "params": 1.0, "activations": 1.0}
LATENCY_WEIGHTS = {"flops": 1.0, "activations": 0.25}  # other spaces rank latencies worse than FLOPs do
SOURCES_WEIGHT = 0.5  # of the mean prediction of the sources of an accuracy
TRANSFER_CORRELATION = 0.6  # assumed between predicted and true normal scores


def log_size(raw_features: Mapping[str, float]) -> float:
    """Return the logarithm of a network's width times its depth.

    The width is the geometric mean over resolutions of the mean number of activations of a convolution. The
    depth is the number of convolutions between input and output. In a network without convolutions, matrix
    products count instead.

    Args:
        raw_features: raw features of the network, see `nas_rlm.data.synthetic.graph_features`.
    """
    sums: dict[str, dict[str, list[float]]] = {"Conv": {}, "Mat": {}}  # activations and layers by resolution
    for name, value in raw_features.items():
        layer, separator, cost = name.partition(":")
        kind = "Conv" if layer.startswith("Conv") else "Mat" if layer.startswith(("Gemm", "MatMul")) else ""
        if separator and kind and cost in ("activations", "number"):
            stage = sums[kind].setdefault(layer.partition("@")[2], [0.0, 0.0])
            stage[cost == "number"] += value
    stages = [stage for stage in (sums["Conv"] or sums["Mat"]).values() if min(stage) > 0]
    width = sum(math.log(activations / number) for activations, number in stages) / max(1, len(stages))
    depth = sum(raw_features.get(kind, 0.0) for kind in CONVOLUTIONS) or sum(number for _, number in stages)
    return width + math.log(max(1.0, depth))


@dataclass(frozen=True)
class ZeroLabelFeatures:
    """Standardised costs and the mean prediction of source surrogates.

    Args:
        weights: weight of each of C standardised costs by name.
        mean: their means over the networks of a space, float64 [C].
        std: their standard deviations, float64 [C]; infinite for a cost that does not vary.
        sources: surrogates of other spaces.
    """

    weights: Mapping[str, float]
    mean: np.ndarray
    std: np.ndarray
    sources: tuple[FeatureSource, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the costs."""
        return tuple(self.weights)

    @classmethod
    def fit(
        cls, weights: Mapping[str, float], raw_features: RawFeatures, sources: Sequence[FeatureSource]
    ) -> ZeroLabelFeatures:
        """Fit the standardisation to the raw features of networks of a space."""
        values = _costs(raw_features, tuple(weights))
        std = values.std(0)
        std[std <= MIN_RELATIVE_STD * np.maximum(1, np.abs(values.mean(0)))] = np.inf
        return cls(weights, values.mean(0), std, tuple(sources))

    def transform(self, raw_features: RawFeatures) -> Tensor:
        """Return the weighted sum of the costs, and the mean prediction of the sources: float64 [N, 2].

        Args:
            raw_features: raw features of N networks.
        """
        values = (_costs(raw_features, tuple(self.weights)) - self.mean) / self.std
        weighted = torch.from_numpy(values @ np.array([*self.weights.values()]))
        predictions = [*source_predictions(self.sources, raw_features)] if len(raw_features) else []
        mean = torch.stack(predictions).mean(0) if predictions else torch.zeros_like(weighted)
        return torch.stack([weighted, mean], 1)


@dataclass(frozen=True)
class ZeroLabelSurrogate:
    """A surrogate of one objective in a space without labels.

    Its values have the distribution of the labels of other spaces, so only their order is informative.

    Args:
        graph_features: definition of the two features.
        coefficients: coefficients of the features, which give the scores unit variance, float64 [2].
        offset: mean of the scores before it is subtracted.
        transform: transform between normal scores and labels of other spaces.
        objective: name of the objective.
        spaces: names of the spaces whose surrogates it uses.
    """

    graph_features: ZeroLabelFeatures
    coefficients: Tensor
    offset: float
    transform: NormalScoreTransform
    objective: str
    spaces: tuple[str, ...]
    temperatures: Mapping[str, float] = field(default_factory=dict)

    @property
    def objectives(self) -> tuple[str, ...]:
        """The name of the objective."""
        return (self.objective,)

    @property
    def network_temperatures(self) -> dict[str, float]:
        """The network does not take part."""
        return {self.objective: WITHOUT_NETWORK}

    def predict(self, features: Tensor, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of the objective of N networks.

        Args:
            features: features of the networks, float64 [N, 2].
            objective: the name of the objective.
        """
        mean = (TRANSFER_CORRELATION * (features @ self.coefficients - self.offset)).numpy()
        std = np.full(len(mean), (1 - TRANSFER_CORRELATION**2) ** 0.5)
        return PredictiveDistribution(self.transform, mean, std)

    @property
    def basis(self) -> str:
        """What the predictions rest on, for messages."""
        costs = [name for name in self.graph_features.weights if name != "size"]
        names = [f"surrogates of {', '.join(self.spaces)}"] if self.spaces else []
        names += ["width and depth"] if "size" in self.graph_features.weights else []
        readable = {"flops": "FLOPs", "params": "parameters"}
        names += [readable.get(name, name) for name in costs]
        return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def can_transfer(objective: str) -> bool:
    """Return whether an objective can be predicted in a space without labels: an accuracy or a latency."""
    return is_accuracy(objective) or objective.startswith(LATENCY_PREFIX)


def zero_label_surrogate(
    space: str,
    raw_features: RawFeatures,
    existing: Mapping[str, Sequence[GraphSurrogate]],
    objective: str = ACCURACY,
) -> ZeroLabelSurrogate | None:
    """Return a surrogate for a space without labels of an accuracy or a latency.

    Args:
        space: name of the space; empty for networks that need not be of one space.
        raw_features: raw features of random networks of the space; ignored without a space.
        existing: surrogates by space.
        objective: the objective.

    Returns:
        The surrogate, or None where no other space has labels of the objective.
    """
    found = source_labels(space, existing, objective)
    if not found or not can_transfer(objective):
        return None
    sources: dict[str, FeatureSource] = {}
    if space and is_accuracy(objective):
        # Another accuracy in the same space ranks better than costs and other spaces do.
        selected = {space: found[space]} if space in found else found
        for name, (surrogate, label) in selected.items():
            if (source := surrogate.source_for_space(label, raw_features)) is not None:
                sources[name] = source
    if not space:
        features = _features_of_unrelated_networks([surrogate for surrogate, _ in found.values()])
    else:
        weights = ACCURACY_WEIGHTS if is_accuracy(objective) else LATENCY_WEIGHTS
        weights = {} if space in sources else weights
        features = ZeroLabelFeatures.fit(weights, raw_features, tuple(sources.values()))
    coefficients = torch.tensor([1.0, SOURCES_WEIGHT], dtype=torch.float64)
    offset = 0.0
    if space:
        values = features.transform(raw_features)
        std = values.std(0, correction=0)
        coefficients[0] /= max(float(std[0]), MIN_RELATIVE_STD)
        scores = values @ coefficients
        scale = max(float(scores.std(correction=0)), MIN_RELATIVE_STD)
        coefficients, offset = coefficients / scale, float(scores.mean()) / scale
    else:
        coefficients[0] /= sum(UNRELATED_WEIGHTS.values())
    labels = [surrogate.transforms[label].observed for surrogate, label in found.values()]
    kind = kind_of(objective)
    transform = NormalScoreTransform(np.concatenate(labels), kind.maximum, minimum=kind.minimum)
    return ZeroLabelSurrogate(features, coefficients, offset, transform, objective, tuple(sources))


def _features_of_unrelated_networks(surrogates: Sequence[GraphSurrogate]) -> ZeroLabelFeatures:
    """Return the costs of networks of any space, standardised over the networks of several spaces."""
    weights, moments = {}, []
    for name, weight in UNRELATED_WEIGHTS.items():
        found = [
            (s.graph_features.mean[k], s.graph_features.std[k])
            for s in surrogates
            if name in s.graph_features.names
            for k in [s.graph_features.names.index(name)]
        ]
        if found:
            means, stds = np.array(found).T
            weights[name] = weight
            moments.append((means.mean(), np.sqrt((stds**2).mean() + means.var())))
    mean, std = np.array(moments).reshape(-1, 2).T
    return ZeroLabelFeatures(weights, mean, std)


def zero_label_surrogates(
    space: SearchSpace[Any] | None,
    objectives: Sequence[str],
    existing: Mapping[str, Sequence[GraphSurrogate]],
) -> list[ZeroLabelSurrogate]:
    """Return surrogates of the objectives that other spaces have labels of.

    Args:
        space: the space without labels; None for networks that need not be of one space.
        objectives: objectives without labels in the space.
        existing: surrogates by space.
    """
    name = space.name if space else ""
    transferred = [o for o in objectives if can_transfer(o) and source_labels(name, existing, o)]
    raw_features = random_raw_features(space) if space and transferred else []
    found = [zero_label_surrogate(name, raw_features, existing, objective) for objective in transferred]
    return [surrogate for surrogate in found if surrogate is not None]


def zero_label_messages(
    space: str, surrogates: Sequence[ZeroLabelSurrogate], location: str = ""
) -> list[str]:
    """Return what predictions without labels rest on, and what improves them.

    Args:
        space: name of the space; empty for networks that need not be of one space.
        surrogates: the surrogates that predict.
        location: location of a user's own space, see `search_spaces.location_of`.
    """
    messages = []
    for basis in dict.fromkeys(surrogate.basis for surrogate in surrogates):
        names = ",".join(surrogate.objective for surrogate in surrogates if surrogate.basis == basis)
        where = space or "networks without a space"
        message = f"no labels of {names} for {where}: the ranking rests on {basis}; values are unreliable."
        if not space:
            messages.append(f"{message} Name the space if the model knows it")
            continue
        own = f" --space {location}" if location else ""
        propose = f"nas-rlm propose --space {location or space} --objectives {names}"
        finetune = f"nas-rlm finetune --data TABLE --objectives {names} --learn none{own} --out MODEL"
        messages.append(
            f"{message} Labels of {NUM_LABELS_TO_LEARN} architectures improve it:"
            f" {propose} --count {NUM_LABELS_TO_LEARN}, then {finetune}"
        )
    return messages


def source_labels(
    space: str, existing: Mapping[str, Sequence[GraphSurrogate]], objective: str
) -> dict[str, tuple[GraphSurrogate, str]]:
    """Return the surrogates that serve as sources of an objective, and the objective that each predicts.

    They predict the same objective in other spaces. For an accuracy such as `accuracy/mydata`, `accuracy` is
    the next choice, then also in this space.

    Args:
        space: name of the space without labels.
        existing: surrogates by space.
        objective: the objective.
    """
    names = [objective, ACCURACY] if is_accuracy(objective) else [objective]
    found: dict[str, tuple[GraphSurrogate, str]] = {}
    for other, surrogates in existing.items():
        by_objective = {name: surrogate for surrogate in surrogates for name in surrogate.objectives}
        label = next((name for name in names if name in by_objective), None)
        if label is not None and not (other == space and label == objective):
            found[other] = by_objective[label], label
    return found


def random_raw_features(space: SearchSpace[Any]) -> list[dict[str, float]]:
    """Return the raw features of random networks of a space.

    Args:
        space: the space.
    """
    count = min(NUM_RANDOM_NETWORKS, max(1, space.size // 2)) if space.size else NUM_RANDOM_NETWORKS
    architectures = synthetic.distinct_architectures(space, count)
    texts = from_architectures(space, list(architectures.values()))
    return synthetic.graph_features_of_texts(texts, MAX_CHAIN_LENGTH)


def _costs(raw_features: RawFeatures, names: Sequence[str]) -> np.ndarray:
    """Return the logarithms of the named costs, float64 [N, C]."""
    values = [
        [log_size(raw) if name == "size" else math.log1p(raw.get(name, 0.0)) for name in names]
        for raw in raw_features
    ]
    return np.array(values, dtype=float).reshape(len(raw_features), len(names))
