"""SNAS: a synthetic space of small convolutional networks for cheap pretraining data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from search_spaces.graph import Graph, Value
from search_spaces.layers import add, conv_bn, conv_bn_relu
from search_spaces.notation import most_similar
from search_spaces.space import SearchSpace

STEMS, STACKS, CELLS, MULTIPLIERS = (16, 24, 32, 48), (2, 3, 4), (1, 2, 3), (1.0, 1.5, 2.0)
MAX_NODES = 5
MACRO = re.compile(r"w(\d{1,4})_s(\d{1,2})_c(\d{1,2})_m(\d{1,2}\.\d{1,4})_r([01])", re.ASCII)
CLASSES = 10
EXAMPLE = "w32_s3_c2_m2.0_r1|conv_3x3:0|sep_3x3:0,1|max_pool_3x3:2"


@dataclass(frozen=True)
class Node:
    """A node of a cell: an operator on the sum of one or two earlier values; value 0 is the cell's input."""

    operator: str
    sources: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.operator}:{','.join(map(str, self.sources))}"


@dataclass(frozen=True)
class Network:
    """An architecture: the configuration of the network and the nodes of its cell.

    Args:
        stem: channels of the first stack.
        stacks: number of stacks.
        cells: number of cells in each stack.
        multiplier: ratio of the channels of consecutive stacks.
        residual: add the input of each cell to its output.
        nodes: nodes of the cell.
    """

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
    """The synthetic space of "Regression Language Models for Code" (arXiv 2509.26476), appendix D.3.

    Details that the paper does not specify are chosen here.

    A network has a 3x3 stem of stride 2 and stacks of equal cells, with a 3x3 convolution of stride 2 between
    stacks. A cell is a DAG of one to five nodes. Its output is the sum of the nodes that no other node reads
    and, in a residual network, of the input.

    Examples:
        >>> SNAS().parse(EXAMPLE).stem
        32
    """

    name = "snas"

    def __init__(self) -> None:
        self.macro = (STEMS, STACKS, CELLS, MULTIPLIERS, (False, True))
        nodes = [g for i in range(MAX_NODES) for g in (len(OPERATORS), i + 1, i + 2)]
        self.genes = (*map(len, self.macro), MAX_NODES, *nodes)
        num_choices = (len(OPERATORS) * ((i + 1) + (i + 1) * i // 2) for i in range(MAX_NODES))
        cells = sum(accumulate(num_choices, lambda a, b: a * b))
        self.size = int(np.prod([len(c) for c in self.macro])) * cells

    def decode(self, genome: np.ndarray) -> Network:
        stem, stacks, cells, multiplier, residual, num_extra_nodes, *edges = self.validate_genome(genome)
        nodes = []
        for i in range(num_extra_nodes + 1):
            operator, first, second = edges[3 * i : 3 * i + 3]
            sources = {first} if second == i + 1 else {first, second}
            nodes.append(Node(tuple(OPERATORS)[operator], tuple(sorted(sources))))
        return Network(
            STEMS[stem], STACKS[stacks], CELLS[cells], MULTIPLIERS[multiplier], bool(residual), tuple(nodes)
        )

    def encode(self, architecture: Network) -> np.ndarray:
        a = architecture
        macro_values = (a.stem, a.stacks, a.cells, a.multiplier, a.residual)
        genome = [c.index(v) for c, v in zip(self.macro, macro_values, strict=True)] + [len(a.nodes) - 1]
        for i in range(MAX_NODES):
            if i < len(a.nodes):
                node = a.nodes[i]
                second = node.sources[1] if len(node.sources) > 1 else i + 1
                genome += [list(OPERATORS).index(node.operator), node.sources[0], second]
            else:
                genome += [0, 0, i + 1]
        return np.array(genome)

    def key(self, architecture: Network) -> str:
        """Return the configuration and the outputs of the cell as expressions; equal for equivalent cells."""
        expressions = ["0"]
        for node in architecture.nodes:
            expressions.append(f"{node.operator}({'+'.join(sorted(expressions[s] for s in node.sources))})")
        read = {s for node in architecture.nodes for s in node.sources}
        outputs = sorted(text for i, text in enumerate(expressions) if i and i not in read)
        return f"{str(architecture).partition('|')[0]}|{'+'.join(outputs)}"

    def parse(self, text: str) -> Network:
        macro, *cell = text.strip().split("|")
        match = MACRO.fullmatch(macro)
        if match is None or not 1 <= len(cell) <= MAX_NODES:
            raise ValueError(
                f"{text!r} is not a macro configuration and 1 to {MAX_NODES} nodes, such as {EXAMPLE}"
            )
        values = (int(match[1]), int(match[2]), int(match[3]), float(match[4]), match[5] == "1")
        for name, value, choices in zip(
            ("stem", "stacks", "cells", "multiplier", "residual"), values, self.macro, strict=True
        ):
            if value not in choices:
                expected = ", ".join(map(str, choices))
                raise ValueError(f"{name} of {text!r} is {value}, expected one of {expected}")
        return Network(*values, tuple(_node(part, i, text) for i, part in enumerate(cell)))

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
    """Parse the text of node i of an architecture; `text` is the whole architecture, for error messages."""
    operator, colon, sources = part.partition(":")
    if operator not in OPERATORS:
        similar = most_similar(operator, OPERATORS)
        raise ValueError(f"unknown operator {operator!r} in {text!r}; did you mean {similar!r}?")
    read = tuple(int(s) if re.fullmatch("[0-9]", s) else -1 for s in sources.split(","))
    if not colon or len(read) > 2 or sorted(set(read)) != list(read) or not set(read) <= set(range(i + 1)):
        raise ValueError(
            f"node {i + 1} of {text!r} reads {sources!r}, expected one or two values from 0 to {i}, in order"
        )
    return Node(operator, read)


def _cell(graph: Graph, x: Value, architecture: Network) -> Value:
    """Write a cell of the architecture."""
    values = [x]
    for node in architecture.nodes:
        values.append(OPERATORS[node.operator](graph, add(graph, *(values[s] for s in node.sources))))
    read = {s for node in architecture.nodes for s in node.sources}
    unread = [v for i, v in enumerate(values) if i and i not in read]
    return add(graph, *unread, *([x] if architecture.residual else []))


def _separable(kernel: int) -> Callable[[Graph, Value], Value]:
    """Return a function that writes a depthwise-separable convolution."""

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
