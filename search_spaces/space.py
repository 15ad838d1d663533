"""SearchSpace, the interface of all search spaces."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import onnx

from search_spaces.graph import Graph, Value
from search_spaces.wording import counted

A = TypeVar("A")
IMAGE_CLASSIFICATION, LANGUAGE_MODELLING = "image classification", "language modelling"
MAX_GENOMES = 50_000  # random ones without an architecture, before a space is found to have none
MAX_INVALID = 200  # random ones whose networks are not valid, likewise; these take longer
MAX_MUTATIONS, MAX_RANDOM_ONES = 1000, 100  # of an architecture, before it is found to have no neighbours
DEFAULT_TASKS = "tasks on vectors", "tasks on signals", IMAGE_CLASSIFICATION, "tasks on volumes"  # by axes


class InvalidNetworkError(ValueError):
    """The network of an architecture of a user's own space is not valid."""


class InvalidNetworkWarning(UserWarning):
    """Architectures of a user's own space are left out, since their networks are not valid."""


class SearchSpace(ABC, Generic[A]):
    """A set of architectures, each a frozen dataclass whose `str` is the benchmark's own notation.

    A subclass defines the notation, the genome and the network. Sampling and the variation operators work on
    the genome unless the subclass overrides them.

    Attributes:
        name: name for `search_spaces.get`.
        size: number of architectures; None if it is unknown.
        genes: number of values of each gene; gene i of a genome is an integer from 0 to genes[i] - 1.
        input_shape: sizes of the networks' input without the batch, if all networks have the same: channels,
            height and width of images, channels and length of signals, channels, depth, height and width of
            volumes, the number of features of vectors, or the number of token ids.
        input_type: element type of the input: `float`, or `int64` of token ids.
        task: what the networks are trained for; empty for `IMAGE_CLASSIFICATION` of images,
            `LANGUAGE_MODELLING` of token ids, and other tasks on other inputs. Accuracies transfer within one
            task.
        batch_size: number of inputs that a network reads at once. ONNX models, texts and `flops` are those of
            a batch of this size.
        location: `FILE.py:CLASS` or `MODULE:CLASS` of a space that was loaded from there; otherwise empty.
    """

    name: str
    size: int | None
    genes: tuple[int, ...]
    input_shape: tuple[int, ...] = (3, 32, 32)
    input_type: str = "float"
    task: str = ""
    batch_size: int = 1
    location: str = ""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        self.__dict__.pop("_costs", None)  # those of networks with another value of the attribute

    @property
    def is_built_in(self) -> bool:
        """True for the spaces of this package; networks of others are checked while they are built."""
        return type(self).__module__.partition(".")[0] == __name__.partition(".")[0]

    @property
    def known_task(self) -> str:
        """What the networks are trained for: `task`, or what is usual with their input."""
        of_input = (
            LANGUAGE_MODELLING if self.input_type != "float" else DEFAULT_TASKS[len(self.input_shape) - 1]
        )
        return self.task or of_input

    @abstractmethod
    def decode(self, genome: np.ndarray) -> A:
        """Return the architecture of a genome.

        Args:
            genome: integers [len(genes)].

        Raises:
            ValueError: the genome has no architecture.
        """

    @abstractmethod
    def encode(self, architecture: A) -> np.ndarray:
        """Return the genome of an architecture, int64 [len(genes)]."""

    @abstractmethod
    def parse(self, text: str) -> A:
        """Return the architecture of a text in the benchmark's notation.

        Raises:
            ValueError: the text is malformed; the message names the bad part.
        """

    @abstractmethod
    def write(self, graph: Graph, architecture: A) -> Value:
        """Write the network into a graph and return its output.

        `search_spaces.blocks` has common layers. Operators of users' own spaces are checked.
        """

    def write_checked(self, graph: Graph, architecture: A) -> Value:
        """Write the network into a graph and return its output; errors name the architecture.

        Raises:
            InvalidNetworkError: the network of a user's own space is not valid.
        """
        if self.is_built_in:
            return self.write(graph, architecture)
        try:
            return graph.checked_output(self.write(graph, architecture))
        except (Exception, SystemExit) as error:  # user code may raise anything
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise InvalidNetworkError(
                f"the network of {architecture} of {self.name} is not valid: {reason}"
            ) from error

    def validate(self, architecture: A) -> None:
        """Check that an architecture belongs to the space.

        Raises:
            ValueError: the architecture is not in the space; the message names the bad part.
        """
        self.parse(str(architecture))

    def validated(self, architecture: A) -> A:
        """Return an architecture, checked to belong to the space.

        Raises:
            ValueError: the architecture is not in the space, or has another type.
        """
        try:
            self.validate(architecture)
        except (AttributeError, IndexError, KeyError, TypeError):
            raise ValueError(
                f"{architecture!r} is no architecture of {self.name}: expected a result of parse or decode"
            ) from None
        return architecture

    def as_architecture(self, given: A | str) -> A:
        """Return an architecture of the space that is given as such or in the benchmark's notation.

        Raises:
            ValueError: it is not in the space.
        """
        return self.parse(given) if isinstance(given, str) else self.validated(given)

    def shape(self, architecture: A) -> tuple[int, ...]:
        """Return the sizes of the architecture's input without the batch, as `input_shape` has them."""
        return self.input_shape

    def key(self, architecture: A) -> str:
        """Return a string that is equal for architectures that compute the same function."""
        return str(architecture)

    def sample(self, rng: np.random.Generator) -> A:
        """Return a random architecture, by sampling uniform genomes until one has an architecture.

        Architectures of a user's own space whose networks are not valid are left out, with one warning.

        Raises:
            ValueError: none of `MAX_GENOMES` random genomes has one, or `MAX_INVALID` have invalid networks.
        """
        num_drawn = num_invalid = 0
        while num_drawn < MAX_GENOMES and num_invalid < MAX_INVALID:
            genome = rng.integers(self.genes)
            num_drawn += 1
            try:
                return self.decode_valid(genome)
            except InvalidNetworkError as error:
                reason = str(error)
                num_invalid += 1
            except ValueError as error:
                reason = f"decode raised for {genome.tolist()}: {error}"
        kind = "an architecture with a valid network" if num_invalid else "an architecture"
        raise ValueError(f"none of {num_drawn:,} random genomes of {self.name} has {kind}; {reason}")

    def decode_valid(self, genome: np.ndarray) -> A:
        """Return the architecture of a genome, whose network is valid.

        Args:
            genome: integers [len(genes)].

        Raises:
            ValueError: the genome has no architecture.
            InvalidNetworkError: the network of a user's own space is not valid.

        Warns:
            InvalidNetworkWarning: it is the first such network of the space.
        """
        architecture = self.decode(genome)
        if error := self.network_error(architecture):
            if not self.left_out:
                message = f"{error}; architectures of such networks are left out"
                warnings.warn(message, InvalidNetworkWarning, stacklevel=2)
            self.left_out[str(architecture)] = error
            raise InvalidNetworkError(error)
        return architecture

    def mutate(self, architecture: A, rng: np.random.Generator) -> A:
        """Return another architecture that differs in one gene, see `_mutate_genes`."""
        return self._mutate_genes(architecture, rng, 1)

    def crossover(self, a: A, b: A, rng: np.random.Generator) -> A:
        """Return a child that takes each gene from one of its parents.

        If 50 random children have no architecture, one of the parents is returned.
        """
        parents = self.encode(a), self.encode(b)
        for _ in range(50):
            child = self._decode_or_none(np.where(rng.random(len(self.genes)) < 0.5, *parents))
            if child is not None:
                return child
        return (a, b)[int(rng.integers(2))]

    def _mutate_genes(self, architecture: A, rng: np.random.Generator, max_genes: int) -> A:
        """Return another architecture that differs in one to `max_genes` genes.

        It is a random one where none of `MAX_MUTATIONS` such genomes has another architecture, and the
        architecture itself where that fails as well: the space seems to have no other.
        """
        genome, name, genes = self.encode(architecture), str(architecture), self.genes
        for _ in range(MAX_MUTATIONS if len(self._variable_genes) else 0):
            changed = genome.copy()
            for gene in rng.choice(
                self._variable_genes, int(rng.integers(1, max_genes + 1)), replace=False
            ).tolist():
                changed[gene] = (genome[gene] + rng.integers(1, genes[gene])) % genes[gene]
            candidate = self._decode_or_none(changed)
            if candidate is not None and str(candidate) != name:
                return candidate
        drawn = (self.sample(rng) for _ in range(MAX_RANDOM_ONES))
        return next((candidate for candidate in drawn if str(candidate) != name), architecture)

    @cached_property
    def _variable_genes(self) -> np.ndarray:
        """Indices of genes with more than one possible value."""
        return np.flatnonzero(np.array(self.genes) > 1)

    def network_error(self, architecture: A | str) -> str:
        """Return why the network of a user's own space is not valid; empty if it is, and for other spaces.

        The network is built once, and a text is parsed once.
        """
        if self.is_built_in:
            return ""
        costs = self._known_costs(architecture)
        return costs if isinstance(costs, str) else ""

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Architectures that were drawn and have no valid network, with the reasons."""
        return {}

    @cached_property
    def _costs(self) -> dict[str, tuple[int, int] | str]:
        """Results of `_known_costs` by architecture."""
        return {}

    def _decode_or_none(self, genome: np.ndarray) -> A | None:
        """Return the architecture of a genome; None if the genome has none with a valid network."""
        try:
            return self.decode_valid(genome)
        except ValueError:
            return None

    def to_onnx(
        self, architecture: A, weights: bool = False, batch: int | None = None, seed: int = 0
    ) -> onnx.ModelProto:
        """Return the network as an ONNX model.

        Args:
            architecture: architecture of this space.
            weights: include initialised weights, so that the model runs; otherwise weights are inputs.
            batch: batch size; by default `batch_size`.
            seed: seed of the initial weights.

        Raises:
            ValueError: the weights are larger than an ONNX file can be, or a user's own network is not valid.
        """
        graph = Graph(
            (self.batch_size if batch is None else batch, *self.shape(architecture)),
            weights,
            seed=seed,
            checked=not self.is_built_in,
            input_type=self.input_type,
        )
        return graph.build(self.write_checked(graph, architecture))

    def params(self, architecture: A) -> int:
        """Return the number of trainable parameters, without the running statistics of batch norm."""
        return self._checked_costs(architecture)[0]

    def flops(self, architecture: A) -> int:
        """Return the multiply-accumulates of convolutions and matrix products for `batch_size` inputs."""
        return self._checked_costs(architecture)[1]

    def _checked_costs(self, architecture: A) -> tuple[int, int]:
        """Return `params` and `flops` of an architecture.

        Raises:
            InvalidNetworkError: the network of a user's own space is not valid.
        """
        costs = self._count_costs(architecture) if self.is_built_in else self._known_costs(architecture)
        if isinstance(costs, str):
            raise InvalidNetworkError(costs)
        return costs

    def _known_costs(self, architecture: A | str) -> tuple[int, int] | str:
        """Return `params` and `flops` of a network of a user's own space, or why it is not valid."""
        name = str(architecture)
        if name not in self._costs:
            try:
                parsed = self.parse(architecture) if isinstance(architecture, str) else architecture
                self._costs[name] = self._count_costs(parsed)
            except InvalidNetworkError as error:
                self._costs[name] = str(error)
        return self._costs[name]

    def _count_costs(self, architecture: A) -> tuple[int, int]:
        """Build a network, and return its numbers of parameters and of multiply-accumulates."""
        shape, is_checked = (self.batch_size, *self.shape(architecture)), not self.is_built_in
        graph = Graph(shape, checked=is_checked, input_type=self.input_type)
        self.write_checked(graph, architecture)
        return graph.params, graph.macs

    def validate_genome(self, genome: np.ndarray) -> list[int]:
        """Return a genome as a list of integers.

        Raises:
            ValueError: the genome has another shape, or a gene is out of range.
        """
        genome = np.asarray(genome)
        if genome.shape != (len(self.genes),):
            raise ValueError(
                f"a genome of {self.name} has {counted(len(self.genes), 'gene')}, not shape {genome.shape}"
            )
        genes: list[int] = []
        for gene, choices in zip(genome.tolist(), self.genes, strict=True):
            if not 0 <= gene < choices or int(gene) != gene:
                raise ValueError(
                    f"gene {len(genes)} of {self.name} is {gene}, expected an integer from 0 to {choices - 1}"
                )
            genes.append(int(gene))
        return genes
