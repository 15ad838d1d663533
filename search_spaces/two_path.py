"""Two-Path: two parallel chains of blocks whose outputs are concatenated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from search_spaces.graph import Graph, Value
from search_spaces.layers import concat, conv_bn_relu6, pool_bn, separable
from search_spaces.notation import abbreviated, most_similar, read_json
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

CONVS = (
    *("conv3x3", "double3x3", "conv5x5", "bottleneck-r2-k3", "bottleneck-r4-k3", "bottleneck-e2-k3"),
    *("inception_s3x3", "inception_s5x5"),
)
SUPPORTS = ("conv1x1", "bottleneck-r2-k1", "bottleneck-e2-k1", "avgpool3x3", "maxpool3x3")
OPERATORS = CONVS + SUPPORTS
PATHS, BLOCKS, REDUCTIONS, MAX_BLOCK_OPERATORS = 2, (2, 3, 4), 2, 3
STEM, HEAD, CLASSES = 32, 512, 10
EXAMPLE = '[[{"ops": ["conv3x3"], "reduce": true}, {"ops": ["conv5x5", "conv1x1"], "reduce": true}], …]'
_BLOCK_GENES = 1 + MAX_BLOCK_OPERATORS  # of a block: reduction, then operators


@dataclass(frozen=True)
class Block:
    """A chain of operators; if `reduces`, its first convolution has stride 2 and doubles the channels."""

    operators: tuple[str, ...]
    reduces: bool


@dataclass(frozen=True)
class Paths:
    """An architecture: the blocks of both paths."""

    paths: tuple[tuple[Block, ...], ...]

    def __str__(self) -> str:
        return json.dumps([[{"ops": list(b.operators), "reduce": b.reduces} for b in p] for p in self.paths])


class TwoPath(SearchSpace[Paths]):
    """The Two-Path space of Mills et al. 2023 (GENNAPE), on CIFAR-10.

    Operators are convolutions (CONVS) and support operators (SUPPORTS), at most one of the latter in a block.
    A genome has, for each of four possible blocks of both paths, whether it is a reduction and up to three
    operators, 0 for none; blocks without operators are left out. Some genomes have no architecture.
    """

    name = "two_path"
    size = None
    genes = (2, *(len(OPERATORS) + 1,) * MAX_BLOCK_OPERATORS) * (PATHS * BLOCKS[-1])

    def decode(self, genome: np.ndarray) -> Paths:
        genes = np.array(self.validate_genome(genome)).reshape(PATHS, BLOCKS[-1], _BLOCK_GENES)
        paths = []
        for rows in genes.tolist():
            chains = [(tuple(OPERATORS[g - 1] for g in row[1:] if g), bool(row[0])) for row in rows]
            paths.append(tuple(Block(*chain) for chain in chains if chain[0]))
        architecture = Paths(tuple(paths))
        self.validate(architecture)
        return architecture

    def encode(self, architecture: Paths) -> np.ndarray:
        genes = np.zeros((PATHS, BLOCKS[-1], _BLOCK_GENES), dtype=int)
        for path, rows in zip(architecture.paths, genes, strict=True):
            for block, row in zip(path, rows, strict=False):
                row[0] = block.reduces
                row[1 : 1 + len(block.operators)] = [1 + OPERATORS.index(o) for o in block.operators]
        return genes.reshape(-1)

    def parse(self, text: str) -> Paths:
        expected = f"JSON of two paths such as {EXAMPLE}"
        content = read_json(text, expected, ("ops", "reduce"))
        try:
            blocks = [[(b["ops"], b["reduce"]) for b in path] for path in content]
        except (KeyError, TypeError):
            blocks = [[(None, None)]]
        for ops, reduces in (b for path in blocks for b in path):
            if not (
                isinstance(ops, list) and all(isinstance(o, str) for o in ops) and isinstance(reduces, bool)
            ):
                raise ValueError(f"{abbreviated(text)} is not {expected}")
        architecture = Paths(tuple(tuple(Block(tuple(ops), r) for ops, r in path) for path in blocks))
        self.validate(architecture)
        return architecture

    def validate(self, architecture: Paths) -> None:
        if len(architecture.paths) != PATHS:
            raise ValueError(
                f"{architecture} has {counted(len(architecture.paths), 'path')}, expected {PATHS}"
            )
        for p, path in enumerate(architecture.paths):
            if len(path) not in BLOCKS:
                raise ValueError(
                    f"path {p} of {architecture} has {counted(len(path), 'block')}, expected 2 to 4"
                )
            if sum(b.reduces for b in path) != REDUCTIONS:
                raise ValueError(
                    f"path {p} of {architecture} has {sum(b.reduces for b in path)} reductions,"
                    f" expected {REDUCTIONS}"
                )
            for b, block in enumerate(path):
                where = f"block {b} of path {p} of {architecture}"
                for o in block.operators:
                    if o not in OPERATORS:
                        similar = most_similar(o, OPERATORS)
                        raise ValueError(f"{where}: unknown operator {o!r}; did you mean {similar!r}?")
                supports = sum(o in SUPPORTS for o in block.operators)
                if (
                    not 1 <= len(block.operators) <= MAX_BLOCK_OPERATORS
                    or supports > 1
                    or supports == len(block.operators)
                ):
                    raise ValueError(
                        f"{where} is {list(block.operators)}, expected 1 to {MAX_BLOCK_OPERATORS} operators,"
                        f" at most one of {', '.join(SUPPORTS)} among them"
                    )

    def sample(self, rng: np.random.Generator) -> Paths:
        """Return random blocks; operators after the first are support operators with probability 5/13."""
        paths = []
        for _ in range(PATHS):
            n = int(rng.choice(BLOCKS))
            pairs = list(combinations(range(n), REDUCTIONS))
            reducing = pairs[int(rng.integers(len(pairs)))]
            paths.append(tuple(Block(_sample_operators(rng), i in reducing) for i in range(n)))
        return Paths(tuple(paths))

    def mutate(self, architecture: Paths, rng: np.random.Generator) -> Paths:
        """Return another architecture that differs in one or two genes; a moved reduction changes two."""
        return self._mutate_genes(architecture, rng, 2)

    def crossover(self, a: Paths, b: Paths, rng: np.random.Generator) -> Paths:
        """Return a child that takes each path from one of its parents."""
        return Paths(tuple(pair[int(rng.integers(2))] for pair in zip(a.paths, b.paths, strict=True)))

    def write(self, graph: Graph, architecture: Paths) -> Value:
        x = graph.block(conv_bn_relu6, graph.input, STEM, 3)
        x = graph.block(conv_bn_relu6, x, STEM, 3, 2)
        ends = []
        for path in architecture.paths:
            y = x
            for block in path:
                y = graph.block(_write_block, y, block)
            ends.append(y)
        return graph.classifier(graph.block(conv_bn_relu6, concat(graph, *ends), HEAD, 3), CLASSES)


def _sample_operators(rng: np.random.Generator) -> tuple[str, ...]:
    """Return the operators of a random block."""
    chosen = [str(rng.choice(CONVS))]
    for _ in range(int(rng.integers(MAX_BLOCK_OPERATORS))):
        supported = any(o in SUPPORTS for o in chosen)
        support = not supported and rng.random() < len(SUPPORTS) / len(OPERATORS)
        chosen.append(str(rng.choice(SUPPORTS if support else CONVS)))
    return tuple(str(o) for o in rng.permutation(chosen))


def _write_block(graph: Graph, x: Value, block: Block) -> Value:
    """Write a block, with a shortcut unless it is a reduction."""
    first = next(i for i, o in enumerate(block.operators) if o in CONVS)
    y = x
    for i, o in enumerate(block.operators):
        grows = block.reduces and i == first
        y = graph.block(_write_operator, y, o, y.channels * (2 if grows else 1), 2 if grows else 1)
    return y if block.reduces else graph.op("Add", x, y)


def _write_operator(graph: Graph, x: Value, operator: str, channels: int, stride: int) -> Value:
    """Write one operator of a block, with its output channels and stride."""
    kind, _, ratio_and_kernel = operator.partition("-")
    if kind == "bottleneck":
        hidden, kernel = _hidden_channels(x.channels, ratio_and_kernel[:2]), int(ratio_and_kernel[-1])
        y = conv_bn_relu6(graph, x, hidden, 1)
        y = conv_bn_relu6(graph, y, hidden, kernel, stride)
        return conv_bn_relu6(graph, y, channels, 1)
    if operator.endswith(("avgpool3x3", "maxpool3x3")):
        return pool_bn(graph, x, "AveragePool" if operator.startswith("avg") else "MaxPool")
    kernel = int(operator[-1])
    if operator.startswith("inception_s"):
        return separable(graph, x, channels, kernel, stride)
    y = conv_bn_relu6(graph, x, channels, kernel, stride)
    return conv_bn_relu6(graph, y, channels, kernel) if operator.startswith("double") else y


def _hidden_channels(channels: int, ratio: str) -> int:
    """Return the hidden channels of a bottleneck that expands (`e2`) or reduces (`r4`) the channels."""
    factor = int(ratio[1])
    return channels * factor if ratio[0] == "e" else channels // factor
