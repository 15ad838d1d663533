"""Network Design Spaces, cell-based: networks of a normal and a reduction cell on CIFAR-10."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from search_spaces.graph import Constant, Graph, Value
from search_spaces.layers import add, concat, conv_bn, relu_conv_bn
from search_spaces.notation import MAX_CHARACTERS, abbreviated, is_int_between, most_similar, read_json
from search_spaces.space import SearchSpace

STEM_MULTIPLIER, CLASSES = 3, 10  # channels of the stem relative to those of the first cells
SLICE_END = 2**31 - 1
MAX_DEPTH, MAX_WIDTH = 64, 2048  # cells, and channels of the first, that a parsed network may have
CELLS = ("normal", "normal_concat", "reduce", "reduce_concat")
Edge = tuple[str, int]


@dataclass(frozen=True)
class Cell:
    """A cell: two edges (operator, source) for each node, and the nodes whose outputs are concatenated.

    Nodes 0 and 1 are the inputs of the cell.
    """

    edges: tuple[Edge, ...]
    concat: tuple[int, ...]


@dataclass(frozen=True)
class Genotype:
    """An architecture: normal cell, reduction cell, depth (number of cells) and width.

    The width is the number of channels of the cells before the first reduction.
    """

    normal: Cell
    reduce: Cell
    depth: int
    width: int

    def __str__(self) -> str:
        cells: dict[str, object] = {}
        for name in ("normal", "reduce"):
            cell: Cell = getattr(self, name)
            cells[name] = cell.edges
            cells[f"{name}_concat"] = cell.concat
        return json.dumps({"genotype": cells, "depth": self.depth, "width": self.width})


class CellSpace(SearchSpace[Genotype]):
    """Base class of the cell-based spaces of Radosavovic et al. 2019, section 4.

    A genome has an operator and a source for each of the two edges of each node of both cells, then depth
    and width.

    Attributes:
        operators: operators of an edge.
        nodes: number of nodes of a cell.
        concat_unread_only: concatenate only the nodes that no other node reads; otherwise all nodes.
        depths: depths that a genome can have; the text of an architecture may have others.
        widths: widths that a genome can have; the text of an architecture may have others.
    """

    operators: tuple[str, ...]
    nodes: int
    concat_unread_only: bool
    depths: tuple[int, ...] = (4, 8, 12, 16, 20)
    widths: tuple[int, ...] = (16, 24, 32)
    size = None

    def __init__(self) -> None:
        edges = [g for node in range(self.nodes) for g in (len(self.operators), node + 2) * 2]
        self.genes = (*edges, *edges, len(self.depths), len(self.widths))

    def decode(self, genome: np.ndarray) -> Genotype:
        *edges, depth, width = self.validate_genome(genome)
        normal, reduce = (self._cell(part) for part in (edges[: len(edges) // 2], edges[len(edges) // 2 :]))
        return Genotype(normal, reduce, self.depths[depth], self.widths[width])

    def encode(self, architecture: Genotype) -> np.ndarray:
        edges = [
            g
            for c in (architecture.normal, architecture.reduce)
            for o, i in c.edges
            for g in (self.operators.index(o), i)
        ]
        nearest = [
            int(np.argmin(np.abs(np.subtract(values, value))))
            for values, value in ((self.depths, architecture.depth), (self.widths, architecture.width))
        ]
        return np.array([*edges, *nearest])

    def parse(self, text: str) -> Genotype:
        """Return the architecture of a text.

        Args:
            text: JSON as in the public files of the benchmark, or `Genotype(...)` as in DARTS. Training
                settings in the JSON are ignored. The defaults of `Genotype` are 20 cells and width 36.

        Raises:
            ValueError: the text is malformed; the message names the bad part.
        """
        content = _read_genotype_call(text) if text.strip().startswith("Genotype(") else _read_json(text)
        cells = []
        for name in ("normal", "reduce"):
            edges, concat_nodes = content[name], content[f"{name}_concat"]
            if not isinstance(edges, list) or len(edges) != 2 * self.nodes:
                raise ValueError(
                    f"{name} of {text!r} should be a list of {2 * self.nodes} edges of {self.name}"
                )
            if not isinstance(concat_nodes, list):
                raise ValueError(f"{name}_concat of {text!r} is {concat_nodes!r}, expected a list of nodes")
            cells.append(
                Cell(tuple(self._edge(e, k, name, text) for k, e in enumerate(edges)), tuple(concat_nodes))
            )
        architecture = Genotype(cells[0], cells[1], content["depth"], content["width"])
        self.validate(architecture)
        return architecture

    def validate(self, architecture: Genotype) -> None:
        for name in ("normal", "reduce"):
            cell: Cell = getattr(architecture, name)
            for k, (operator, source) in enumerate(cell.edges):
                self._edge([operator, source], k, name, str(architecture))
            concat_nodes = cell.concat
            is_known = all(is_int_between(n, 2, self.nodes + 1) for n in concat_nodes)
            if not concat_nodes or not is_known or len(set(concat_nodes)) < len(concat_nodes):
                raise ValueError(
                    f"{name}_concat of {architecture} is {list(concat_nodes)},"
                    f" expected different nodes from 2 to {self.nodes + 1}"
                )
        for name, maximum, step in (("depth", MAX_DEPTH, 1), ("width", MAX_WIDTH, 2)):
            value = getattr(architecture, name)
            if not is_int_between(value, step, maximum) or value % step:
                kind = "an even number" if step == 2 else "a number of cells"
                raise ValueError(f"{name} of {architecture} is {value!r}, expected {kind} up to {maximum}")

    def _edge(self, edge: Any, k: int, cell: str, text: str) -> Edge:
        """Return edge k of a cell; raise a ValueError if it is not valid. `text` is for the message."""
        try:
            operator, source = edge
        except (TypeError, ValueError):
            raise ValueError(
                f"edge {k} of {cell} in {text!r} is {edge!r}, expected [operator, input]"
            ) from None
        if operator not in self.operators:
            similar = most_similar(operator, self.operators)
            raise ValueError(
                f"unknown operator {operator!r} in {cell} of {text!r}; did you mean {similar!r}?"
            )
        if not is_int_between(source, 0, k // 2 + 1):
            raise ValueError(
                f"edge {k} of {cell} in {text!r} comes from {source!r}, expected 0 to {k // 2 + 1}"
            )
        return operator, source

    def _cell(self, genes: Sequence[int]) -> Cell:
        """Return the cell of the genes of its edges."""
        edges = tuple((self.operators[o], i) for o, i in zip(genes[::2], genes[1::2], strict=True))
        return Cell(edges, self._concat(edges))

    def _concat(self, edges: Sequence[Edge]) -> tuple[int, ...]:
        """Return the nodes of a cell with these edges whose outputs are concatenated."""
        read = {i for _, i in edges} if self.concat_unread_only else set()
        return tuple(n for n in range(2, self.nodes + 2) if n not in read)

    def write(self, graph: Graph, architecture: Genotype) -> Value:
        width = architecture.width
        previous = x = graph.block(conv_bn, graph.input, STEM_MULTIPLIER * width, 3)
        for i in range(architecture.depth):
            if i in (architecture.depth // 3, 2 * architecture.depth // 3):
                width *= 2
                previous, x = x, _write_cell(graph, previous, x, architecture.reduce, width, 2)
            else:
                previous, x = x, _write_cell(graph, previous, x, architecture.normal, width, 1)
        return graph.classifier(x, CLASSES)


class NASNet(CellSpace):
    """The NASNet space: thirteen operators, five nodes (Zoph et al. 2018)."""

    name = "nds_nasnet"
    operators = (
        *("skip_connect", "conv_3x1_1x3", "conv_7x1_1x7", "dil_conv_3x3", "avg_pool_3x3", "max_pool_3x3"),
        *(
            "max_pool_5x5",
            "max_pool_7x7",
            "conv_1x1",
            "conv_3x3",
            "sep_conv_3x3",
            "sep_conv_5x5",
            "sep_conv_7x7",
        ),
    )
    nodes, concat_unread_only = 5, True


class Amoeba(CellSpace):
    """The AmoebaNet space: eight operators, five nodes (Real et al. 2019)."""

    name = "nds_amoeba"
    operators = (
        *("skip_connect", "sep_conv_3x3", "sep_conv_5x5", "sep_conv_7x7"),
        *("avg_pool_3x3", "max_pool_3x3", "dil_sep_conv_3x3", "conv_7x1_1x7"),
    )
    nodes, concat_unread_only = 5, True


class PNAS(CellSpace):
    """The PNAS space: eight operators, five nodes, all concatenated (Liu et al. 2018)."""

    name = "nds_pnas"
    operators = (
        *("sep_conv_3x3", "sep_conv_5x5", "sep_conv_7x7", "conv_7x1_1x7"),
        *("skip_connect", "avg_pool_3x3", "max_pool_3x3", "dil_conv_3x3"),
    )
    nodes, concat_unread_only = 5, False


class ENAS(CellSpace):
    """The ENAS space: five operators, five nodes (Pham et al. 2018)."""

    name = "nds_enas"
    operators = ("skip_connect", "sep_conv_3x3", "sep_conv_5x5", "avg_pool_3x3", "max_pool_3x3")
    nodes, concat_unread_only = 5, True


class DARTS(CellSpace):
    """The DARTS space: eight operators, four nodes, all concatenated (Liu et al. 2019)."""

    name = "nds_darts"
    operators = (
        *("none", "max_pool_3x3", "avg_pool_3x3", "skip_connect"),
        *("sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"),
    )
    nodes, concat_unread_only = 4, False
    widths = (16, 24, 32, 36)


def _read_json(text: str) -> dict[str, Any]:
    """Return cells, depth and width of a JSON text."""
    expected = "JSON with genotype (normal, normal_concat, reduce, reduce_concat), depth and width"
    content = read_json(text, expected)
    try:
        cells = {name: content["genotype"][name] for name in CELLS}
        return {**cells, "depth": content["depth"], "width": content["width"]}
    except (KeyError, TypeError):
        raise ValueError(f"{abbreviated(text)} is not {expected}") from None


def _read_genotype_call(text: str) -> dict[str, Any]:
    """Return cells, depth and width of a call of Genotype with literal arguments."""
    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError
        call = ast.parse(text.strip(), mode="eval").body
        assert isinstance(call, ast.Call)
        arguments: dict[str, Any] = {}
        for argument in call.keywords:
            value = argument.value
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "range":
                arguments[str(argument.arg)] = list(
                    range(*(ast.literal_eval(a) for a in value.args))[:MAX_DEPTH]
                )
            else:
                arguments[str(argument.arg)] = ast.literal_eval(value)
        return {k: arguments[k] for k in CELLS} | {
            "depth": arguments.get("depth", 20),
            "width": arguments.get("width", 36),
        }
    except (SyntaxError, ValueError, KeyError, TypeError, AssertionError, RecursionError, MemoryError):
        raise ValueError(
            f"{abbreviated(text)} is not Genotype(normal=[('sep_conv_3x3', 0), …], normal_concat=range(2, 6),"
            " reduce=[…], reduce_concat=…)"
        ) from None


def _write_cell(graph: Graph, previous: Value, x: Value, cell: Cell, width: int, stride: int) -> Value:
    """Write a cell that reads the outputs of the two previous cells."""
    first = factorized_reduce if previous.side != x.side else relu_conv_bn
    values = [graph.block(first, previous, width), graph.block(relu_conv_bn, x, width)]
    for node in range(len(cell.edges) // 2):
        values.append(
            add(
                graph,
                *(
                    graph.block(OPERATORS[o], values[i], stride if i < 2 else 1)
                    for o, i in cell.edges[2 * node : 2 * node + 2]
                ),
            )
        )
    return concat(graph, *(values[n] for n in cell.concat))


def factorized_reduce(graph: Graph, x: Value, channels: int) -> Value:
    """Write a reduction by two 1x1 convolutions of stride 2, one of them shifted by a pixel.

    Each of them computes half of the channels.
    """
    x = graph.op("Relu", x)
    shifted = graph.op(
        "Slice", x, Constant((1, 1)), Constant((SLICE_END, SLICE_END)), Constant((2, 3)), side=x.side - 1
    )
    halves = [graph.conv(y, channels // 2, 1, 2) for y in (x, shifted)]
    return graph.batch_norm(concat(graph, *halves))


def _separable(kernel: int, dilation: int = 1, repeats: int = 2) -> Callable[[Graph, Value, int], Value]:
    """Return a function that writes repeated ReLU, depthwise-separable convolution and batch norm."""

    def write(graph: Graph, x: Value, stride: int) -> Value:
        for k in range(repeats):
            x = graph.conv(
                graph.op("Relu", x), x.channels, kernel, 1 if k else stride, x.channels, dilation=dilation
            )
            x = conv_bn(graph, x, x.channels, 1)
        return x

    return write


def _pool(kind: str, kernel: int) -> Callable[[Graph, Value, int], Value]:
    """Return a function that writes a padded pool."""
    return lambda graph, x, stride: graph.pool(kind, x, kernel, stride, padded=True)


def _plain(kernel: int) -> Callable[[Graph, Value, int], Value]:
    """Return a function that writes ReLU, a convolution and batch norm."""
    return lambda graph, x, stride: relu_conv_bn(graph, x, x.channels, kernel, stride)


def _factored(kernel: int) -> Callable[[Graph, Value, int], Value]:
    """Return a function that writes ReLU, a convolution along each axis and batch norm."""

    def write(graph: Graph, x: Value, stride: int) -> Value:
        x = graph.conv(graph.op("Relu", x), x.channels, (1, kernel), (1, stride))
        return conv_bn(graph, x, x.channels, (kernel, 1), (stride, 1))

    return write


def _skip(graph: Graph, x: Value, stride: int) -> Value:
    """Write a skip connection, or a factorized reduction if the stride is 2."""
    return x if stride == 1 else factorized_reduce(graph, x, x.channels)


def _none(graph: Graph, x: Value, stride: int) -> Value:
    """Write a multiplication by zero, after a slice if the stride is 2."""
    if stride > 1:
        bounds = [Constant(v) for v in ((0, 0), (SLICE_END, SLICE_END), (2, 3), (stride, stride))]
        x = graph.op("Slice", x, *bounds, side=-(-x.side // stride))
    return graph.op("Mul", x, Constant(0.0))


OPERATORS: dict[str, Callable[[Graph, Value, int], Value]] = {
    "none": _none,
    "skip_connect": _skip,
    "avg_pool_3x3": _pool("AveragePool", 3),
    "max_pool_3x3": _pool("MaxPool", 3),
    "max_pool_5x5": _pool("MaxPool", 5),
    "max_pool_7x7": _pool("MaxPool", 7),
    "conv_1x1": _plain(1),
    "conv_3x3": _plain(3),
    "conv_3x1_1x3": _factored(3),
    "conv_7x1_1x7": _factored(7),
    "sep_conv_3x3": _separable(3),
    "sep_conv_5x5": _separable(5),
    "sep_conv_7x7": _separable(7),
    "dil_conv_3x3": _separable(3, 2, 1),
    "dil_conv_5x5": _separable(5, 2, 1),
    "dil_sep_conv_3x3": _separable(3, 2),
}
