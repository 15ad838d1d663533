"""SNAS: random small convolutional networks for cheap pretraining data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate

import numpy as np

from search_spaces.graph import Graph, Value
from search_spaces.layers import add, conv_bn, conv_bn_relu
from search_spaces.space import SearchSpace

STEMS, STACKS, CELLS, MULTIPLIERS = (16, 24, 32, 48), (2, 3, 4), (1, 2, 3), (1.0, 1.5, 2.0)
MOST_NODES = 5
MACRO = re.compile(r"w(\d{1,4})_s(\d{1,2})_c(\d{1,2})_m(\d{1,2}\.\d{1,4})_r([01])", re.ASCII)
CLASSES = 10
EXAMPLE = "w32_s3_c2_m2.0_r1|conv_3x3:0|sep_3x3:0,1|max_pool_3x3:2"


@dataclass(frozen=True)
class Node:
    """An operator, applied to the sum of one or two earlier values; 0 is the cell's input."""

    operator: str
    sources: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.operator}:{','.join(map(str, self.sources))}"


@dataclass(frozen=True)
class Network:
    """The channels of the first stack, the multiplier from stack to stack, and the cell they all repeat."""

    stem: int
    stacks: int
    cells: int
    multiplier: float
    residual: bool
    nodes: tuple[Node, ...]

    def __str__(self) -> str:
        macro = f"w{self.stem}_s{self.stacks}_c{self.cells}_m{self.multiplier}_r{int(self.residual)}"
        return "|".join([macro, *map(str, self.nodes)])


class SNAS(SearchSpace[Network]):
    """The synthetic space of the paper's appendix D.3, as this project fills in its details.

    A network is a 3x3 stem of stride 2 and stacks of equal cells; between stacks another such convolution
    changes the channels. A cell is a DAG of one to five nodes; the nodes that no other reads are summed, with
    the cell's input where residuals are on.

    >>> SNAS().parse(EXAMPLE).stem
    32
    """

    name = "snas"

    def __init__(self) -> None:
        self.macro = (STEMS, STACKS, CELLS, MULTIPLIERS, (False, True))
        nodes = [g for i in range(MOST_NODES) for g in (len(OPERATORS), i + 1, i + 2)]
        self.genes = (*map(len, self.macro), MOST_NODES, *nodes)
        of_node = (len(OPERATORS) * ((i + 1) + (i + 1) * i // 2) for i in range(MOST_NODES))
        cells = sum(accumulate(of_node, lambda a, b: a * b))
        self.size = int(np.prod([len(c) for c in self.macro])) * cells

    def decode(self, genome: np.ndarray) -> Network:
        stem, stacks, cells, multiplier, residual, more, *edges = self._checked(genome)
        nodes = []
        for i in range(more + 1):
            operator, first, second = edges[3 * i : 3 * i + 3]
            sources = {first} if second == i + 1 else {first, second}
            nodes.append(Node(tuple(OPERATORS)[operator], tuple(sorted(sources))))
        return Network(
            STEMS[stem], STACKS[stacks], CELLS[cells], MULTIPLIERS[multiplier], bool(residual), tuple(nodes)
        )

    def encode(self, architecture: Network) -> np.ndarray:
        a = architecture
        chosen = (a.stem, a.stacks, a.cells, a.multiplier, a.residual)
        genome = [c.index(v) for c, v in zip(self.macro, chosen, strict=True)] + [len(a.nodes) - 1]
        for i in range(MOST_NODES):
            if i < len(a.nodes):
                node = a.nodes[i]
                second = node.sources[1] if len(node.sources) > 1 else i + 1
                genome += [list(OPERATORS).index(node.operator), node.sources[0], second]
            else:
                genome += [0, 0, i + 1]
        return np.array(genome)

    def key(self, architecture: Network) -> str:
        """The macro configuration, and the ends of the cell as expressions of its input."""
        written = ["0"]
        for node in architecture.nodes:
            written.append(f"{node.operator}({'+'.join(sorted(written[s] for s in node.sources))})")
        read = {s for node in architecture.nodes for s in node.sources}
        ends = sorted(text for i, text in enumerate(written) if i and i not in read)
        return f"{str(architecture).partition('|')[0]}|{'+'.join(ends)}"

    def parse(self, text: str) -> Network:
        macro, *cell = text.strip().split("|")
        found = MACRO.fullmatch(macro)
        if found is None or not 1 <= len(cell) <= MOST_NODES:
            raise ValueError(
                f"{text!r} is not a macro configuration and 1 to {MOST_NODES} nodes, such as {EXAMPLE}"
            )
        given = (int(found[1]), int(found[2]), int(found[3]), float(found[4]), found[5] == "1")
        for name, value, choices in zip(
            ("stem", "stacks", "cells", "multiplier", "residual"), given, self.macro, strict=True
        ):
            if value not in choices:
                expected = ", ".join(map(str, choices))
                raise ValueError(f"{name} of {text!r} is {value}, expected one of {expected}")
        return Network(*given, tuple(_node(part, i, text) for i, part in enumerate(cell)))

    def write(self, graph: Graph, architecture: Network) -> Value:
        x = graph.block(conv_bn_relu, graph.input, architecture.stem, 3, 2)
        for stack in range(architecture.stacks):
            if stack:
                channels = architecture.stem * architecture.multiplier**stack
                x = graph.block(conv_bn_relu, x, int(channels) // 8 * 8, 3, 2)
            for _ in range(architecture.cells):
                x = graph.block(_cell, x, architecture)
        return graph.classifier(x, CLASSES)


def _node(part: str, i: int, text: str) -> Node:
    operator, colon, sources = part.partition(":")
    if operator not in OPERATORS:
        near = get_close_matches(operator, OPERATORS, n=1, cutoff=0)[0]
        raise ValueError(f"unknown operator {operator!r} in {text!r}; did you mean {near!r}?")
    read = tuple(int(s) if re.fullmatch("[0-9]", s) else -1 for s in sources.split(","))
    if not colon or len(read) > 2 or sorted(set(read)) != list(read) or not set(read) <= set(range(i + 1)):
        raise ValueError(
            f"node {i + 1} of {text!r} reads {sources!r}, expected one or two values from 0 to {i}, in order"
        )
    return Node(operator, read)


def _cell(graph: Graph, x: Value, architecture: Network) -> Value:
    values = [x]
    for node in architecture.nodes:
        values.append(OPERATORS[node.operator](graph, add(graph, *(values[s] for s in node.sources))))
    read = {s for node in architecture.nodes for s in node.sources}
    loose = [v for i, v in enumerate(values) if i and i not in read]
    return add(graph, *loose, *([x] if architecture.residual else []))


def _separable(kernel: int) -> Callable[[Graph, Value], Value]:
    def write(graph: Graph, x: Value) -> Value:
        y = graph.block(conv_bn_relu, x, x.channels, kernel, 1, x.channels)
        return graph.op("Relu", conv_bn(graph, y, x.channels, 1))

    return write


OPERATORS: dict[str, Callable[[Graph, Value], Value]] = {
    "conv_1x1": lambda graph, x: graph.block(conv_bn_relu, x, x.channels, 1),
    "conv_3x3": lambda graph, x: graph.block(conv_bn_relu, x, x.channels, 3),
    "sep_3x3": _separable(3),
    "sep_5x5": _separable(5),
    "max_pool_3x3": lambda graph, x: graph.pool("MaxPool", x, 3, padded=True),
    "avg_pool_3x3": lambda graph, x: graph.pool("AveragePool", x, 3, padded=True),
}
