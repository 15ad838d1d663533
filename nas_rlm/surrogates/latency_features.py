"""Features of networks that a latency is a nearly linear function of, in groups with a kernel each.

The groups are: executed layers of each mode of execution and each layer type, see
`nas_rlm.graph.executed_layers`; the longest and the mean path, since some devices execute branches in
parallel; statistics over paths; and predictions of source surrogates, such as those of other devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nas_rlm.graph.executed_layers import ANY, MODES
from nas_rlm.graph.paths import PATH_COUNTS
from nas_rlm.surrogates.features import MIN_RELATIVE_STD, FeatureSource, source_predictions

CRITICAL_PATH = tuple(f"{kind}/{statistic}" for kind in PATH_COUNTS for statistic in ("most", "mean"))
ROUNDING_ERROR = 1e-5  # of a raw feature, from the single precision of standardised ones
CRITICAL, TRANSFER = "critical path", "transfer"  # groups


@dataclass(frozen=True)
class LatencyFeatures:
    """A selection of raw features with their standardisation, and predictions of source surrogates.

    Args:
        names: names of D raw features.
        mean: means of the raw features, float64 [D].
        std: their standard deviations, float64 [D].
        sources: S surrogates of other spaces or devices; their predictions are the last S features.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    std: np.ndarray
    sources: tuple[FeatureSource, ...] = ()

    @classmethod
    def fit(
        cls, raw_features: Sequence[Mapping[str, float]], sources: Sequence[FeatureSource] = ()
    ) -> LatencyFeatures:
        """Select features that vary and fit their standardisation.

        A mode of execution is left out if its features are those of a previous mode for all networks.

        Args:
            raw_features: raw features of N networks by name, see `nas_rlm.surrogates.features`, with
                `executed_layers`.
            sources: source surrogates.
        """
        all_names = dict.fromkeys(name for features in raw_features for name in features)
        names = [n for n in all_names if n in CRITICAL_PATH or _mode(n)]
        values = _to_array(raw_features, names)
        varies = values.std(0) > MIN_RELATIVE_STD * np.maximum(1, np.abs(values).max(0))
        columns = {name: values[:, k] for k, name in enumerate(names) if varies[k]}
        modes: list[dict[str, np.ndarray]] = []
        selected = [name for name in columns if name in CRITICAL_PATH]
        for mode in MODES:
            own = {n.removeprefix(mode): c for n, c in columns.items() if _mode(n) == mode}
            if not any(_are_equal(own, m) for m in modes):
                modes.append(own)
                selected += [mode + name for name in own]
        stacked = np.array([columns[name] for name in selected]).reshape(len(selected), -1)
        return cls(tuple(selected), stacked.mean(1), stacked.std(1), tuple(sources))

    @cached_property
    def groups(self) -> dict[str, list[int]]:
        """Columns of each group: modes, modes with a layer type, critical path, and transfer."""
        groups: dict[str, list[int]] = {}
        for k, name in enumerate(self.names):
            mode = _mode(name)
            for group in (mode, name.split("@")[0].split(":")[0]) if mode else (CRITICAL,):
                groups.setdefault(group, []).append(k)
        if self.sources:
            groups[TRANSFER] = [len(self.names) + k for k in range(len(self.sources))]
        return groups

    @cached_property
    def costs(self) -> dict[str, list[list[int]]]:
        """For each mode of execution, the columns that are summed to each cost of a layer type."""
        columns: dict[str, dict[tuple[str, str], list[int]]] = {}
        for k, name in enumerate(self.names):
            if mode := _mode(name):
                layer, term = name.split(":")
                columns.setdefault(mode, {}).setdefault((layer.split("@")[0], term), []).append(k)
        return {
            mode: [c for (layer, _), c in of_mode.items() if layer != f"{mode}/{ANY}"]
            for mode, of_mode in columns.items()
        }

    def cost_values(self, features: Tensor, mode: str) -> np.ndarray:
        """Return the costs of each layer type in a mode of execution, after a constant 1.

        Args:
            features: features of N networks, see `transform`.
            mode: mode of execution, a key of `costs`.

        Returns:
            float64 [N, 1 + number of costs].
        """
        raw = features[:, : len(self.names)].numpy() * self.std + self.mean
        raw[np.abs(raw) < ROUNDING_ERROR * (self.std + np.abs(self.mean))] = 0.0
        sums = [raw[:, columns].sum(1) for columns in self.costs[mode]]
        return np.stack([np.ones(len(raw)), *sums], 1)

    @property
    def layer_columns(self) -> list[int]:
        """Columns of the executed layers."""
        return [k for k, name in enumerate(self.names) if _mode(name)]

    def transform(self, raw_features: Sequence[Mapping[str, float]]) -> Tensor:
        """Return the standardised features of N networks and the predictions of the sources.

        Args:
            raw_features: raw features of N networks by name.

        Returns:
            float64 [N, D + S].
        """
        own = torch.from_numpy((_to_array(raw_features, self.names) - self.mean) / self.std)
        predictions = source_predictions(self.sources, raw_features)
        return torch.cat([own, *(predicted[:, None] for predicted in predictions)], 1)


def _are_equal(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    """Return whether two modes of execution have the same features."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def _mode(name: str) -> str:
    """Return the mode of execution of a raw feature; empty for features that are no executed layers."""
    mode = name.split("/")[0]
    return mode if mode in MODES else ""


def _to_array(raw_features: Sequence[Mapping[str, float]], names: Sequence[str]) -> np.ndarray:
    """Return the named raw features of N networks, 0 where a network does not have one, float64 [N, D]."""
    values = [[features.get(name, 0.0) for name in names] for features in raw_features]
    return np.array(values, float).reshape(len(raw_features), len(names))
