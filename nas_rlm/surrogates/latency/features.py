"""Features of networks that a latency is a nearly linear function of.

Standardised features are in groups with a kernel each: executed layers of each mode of execution and each
layer type, see `nas_rlm.graph.executed_layers`; the longest and the mean path, since some devices execute
branches in parallel. Costs are sums over all stages, not standardised, also of layer types that no labelled
network has. The last features are predictions of source surrogates, such as those of other devices, and their
principal components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nas_rlm.graph.executed_layers import ANY, FUSED, FUSED_FUNCTION, MODES, POINTWISE_FUNCTIONS, TERMS
from nas_rlm.graph.paths import PATH_COUNTS
from nas_rlm.surrogates.graphs.features import MIN_RELATIVE_STD, FeatureSource, source_predictions

CRITICAL_PATH = tuple(f"{kind}/{statistic}" for kind in PATH_COUNTS for statistic in ("most", "mean"))
CRITICAL, TRANSFER = "critical path", "transfer"  # groups
NUM_COMPONENTS = 3, 5  # principal components of the predictions of sources, in a group each
# Classes of layer types. Types of one class have similar latencies for the same costs.
CONVOLUTION, DEPTHWISE, PRODUCT, POOLING, FUNCTION, MOVEMENT = CLASSES = (
    *("convolution", "depthwise", "product", "pooling", "function", "movement"),
)
PRODUCTS = "Gemm", "MatMul", "Einsum", "Attention", "LSTM", "GRU", "RNN"  # also quantized and fused ones
COMPUTE, MEMORY = "compute", "memory"  # classes of classes


def class_of(layer: str, mode: str) -> str:
    """Return the class of a layer type in a mode of execution.

    Args:
        layer: the layer type, such as `Conv3x3d`.
        mode: the mode of execution. A function that is executed on its own moves data in the mode `fused`.
    """
    if layer.startswith("Conv") and layer[4:5].isdigit():
        return DEPTHWISE if layer.endswith("d") else CONVOLUTION
    if layer == "ConvTranspose":
        return CONVOLUTION
    if any(name in layer for name in PRODUCTS):
        return PRODUCT
    if "Pool" in layer:
        return POOLING
    if layer == FUSED_FUNCTION or (layer in POINTWISE_FUNCTIONS and mode != FUSED):
        return FUNCTION
    return MOVEMENT


def groups_of_cost(name: str) -> tuple[str, str]:
    """Return the group and the wider group of a cost, see `nas_rlm.surrogates.latency.nonnegative`.

    Args:
        name: `MODE/LAYER:TERM`, where LAYER is a layer type or a class in brackets.
    """
    mode, _, rest = name.partition("/")
    layer, term = rest.split(":")
    group = layer[1:-1] if layer.startswith("[") else class_of(layer, mode)
    wider = COMPUTE if group in (CONVOLUTION, DEPTHWISE, PRODUCT) else MEMORY
    return f"{group}:{term}", f"{wider}:{term}"


@dataclass(frozen=True)
class LatencyFeatures:
    """A selection of raw features with their standardisation, costs, and predictions of source surrogates.

    Args:
        names: names of D raw features.
        mean: means of the raw features, float64 [D].
        std: their standard deviations, float64 [D].
        cost_names: names of E costs, each `MODE/LAYER:TERM`. LAYER is a layer type, or a class in brackets
            for all layer types of the class that have no cost of their own.
        sources: S surrogates of other spaces or devices, whose predictions are features.
        components: weights of the predictions in each of C principal components, of which the first one has
            unit variance, float64 [S, C]; the components are the last C features.
        given: names of further features in the group of the sources, which come after those of `transform`,
            see `nas_rlm.surrogates.conditional`.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    std: np.ndarray
    cost_names: tuple[str, ...] = ()
    sources: tuple[FeatureSource, ...] = ()
    components: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    given: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls, raw_features: Sequence[Mapping[str, float]], sources: Sequence[FeatureSource] = ()
    ) -> LatencyFeatures:
        """Select features that vary and fit their standardisation.

        A mode of execution is left out if its features are those of a previous mode for all networks.

        Args:
            raw_features: raw features of N networks by name, see `nas_rlm.surrogates.graphs.features`, with
                `executed_layers`.
            sources: source surrogates.
        """
        all_names = dict.fromkeys(name for features in raw_features for name in features)
        names = [n for n in all_names if n in CRITICAL_PATH or _mode(n)]
        values = _to_array(raw_features, names)
        varies = values.std(0) > MIN_RELATIVE_STD * np.maximum(1, np.abs(values).max(0))
        columns = {name: values[:, k] for k, name in enumerate(names) if varies[k]}
        modes: dict[str, dict[str, np.ndarray]] = {}
        selected = [name for name in columns if name in CRITICAL_PATH]
        for mode in MODES:
            own = {n.removeprefix(mode): c for n, c in columns.items() if _mode(n) == mode}
            if own and not any(_are_equal(own, m) for m in modes.values()):
                modes[mode] = own
                selected += [mode + name for name in own]
        stacked = np.array([columns[name] for name in selected]).reshape(len(selected), -1)
        costs = [_cost_name(names[k]) for k in np.flatnonzero(values.any(0))]
        cost_names = [name for name in costs if _mode(name) in modes and f"/{ANY}:" not in name]
        others = [f"{mode}/[{group}]:{term}" for mode in modes for group in CLASSES for term in TERMS]
        all_costs = tuple(dict.fromkeys([*cost_names, *others]))
        components = _components(np.array([*map(np.asarray, source_predictions(sources, raw_features))]))
        return cls(tuple(selected), stacked.mean(1), stacked.std(1), all_costs, tuple(sources), components)

    @cached_property
    def groups(self) -> dict[str, list[int]]:
        """Columns of each group: modes, modes with a layer type, critical path, transfer, components."""
        groups: dict[str, list[int]] = {}
        for k, name in enumerate(self.names):
            mode = _mode(name)
            for group in (mode, _layer(name)) if mode else (CRITICAL,):
                groups.setdefault(group, []).append(k)
        if self.sources or self.given:
            given = [self.num_features + k for k in range(len(self.given))]
            groups[TRANSFER] = self.source_columns + given
        count = self.components.shape[1]
        for size in sorted({min(size, count) for size in NUM_COMPONENTS if count}):
            first = self.num_features - count
            groups[f"{TRANSFER}/{size}"] = [first + k for k in range(size)]
        return groups

    @property
    def source_columns(self) -> list[int]:
        """Columns of the predictions of the sources."""
        first = len(self.names) + len(self.cost_names)
        return [first + k for k in range(len(self.sources))]

    @property
    def num_features(self) -> int:
        """Number of all features."""
        return len(self.names) + len(self.cost_names) + len(self.sources) + self.components.shape[1]

    @cached_property
    def costs(self) -> dict[str, list[int]]:
        """Columns of the costs of each mode of execution."""
        columns: dict[str, list[int]] = {}
        for k, name in enumerate(self.cost_names):
            columns.setdefault(_mode(name), []).append(len(self.names) + k)
        return columns

    def cost_groups(self, mode: str) -> list[tuple[str, str]]:
        """Return for each cost of a mode its group and its wider group, see `fit_nonnegative`."""
        return [groups_of_cost(name) for name in self.cost_names if _mode(name) == mode]

    @property
    def layer_columns(self) -> list[int]:
        """Columns of the standardised executed layers."""
        return [k for k, name in enumerate(self.names) if _mode(name)]

    def transform(self, raw_features: Sequence[Mapping[str, float]]) -> Tensor:
        """Return the standardised features of N networks, their costs, and what the sources predict.

        Args:
            raw_features: raw features of N networks by name.

        Returns:
            float64 [N, D + E + S + C].
        """
        own = torch.from_numpy((_to_array(raw_features, self.names) - self.mean) / self.std)
        predictions = [*source_predictions(self.sources, raw_features)]
        columns = [own, self._costs(raw_features), *(p[:, None] for p in predictions)]
        if self.components.size:
            columns.append(torch.stack(predictions, 1) @ torch.from_numpy(self.components))
        return torch.cat(columns, 1)

    def _costs(self, raw_features: Sequence[Mapping[str, float]]) -> Tensor:
        """Return the costs of N networks, float64 [N, E]."""
        column_of = {name: k for k, name in enumerate(self.cost_names)}
        types = {_layer(name) for name in self.cost_names}
        modes = {_mode(name) for name in self.cost_names}
        costs = np.zeros((len(raw_features), len(self.cost_names)))
        target: dict[str, int | None] = {}  # column of each raw feature
        for row, features in zip(costs, raw_features, strict=True):
            for name, value in features.items():
                if name not in target:
                    cost = _cost_name(name)
                    if (mode := _mode(name)) in modes and _layer(name) not in types:
                        layer = _layer(name).removeprefix(f"{mode}/")
                        cost = (
                            "" if layer == ANY else f"{mode}/[{class_of(layer, mode)}]:{cost.split(':')[1]}"
                        )
                    target[name] = column_of.get(cost)
                if (column := target[name]) is not None:
                    row[column] += value
        return torch.from_numpy(costs)


def _components(predictions: np.ndarray) -> np.ndarray:
    """Return the principal components of the predictions of S sources [S, N]; empty for fewer than two."""
    if len(predictions) < 2:
        return np.empty((len(predictions), 0))
    variances, vectors = np.linalg.eigh(np.cov(predictions))
    count = min(max(NUM_COMPONENTS), len(predictions))
    components: np.ndarray = vectors[:, ::-1][:, :count] / np.sqrt(max(variances[-1], MIN_RELATIVE_STD))
    return components


def _are_equal(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    """Return whether two modes of execution have the same features."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def _mode(name: str) -> str:
    """Return the mode of execution of a raw feature; empty for features that are no executed layers."""
    mode = name.split("/")[0]
    return mode if mode in MODES else ""


def _layer(name: str) -> str:
    """Return the mode and the layer type of a raw feature or a cost, such as `live/Conv3x3`."""
    return name.split("@")[0].split(":")[0]


def _cost_name(name: str) -> str:
    """Return the cost that a raw feature is part of, its sum over the stages, such as `live/Conv3x3:macs`."""
    return f"{_layer(name)}:{name.split(':')[-1]}"


def _to_array(raw_features: Sequence[Mapping[str, float]], names: Sequence[str]) -> np.ndarray:
    """Return the named raw features of N networks, 0 where a network does not have one, float64 [N, D]."""
    values = [[features.get(name, 0.0) for name in names] for features in raw_features]
    return np.array(values, float).reshape(len(raw_features), len(names))
