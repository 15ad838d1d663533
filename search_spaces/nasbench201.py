"""NAS-Bench-201: cells of four nodes with one of five operators on each of six edges."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from search_spaces.graph import Constant, Graph, Value
from search_spaces.layers import conv_bn, relu_conv_bn
from search_spaces.notation import abbreviated, most_similar, read_json
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

OPERATORS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # from node, to node, in the notation's order
EDGE_KEYS = ("{0}_{1}", "{1}<-{0}")  # of JSON notations
NNI_OPERATORS = {"conv_1x1": "nor_conv_1x1", "conv_3x3": "nor_conv_3x3"}
INTO = {node: [(i, source) for i, (source, n) in enumerate(EDGES) if n == node] for node in (1, 2, 3)}
EXAMPLE = "|avg_pool_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|nor_conv_1x1~0|skip_connect~1|skip_connect~2|"
CHANNELS = (16, 32, 64)
CELLS = 5


@dataclass(frozen=True)
class Cell201:
    """An architecture: the operator of each edge of a cell, in the order of EDGES."""

    operators: tuple[str, ...]

    def __str__(self) -> str:
        a, b, c, d, e, f = self.operators
        return f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|"

    def incoming(self, node: int) -> list[tuple[int, str]]:
        """Return the source node and operator of each edge to a node."""
        return [(source, self.operators[i]) for i, source in INTO[node]]


class NASBench201(SearchSpace[Cell201]):
    """The NAS-Bench-201 space of Dong and Yang 2020, on CIFAR-10.

    Examples:
        >>> space = NASBench201()
        >>> cell = space.parse(EXAMPLE)
        >>> space.params(cell)
        129306
    """

    name = "nasbench201"
    size = len(OPERATORS) ** len(EDGES)
    genes = (len(OPERATORS),) * len(EDGES)

    def decode(self, genome: np.ndarray) -> Cell201:
        return Cell201(tuple([OPERATORS[g] for g in self.validate_genome(genome)]))

    def encode(self, architecture: Cell201) -> np.ndarray:
        return np.array([OPERATORS.index(o) for o in architecture.operators])

    def parse(self, text: str) -> Cell201:
        """Return the architecture of a text.

        Args:
            text: the notation of the benchmark, in which white space is ignored; or JSON with the operator of
                each edge, with the keys `0_1` (source and target, as in NNI) or `1<-0` (target and source, as
                in the configuration spaces of AutoDL). NNI's names `conv_1x1` and `conv_3x3` are known.

        Raises:
            ValueError: the text is malformed; the message names the bad part.
        """
        if text.strip().startswith("{"):
            return _parse_edges(text)
        notation = "".join(text.split())
        nodes = notation.split("+")
        if len(nodes) != 3:
            raise ValueError(
                f"{text!r} has {counted(len(nodes), 'node')} joined by '+', expected 3 as in {EXAMPLE!r}"
            )
        operators = []
        for node, part in enumerate(nodes, start=1):
            if not re.fullmatch(r"\|([^|]+\|)+", part):
                raise ValueError(
                    f"node {node} is {part!r} in {text!r}, expected edges between bars as in {EXAMPLE!r}"
                )
            edges = part.strip("|").split("|")
            if len(edges) != node:
                raise ValueError(
                    f"node {node} is {part!r} in {text!r}, expected {counted(node, 'edge')}, not {len(edges)}"
                )
            for source, edge in enumerate(edges):
                name, _, from_node = edge.partition("~")
                operator = _known_operator(name, text)
                if from_node != str(source):
                    raise ValueError(
                        f"edge {edge!r} of node {node} in {text!r} should come from node {source}"
                    )
                operators.append(operator)
        return Cell201(tuple(operators))

    def key(self, architecture: Cell201) -> str:
        """Return the expression that the cell computes; equal for cells that compute the same function.

        Skip connections are left out, `#` stands for zero, and the terms of sums are sorted. The space has
        6,466 different expressions, as the authors of the benchmark report.
        """
        nodes = ["x"]
        for node in (1, 2, 3):
            terms = []
            for source, operator in architecture.incoming(node):
                if operator == "none" or nodes[source] == "#":
                    terms.append("#")
                elif operator == "skip_connect":
                    terms.append(nodes[source])
                else:
                    terms.append(f"({nodes[source]}){operator}")
            nodes.append("+".join(sorted(terms)))
        return nodes[3]

    def write(self, graph: Graph, architecture: Cell201) -> Value:
        x = graph.block(conv_bn, graph.input, CHANNELS[0], 3)
        for stage, channels in enumerate(CHANNELS):
            if stage:
                x = graph.block(reduction, x, channels)
            for _ in range(CELLS):
                x = graph.block(_cell, x, architecture)
        return graph.block(_head, x)


def _known_operator(name: object, text: str) -> str:
    """Return the benchmark's name of an operator; raise a ValueError if there is none."""
    operator = NNI_OPERATORS.get(name, name) if isinstance(name, str) else name
    if operator not in OPERATORS:
        similar = most_similar(operator, OPERATORS)
        raise ValueError(f"unknown operator {name!r} in {text!r}; did you mean {similar!r}?")
    return str(operator)


def _parse_edges(text: str) -> Cell201:
    """Return the architecture of JSON with the operator of each edge."""
    forms = [[form.format(*edge) for edge in EDGES] for form in EDGE_KEYS]
    expected = f"JSON with the operators of {', '.join(forms[0])} or of {', '.join(forms[1])}"
    content = read_json(text, expected)
    for keys in forms:
        if content.keys() == set(keys):
            return Cell201(tuple(_known_operator(content[key], text) for key in keys))
    raise ValueError(f"{abbreviated(text)} is not {expected}")


def _head(graph: Graph, x: Value) -> Value:
    """Write batch norm, ReLU and the classifier."""
    return graph.classifier(graph.op("Relu", graph.batch_norm(x)), 10)


def reduction(graph: Graph, x: Value, channels: int) -> Value:
    """Write the residual block between stages, which halves the image side and changes the channels."""
    y = graph.block(relu_conv_bn, x, channels, 3, 2)
    y = graph.block(relu_conv_bn, y, channels, 3)
    return graph.op("Add", graph.conv(graph.pool("AveragePool", x, 2, stride=2), channels, kernel=1), y)


def _cell(graph: Graph, x: Value, cell: Cell201) -> Value:
    """Write a cell with all its edges, including those that cannot reach the output, as the benchmark did."""
    nodes = [x]
    for node in (1, 2, 3):
        total: Value | None = None
        for source, operator in cell.incoming(node):
            y = _edge(graph, nodes[source], operator)
            total = y if total is None else graph.op("Add", total, y)
        assert total is not None
        nodes.append(total)
    return nodes[3]


def _edge(graph: Graph, x: Value, operator: str) -> Value:
    """Write the operator of an edge."""
    if operator == "none":
        return graph.op("Mul", x, Constant(0.0))
    if operator == "skip_connect":
        return x
    if operator == "avg_pool_3x3":
        return graph.pool("AveragePool", x, 3, padded=True)
    return graph.block(relu_conv_bn, x, x.channels, 1 if operator == "nor_conv_1x1" else 3)
