"""Selection of the surrogates that predict networks of a space, and of what these learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import search_spaces
from nas_rlm.data.objective_kinds import is_of_training
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.graphs.network_sizes import NetworkSizes
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.latency.device_transfer import FewLabelLatency, without_known_devices
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.registry import (
    AnySurrogate,
    Surrogate,
    graph_surrogates,
    surrogate_by_objective,
    transferable,
)
from nas_rlm.surrogates.zero_label import AnyZeroLabelSurrogate, can_transfer, source_labels


@dataclass(frozen=True)
class SurrogateSelection:
    """Surrogates of all spaces, from which those for networks of one space are selected.

    Args:
        surrogates: surrogates of each space; of several with the same objective, the last one predicts it.
        trained_on: for each space, what the network was trained on.
        zero_label: surrogates of spaces without labels.
    """

    surrogates: Mapping[str, Sequence[Surrogate]]
    trained_on: Mapping[str, TrainedOn]
    zero_label: Mapping[str, Sequence[AnyZeroLabelSurrogate]]

    def of_space(self, space: str) -> list[AnySurrogate]:
        """Return the surrogates of a space; of several with the same objective, the last one predicts it.

        Layer surrogates, and sums of costs that were fitted to another space, predict networks of every space
        that has no surrogate of its own for a latency. Networks without a space are predicted by the graph
        surrogates of tables of files.

        Args:
            space: name of the space; empty for networks without a space.
        """
        return [*self.zero_label.get(space, ()), *self._with_labels(space)]

    def by_objective(self, space: str) -> dict[str, AnySurrogate]:
        """Return the surrogate that predicts each objective in a space.

        Args:
            space: as for `of_space`.
        """
        return surrogate_by_objective(self.of_space(space))

    def _with_labels(self, space: str) -> list[Surrogate]:
        """Return the surrogates of a space without those for spaces without labels."""
        known = self.trained_objectives(space)
        sums = [
            s.for_other_networks
            for group in self.sums_of_costs(space).values()
            for s in group
            if s.objective not in known
        ]
        return [*sums, *self.layer_surrogates, *self._of_files(space), *self.surrogates.get(space, ())]

    def trained_objectives(self, space: str) -> tuple[str, ...]:
        """Return the objectives that the network was trained on in a space."""
        return self.trained_on.get(space, TrainedOn(0, ())).objectives

    def task_of(self, space: str) -> str:
        """Return the task of a space, also of one that was registered only where the model was trained."""
        return search_spaces.task_of(space) or self.trained_on.get(space, TrainedOn(0, ())).task

    @property
    def layer_surrogates(self) -> list[LayerSurrogate]:
        """Layer surrogates of all spaces, which predict networks of any family."""
        return [s for group in self.surrogates.values() for s in group if isinstance(s, LayerSurrogate)]

    def sums_of_costs(self, space: str) -> dict[str, list[LatencySurrogate]]:
        """Return the surrogates of every other space that predict latencies by sums of costs."""
        own = {
            other: [*map(without_known_devices, group)]
            for other, group in self.surrogates.items()
            if other != space
        }
        return {
            other: [s for s in group if isinstance(s, LatencySurrogate) and s.graph_features.costs]
            for other, group in own.items()
        }

    def _of_files(self, space: str) -> list[GraphSurrogate]:
        """Return the graph surrogates of tables of files, whose networks belong to no registered space.

        They predict networks without a space alone.
        """
        if space:
            return []
        by_space = graph_surrogates(self.surrogates)
        return [s for other, group in by_space.items() if not self.task_of(other) for s in group]

    def learnt_by_surrogates(self, space: str) -> set[str]:
        """Return the objectives that surrogates learnt from networks of a space, or from any networks."""
        learnt = [*self.layer_surrogates, *self._of_files(space), *self.surrogates.get(space, ())]
        return {name for surrogate in learnt for name in surrogate.objectives}

    def sources(self, space: str) -> dict[str, Sequence[GraphSurrogate]]:
        """Return the surrogates by space whose objectives can be transferred to a space."""
        return transferable(graph_surrogates(self.surrogates), space, self.task_of)

    def transferred(self, space: str, objectives: Sequence[str]) -> list[str]:
        """Return the objectives that have no labels in a space, but in others that have surrogates.

        Args:
            space: name of the space.
            objectives: names of objectives.
        """
        known = {*self.trained_objectives(space)}
        known |= {name for surrogate in self._with_labels(space) for name in surrogate.objectives}
        sources = self.sources(space) if self.trained_on else {}
        return [
            name
            for name in objectives
            if name not in known and can_transfer(name) and source_labels(space, sources, name)
        ]

    def labels(self, space: str, objectives: Sequence[str]) -> dict[str, np.ndarray]:
        """Return all labels by name, float64 [M], that the surrogates of some objectives store.

        Args:
            space: name of the space.
            objectives: names of the objectives.
        """
        by_objective = self.by_objective(space)
        selected = [by_objective.get(name) for name in objectives]
        known = [s.labels for s in selected if isinstance(s, GraphSurrogate | FewLabelLatency)]
        return {name: values for labels in known for name, values in labels.items()}

    def labelled_sizes(self, space: str, objectives: Sequence[str]) -> dict[str, NetworkSizes]:
        """Return the sizes of the labelled networks of objectives of training, where they are known.

        Args:
            space: name of the space.
            objectives: names of the objectives.
        """
        by_objective = self.by_objective(space)
        selected = {name: by_objective.get(name) for name in objectives if is_of_training(name)}
        return {n: s.sizes for n, s in selected.items() if isinstance(s, GraphSurrogate) and s.sizes}
