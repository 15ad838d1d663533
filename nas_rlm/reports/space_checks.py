"""Checks that a user's own search space keeps the contract of SearchSpace."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import onnx

import search_spaces
from nas_rlm.graph.costs import compute_costs
from nas_rlm.text import from_architecture, from_onnx
from nas_rlm.text.parser import parse_network
from nas_rlm.utils.progress import progress_bar
from search_spaces import SearchSpace
from search_spaces.graph import Graph
from search_spaces.space import InvalidNetworkWarning
from search_spaces.wording import counted

NOT_ARCHITECTURES = ("", "?", "no such architecture", "[1, 2", '{"a": 1}')
MAX_ENUMERATED = 2048  # genomes, all of which are decoded
MAX_DRAWS = 1000  # random genomes, one of which has to have an architecture


@dataclass(frozen=True)
class SpaceReport:
    """What the check of a search space found, which keeps its contract.

    Args:
        space: name of the space.
        count: number of architectures that were checked.
        flops: smallest and largest multiply-accumulates.
        params: smallest and largest number of parameters.
        characters: length of the shortest and the longest text.
    """

    space: str
    count: int
    flops: tuple[int, int]
    params: tuple[int, int]
    characters: tuple[int, int]

    def __str__(self) -> str:
        ranges = {"flops": self.flops, "params": self.params, "characters of text": self.characters}
        texts = [f"{name} {low:,} to {high:,}" for name, (low, high) in ranges.items()]
        return f"{self.space}: {counted(self.count, 'architecture')} without problems; {', '.join(texts)}"


def check_space(
    space: str | SearchSpace[Any], count: int = 50, seed: int = 0, progress: bool = False
) -> SpaceReport:
    """Check that a search space keeps its contract, on random architectures.

    Sampling, mutation and crossover stay in the space, genome and notation round-trip, malformed notation is
    refused, and the size is right. Networks are valid ONNX models of any batch size, have exact costs, and
    depend on nothing but the architecture.

    Examples:
        >>> print(check_space("nats_size", count=2))  # doctest: +ELLIPSIS
        nats_size: 2 architectures without problems; flops ...

    Args:
        space: the space, its name, or the location of its class, see `search_spaces.get`.
        count: number of random architectures; each has a mutant and a crossover as well.
        seed: seed of the architectures.
        progress: show a progress bar.

    Raises:
        ValueError: the first violation, with the architecture; or the space cannot be loaded.
    """
    if count < 1:
        raise ValueError(f"the number of architectures is {count}, expected at least 1")
    space = search_spaces.checked(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InvalidNetworkWarning)  # such a network is a violation
        return _Check(space, seed).run(count, progress)


class _Check:
    """The checks of a space; each raises a ValueError at a violation."""

    def __init__(self, space: SearchSpace[Any], seed: int) -> None:
        self.space, self.rng = space, np.random.default_rng(seed)
        self.costs: list[tuple[int, int, int]] = []

    def run(self, count: int, progress: bool) -> SpaceReport:
        self._check_genomes()
        self._check_malformed_notation()
        previous: Any = None
        for _ in progress_bar(range(count), "check", unit="net", delay=2, disable=not progress):
            architecture = self._call("sample(rng)", lambda: self.space.sample(self.rng))
            self._check_architecture(architecture, "sample")
            self._check_variation(architecture, architecture if previous is None else previous)
            if self.space.left_out:
                raise self._violation(next(iter(self.space.left_out.values())))
            self._check_network(architecture)
            previous = architecture
        flops, params, characters = ((min(c), max(c)) for c in zip(*self.costs, strict=True))
        return SpaceReport(self.space.name, count, flops, params, characters)

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        """Return the result of a method of the space; `what` describes the call."""
        try:
            return function()
        except Exception as error:  # user code may raise anything
            raise self._violation(f"{what} raises {type(error).__name__}: {error}") from error

    def _violation(self, text: str) -> ValueError:
        return ValueError(f"{self.space.name}: {text}")

    def _decode(self, genome: np.ndarray) -> Any:
        """Return the architecture of a genome; None if `decode` raises a ValueError."""
        try:
            return self.space.decode(genome)
        except ValueError:
            return None
        except Exception as error:  # user code may raise anything
            raise self._violation(
                f"decode of the genome {genome.tolist()} raises {type(error).__name__}: {error};"
                " expected an architecture, or a ValueError for a genome without one"
            ) from error

    def _check_genomes(self) -> None:
        """Check decoding, and the size of the space; of a small space all genomes are decoded."""
        genes, size, total = self.space.genes, self.space.size, prod(self.space.genes)
        if max(genes) < 2:
            raise self._violation(f"genes are {genes}: expected at least one gene with two values or more")
        if size is not None and size > total:
            raise self._violation(f"size is {size:,}, but there are only {counted(total, 'genome')}")
        if total > MAX_ENUMERATED:
            genomes = (self.rng.integers(genes) for _ in range(MAX_DRAWS))
            draws_genomes = type(self.space).sample is SearchSpace.sample
            if draws_genomes and all(self._decode(genome) is None for genome in genomes):
                raise self._violation(f"decode raises a ValueError for each of {MAX_DRAWS:,} random genomes")
            return
        decoded = [self._decode(np.array(genome)) for genome in product(*map(range, genes))]
        names = {str(a) for a in decoded if a is not None}
        if size is not None and len(names) != size:
            raise self._violation(
                f"size is {size:,}, but the genomes have {counted(len(names), 'architecture')}"
            )

    def _check_malformed_notation(self) -> None:
        for text in NOT_ARCHITECTURES:
            try:
                found = self.space.parse(text)
            except ValueError:
                continue
            except Exception as error:  # user code may raise anything
                raise self._violation(
                    f"parse({text!r}) raises {type(error).__name__}: {error}; expected a ValueError"
                ) from error
            raise self._violation(f"parse({text!r}) returns {found!r}; expected a ValueError")

    def _check_architecture(self, architecture: Any, origin: str) -> None:
        """Check the notation and the genome of an architecture; `origin` says where it comes from."""
        space, name = self.space, str(architecture)
        where = f"architecture {name!r} of {origin}"
        if not name or name != name.strip() or len(name.splitlines()) != 1:
            raise self._violation(f"{where}: expected one line without blanks at its ends")
        parsed = self._call(f"{where}: parse", lambda: space.parse(name))
        if parsed != architecture:
            raise self._violation(f"{where}: parse(str(a)) is {parsed!r}, not {architecture!r}")
        if str(parsed) != name:
            raise self._violation(f"{where}: str(parse(str(a))) is {str(parsed)!r}")
        genome = np.asarray(self._call(f"{where}: encode", lambda: space.encode(architecture)))
        self._call(f"{where}: encode is not a genome", lambda: space.validate_genome(genome))
        decoded = self._call(f"{where}: decode(encode(a))", lambda: space.decode(genome))
        if decoded != architecture:
            raise self._violation(f"{where}: decode(encode(a)) is {str(decoded)!r}")
        self._call(f"{where}: validate", lambda: space.validate(architecture))
        self._call(f"{where}: hash", lambda: hash(architecture))

    def _check_variation(self, a: Any, b: Any) -> None:
        """Check that mutation and crossover stay in the space."""
        before = str(a)
        mutant = self._call(f"mutate of {a}", lambda: self.space.mutate(a, self.rng))
        self._check_architecture(mutant, f"mutate({a})")
        if str(mutant) == before:
            raise self._violation(f"mutate({a}) returns the same architecture")
        child = self._call(f"crossover of {a} and {b}", lambda: self.space.crossover(a, b, self.rng))
        self._check_architecture(child, f"crossover({a}, {b})")
        if str(a) != before:
            raise self._violation(f"mutate or crossover changes its argument {before} to {a}")

    def _check_network(self, architecture: Any) -> None:
        """Check the network of an architecture: its text, its costs, and its batch size."""
        space, where = self.space, f"architecture {str(architecture)!r}"
        text = self._call(where, lambda: from_architecture(space, architecture))
        model = self._call(where, lambda: space.to_onnx(architecture))
        if from_architecture(space, space.parse(str(architecture))) != text or from_onnx(model) != text:
            raise self._violation(f"{where}: write gives another network when it is called again")
        self._call(f"{where}: its ONNX model", lambda: onnx.checker.check_model(model, full_check=True))
        costs = self._call(where, lambda: compute_costs(parse_network(text)).totals())
        found = self._call(where, lambda: (space.flops(architecture), space.params(architecture)))
        if found != (costs["flops"], costs["params"]) and not space.is_built_in:
            raise self._violation(
                f"{where}: flops and params are {found[0]:,} and {found[1]:,}, but those of its network are"
                f" {int(costs['flops']):,} and {int(costs['params']):,}"
            )
        batch = space.batch_size + 1
        graph = Graph((batch, *space.shape(architecture)), input_type=space.input_type)
        out = self._call(f"{where} with a batch of {batch}", lambda: space.write(graph, architecture))
        if out.shape[:1] != (batch,):
            raise self._violation(
                f"{where}: with a batch of {batch} its output has the shape {list(out.shape)}, where reshapes"
                " need 0 or -1 in place of the batch size"
            )
        self.costs.append((*found, len(text)))
