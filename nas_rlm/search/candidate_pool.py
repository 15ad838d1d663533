"""Candidates of an active search: architectures that were not measured yet.

Features of an architecture take milliseconds, so a pool grows by few architectures each time, and is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from nas_rlm.search.lookup import TableSpace
from search_spaces import SearchSpace

FIRST_POOL_SIZE = 500  # random architectures of a new pool
MAX_POOL_SIZE = 800  # architectures to select from, the last ones of the pool
MIN_CHILDREN, CHILDREN_PER_ARCHITECTURE = 4, 2  # mutated architectures each time, of two kinds of parents
NUM_RANDOM = 2  # further random architectures each time
MAX_ATTEMPTS = 20  # draws for each architecture that is new


class CandidatePool:
    """Architectures to select from, which grow in number.

    What it draws depends on the seed and on its architectures alone, so that a pool with the same ones grows
    in the same way.

    Args:
        space: the search space, or a `TableSpace` of given candidates.
        seed: seed of random choices.
        names: further architectures of the pool, in the order in which they were added.

    Attributes:
        names: its architectures, also those that were measured since.
    """

    def __init__(self, space: SearchSpace[Any], seed: int = 0, names: Sequence[str] = ()) -> None:
        self.space, self.seed = space, seed
        self.names: dict[str, None] = {}
        self._rng = np.random.default_rng([seed, 0])
        self._add_drawn(FIRST_POOL_SIZE, lambda: self.space.sample(self._rng))
        self._first_size = len(self.names)
        self.add(names)

    @property
    def added(self) -> list[str]:
        """The architectures that were added to the first ones."""
        return list(self.names)[self._first_size :]

    def add(self, names: Sequence[str]) -> None:
        """Add architectures."""
        self.names |= dict.fromkeys(names)

    def grow(self) -> None:
        """Add a few random architectures; none where most draws are known."""
        self._rng = np.random.default_rng([self.seed, len(self.names)])
        self._add_drawn(NUM_RANDOM, lambda: self.space.sample(self._rng))

    def add_children(self, parents: Sequence[str], count: int) -> None:
        """Add mutated architectures of parents, for a number that is to be selected.

        They are fewer where most mutations are known.
        """
        if parents:
            parsed = [self.space.parse(name) for name in parents]
            self._add_drawn(
                MIN_CHILDREN + CHILDREN_PER_ARCHITECTURE * count,
                lambda: self.space.mutate(parsed[self._rng.integers(len(parsed))], self._rng),
            )

    def candidates(self, excluded: Collection[str], count: int) -> list[str]:
        """Return architectures to select from, at most the last `MAX_POOL_SIZE`.

        Args:
            excluded: architectures that are no candidates.
            count: number that is to be selected. While there are fewer, further architectures are added in
                order of their genomes.
        """
        known = set(excluded)
        found = [name for name in self.names if name not in known]
        others = _enumerated(self.space)
        while len(found) < count and (name := next(others, None)) is not None:
            if name not in known and name not in self.names:
                self.add([name])
                found.append(name)
        return found[-max(count, MAX_POOL_SIZE) :]

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
