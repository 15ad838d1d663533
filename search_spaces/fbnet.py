"""FBNet: 22 mobile blocks with nine choices each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from search_spaces.graph import Constant, Graph, Value
from search_spaces.layers import conv_bn, conv_bn_relu
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

# kernel, expansion, groups of each block code; the code after the last one is a skip
BLOCKS = ((3, 1, 1), (3, 1, 2), (3, 3, 1), (3, 6, 1), (5, 1, 1), (5, 1, 2), (5, 3, 1), (5, 6, 1))
SKIP = len(BLOCKS)
STAGES = ((1, 16, 1), (4, 24, 1), (4, 32, 2), (4, 64, 2), (4, 112, 1), (4, 184, 2), (1, 352, 1))
BLOCK_SETTINGS = [
    (channels, stride if i == 0 else 1) for depth, channels, stride in STAGES for i in range(depth)
]  # output channels and stride of each block
STEM, HEAD, CLASSES = 16, 1504, 100
EXAMPLE = "0_3_8_2_2_3_3_6_6_3_7_2_6_7_3_6_7_7_6_8_3_3"


@dataclass(frozen=True)
class Codes:
    """An architecture: the code of each of the 22 blocks, an index into BLOCKS or SKIP."""

    codes: tuple[int, ...]

    def __str__(self) -> str:
        return "_".join(map(str, self.codes))


class FBNet(SearchSpace[Codes]):
    """The FBNet space of Wu et al. 2019 in its CIFAR form, as the HELP benchmark measured it.

    Examples:
        >>> FBNet().params(FBNet().parse(EXAMPLE)) > 1_000_000
        True
    """

    name = "fbnet"
    size = (len(BLOCKS) + 1) ** len(BLOCK_SETTINGS)
    genes = (len(BLOCKS) + 1,) * len(BLOCK_SETTINGS)

    def decode(self, genome: np.ndarray) -> Codes:
        return Codes(tuple(self.validate_genome(genome)))

    def encode(self, architecture: Codes) -> np.ndarray:
        return np.array(architecture.codes)

    def parse(self, text: str) -> Codes:
        parts = text.strip().split("_")
        if len(parts) != len(BLOCK_SETTINGS):
            raise ValueError(
                f"{text!r} has {counted(len(parts), 'block code')} joined by '_', expected"
                f" {len(BLOCK_SETTINGS)}"
                f" as in {EXAMPLE!r}"
            )
        for position, part in enumerate(parts):
            if part not in map(str, range(SKIP + 1)):
                raise ValueError(
                    f"block {position} of {text!r} is {part!r}, expected a code from 0 to {SKIP}"
                )
        return Codes(tuple(map(int, parts)))

    def write(self, graph: Graph, architecture: Codes) -> Value:
        x = graph.block(conv_bn_relu, graph.input, STEM, 3)
        for code, (channels, stride) in zip(architecture.codes, BLOCK_SETTINGS, strict=True):
            if code != SKIP:
                x = graph.block(_mobile, x, channels, stride, *BLOCKS[code])
            elif stride > 1 or channels != x.channels:
                x = graph.block(conv_bn_relu, x, channels, 1, stride)
        return graph.classifier(graph.block(conv_bn_relu, x, HEAD, 1), CLASSES)


def _mobile(
    graph: Graph, x: Value, channels: int, stride: int, kernel: int, expansion: int, groups: int
) -> Value:
    """Write an inverted residual block, with a channel shuffle if its 1x1 convolutions have groups."""
    y = graph.block(conv_bn_relu, x, x.channels * expansion, 1, 1, groups)
    if groups > 1:
        y = _shuffle(graph, y, groups)
    y = graph.block(conv_bn_relu, y, y.channels, kernel, stride, y.channels)
    y = graph.block(conv_bn, y, channels, 1, 1, groups)
    return graph.op("Add", x, y) if stride == 1 and channels == x.channels else y


def _shuffle(graph: Graph, x: Value, groups: int) -> Value:
    """Write a channel shuffle between groups."""
    split = Constant((0, groups, x.channels // groups, x.side, x.side))
    y = graph.op("Transpose", graph.op("Reshape", x, split), perm=[0, 2, 1, 3, 4])
    return graph.op("Reshape", y, Constant((0, x.channels, x.side, x.side)))
