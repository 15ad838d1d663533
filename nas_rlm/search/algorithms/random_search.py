"""Random search, with which other algorithms start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nas_rlm.search.algorithms.algorithm import MAX_DUPLICATES
from nas_rlm.search.settings import SearchSettings
from search_spaces import SearchSpace


class RandomSearch:
    """Uniform sampling without repetition.

    Args:
        space: the search space.
        settings: settings of the search.
        initial_architectures: returned with the first generation, besides the sampled ones.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        settings: SearchSettings,
        initial_architectures: Sequence[Any] = (),
    ) -> None:
        self.space, self.population = space, settings.population
        self.rng = np.random.default_rng(settings.seed)
        self.initial_architectures = list(initial_architectures)
        self.proposed = set(map(str, initial_architectures))

    def ask(self) -> list[Any]:
        """Return new architectures, none when the space seems exhausted."""
        return self.sample(self.population)

    def sample(self, count: int) -> list[Any]:
        """Return `count` new architectures, fewer when the space seems exhausted.

        The first call returns the initial architectures as well.
        """
        sampled: dict[str, Any] = {}
        duplicates = 0
        while len(sampled) < count and duplicates < MAX_DUPLICATES * count:
            architecture = self.space.sample(self.rng)
            name = str(architecture)
            duplicates += name in self.proposed
            if name not in self.proposed:
                sampled[name] = architecture
                self.proposed.add(name)
        initial_architectures, self.initial_architectures = self.initial_architectures, []
        return [*sampled.values(), *initial_architectures]

    def tell(self, costs: np.ndarray, violations: np.ndarray) -> None:
        """Ignore the evaluation: random search does not adapt."""
