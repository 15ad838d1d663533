"""The result of a search: every evaluated architecture with its predicted quantiles, and the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from nas_rlm.search.pareto import hypervolume, is_non_dominated
from nas_rlm.search.settings import SearchSettings

NO_STATUS: Mapping[str, str] = MappingProxyType({})
MEASURED, FAILED, PREDICTED = "measured", "failed", "predicted"


@dataclass
class SearchResult:
    """All architectures that a search evaluated, in order of evaluation.

    Args:
        settings: settings of the search.
        architectures: N architectures in their space's notation.
        values: [N, K, Q] quantiles of `settings.all_objectives`, in the objectives' own units.
        status: by architecture: `measured` if its `settings.measured_objectives` or labels were measured,
            `failed` if the device could not run it or is expected not to; absent if it was only predicted.
    """

    settings: SearchSettings
    architectures: list[str] = field(default_factory=list)
    values: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0)))
    status: Mapping[str, str] = field(default_factory=dict)

    def add(
        self, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str] = NO_STATUS
    ) -> None:
        """Append a generation.

        Args:
            architectures: M architectures.
            values: [M, K, Q] quantiles.
            status: as of the result.
        """
        self.status = {**self.status, **status}
        self.values = np.concatenate([self.values, values]) if self.architectures else values
        self.architectures.extend(architectures)

    @property
    def medians(self) -> np.ndarray:
        """Medians of `settings.all_objectives`: float64 [N, K]."""
        return self.settings.medians(self.values)

    @property
    def feasible(self) -> np.ndarray:
        """Whether each architecture runs and meets every constraint: bool [N]."""
        runs = np.array([self.status.get(name) != FAILED for name in self.architectures], dtype=bool)
        return runs & np.all(self.settings.violations(self.values) <= 0, axis=1)

    @property
    def is_measured(self) -> np.ndarray:
        """Whether each architecture was measured: bool [N]."""
        return np.array([self.status.get(name) == MEASURED for name in self.architectures], dtype=bool)

    def hypervolume(self, reference: Sequence[float]) -> float:
        """Return the hypervolume of the front.

        Args:
            reference: reference point, a value for each of `settings.objectives`; see
                `nas_rlm.search.reference_points`.
        """
        settings = self.settings
        front_medians = self.medians[self.front, : len(settings.objectives)]
        return hypervolume(front_medians, settings.objectives, reference, settings.maximised)

    def truncated(self, num_evaluations: int) -> SearchResult:
        """Return the result after the first `num_evaluations` architectures."""
        return SearchResult(
            self.settings, self.architectures[:num_evaluations], self.values[:num_evaluations], self.status
        )

    @property
    def front(self) -> np.ndarray:
        """Indices of the feasible non-dominated architectures, best in the first objective first."""
        costs = self.settings.costs(self.medians)
        rows = np.flatnonzero(self.feasible)
        rows = rows[is_non_dominated(costs[rows])]
        return rows[np.lexsort(costs[rows].T[::-1])]

    def shortlist(self, max_architectures: int) -> np.ndarray:
        """Return the indices of the best feasible architectures by non-dominated sorting: the front first.

        Args:
            max_architectures: at most this many; of a front that fits only in part, evenly spaced ones.
        """
        costs, remaining = self.settings.costs(self.medians), np.flatnonzero(self.feasible)
        selected: list[int] = []
        while len(remaining) and len(selected) < max_architectures:
            layer = remaining[is_non_dominated(costs[remaining])]
            remaining = np.setdiff1d(remaining, layer)
            layer = layer[np.lexsort(costs[layer].T[::-1])]
            size = min(max_architectures - len(selected), len(layer))
            selected += layer[np.linspace(0, len(layer) - 1, size).round().astype(int)].tolist()
        return np.array(selected, dtype=int)
