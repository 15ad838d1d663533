"""Zero-label surrogates: predictions for a space without labels, from other spaces and from costs.

The network of a model ranks the architectures of a space that it has not seen worse than their costs do. What
carries over better: wider, deeper and costlier architectures, and those with a smaller share of pooling, are
the more accurate ones of their space. So are those that surrogates of other spaces predict from features
standardised within this space, as far as they agree with the costs. Where only widths differ, FLOPs mislead,
since they are mostly those of the first layers. For latencies see `nas_rlm.surrogates.zero_label_latency`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.objective_kinds import ACCURACY, LATENCY_PREFIX, is_accuracy, kind_of
from nas_rlm.surrogates.graphs.features import (
    MIN_RELATIVE_STD,
    FeatureSource,
    is_varying,
    random_raw_features,
    source_predictions,
)
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.graphs.transfer import is_source
from nas_rlm.surrogates.predictive import NormalScoreTransform, PredictiveDistribution
from nas_rlm.surrogates.zero_label_latency import OfOneObjective, ZeroLabelLatency, zero_label_latency
from search_spaces import SearchSpace

RawFeatures = Sequence[Mapping[str, float]]
NUM_LABELS_TO_LEARN = 20  # that messages suggest
CONVOLUTIONS = ("convs", "pointwise", "depthwise")  # raw features that count operators
# Weights of costs of an accuracy: logarithms, and the share of convolutions. Chosen on seven benchmarks.
ACCURACY_WEIGHTS = {"flops": 1.0, "params": 0.5, "size": 2.0, "convolutions": 7.0}
WIDTH_WEIGHTS = {"params": 1.0, "width": 4.0}  # where depth does not vary
MIN_DEPTH_STD = 0.05  # of the logarithm of the depth, below which depth does not vary
# Of standardised costs of networks that need not be of one space, where width and depth say less.
UNRELATED_WEIGHTS = {"flops": 1.0, "params": 1.0, "activations": 1.0}
# Of standardised costs of a latency that is known in no registered space.
LATENCY_WEIGHTS = {"flops": 1.0, "activations": 0.25}
SOURCES_WEIGHT = 0.5  # of the mean prediction of the sources of an accuracy
READABLE = {
    "flops": "FLOPs",
    "params": "parameters",
    "size": "width and depth",
    "convolutions": "the share of convolutions",
}
TRANSFER_CORRELATION = 0.6  # assumed between predicted and true normal scores


def cost_values(raw_features: Mapping[str, float]) -> dict[str, float]:
    """Return the costs of a network that the accuracy follows: logarithms, and the share of convolutions.

    Args:
        raw_features: raw features of the network, see `nas_rlm.data.synthetic.graph_features`.

    Returns:
        `flops`, `params` and `activations`; `depth`, of the number of convolutions between input and output;
        `width`, of the geometric mean over convolutions of their number of activations; `size`, of depth
        times the geometric mean over resolutions of the mean number of activations; and `convolutions`, their
        share of the operators that mix positions or channels. In a network without convolutions, matrix
        products count instead.
    """
    layers: dict[str, dict[str, list[float]]] = {"Conv": {}, "Mat": {}}  # activations and number by layer
    for name, value in raw_features.items():
        layer, separator, cost = name.partition(":")
        kind = "Conv" if layer.startswith("Conv") else "Mat" if layer.startswith(("Gemm", "MatMul")) else ""
        if separator and kind and cost in ("activations", "number"):
            layers[kind].setdefault(layer, [0.0, 0.0])[cost == "number"] += value
    used = {layer: sums for layer, sums in (layers["Conv"] or layers["Mat"]).items() if min(sums) > 0}
    stages: dict[str, list[float]] = {}
    for layer, sums in used.items():
        stage = stages.setdefault(layer.partition("@")[2], [0.0, 0.0])
        stage[:] = [total + term for total, term in zip(stage, sums, strict=True)]
    num_layers = sum(number for _, number in used.values())
    num_convolutions = sum(raw_features.get(kind, 0.0) for kind in CONVOLUTIONS)
    depth = math.log(max(1.0, num_convolutions or num_layers))
    logs = [number * math.log(activations / number) for activations, number in used.values()]
    by_stage = [math.log(activations / number) for activations, number in stages.values()]
    return {
        **{name: math.log1p(raw_features.get(name, 0.0)) for name in ("flops", "params", "activations")},
        "depth": depth,
        "width": sum(logs) / max(1.0, num_layers),
        "size": depth + sum(by_stage) / max(1, len(by_stage)),
        "convolutions": num_convolutions / max(1.0, raw_features.get("layers", 0.0)),
    }


@dataclass(frozen=True)
class ZeroLabelFeatures:
    """A weighted sum of costs, and the weighted mean prediction of source surrogates.

    Args:
        weights: weight of each of C costs by name.
        mean: their means over the networks of a space, float64 [C].
        std: divisors of the costs, float64 [C]; infinite for a cost that does not vary.
        sources: S surrogates of other spaces.
        agreements: weights of the sources in their mean, float64 [S]; None for equal ones.
    """

    weights: Mapping[str, float]
    mean: np.ndarray
    std: np.ndarray
    sources: tuple[FeatureSource, ...] = ()
    agreements: np.ndarray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the costs."""
        return tuple(self.weights)

    @classmethod
    def standardised(cls, weights: Mapping[str, float], raw_features: RawFeatures) -> ZeroLabelFeatures:
        """Return features with costs that are standardised on the raw features of networks of a space."""
        values = _costs(raw_features, tuple(weights))
        std = values.std(0)
        std[~is_varying(values)] = np.inf
        return cls(weights, values.mean(0), std)

    @classmethod
    def of_accuracy(cls, raw_features: RawFeatures, sources: Sequence[FeatureSource]) -> ZeroLabelFeatures:
        """Return features of an accuracy in a space.

        A source counts as much as its predictions agree with the costs: by their correlation if positive.

        Args:
            raw_features: raw features of random networks of the space.
            sources: surrogates of other spaces.
        """
        depth_varies = _costs(raw_features, ("depth",)).std() >= MIN_DEPTH_STD
        weights = ACCURACY_WEIGHTS if depth_varies else WIDTH_WEIGHTS
        values = _costs(raw_features, tuple(weights))
        costs = cls(weights, values.mean(0), np.where(is_varying(values), 1.0, np.inf))
        weighted = costs.transform(raw_features)[:, 0].numpy()
        if not is_varying(weighted[:, None])[0]:
            return replace(costs, sources=tuple(sources))
        correlations = [
            np.corrcoef(weighted, predicted.numpy())[0, 1]
            for predicted in source_predictions(sources, raw_features)
        ]
        return replace(costs, sources=tuple(sources), agreements=np.maximum(0.0, correlations))

    def transform(self, raw_features: RawFeatures) -> Tensor:
        """Return the weighted sum of the costs, and the mean prediction of the sources: float64 [N, 2].

        Args:
            raw_features: raw features of N networks.
        """
        values = (_costs(raw_features, tuple(self.weights)) - self.mean) / self.std
        weighted = torch.from_numpy(values @ np.array([*self.weights.values()]))
        predictions = [*source_predictions(self.sources, raw_features)] if len(raw_features) else []
        if not predictions:
            return torch.stack([weighted, torch.zeros_like(weighted)], 1)
        agreements = np.ones(len(predictions)) if self.agreements is None else self.agreements
        mean = torch.from_numpy(agreements) @ torch.stack(predictions) / len(predictions)
        return torch.stack([weighted, mean], 1)


@dataclass(frozen=True)
class ZeroLabelSurrogate(OfOneObjective):
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
        names = [f"surrogates of {', '.join(self.spaces)}"] if self.spaces else []
        names += [READABLE.get(name, name) for name in self.graph_features.weights]
        return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]

    @property
    def is_informative(self) -> bool:
        """Whether the predictions of random networks of the space differ."""
        return bool((self.coefficients != 0).any())


AnyZeroLabelSurrogate = ZeroLabelSurrogate | ZeroLabelLatency


def can_transfer(objective: str) -> bool:
    """Return whether an objective can be predicted in a space without labels: an accuracy or a latency."""
    return is_accuracy(objective) or objective.startswith(LATENCY_PREFIX)


def zero_label_surrogate(
    space: str,
    raw_features: RawFeatures,
    existing: Mapping[str, Sequence[GraphSurrogate]],
    objective: str = ACCURACY,
) -> AnyZeroLabelSurrogate | None:
    """Return a surrogate for a space without labels of an accuracy or a latency.

    Args:
        space: name of the space; empty for networks that need not be of one space.
        raw_features: raw features of random networks of the space, for a latency with executed layers;
            ignored without a space.
        existing: surrogates by space.
        objective: the objective.

    Returns:
        The surrogate, or None where no other space has labels of the objective.
    """
    found = source_labels(space, existing, objective)
    if not found or not can_transfer(objective):
        return None
    if not is_accuracy(objective):
        by_costs = zero_label_latency(found, objective, raw_features if space else [])
        if by_costs is not None:
            return by_costs
    sources: dict[str, FeatureSource] = {}
    if space and is_accuracy(objective):
        # Another accuracy in the same space ranks better than costs and other spaces do.
        selected = {space: found[space]} if space in found else found
        for name, (surrogate, label) in selected.items():
            if (source := surrogate.source_for_space(label, raw_features)) is not None:
                sources[name] = source
    if not space:
        features = _features_of_unrelated_networks([surrogate for surrogate, _ in found.values()])
        coefficients = torch.tensor([1 / sum(UNRELATED_WEIGHTS.values()), 0.0], dtype=torch.float64)
        offset = 0.0
    else:
        if space in sources:
            features = ZeroLabelFeatures({}, np.empty(0), np.empty(0), tuple(sources.values()))
        elif is_accuracy(objective):
            features = ZeroLabelFeatures.of_accuracy(raw_features, tuple(sources.values()))
        else:
            features = ZeroLabelFeatures.standardised(LATENCY_WEIGHTS, raw_features)
        coefficients, offset = _coefficients(features.transform(raw_features))
    labels = [surrogate.transforms[label].observed for surrogate, label in found.values()]
    kind = kind_of(objective)
    transform = NormalScoreTransform(np.concatenate(labels), kind.maximum, minimum=kind.minimum)
    return ZeroLabelSurrogate(features, coefficients, offset, transform, objective, tuple(sources))


def _coefficients(values: Tensor) -> tuple[Tensor, float]:
    """Return coefficients of costs and sources, and the mean of the scores, which then have unit variance.

    Args:
        values: the two features of random networks of a space, float64 [N, 2].

    Returns:
        Coefficients, float64 [2], all 0 if the scores do not vary; and the mean of the scores.
    """
    coefficients = torch.tensor([1.0, SOURCES_WEIGHT], dtype=torch.float64)
    coefficients[0] /= max(float(values[:, 0].std(correction=0)), MIN_RELATIVE_STD)
    scores = values @ coefficients
    scale = float(scores.std(correction=0))
    if scale <= MIN_RELATIVE_STD:
        return torch.zeros(2, dtype=torch.float64), 0.0
    return coefficients / scale, float(scores.mean()) / scale


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
) -> list[AnyZeroLabelSurrogate]:
    """Return surrogates of the objectives that other spaces have labels of.

    Args:
        space: the space without labels; None for networks that need not be of one space.
        objectives: objectives without labels in the space.
        existing: surrogates by space.
    """
    name = space.name if space else ""
    transferred = [o for o in objectives if can_transfer(o) and source_labels(name, existing, o)]
    with_layers = not all(map(is_accuracy, transferred))
    raw_features = random_raw_features(space, with_layers=with_layers) if space and transferred else []
    found = [zero_label_surrogate(name, raw_features, existing, objective) for objective in transferred]
    return [surrogate for surrogate in found if surrogate is not None]


def zero_label_messages(
    space: str, surrogates: Sequence[AnyZeroLabelSurrogate], location: str = ""
) -> list[str]:
    """Return what predictions without labels rest on, and what improves them.

    Args:
        space: name of the space; empty for networks that need not be of one space.
        surrogates: the surrogates that predict.
        location: location of a user's own space, see `search_spaces.location_of`.
    """
    messages = []
    for basis in dict.fromkeys(surrogate.basis for surrogate in surrogates):
        selected = [surrogate for surrogate in surrogates if surrogate.basis == basis]
        names = ",".join(surrogate.objective for surrogate in selected)
        where = space or "networks without a space"
        message = f"no labels of {names} for {where}: the ranking rests on {basis}; values are unreliable."
        if not any(surrogate.is_informative for surrogate in selected):
            message = (
                f"no labels of {names} for {where}, and {basis} are equal for its architectures: all"
                " predictions are equal, and rank nothing."
            )
        if not space:
            messages.append(f"{message} Name the space if the model knows it")
            continue
        own = f" --space {shlex.quote(location)}" if location else ""
        propose = f"nas-rlm propose --space {shlex.quote(location or space)} --objectives {names}"
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
    the next choice, then also in this space. Accuracies of spaces with another task are left out.

    Args:
        space: name of the space without labels.
        existing: surrogates by space.
        objective: the objective.
    """
    names = [objective, ACCURACY] if is_accuracy(objective) else [objective]
    found: dict[str, tuple[GraphSurrogate, str]] = {}
    for other, surrogates in existing.items():
        if not is_source(other, space, objective):
            continue
        by_objective = {name: surrogate for surrogate in surrogates for name in surrogate.objectives}
        label = next((name for name in names if name in by_objective), None)
        if label is not None and not (other == space and label == objective):
            found[other] = by_objective[label], label
    return found


def _costs(raw_features: RawFeatures, names: Sequence[str]) -> np.ndarray:
    """Return the named costs, float64 [N, C]; see `cost_values`."""
    costs = [cost_values(raw) for raw in raw_features]
    values = [[of_network[name] for name in names] for of_network in costs]
    return np.array(values, dtype=float).reshape(len(raw_features), len(names))
