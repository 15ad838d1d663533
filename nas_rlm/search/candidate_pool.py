"""Candidates of an active search: architectures that were not measured yet.

Features of an architecture take milliseconds, so a pool grows by few architectures each time, and keeps those
whose features are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from nas_rlm.search.lookup import TableSpace
from search_spaces import SearchSpace

FIRST_POOL_SIZE = 500  # random architectures of the first pool
MAX_POOL_SIZE = 2000  # architectures of a pool
NUM_RANDOM = 10  # further random architectures each time
NUM_CHILDREN = 30  # mutated architectures each time
MAX_ATTEMPTS = 20  # draws for each architecture that is new


class CandidatePool:
    """Architectures to select from.

    Args:
        space: the search space, or a `TableSpace` of given candidates.
        excluded: architectures that are never candidates.
        rng: source of random choices.
    """

    def __init__(self, space: SearchSpace[Any], excluded: Collection[str], rng: np.random.Generator) -> None:
        self.space, self.excluded, self.rng = space, set(excluded), rng
        self.names: dict[str, None] = {}

    def add(self, names: Sequence[str]) -> None:
        """Add architectures that belong to the space and are not excluded."""
        allowed = self.space.name_set if isinstance(self.space, TableSpace) else None
        self.names |= {
            name: None for name in names if name not in self.excluded and (allowed is None or name in allowed)
        }

    def add_random(self, count: int) -> None:
        """Add random architectures; fewer if most draws are known."""
        self._add_drawn(count, lambda: self.space.sample(self.rng))

    def add_children(self, parents: Sequence[str], count: int) -> None:
        """Add mutated architectures of parents; fewer if most mutations are known."""
        if parents:
            parsed = [self.space.parse(name) for name in parents]
            self._add_drawn(
                count, lambda: self.space.mutate(parsed[self.rng.integers(len(parsed))], self.rng)
            )

    def add_missing(self, count: int) -> None:
        """Add architectures in order of their genomes until there are `count`, or none is left."""
        names = _enumerated(self.space)
        while len(self.names) < count and (name := next(names, None)) is not None:
            self.add([name])

    def _add_drawn(self, count: int, draw: Callable[[], Any]) -> None:
        size = len(self.names) + count
        for _ in range(MAX_ATTEMPTS * count):
            if len(self.names) >= size:
                break
            self.add([str(draw())])


def _enumerated(space: SearchSpace[Any]) -> Iterator[str]:
    """Yield all architectures of a space."""
    if isinstance(space, TableSpace):
        yield from space.names
        return
    for genome in product(*map(range, space.genes)):
        try:
            yield str(space.decode(np.array(genome)))
        except ValueError:  # a genome without an architecture
            continue
