"""HiAML: four stages, each two copies of one of fourteen blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from search_spaces.graph import Graph, Value
from search_spaces.layers import add, conv_bn, conv_bn_relu, conv_bn_relu6, separable
from search_spaces.notation import most_similar
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

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
    """The HiAML space of Mills et al. 2023 (GENNAPE), on CIFAR-10.

    Examples:
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
                f"{text!r} has {counted(len(names), 'block name')} joined by '_', expected {len(STAGES)}"
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


def _projected(graph: Graph, x: Value, channels: int, stride: int) -> Value:
    """Return the input of a block, projected if the block changes its shape."""
    return x if stride == 1 and x.channels == channels else conv_bn(graph, x, channels, 1, stride)


def _a22(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block a22 of the benchmark."""
    a = conv_bn_relu6(g, x, channels, 3, stride)
    return add(g, a, conv_bn(g, conv_bn_relu6(g, a, channels, 1), channels, 1))


def _z(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block z of the benchmark."""
    a = conv_bn_relu6(g, x, channels, 3, stride)
    return add(g, a, separable(g, a, channels, 3))


def _b23(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block b23 of the benchmark."""
    return add(
        g, _projected(g, x, channels, stride), separable(g, separable(g, x, channels, 3, stride), channels, 3)
    )


def _j30(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block j30 of the benchmark."""
    return add(
        g,
        _projected(g, x, channels, stride),
        separable(g, conv_bn_relu6(g, x, channels, 3, stride), channels, 3),
    )


def _g30(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block g30 of the benchmark."""
    a = separable(g, x, channels, 3, stride)
    b = separable(g, add(g, _projected(g, x, channels, stride), a), channels, 3)
    return add(g, a, conv_bn(g, b, channels, 1))


def _r30(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block r30 of the benchmark."""
    a = separable(g, x, channels, 3, stride)
    projection = conv_bn(g, add(g, _projected(g, x, channels, stride), a), channels, 1)
    return add(g, _projected(g, x, channels, stride), projection, separable(g, a, channels, 3))


def _l20(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block l20 of the benchmark."""
    return conv_bn(g, conv_bn_relu6(g, x, channels, 3, stride), channels, 1)


def _t20(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block t20 of the benchmark."""
    return add(g, conv_bn(g, x, channels, 1, stride), separable(g, x, channels, 3, stride))


def _t31(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block t31 of the benchmark."""
    b = conv_bn_relu6(g, separable(g, x, channels, 3, stride), channels, 1)
    last = separable(g, add(g, _projected(g, x, channels, stride), b), channels, 3)
    return add(g, _projected(g, x, channels, stride), b, last)


def _src0(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block src0 of the benchmark."""
    a = conv_bn_relu6(g, x, channels, 1, stride)
    return add(g, a, conv_bn(g, conv_bn_relu6(g, a, channels, 3), channels, 3))


def _src1(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block src1 of the benchmark."""
    branch = conv_bn(g, conv_bn_relu6(g, x, x.channels, 3), channels, 3, stride)
    return add(g, conv_bn_relu6(g, x, channels, 1, stride), branch)


def _src3(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block src3 of the benchmark."""
    branch = conv_bn_relu6(g, conv_bn_relu6(g, x, x.channels, 1), channels, 3, stride)
    return add(g, conv_bn(g, x, channels, 1, stride), conv_bn(g, branch, channels, 1))


def _src7(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block src7 of the benchmark."""
    a = conv_bn(g, x, channels, 1, stride)
    return add(g, a, separable(g, separable(g, a, channels, 3), channels, 3))


def _src8(g: Graph, x: Value, channels: int, stride: int) -> Value:
    """Write the block src8 of the benchmark."""
    a = conv_bn(g, x, channels, 1, stride)
    return add(g, a, conv_bn(g, separable(g, a, channels, 3), channels, 1))


BLOCKS: dict[str, Callable[[Graph, Value, int, int], Value]] = {
    f.__name__.lstrip("_"): f
    for f in (_a22, _z, _b23, _j30, _g30, _r30, _l20, _t20, _t31, _src0, _src1, _src3, _src7, _src8)
}
