"""The result of a search: every evaluated architecture with its predictions, and the front among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from nas_rlm.search.pareto import hypervolume, unbeaten
from nas_rlm.search.settings import Settings

NOTHING: Mapping[str, str] = MappingProxyType({})
MEASURED, FAILED, PREDICTED = "measured", "failed", "predicted"


@dataclass
class Result:
    """Every architecture that a search evaluated, in order.

    Args:
        settings: of the search.
        architectures: N strings.
        values: [N, K, Q] quantiles of `settings.predicted`, in the objectives' own units.
        status: `measured` of the architectures whose `settings.measured` are no predictions, `failed` of
            those that the device could not run, or that are like those.
    """

    settings: Settings
    architectures: list[str] = field(default_factory=list)
    values: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0)))
    status: Mapping[str, str] = field(default_factory=dict)

    def add(
        self, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str] = NOTHING
    ) -> None:
        """Append a generation."""
        self.status = {**self.status, **status}
        self.values = np.concatenate([self.values, values]) if self.architectures else values
        self.architectures.extend(architectures)

    @property
    def medians(self) -> np.ndarray:
        """Predicted medians [N, K]."""
        return self.settings.medians(self.values)

    @property
    def feasible(self) -> np.ndarray:
        """Which architectures run and meet every constraint: bool [N]."""
        run = np.array([self.status.get(name) != FAILED for name in self.architectures], dtype=bool)
        return run & np.all(self.settings.violations(self.values) <= 0, axis=1)

    @property
    def is_measured(self) -> np.ndarray:
        """Which architectures were measured: bool [N]."""
        return np.array([self.status.get(name) == MEASURED for name in self.architectures], dtype=bool)

    def hypervolume(self, reference: Sequence[float]) -> float:
        """The volume between the front and a reference point, see `nas_rlm.search.reference_points`."""
        settings = self.settings
        best = self.medians[self.front, : len(settings.objectives)]
        return hypervolume(best, settings.objectives, reference, settings.maximised)

    def until(self, evaluations: int) -> Result:
        """The result as it was after so many evaluations."""
        return Result(self.settings, self.architectures[:evaluations], self.values[:evaluations], self.status)

    @property
    def front(self) -> np.ndarray:
        """Indices of the feasible architectures that no other beats, best in the first objective first."""
        costs = self.settings.costs(self.medians)
        rows = np.flatnonzero(self.feasible)
        rows = rows[unbeaten(costs[rows])]
        return rows[np.lexsort(costs[rows].T[::-1])]

    def shortlist(self, count: int) -> np.ndarray:
        """Indices of the feasible architectures to look at first: the front, and then what only that beats.

        Args:
            count: of them at most; of the last layer those that are spread along it.
        """
        costs, left = self.settings.costs(self.medians), np.flatnonzero(self.feasible)
        found: list[int] = []
        while len(left) and len(found) < count:
            layer = left[unbeaten(costs[left])]
            left = np.setdiff1d(left, layer)
            layer = layer[np.lexsort(costs[layer].T[::-1])]
            room = min(count - len(found), len(layer))
            found += layer[np.linspace(0, len(layer) - 1, room).round().astype(int)].tolist()
        return np.array(found, dtype=int)
