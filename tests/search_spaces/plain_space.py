"""A user's own search space: three convolutions, each with a choice of kernel and width."""

from dataclasses import dataclass

import numpy as np

from search_spaces import SearchSpace, blocks
from search_spaces.graph import Graph, Value

KERNELS, WIDTHS = (1, 3, 5), (16, 32, 64)


@dataclass(frozen=True)
class Plain:
    stages: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return " ".join(f"{kernel}x{width}" for kernel, width in self.stages)


class PlainSpace(SearchSpace[Plain]):
    name = "plain"
    size = 9**3
    genes = (3, 3) * 3

    def decode(self, genome: np.ndarray) -> Plain:
        g = self.validate_genome(genome)
        return Plain(tuple((KERNELS[k], WIDTHS[w]) for k, w in zip(g[::2], g[1::2], strict=True)))

    def encode(self, architecture: Plain) -> np.ndarray:
        return np.array([g for k, w in architecture.stages for g in (KERNELS.index(k), WIDTHS.index(w))])

    def parse(self, text: str) -> Plain:
        choices = {f"{kernel}x{width}": (kernel, width) for kernel in KERNELS for width in WIDTHS}
        stages = text.split(" ")
        if len(stages) != 3 or not choices.keys() >= {*stages}:
            raise ValueError(f"{text!r} is not like 3x16 5x32 1x64")
        return Plain(tuple(choices[stage] for stage in stages))

    def write(self, graph: Graph, architecture: Plain) -> Value:
        x = graph.input
        for kernel, width in architecture.stages:
            x = graph.op("Relu", graph.batch_norm(graph.conv(x, width, kernel, stride=2)))
        return graph.classifier(x, 10)


PLAIN = PlainSpace()


class DropoutSpace(SearchSpace[str]):
    """Plain networks with or without dropout, which their text does not have."""

    name = "dropout"
    size = 2 * 9**3
    genes = (2, *PlainSpace.genes)

    def decode(self, genome: np.ndarray) -> str:
        word, *rest = self.validate_genome(genome)
        return f"{('keep', 'drop')[word]} {PLAIN.decode(np.array(rest))}"

    def encode(self, architecture: str) -> np.ndarray:
        word, _, plain = architecture.partition(" ")
        return np.array([("keep", "drop").index(word), *PLAIN.encode(PLAIN.parse(plain))])

    def parse(self, text: str) -> str:
        word, _, plain = text.partition(" ")
        return f"{('keep', 'drop')[word == 'drop']} {PLAIN.parse(plain)}"

    def write(self, graph: Graph, architecture: str) -> Value:
        word, _, plain = architecture.partition(" ")
        x = blocks.dropout(graph, graph.input, 0.2) if word == "drop" else graph.input
        for kernel, width in PLAIN.parse(plain).stages:
            x = graph.op("Relu", graph.batch_norm(graph.conv(x, width, kernel, stride=2)))
        return graph.classifier(x, 10)
