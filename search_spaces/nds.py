"""Network Design Spaces: networks of two searched cells, at a chosen depth and width, on CIFAR-10."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from search_spaces.graph import Constant, Graph, Value
from search_spaces.layers import add, concat, conv_bn, relu_conv_bn
from search_spaces.notation import LONGEST, is_whole, read_json, shown
from search_spaces.space import SearchSpace

STEM, CLASSES = 3, 10  # the stem is this many times as wide as the first cells
END = 2**31 - 1
DEEPEST, WIDEST = 64, 2048  # cells, and channels of the first, that a parsed network may have
CELLS = ("normal", "normal_concat", "reduce", "reduce_concat")
Edge = tuple[str, int]


@dataclass(frozen=True)
class Cell:
    """Two edges (operator, input) for each node, and the nodes that are concatenated; 0 and 1 are inputs."""

    edges: tuple[Edge, ...]
    concat: tuple[int, ...]


@dataclass(frozen=True)
class Genotype:
    """A normal and a reduction cell, how many cells there are, and the channels of the first."""

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
    """Cells after Radosavovic et al. 2019, section 4.

    A genome has an operator and an input for each of the two edges of each node of both cells, then depth
    and width.

    Attributes:
        operators: what an edge may be.
        nodes: of a cell.
        loose: a cell's output is the nodes that no other reads; otherwise all nodes.
        depths, widths: what a network may have; parsed ones may differ.
    """

    operators: tuple[str, ...]
    nodes: int
    loose: bool
    depths: tuple[int, ...] = (4, 8, 12, 16, 20)
    widths: tuple[int, ...] = (16, 24, 32)
    size = None

    def __init__(self) -> None:
        edges = [g for node in range(self.nodes) for g in (len(self.operators), node + 2) * 2]
        self.genes = (*edges, *edges, len(self.depths), len(self.widths))

    def decode(self, genome: np.ndarray) -> Genotype:
        *edges, depth, width = self._checked(genome)
        normal, reduce = (self._cell(part) for part in (edges[: len(edges) // 2], edges[len(edges) // 2 :]))
        return Genotype(normal, reduce, self.depths[depth], self.widths[width])

    def encode(self, architecture: Genotype) -> np.ndarray:
        edges = [
            g
            for c in (architecture.normal, architecture.reduce)
            for o, i in c.edges
            for g in (self.operators.index(o), i)
        ]
        near = [
            int(np.argmin(np.abs(np.subtract(known, given))))
            for known, given in ((self.depths, architecture.depth), (self.widths, architecture.width))
        ]
        return np.array([*edges, *near])

    def parse(self, text: str) -> Genotype:
        """From the JSON of the public nds files, or from DARTS' Genotype(...): 20 cells, width 36.

        Settings of the training, which the public files have as well, do not matter.
        """
        content = _genotype(text) if text.strip().startswith("Genotype(") else _json(text)
        cells = []
        for name in ("normal", "reduce"):
            edges, joined = content[name], content[f"{name}_concat"]
            if not isinstance(edges, list) or len(edges) != 2 * self.nodes:
                raise ValueError(
                    f"{name} of {text!r} should be a list of {2 * self.nodes} edges of {self.name}"
                )
            if not isinstance(joined, list):
                raise ValueError(f"{name}_concat of {text!r} is {joined!r}, expected a list of nodes")
            cells.append(
                Cell(tuple(self._edge(e, k, name, text) for k, e in enumerate(edges)), tuple(joined))
            )
        architecture = Genotype(cells[0], cells[1], content["depth"], content["width"])
        self.validate(architecture)
        return architecture

    def validate(self, architecture: Genotype) -> None:
        for name in ("normal", "reduce"):
            cell: Cell = getattr(architecture, name)
            for k, (operator, source) in enumerate(cell.edges):
                self._edge([operator, source], k, name, str(architecture))
            joined = cell.concat
            is_known = all(is_whole(n, 2, self.nodes + 1) for n in joined)
            if not joined or not is_known or len(set(joined)) < len(joined):
                raise ValueError(
                    f"{name}_concat of {architecture} is {list(joined)},"
                    f" expected different nodes from 2 to {self.nodes + 1}"
                )
        for name, most, step in (("depth", DEEPEST, 1), ("width", WIDEST, 2)):
            value = getattr(architecture, name)
            if not is_whole(value, step, most) or value % step:
                kind = "an even number" if step == 2 else "a number of cells"
                raise ValueError(f"{name} of {architecture} is {value!r}, expected {kind} up to {most}")

    def _edge(self, edge: Any, k: int, cell: str, text: str) -> Edge:
        try:
            operator, source = edge
        except (TypeError, ValueError):
            raise ValueError(
                f"edge {k} of {cell} in {text!r} is {edge!r}, expected [operator, input]"
            ) from None
        if operator not in self.operators:
            near = get_close_matches(str(operator), self.operators, n=1, cutoff=0)[0]
            raise ValueError(f"unknown operator {operator!r} in {cell} of {text!r}; did you mean {near!r}?")
        if not is_whole(source, 0, k // 2 + 1):
            raise ValueError(
                f"edge {k} of {cell} in {text!r} comes from {source!r}, expected 0 to {k // 2 + 1}"
            )
        return operator, source

    def _cell(self, genes: Sequence[int]) -> Cell:
        edges = tuple((self.operators[o], i) for o, i in zip(genes[::2], genes[1::2], strict=True))
        return Cell(edges, self._concat(edges))

    def _concat(self, edges: Sequence[Edge]) -> tuple[int, ...]:
        read = {i for _, i in edges} if self.loose else set()
        return tuple(n for n in range(2, self.nodes + 2) if n not in read)

    def write(self, graph: Graph, architecture: Genotype) -> Value:
        width = architecture.width
        before = x = graph.block(conv_bn, graph.input, STEM * width, 3)
        for i in range(architecture.depth):
            if i in (architecture.depth // 3, 2 * architecture.depth // 3):
                width *= 2
                before, x = x, _write_cell(graph, before, x, architecture.reduce, width, 2)
            else:
                before, x = x, _write_cell(graph, before, x, architecture.normal, width, 1)
        return graph.classifier(x, CLASSES)


class NASNet(CellSpace):
    """Thirteen operators, five nodes: Zoph et al. 2018."""

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
    nodes, loose = 5, True


class Amoeba(CellSpace):
    """Eight operators, five nodes: Real et al. 2019."""

    name = "nds_amoeba"
    operators = (
        *("skip_connect", "sep_conv_3x3", "sep_conv_5x5", "sep_conv_7x7"),
        *("avg_pool_3x3", "max_pool_3x3", "dil_sep_conv_3x3", "conv_7x1_1x7"),
    )
    nodes, loose = 5, True


class PNAS(CellSpace):
    """Eight operators, five nodes, all of which are the output: Liu et al. 2018."""

    name = "nds_pnas"
    operators = (
        *("sep_conv_3x3", "sep_conv_5x5", "sep_conv_7x7", "conv_7x1_1x7"),
        *("skip_connect", "avg_pool_3x3", "max_pool_3x3", "dil_conv_3x3"),
    )
    nodes, loose = 5, False


class ENAS(CellSpace):
    """Five operators, five nodes: Pham et al. 2018."""

    name = "nds_enas"
    operators = ("skip_connect", "sep_conv_3x3", "sep_conv_5x5", "avg_pool_3x3", "max_pool_3x3")
    nodes, loose = 5, True


class DARTS(CellSpace):
    """Eight operators, four nodes, all of which are the output: Liu et al. 2019."""

    name = "nds_darts"
    operators = (
        *("none", "max_pool_3x3", "avg_pool_3x3", "skip_connect"),
        *("sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"),
    )
    nodes, loose = 4, False
    widths = (16, 24, 32, 36)


def _json(text: str) -> dict[str, Any]:
    expected = "JSON with genotype (normal, normal_concat, reduce, reduce_concat), depth and width"
    content = read_json(text, expected)
    try:
        found = {name: content["genotype"][name] for name in CELLS}
        return {**found, "depth": content["depth"], "width": content["width"]}
    except (KeyError, TypeError):
        raise ValueError(f"{shown(text)} is not {expected}") from None


def _genotype(text: str) -> dict[str, Any]:
    """The arguments of Genotype(...), read as literals."""
    try:
        if len(text) > LONGEST:
            raise ValueError
        call = ast.parse(text.strip(), mode="eval").body
        assert isinstance(call, ast.Call)
        found: dict[str, Any] = {}
        for argument in call.keywords:
            value = argument.value
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "range":
                found[str(argument.arg)] = list(range(*(ast.literal_eval(a) for a in value.args))[:DEEPEST])
            else:
                found[str(argument.arg)] = ast.literal_eval(value)
        return {k: found[k] for k in CELLS} | {
            "depth": found.get("depth", 20),
            "width": found.get("width", 36),
        }
    except (SyntaxError, ValueError, KeyError, TypeError, AssertionError, RecursionError, MemoryError):
        raise ValueError(
            f"{shown(text)} is not Genotype(normal=[('sep_conv_3x3', 0), …], normal_concat=range(2, 6),"
            " reduce=[…], reduce_concat=…)"
        ) from None


def _write_cell(graph: Graph, before: Value, x: Value, cell: Cell, width: int, stride: int) -> Value:
    first = factorized_reduce if before.side != x.side else relu_conv_bn
    values = [graph.block(first, before, width), graph.block(relu_conv_bn, x, width)]
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
    """Half the side: two 1x1 convolutions, one of them shifted by a pixel, give half the channels each."""
    x = graph.op("Relu", x)
    shifted = graph.op("Slice", x, Constant((1, 1)), Constant((END, END)), Constant((2, 3)), side=x.side - 1)
    halves = [graph.conv(y, channels // 2, 1, 2) for y in (x, shifted)]
    return graph.batch_norm(concat(graph, *halves))


def _separable(kernel: int, dilation: int = 1, repeats: int = 2) -> Callable[[Graph, Value, int], Value]:
    def write(graph: Graph, x: Value, stride: int) -> Value:
        for k in range(repeats):
            x = graph.conv(
                graph.op("Relu", x), x.channels, kernel, 1 if k else stride, x.channels, dilation=dilation
            )
            x = conv_bn(graph, x, x.channels, 1)
        return x

    return write


def _pool(kind: str, kernel: int) -> Callable[[Graph, Value, int], Value]:
    return lambda graph, x, stride: graph.pool(kind, x, kernel, stride, padded=True)


def _plain(kernel: int) -> Callable[[Graph, Value, int], Value]:
    return lambda graph, x, stride: relu_conv_bn(graph, x, x.channels, kernel, stride)


def _factored(kernel: int) -> Callable[[Graph, Value, int], Value]:
    def write(graph: Graph, x: Value, stride: int) -> Value:
        x = graph.conv(graph.op("Relu", x), x.channels, (1, kernel), (1, stride))
        return conv_bn(graph, x, x.channels, (kernel, 1), (stride, 1))

    return write


def _skip(graph: Graph, x: Value, stride: int) -> Value:
    return x if stride == 1 else factorized_reduce(graph, x, x.channels)


def _none(graph: Graph, x: Value, stride: int) -> Value:
    if stride > 1:
        every = [Constant(v) for v in ((0, 0), (END, END), (2, 3), (stride, stride))]
        x = graph.op("Slice", x, *every, side=-(-x.side // stride))
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
