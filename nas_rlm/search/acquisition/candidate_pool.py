"""Candidates of an active search: architectures that were not measured yet.

Features of an architecture take milliseconds, so a pool grows by few architectures each time, and is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np

from nas_rlm.search.exact_constraints import ExactConstraints
from nas_rlm.search.table_space import TableSpace
from search_spaces import SearchSpace

FIRST_POOL_SIZE = 500  # random architectures of a new pool
MAX_POOL_SIZE = 800  # architectures to select from, the last ones of the pool
MIN_CHILDREN, CHILDREN_PER_ARCHITECTURE = 4, 2  # mutated architectures each time, of two kinds of parents
NUM_RANDOM = 2  # further random architectures each time
MAX_ATTEMPTS = 20  # draws for each architecture that is new
# Of architectures whose constraints are checked, which takes milliseconds each:
MAX_CHECKED = 1000  # random ones of a new pool, and mutated ones where these break the constraints
MIN_ALLOWED = 50  # architectures of a new pool; if there are fewer, mutated ones are added
NUM_NEAREST = 20  # parents of these, those that break the constraints least
MAX_ENUMERATED = 5000  # architectures of a space of which all are checked where none is found


class CandidatePool:
    """Architectures to select from, which grow in number.

    What it draws depends on the seed and on its architectures alone, so that a pool with the same ones grows
    in the same way.

    Args:
        space: the search space, or a `TableSpace` of given candidates.
        seed: seed of random choices.
        names: further architectures of the pool, in the order in which they were added.
        constraints: architectures that break them are not drawn; None or empty ones for none.

    Attributes:
        names: its architectures, also those that were measured since.
    """

    def __init__(
        self,
        space: SearchSpace[Any],
        seed: int = 0,
        names: Sequence[str] = (),
        constraints: ExactConstraints | None = None,
    ) -> None:
        self.space, self.seed, self._constraints = space, seed, constraints
        self.names: dict[str, None] = {}
        self._rng = np.random.default_rng([seed, 0])
        size = min(FIRST_POOL_SIZE, space.size or FIRST_POOL_SIZE)
        refused = self._add_drawn(size, lambda: self.space.sample(self._rng), MAX_CHECKED)
        if len(self.names) < MIN_ALLOWED:
            self._add_near([*refused, *self.names], MIN_ALLOWED)
        self._first_size = len(self.names)
        self.add(names)

    @property
    def added(self) -> list[str]:
        """The architectures that were added to the first ones."""
        return list(self.names)[self._first_size :]

    def add(self, names: Sequence[str]) -> None:
        """Add architectures."""
        self.names |= dict.fromkeys(names)

    def add_allowed(self, names: Iterable[str], count: int) -> None:
        """Add the first architectures that meet the constraints, at most so many."""
        self.add([*islice(filter(self._is_allowed, names), count)])

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
        found = self._without(known)
        if len(found) < count:
            self._add_near([*self.names], len(self.names) + count - len(found))
            found = self._without(known)
        others = _enumerated(self.space, MAX_ENUMERATED if self._constraints else math.inf)
        while len(found) < count and (name := next(others, None)) is not None:
            if name not in known and name not in self.names and self._is_allowed(name):
                self.add([name])
                found.append(name)
        return found[-max(count, MAX_POOL_SIZE) :]

    def _without(self, known: set[str]) -> list[str]:
        """The architectures of the pool without known ones, and without those that an own space cannot build.

        Of those that were added in an earlier process, such ones are left where the file of the space was
        changed since.
        """
        return [name for name in self.names if name not in known and not self.space.network_error(name)]

    def _is_allowed(self, name: str) -> bool:
        return not self._constraints or self._constraints.is_met(name)

    def _add_drawn(
        self, count: int, draw: Callable[[], Any], max_checked: float = math.inf
    ) -> dict[str, None]:
        """Add drawn architectures that are new, and return those that break the constraints.

        Args:
            count: number to add; fewer where the table of candidates has no more.
            draw: draws one.
            max_checked: number of draws at which it ends, with constraints.
        """
        if isinstance(self.space, TableSpace):
            count = min(count, len(self.space.name_set - self.names.keys()))
        size, refused = len(self.names) + count, dict[str, None]()
        for attempt in range(MAX_ATTEMPTS * count):
            if len(self.names) >= size or (self._constraints and attempt >= max_checked):
                break
            name = str(draw())
            (self.names if self._is_allowed(name) else refused)[name] = None
        return refused

    def _add_near(self, parents: Sequence[str], size: int) -> None:
        """Add mutated architectures, towards those that meet the constraints.

        Without constraints, or of given candidates, none is added: all are found by their order.

        Args:
            parents: the first architectures that are mutated; of many those that break constraints least.
            size: number of architectures of the pool at which it ends.
        """
        if not self._constraints or not parents or isinstance(self.space, TableSpace):
            return
        rng = np.random.default_rng([self.seed, len(self.names), 1])
        newest_first = parents[::-1]
        nearest = sorted(newest_first, key=self._constraints.violation)[:NUM_NEAREST]
        for _ in range(MAX_CHECKED):
            if len(self.names) >= size:
                break
            parent = self.space.parse(nearest[rng.integers(len(nearest))])
            child = str(self.space.mutate(parent, rng))
            if child not in nearest:
                nearest = sorted([child, *nearest], key=self._constraints.violation)[:NUM_NEAREST]
            if self._is_allowed(child):
                self.add([child])


def _enumerated(space: SearchSpace[Any], max_size: float) -> Iterator[str]:
    """Yield all architectures of a space; none of one with more genomes than `max_size`."""
    if isinstance(space, TableSpace):
        yield from space.names
        return
    if math.prod(space.genes) > max_size:
        return
    for genome in product(*map(range, space.genes)):
        try:
            yield str(space.decode_valid(np.array(genome)))
        except ValueError:  # a genome without an architecture
            continue
