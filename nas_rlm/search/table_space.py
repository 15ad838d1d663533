"""A search space of given architectures, such as those of a table or a list of candidates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from search_spaces import SearchSpace
from search_spaces.graph import Graph, Value

SPARSE_SHARE = 0.5  # of a space, below which most mutations are no candidates
NUM_CACHED_GENOMES = 2**16  # of candidates, which may be given again with each question
MAX_VARIATION_ATTEMPTS = 3  # mutations or crossovers, after which the nearest architecture is a table's


class TableSpace(SearchSpace[Any]):
    """The subset of a search space that a table contains.

    Args:
        full_space: the search space.
        names: the table's architectures in the space's notation, each once.
    """

    def __init__(self, full_space: SearchSpace[Any], names: Sequence[str]) -> None:
        self.full_space, self.names = full_space, list(names)
        self.name_set = set(names)
        self.name, self.size, self.genes = full_space.name, len(self.name_set), full_space.genes
        self.location, self.input_type = full_space.location, full_space.input_type
        self.batch_size = full_space.batch_size

    @property
    def is_built_in(self) -> bool:
        """As of the full space."""
        return self.full_space.is_built_in

    @property
    def is_sparse(self) -> bool:
        """Whether the table has few of the space's architectures."""
        size = self.full_space.size
        return not size or len(self.name_set) < SPARSE_SHARE * size

    def decode(self, genome: np.ndarray) -> Any:
        """As of the full space."""
        return self.full_space.decode(genome)

    def encode(self, architecture: Any) -> np.ndarray:
        """As of the full space."""
        return self.full_space.encode(architecture)

    def parse(self, text: str) -> Any:
        """As of the full space."""
        return self.full_space.parse(text)

    def write(self, graph: Graph, architecture: Any) -> Value:
        """As of the full space."""
        return self.full_space.write(graph, architecture)

    def network_error(self, architecture: Any) -> str:
        """As of the full space, which builds each network once."""
        return self.full_space.network_error(architecture)

    def shape(self, architecture: Any) -> tuple[int, ...]:
        """As of the full space."""
        return self.full_space.shape(architecture)

    def sample(self, rng: np.random.Generator) -> Any:
        """Return a random architecture of the table."""
        return self.parse(self.names[rng.integers(len(self.names))])

    def mutate(self, architecture: Any, rng: np.random.Generator) -> Any:
        """Return a mutated architecture of the table, or the one that is nearest to a mutated one."""
        return self._of_table(lambda: self.full_space.mutate(architecture, rng), architecture, rng)

    def crossover(self, a: Any, b: Any, rng: np.random.Generator) -> Any:
        """Return a child that is in the table, or the architecture that is nearest to a child."""
        return self._of_table(lambda: self.full_space.crossover(a, b, rng), a, rng)

    def _of_table(self, vary: Callable[[], Any], parent: Any, rng: np.random.Generator) -> Any:
        """Return a variation that is in the table, or the other architecture that shares most of its genes.

        Among equally near ones a random one is chosen. The only architecture of a table is its own neighbour.
        """
        for _ in range(MAX_VARIATION_ATTEMPTS):
            child = vary()
            if str(child) in self.name_set:
                return child
        found = self.nearest(child, [str(parent)], rng)
        return parent if found is None else found

    def nearest(self, architecture: Any, excluded: Collection[str], rng: np.random.Generator) -> Any | None:
        """Return the architecture that shares most genes with one; None if all are excluded.

        Among equally near ones a random one is chosen.
        """
        distances = (self.genomes != self.encode(architecture)).sum(1)
        distances[[self.positions[name] for name in excluded if name in self.positions]] = len(self.genes) + 1
        if distances.min() > len(self.genes):
            return None
        return self.parse(self.names[rng.choice(np.flatnonzero(distances == distances.min()))])

    @cached_property
    def genomes(self) -> np.ndarray:
        """Genomes of the table's architectures, int64 [N, G]."""
        return np.stack([_genome(self.full_space, name) for name in self.names])

    @cached_property
    def positions(self) -> dict[str, int]:
        """Position of each architecture among the names."""
        return {name: position for position, name in enumerate(self.names)}


@lru_cache(NUM_CACHED_GENOMES)
def _genome(space: SearchSpace[Any], name: str) -> np.ndarray:
    return space.encode(space.parse(name))
