"""A table of measurements as a search space and as a predictor that is always right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nas_rlm.data.tables import Row, Table
from nas_rlm.search.loop import Sampler
from nas_rlm.search.pareto import hypervolume
from nas_rlm.search.result import MEASURED
from search_spaces import SearchSpace
from search_spaces.graph import Graph, Value

ATTEMPTS = 20  # to vary an architecture into one that a table has


class Known(SearchSpace[Any]):
    """The part of a space that a table has.

    Args:
        whole: the space.
        names: its architectures that are in the table.
    """

    def __init__(self, whole: SearchSpace[Any], names: Sequence[str]) -> None:
        self.whole, self.names = whole, list(names)
        self.held = set(names)
        self.name, self.size, self.genes = whole.name, len(self.held), whole.genes

    def decode(self, genome: np.ndarray) -> Any:
        """As the whole space does."""
        return self.whole.decode(genome)

    def encode(self, architecture: Any) -> np.ndarray:
        """As the whole space does."""
        return self.whole.encode(architecture)

    def parse(self, text: str) -> Any:
        """As the whole space does."""
        return self.whole.parse(text)

    def write(self, graph: Graph, architecture: Any) -> Value:
        """As the whole space does."""
        return self.whole.write(graph, architecture)

    def shape(self, architecture: Any) -> tuple[int, int, int]:
        """As the whole space does."""
        return self.whole.shape(architecture)

    def sample(self, rng: np.random.Generator) -> Any:
        """One of them."""
        return self.parse(self.names[rng.integers(len(self.names))])

    def mutate(self, architecture: Any, rng: np.random.Generator) -> Any:
        """A neighbour among them, or the architecture itself."""
        return self._held(lambda: self.whole.mutate(architecture, rng), architecture)

    def crossover(self, a: Any, b: Any, rng: np.random.Generator) -> Any:
        """A child among them, or the first parent."""
        return self._held(lambda: self.whole.crossover(a, b, rng), a)

    def _held(self, born: Callable[[], Any], otherwise: Any) -> Any:
        return next((one for _ in range(ATTEMPTS) if str(one := born()) in self.held), otherwise)


class Truth:
    """A predictor that tells what was measured.

    Args:
        table: measurements of one space.
        objectives: rows that lack one of them are left out.

    Attributes:
        values: of each architecture, its measurements.

    Raises:
        ValueError: no row has them all.
    """

    def __init__(self, table: Table, objectives: Sequence[str]) -> None:
        rows = [row for row in table.rows if all(row.measured(name) for name in objectives)]
        if not rows:
            raise ValueError(f"no row of {table.name} has both {' and '.join(objectives)}")
        self.objectives = tuple(objectives)
        self.values = {row.arch_str: [row.targets[name] for name in objectives] for row in rows}
        self._best: dict[tuple[tuple[str, ...], tuple[float, ...]], float] = {}

    def true(self, names: Sequence[str], objectives: Sequence[str]) -> np.ndarray:
        """What was measured of architectures, [N, K]."""
        columns = [self.objectives.index(name) for name in objectives]
        found = np.array([self.values[name] for name in names], dtype=float)
        return found.reshape(-1, len(self.objectives))[:, columns]

    def share(self, names: Sequence[str], objectives: Sequence[str], corner: Sequence[float]) -> float:
        """The hypervolume of architectures' true values, relative to that of all of them.

        Args:
            names: of architectures.
            objectives: K of those that are known.
            corner: the reference point, K values.
        """
        return hypervolume(self.true(names, objectives), objectives, corner) / self.best(
            tuple(objectives), tuple(corner)
        )

    def best(self, objectives: tuple[str, ...], corner: tuple[float, ...]) -> float:
        """The hypervolume of all architectures."""
        if (objectives, corner) not in self._best:
            everything = self.true(list(self.values), objectives)
            self._best[objectives, corner] = hypervolume(everything, objectives, corner)
        return self._best[objectives, corner]

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        """The same for all quantiles, [N, K, Q]."""
        true = self.true([str(a) for a in architectures], objectives)
        return np.repeat(true[:, :, None], len(quantiles), axis=2)


class Informed:
    """A predictor that tells what was measured of some architectures, and asks another one of the rest.

    Args:
        model: who is asked.
        rows: measured ones, of one space.
    """

    def __init__(self, model: Sampler, rows: Sequence[Row]) -> None:
        self.model = model
        self.rows = {row.arch_str: row for row in rows}

    def status(self, names: Sequence[str]) -> dict[str, str]:
        """Which of some architectures were measured, see `nas_rlm.search.loop.Result`."""
        return {name: MEASURED for name in names if name in self.rows}

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        """Quantiles of each objective, [N, K, Q]; what was measured is all of its quantiles."""
        found = self.model.predict(space, architectures, objectives, quantiles)
        names = [str(a) for a in architectures]
        for k, objective in enumerate(objectives):
            put_measured(found[:, k], names, objective, self.rows)
        return found

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
    ) -> np.ndarray:
        """Joint draws, [N, S, K]; what was measured is the same in all of them."""
        found = self.model.sample(space, architectures, objectives, num_samples, seed)
        names = [str(a) for a in architectures]
        for k, objective in enumerate(objectives):
            put_measured(found[:, :, k], names, objective, self.rows)
        return found


def put_measured(found: np.ndarray, names: Sequence[str], objective: str, rows: Mapping[str, Row]) -> None:
    """Put measured values of an objective in the place of predicted ones.

    Args:
        found: of N architectures what was predicted, [N, …].
        names: of these.
        objective: that was predicted.
        rows: by the names of what was measured.
    """
    for i, name in enumerate(names):
        row = rows.get(name)
        if row is not None and row.measured(objective):
            found[i] = row.targets[objective]
