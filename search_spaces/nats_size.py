"""The size space of NATS-Bench: the best NAS-Bench-201 cell, with the channels of each stage to choose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from search_spaces.graph import Graph, Value
from search_spaces.layers import relu_conv_bn
from search_spaces.nasbench201 import reduction
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

CHOICES = (8, 16, 24, 32, 40, 48, 56, 64)
EXAMPLE = "16:32:40:64:8"


@dataclass(frozen=True)
class Channels:
    """An architecture: channels of the five stages (cell, reduction, cell, reduction, cell)."""

    widths: tuple[int, ...]

    def __str__(self) -> str:
        return ":".join(map(str, self.widths))


class NATSSize(SearchSpace[Channels]):
    """The size search space of NATS-Bench (Dong et al. 2021), on CIFAR-10.

    Examples:
        >>> NATSSize().params(Channels((8, 8, 8, 8, 8)))
        11714
    """

    name = "nats_size"
    size = len(CHOICES) ** 5
    genes = (len(CHOICES),) * 5

    def decode(self, genome: np.ndarray) -> Channels:
        return Channels(tuple(CHOICES[g] for g in self.validate_genome(genome)))

    def encode(self, architecture: Channels) -> np.ndarray:
        return np.array([CHOICES.index(w) for w in architecture.widths])

    def parse(self, text: str) -> Channels:
        parts = text.strip().split(":")
        if len(parts) != 5:
            raise ValueError(
                f"{text!r} has {counted(len(parts), 'number')} joined by ':', expected 5 as in {EXAMPLE!r}"
            )
        for stage, part in enumerate(parts, start=1):
            if part not in map(str, CHOICES):
                choices = ", ".join(map(str, CHOICES))
                raise ValueError(
                    f"stage {stage} of {text!r} has {part!r} channels, expected one of {choices}"
                )
        return Channels(tuple(map(int, parts)))

    def write(self, graph: Graph, architecture: Channels) -> Value:
        c1, c2, c3, c4, c5 = architecture.widths
        x = graph.batch_norm(graph.conv(graph.input, c1, kernel=3))
        x = graph.block(_cell, x, c1)
        x = graph.block(reduction, x, c2)
        x = graph.block(_cell, x, c3)
        x = graph.block(reduction, x, c4)
        x = graph.block(_cell, x, c5)
        x = graph.op("Relu", graph.batch_norm(x))
        return graph.classifier(x, 10)


def _cell(graph: Graph, x: Value, channels: int) -> Value:
    """Write a cell of 3x3 convolutions with a skip from the input, projected if the channels change."""

    def edge(y: Value) -> Value:
        return graph.block(relu_conv_bn, y, channels, 3)

    first = edge(x)
    second = graph.op("Add", edge(x), edge(first))
    skip = x if x.channels == channels else graph.batch_norm(graph.conv(x, channels, kernel=1))
    return graph.op("Add", graph.op("Add", skip, edge(first)), edge(second))
