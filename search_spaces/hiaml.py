"""HiAML: four stages, each two copies of one of fourteen blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from search_spaces.graph import Graph, Value
from search_spaces.layers import add, conv_bn, conv_bn_relu, conv_bn_relu6, separable
from search_spaces.notation import most_similar
from search_spaces.space import SearchSpace

STAGES = ((64, 1), (128, 2), (128, 1), (256, 2))  # channels, stride of the first block
COPIES, STEM, CLASSES = 2, 64, 10
EXAMPLE = "a22_z_src0_t31"


@dataclass(frozen=True)
class Blocks:
    """An architecture: the block name of each of the four stages."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return "_".join(self.names)


class HiAML(SearchSpace[Blocks]):
    """The space of Mills et al. 2023 (GENNAPE), on CIFAR-10.

    >>> HiAML().size
    38416
    """

    name = "hiaml"

    def __init__(self) -> None:
        self.size = len(BLOCKS) ** len(STAGES)
        self.genes = (len(BLOCKS),) * len(STAGES)

    def decode(self, genome: np.ndarray) -> Blocks:
        return Blocks(tuple(tuple(BLOCKS)[g] for g in self.validate_genome(genome)))

    def encode(self, architecture: Blocks) -> np.ndarray:
        return np.array([list(BLOCKS).index(n) for n in architecture.names])

    def parse(self, text: str) -> Blocks:
        names = text.strip().split("_")
        if len(names) != len(STAGES):
            raise ValueError(
                f"{text!r} has {len(names)} block names joined by '_', expected {len(STAGES)}"
                f" as in {EXAMPLE!r}"
            )
        for n in names:
            if n not in BLOCKS:
                similar = most_similar(n, BLOCKS)
                raise ValueError(f"unknown block {n!r} in {text!r}; did you mean {similar!r}?")
        return Blocks(tuple(names))

    def write(self, graph: Graph, architecture: Blocks) -> Value:
        x = conv_bn_relu(graph, graph.input, STEM, 3, 2)
        for name, (channels, stride) in zip(architecture.names, STAGES, strict=True):
            for i in range(COPIES):
                x = graph.op("Relu", graph.block(BLOCKS[name], x, channels, 1 if i else stride))
        return graph.classifier(x, CLASSES)


def _projected(graph: Graph, x: Value, c: int, s: int) -> Value:
    """Write a projection of the input of a block if the block changes its shape."""
    return x if s == 1 and x.channels == c else conv_bn(graph, x, c, 1, s)


def _a22(g: Graph, x: Value, c: int, s: int) -> Value:
    a = conv_bn_relu6(g, x, c, 3, s)
    return add(g, a, conv_bn(g, conv_bn_relu6(g, a, c, 1), c, 1))


def _z(g: Graph, x: Value, c: int, s: int) -> Value:
    a = conv_bn_relu6(g, x, c, 3, s)
    return add(g, a, separable(g, a, c, 3))


def _b23(g: Graph, x: Value, c: int, s: int) -> Value:
    return add(g, _projected(g, x, c, s), separable(g, separable(g, x, c, 3, s), c, 3))


def _j30(g: Graph, x: Value, c: int, s: int) -> Value:
    return add(g, _projected(g, x, c, s), separable(g, conv_bn_relu6(g, x, c, 3, s), c, 3))


def _g30(g: Graph, x: Value, c: int, s: int) -> Value:
    a = separable(g, x, c, 3, s)
    b = separable(g, add(g, _projected(g, x, c, s), a), c, 3)
    return add(g, a, conv_bn(g, b, c, 1))


def _r30(g: Graph, x: Value, c: int, s: int) -> Value:
    a = separable(g, x, c, 3, s)
    projection = conv_bn(g, add(g, _projected(g, x, c, s), a), c, 1)
    return add(g, _projected(g, x, c, s), projection, separable(g, a, c, 3))


def _l20(g: Graph, x: Value, c: int, s: int) -> Value:
    return conv_bn(g, conv_bn_relu6(g, x, c, 3, s), c, 1)


def _t20(g: Graph, x: Value, c: int, s: int) -> Value:
    return add(g, conv_bn(g, x, c, 1, s), separable(g, x, c, 3, s))


def _t31(g: Graph, x: Value, c: int, s: int) -> Value:
    b = conv_bn_relu6(g, separable(g, x, c, 3, s), c, 1)
    last = separable(g, add(g, _projected(g, x, c, s), b), c, 3)
    return add(g, _projected(g, x, c, s), b, last)


def _src0(g: Graph, x: Value, c: int, s: int) -> Value:
    a = conv_bn_relu6(g, x, c, 1, s)
    return add(g, a, conv_bn(g, conv_bn_relu6(g, a, c, 3), c, 3))


def _src1(g: Graph, x: Value, c: int, s: int) -> Value:
    branch = conv_bn(g, conv_bn_relu6(g, x, x.channels, 3), c, 3, s)
    return add(g, conv_bn_relu6(g, x, c, 1, s), branch)


def _src3(g: Graph, x: Value, c: int, s: int) -> Value:
    branch = conv_bn_relu6(g, conv_bn_relu6(g, x, x.channels, 1), c, 3, s)
    return add(g, conv_bn(g, x, c, 1, s), conv_bn(g, branch, c, 1))


def _src7(g: Graph, x: Value, c: int, s: int) -> Value:
    a = conv_bn(g, x, c, 1, s)
    return add(g, a, separable(g, separable(g, a, c, 3), c, 3))


def _src8(g: Graph, x: Value, c: int, s: int) -> Value:
    a = conv_bn(g, x, c, 1, s)
    return add(g, a, conv_bn(g, separable(g, a, c, 3), c, 1))


BLOCKS: dict[str, Callable[[Graph, Value, int, int], Value]] = {
    f.__name__.lstrip("_"): f
    for f in (_a22, _z, _b23, _j30, _g30, _r30, _l20, _t20, _t31, _src0, _src1, _src3, _src7, _src8)
}
