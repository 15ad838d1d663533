"""SearchSpace: what every search space can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import onnx

from search_spaces.graph import Graph, Value

A = TypeVar("A")


class SearchSpace(ABC, Generic[A]):
    """A set of architectures, each a frozen dataclass whose `str` is the benchmark's own notation.

    A subclass gives the notation, the genome and the network; sampling and the variation operators follow
    from the genome unless the space knows better ones.

    Attributes:
        name: as in `search_spaces.get`.
        size: how many architectures there are, or None if nobody has counted.
        genes: gene i of a genome is an integer from 0 to below genes[i].
        input_shape: of the networks, for one image, where it is the same for all.
    """

    name: str
    size: int | None
    genes: tuple[int, ...]
    input_shape: tuple[int, int, int] = (3, 32, 32)

    @abstractmethod
    def decode(self, genome: np.ndarray) -> A:
        """The architecture of a genome."""

    @abstractmethod
    def encode(self, architecture: A) -> np.ndarray:
        """The genome of an architecture: int64 [len(genes)]."""

    @abstractmethod
    def parse(self, text: str) -> A:
        """An architecture from the benchmark's notation.

        Raises:
            ValueError: the text is malformed; the message names the bad part.
        """

    @abstractmethod
    def write(self, graph: Graph, architecture: A) -> Value:
        """Write the network into a graph; returns its output."""

    def validate(self, architecture: A) -> None:
        """Raise a ValueError that names the bad part if this is no architecture of the space."""
        self.parse(str(architecture))

    def checked(self, architecture: A) -> A:
        """The architecture itself, if it is one of the space; whatever else comes, a ValueError."""
        try:
            self.validate(architecture)
        except (AttributeError, IndexError, KeyError, TypeError):
            raise ValueError(
                f"{architecture!r} is no architecture of {self.name}: expected what its parse or decode gives"
            ) from None
        return architecture

    def shape(self, architecture: A) -> tuple[int, int, int]:
        """Channels, height and width of the architecture's input."""
        return self.input_shape

    def key(self, architecture: A) -> str:
        """Equal for architectures that compute the same function."""
        return str(architecture)

    def sample(self, rng: np.random.Generator) -> A:
        """A random architecture."""
        while True:
            found = self._attempt(rng.integers(self.genes))
            if found is not None:
                return found

    def mutate(self, architecture: A, rng: np.random.Generator) -> A:
        """Another architecture: a copy in which one gene has another value."""
        return self._varied(architecture, rng, 1)

    def crossover(self, a: A, b: A, rng: np.random.Generator) -> A:
        """A child with each gene from one of its parents; after some failures, a copy of one of them."""
        parents = self.encode(a), self.encode(b)
        for _ in range(50):
            child = self._attempt(np.where(rng.random(len(self.genes)) < 0.5, *parents))
            if child is not None:
                return child
        return (a, b)[int(rng.integers(2))]

    def _varied(self, architecture: A, rng: np.random.Generator, most: int) -> A:
        """A copy in which one to `most` genes have other values, drawn until it is another architecture."""
        genome, name, genes = self.encode(architecture), str(architecture), self.genes
        while True:
            changed = genome.copy()
            for gene in rng.choice(self._open_genes, int(rng.integers(1, most + 1)), replace=False).tolist():
                changed[gene] = (genome[gene] + rng.integers(1, genes[gene])) % genes[gene]
            found = self._attempt(changed)
            if found is not None and str(found) != name:
                return found

    @cached_property
    def _open_genes(self) -> np.ndarray:
        """Those that have a choice."""
        return np.flatnonzero(np.array(self.genes) > 1)

    def _attempt(self, genome: np.ndarray) -> A | None:
        """The architecture of a genome, if there is one."""
        try:
            return self.decode(genome)
        except ValueError:
            return None

    def to_onnx(self, architecture: A, weights: bool = False, batch: int = 1) -> onnx.ModelProto:
        """The network as an ONNX model.

        Args:
            architecture: of this space.
            weights: with freshly initialised weights, so that it runs; without, weights are inputs.
            batch: images at a time.
        """
        graph = Graph((batch, *self.shape(architecture)), weights)
        return graph.build(self.write(graph, architecture))

    def params(self, architecture: A) -> int:
        """Trainable parameters: batch norm's scale and bias, not its running statistics."""
        return self._counted(architecture).params

    def flops(self, architecture: A) -> int:
        """Multiply-accumulates of convolutions and linear layers for one image."""
        return self._counted(architecture).macs

    def _counted(self, architecture: A) -> Graph:
        graph = Graph((1, *self.shape(architecture)))
        self.write(graph, architecture)
        return graph

    def _checked(self, genome: np.ndarray) -> list[int]:
        """A genome as a list, if it is one."""
        genome = np.asarray(genome)
        if genome.shape != (len(self.genes),):
            raise ValueError(f"a genome of {self.name} has {len(self.genes)} genes, not shape {genome.shape}")
        found: list[int] = []
        for gene, choices in zip(genome.tolist(), self.genes, strict=True):
            if not 0 <= gene < choices or int(gene) != gene:
                raise ValueError(
                    f"gene {len(found)} of {self.name} is {gene}, expected an integer from 0 to {choices - 1}"
                )
            found.append(int(gene))
        return found
