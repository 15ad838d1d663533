"""NAS-Bench-101: cells of at most seven vertices and nine edges."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from search_spaces.graph import Constant, Graph, Value
from search_spaces.layers import add, concat, conv_bn_relu
from search_spaces.notation import abbreviated, most_similar, read_json
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

INPUT, OUTPUT = "input", "output"
OPERATORS = ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3")
LABELS = {INPUT: -1, OUTPUT: -2, **{o: i for i, o in enumerate(OPERATORS)}}
VERTICES, EDGES = 7, 9
STEM, STACKS, CELLS = 128, 3, 3
EXAMPLE = '{"adjacency": "010001000", "ops": ["input", "conv3x3-bn-relu", "output"]}'
MATRIX_KEYS = ("adjacency", "matrix", "module_adjacency")
OPERATOR_KEYS = ("ops", "module_operations")
_PAIRS = [(i, j) for i in range(VERTICES) for j in range(i + 1, VERTICES)]


@dataclass(frozen=True)
class Cell101:
    """An architecture: the rows of a cell's adjacency matrix, upper triangular, and its operators."""

    adjacency: tuple[tuple[int, ...], ...]
    ops: tuple[str, ...]

    def __str__(self) -> str:
        rows = "".join(str(e) for row in self.adjacency for e in row)
        return json.dumps({"adjacency": rows, "ops": list(self.ops)})

    def sources(self, v: int) -> list[int]:
        """Return the vertices with an edge to v."""
        return [u for u in range(v) if self.adjacency[u][v]]

    def targets(self, v: int) -> list[int]:
        """Return the vertices with an edge from v."""
        return [w for w in range(v + 1, len(self.ops)) if self.adjacency[v][w]]

    def pruned(self) -> Cell101 | None:
        """Return the cell without vertices off the paths from input to output; None if there is no path."""
        n = len(self.ops)
        forward, backward = {0}, {n - 1}
        for v in range(1, n):
            if forward.intersection(self.sources(v)):
                forward.add(v)
        for v in range(n - 2, -1, -1):
            if backward.intersection(self.targets(v)):
                backward.add(v)
        on_path = sorted(forward & backward)
        return self.reordered(on_path) if {0, n - 1} <= set(on_path) else None

    def reordered(self, vertices: Sequence[int]) -> Cell101:
        """Return the subgraph of these vertices, in this order."""
        adjacency = tuple(tuple(self.adjacency[u][v] for v in vertices) for u in vertices)
        return Cell101(adjacency, tuple(self.ops[v] for v in vertices))

    def as_trained(self) -> Cell101:
        """Return the isomorphic cell that the benchmark trained, which is the first in its enumeration.

        The order of the vertices decides which of them get the remaining channels. The benchmark enumerates
        adjacency matrices as binary numbers, column by column, and then the operators.
        """
        n = len(self.ops)
        edges = [(u, v) for v in range(n) for u in self.sources(v)]
        smallest: tuple[int, list[int], Sequence[int]] | None = None
        for inner in permutations(range(1, n - 1)):
            order = (0, *inner, n - 1)
            position = [0] * n
            for i, v in enumerate(order):
                position[v] = i
            if any(position[u] > position[v] for u, v in edges):
                continue
            bits = sum(1 << position[u] + position[v] * (position[v] - 1) // 2 for u, v in edges)
            candidate = (bits, [LABELS[self.ops[v]] for v in order], order)
            smallest = min(smallest, candidate) if smallest else candidate
        return self.reordered(smallest[2]) if smallest else self


class NASBench101(SearchSpace[Cell101]):
    """The NAS-Bench-101 space of Ying et al. 2019, on CIFAR-10.

    A genome has a gene for each of the 21 possible edges of seven vertices, and for the operator of each of
    the five inner vertices. Genomes without a path or with too many edges have no architecture.

    Examples:
        >>> space = NASBench101()
        >>> space.params(space.parse(EXAMPLE))
        10177674
    """

    name = "nasbench101"
    size = 423_624
    genes = (2,) * len(_PAIRS) + (len(OPERATORS),) * (VERTICES - 2)

    def decode(self, genome: np.ndarray) -> Cell101:
        genes = self.validate_genome(genome)
        adjacency = np.zeros((VERTICES, VERTICES), dtype=int)
        for (i, j), edge in zip(_PAIRS, genes, strict=False):
            adjacency[i, j] = edge
        ops = (INPUT, *(OPERATORS[g] for g in genes[len(_PAIRS) :]), OUTPUT)
        cell = Cell101(tuple(tuple(map(int, row)) for row in adjacency), ops).pruned()
        if cell is None:
            raise ValueError(
                f"genome {genes} has no path from input to output, so it is no cell of {self.name}"
            )
        self.validate(cell)
        return cell

    def encode(self, architecture: Cell101) -> np.ndarray:
        n = len(architecture.ops)
        position = [*range(n - 1), VERTICES - 1]
        adjacency = np.zeros((VERTICES, VERTICES), dtype=int)
        for u in range(n):
            for v in architecture.targets(u):
                adjacency[position[u], position[v]] = 1
        ops = [OPERATORS.index(o) for o in architecture.ops[1:-1]]
        return np.array([*(adjacency[i, j] for i, j in _PAIRS), *ops, *[0] * (VERTICES - n)])

    def parse(self, text: str) -> Cell101:
        """Return the architecture of a text.

        A cell with more than seven vertices, more than nine edges or another operator is pruned first, as
        `ModelSpec` of the package nasbench does: vertices off the paths from input to output are removed.

        Args:
            text: JSON with adjacency and ops; or with matrix and ops, the arguments of `ModelSpec`; or with
                module_adjacency and module_operations, which `get_metrics_from_spec` returns; or the list of
                a matrix and labels that `generate_graphs.py` writes. The matrix is a text of zeros and ones,
                a list of such rows or a nested list; the operators are a list of names or labels, or names
                joined by commas as in the TFRecord.

        Raises:
            ValueError: the text is malformed; the message names the bad part.
        """
        expected = f"JSON with adjacency and ops, such as {EXAMPLE}"
        content = read_json(text, expected, (*MATRIX_KEYS, *OPERATOR_KEYS))
        try:
            written_adjacency, ops = _matrix_and_operators(content)
            flat = (
                [e for row in written_adjacency for e in row]
                if isinstance(written_adjacency, list)
                else list(written_adjacency)
            )
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{abbreviated(text)} is not {expected}") from None
        n = len(ops)
        if any(e not in (0, 1, "0", "1") for e in flat) or len(flat) != n * n:
            raise ValueError(
                f"adjacency {written_adjacency!r} in {text!r} should be {n} x {n} zeros and ones for {n} ops"
            )
        adjacency = tuple(tuple(int(e) for e in flat[i * n : (i + 1) * n]) for i in range(n))
        cell = Cell101(adjacency, tuple(ops))
        _check_upper_triangular(cell)
        is_small = n <= VERTICES and sum(map(sum, adjacency)) <= EDGES
        is_in_space = is_small and all(o in OPERATORS for o in ops[1:-1])
        if n >= 2 and not is_in_space:
            cell = cell.pruned() or cell
        self.validate(cell)
        return cell

    def validate(self, architecture: Cell101) -> None:
        ops, n = architecture.ops, len(architecture.ops)
        if not 2 <= n <= VERTICES:
            raise ValueError(
                f"{architecture} has {counted(n, 'vertex', 'vertices')}, expected 2 to {VERTICES}"
            )
        if ops[0] != INPUT or ops[-1] != OUTPUT:
            raise ValueError(f"{architecture} should begin with {INPUT!r} and end with {OUTPUT!r}")
        for o in ops[1:-1]:
            if o not in OPERATORS:
                similar = most_similar(o, OPERATORS)
                raise ValueError(f"unknown operator {o!r} in {architecture}; did you mean {similar!r}?")
        _check_upper_triangular(architecture)
        edges = sum(map(sum, architecture.adjacency))
        if edges > EDGES:
            raise ValueError(f"{architecture} has {edges} edges, expected at most {EDGES}")
        if architecture.pruned() is None:
            raise ValueError(f"{architecture} has no path from input to output")

    def sample(self, rng: np.random.Generator) -> Cell101:
        """Return a random cell, by sampling labelled graphs until one is valid."""
        while True:
            edges = rng.random(len(_PAIRS)) < 0.5
            ops = rng.integers(len(OPERATORS), size=VERTICES - 2)
            cell = self._decode_or_none(np.concatenate([edges, ops]))
            if cell is not None:
                return cell

    def mutate(self, architecture: Cell101, rng: np.random.Generator) -> Cell101:
        """Return another cell, with one edge flipped and one operator changed on average."""
        genome, genes = self.encode(self._pruned_or_error(architecture)), np.array(self.genes)
        rate = np.where(genes == 2, 1 / len(_PAIRS), 1 / (VERTICES - 2))
        while True:
            change = rng.random(len(genes)) < rate
            shifted = (genome + rng.integers(1, genes)) % genes
            cell = self._decode_or_none(np.where(change, shifted, genome))
            if cell is not None and str(cell) != str(architecture):
                return cell

    def crossover(self, a: Cell101, b: Cell101, rng: np.random.Generator) -> Cell101:
        """Return a child that takes each gene from one of its parents; see `SearchSpace.crossover`."""
        return super().crossover(self._pruned_or_error(a), self._pruned_or_error(b), rng)

    def key(self, architecture: Cell101) -> str:
        """Return the benchmark's hash of the pruned cell, which is equal for isomorphic cells."""
        cell = self._pruned_or_error(architecture)
        n = len(cell.ops)
        hashes = [
            _md5(str((len(cell.targets(v)), len(cell.sources(v)), LABELS[cell.ops[v]]))) for v in range(n)
        ]
        for _ in range(n):
            hashes = [
                _md5(
                    "".join(sorted(hashes[u] for u in cell.sources(v)))
                    + "|"
                    + "".join(sorted(hashes[w] for w in cell.targets(v)))
                    + "|"
                    + hashes[v]
                )
                for v in range(n)
            ]
        return _md5(str(sorted(hashes)))

    def write(self, graph: Graph, architecture: Cell101) -> Value:
        cell = self._pruned_or_error(architecture).as_trained()
        x = graph.block(conv_bn_relu, graph.input, STEM, 3)
        for stack in range(STACKS):
            if stack:
                x = graph.pool("MaxPool", x, 2, stride=2)
            for _ in range(CELLS):
                x = graph.block(_cell, x, cell, STEM * 2**stack)
        return graph.classifier(x, 10)

    def _pruned_or_error(self, cell: Cell101) -> Cell101:
        """Return the pruned cell; raise a ValueError if no path leads from input to output."""
        pruned = cell.pruned()
        if pruned is None:
            raise ValueError(f"{cell} has no path from input to output")
        return pruned


def _matrix_and_operators(content: Any) -> tuple[Any, list[Any]]:
    """Return the adjacency matrix as it is written, and the operators of JSON content.

    Raises:
        ValueError: the content does not have exactly one matrix and one list of operators.
    """
    if isinstance(content, list):
        matrix, operators = content
    elif not isinstance(content, dict):
        raise ValueError
    else:
        (matrix_key,) = content.keys() & set(MATRIX_KEYS)
        (operators_key,) = content.keys() & set(OPERATOR_KEYS)
        matrix, operators = content[matrix_key], content[operators_key]
    if isinstance(operators, str):
        operators = operators.split(",")
    if not isinstance(operators, list):
        raise ValueError
    names = {label: name for name, label in LABELS.items()}
    return matrix, [names.get(o, o) if type(o) is int else o for o in operators]


def _check_upper_triangular(cell: Cell101) -> None:
    """Raise a ValueError if an edge does not lead to a later vertex."""
    for u, row in enumerate(cell.adjacency):
        for v, edge in enumerate(row):
            if edge and v <= u:
                raise ValueError(f"edge {u} to {v} of {cell} goes back; only u < v may be joined")


def vertex_channels(cell: Cell101, c_in: int, c_out: int) -> list[int]:
    """Return the output channels of each vertex of a cell with `c_in` input and `c_out` output channels.

    Vertices with an edge to the output share its channels; others have the channels of their successors.
    """
    n = len(cell.ops)
    channels = [c_in, *[0] * (n - 2), c_out]
    output_sources = [v for v in cell.sources(n - 1) if v != 0]
    for k, v in enumerate(output_sources):
        share, rest = divmod(c_out, len(output_sources))
        channels[v] = share + (k < rest)
    for v in range(n - 2, 0, -1):
        if v not in output_sources:
            channels[v] = max(channels[w] for w in cell.targets(v))
    return channels


def _cell(graph: Graph, x: Value, cell: Cell101, c_out: int) -> Value:
    """Write a cell with `c_out` output channels."""
    n = len(cell.ops)
    channels = vertex_channels(cell, x.channels, c_out)
    values: dict[int, Value] = {}
    for v in range(1, n - 1):
        incoming = [_first_channels(graph, values[u], channels[v]) for u in cell.sources(v) if u]
        if 0 in cell.sources(v):
            incoming.append(graph.block(conv_bn_relu, x, channels[v], 1))
        y = add(graph, *incoming)
        if cell.ops[v] == "maxpool3x3":
            values[v] = graph.pool("MaxPool", y, 3, padded=True)
        else:
            values[v] = graph.block(conv_bn_relu, y, channels[v], 3 if "3x3" in cell.ops[v] else 1)
    output_sources = [values[v] for v in cell.sources(n - 1) if v]
    terms = [concat(graph, *output_sources)] if output_sources else []
    if 0 in cell.sources(n - 1):
        terms.append(graph.block(conv_bn_relu, x, c_out, 1))
    return add(graph, *terms)


def _first_channels(graph: Graph, x: Value, channels: int) -> Value:
    """Write a slice of the first `channels` channels of a value, if it has more."""
    if x.channels == channels:
        return x
    bounds = (Constant((0,)), Constant((channels,)), Constant((1,)))
    return graph.op("Slice", x, *bounds, channels=channels)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
