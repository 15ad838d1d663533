"""Network Design Spaces, block-based: three stages of plain, residual or bottleneck blocks on CIFAR-10."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from search_spaces.graph import Graph, Value
from search_spaces.layers import add, conv_bn, conv_bn_relu
from search_spaces.notation import abbreviated, is_int_between, read_json
from search_spaces.space import SearchSpace

STEM, STRIDES, CLASSES = 16, (1, 2, 2), 10
STAGES = len(STRIDES)
MAX_DEPTH, MAX_CHANNELS = 64, 8192  # blocks of a stage, and channels, that a parsed network may have


@dataclass(frozen=True)
class Stages:
    """An architecture of three stages.

    Args:
        block: type of the blocks, as in the notation.
        depths: number of blocks of each stage.
        widths: channels of each stage.
        bottlenecks: channels of the bottleneck relative to those of the stage; 0 without a bottleneck.
        groups: groups of the bottleneck's convolution; 0 without a bottleneck.
    """

    block: str
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    bottlenecks: tuple[float, ...] = (0.0,) * STAGES
    groups: tuple[int, ...] = (0,) * STAGES

    def stage(self, i: int) -> tuple[int, int, int]:
        """Return channels, bottleneck channels and groups of a stage."""
        return self.widths[i], int(self.widths[i] * self.bottlenecks[i]), self.groups[i]

    def __str__(self) -> str:
        return json.dumps(
            {
                "block_type": self.block,
                "ds": self.depths,
                "ws": self.widths,
                "ss": STRIDES,
                "bot_muls": self.bottlenecks,
                "num_gs": self.groups,
            }
        )


class StageSpace(SearchSpace[Stages]):
    """Base class of the block-based spaces of Radosavovic et al. 2019, table 1.

    A genome has, for each stage, its depth, width, bottleneck ratio and groups, as indices into the values
    below. The text of an architecture may have other values.

    Attributes:
        block: type of the blocks, as in the notation.
        depths: numbers of blocks of a stage.
        widths: channels of a stage.
        ratios: channels of the bottleneck relative to those of the stage.
        groups: groups of the bottleneck's convolution.
    """

    block: str
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    ratios: tuple[float, ...] = (0.0,)
    groups: tuple[int, ...] = (0,)

    def __init__(self) -> None:
        self.choices = (self.depths, self.widths, self.ratios, self.groups)
        self.genes = tuple(len(c) for c in self.choices for _ in range(STAGES) if len(c) > 1)
        self.size = int(np.prod(self.genes))

    def decode(self, genome: np.ndarray) -> Stages:
        genes = iter(self.validate_genome(genome))
        columns: list[Any] = [
            tuple(c[next(genes) if len(c) > 1 else 0] for _ in range(STAGES)) for c in self.choices
        ]
        return Stages(self.block, *columns)

    def encode(self, architecture: Stages) -> np.ndarray:
        """Return the genome of an architecture; values that no genome can have become the nearest ones."""
        columns = (architecture.depths, architecture.widths, architecture.bottlenecks, architecture.groups)
        return np.array(
            [
                int(np.argmin(np.abs(np.subtract(choices, value))))
                for choices, column in zip(self.choices, columns, strict=True)
                for value in column
                if len(choices) > 1
            ]
        )

    def parse(self, text: str) -> Stages:
        expected = f"JSON such as {self.decode(np.zeros(len(self.genes), dtype=int))}"
        content: Any = read_json(text, expected)
        if not isinstance(content, dict):
            raise ValueError(f"{abbreviated(text)} is not {expected}")
        if content.get("block_type") != self.block:
            raise ValueError(
                f"block_type of {text!r} is {content.get('block_type')!r}, expected {self.block!r}"
            )
        for name, maximum in (("ds", MAX_DEPTH), ("ws", MAX_CHANNELS), ("ss", max(STRIDES))):
            value: Any = content.get(name)
            is_list = isinstance(value, list) and len(value) == STAGES
            if not is_list or not all(is_int_between(v, 1, maximum) for v in value):
                raise ValueError(
                    f"{name} of {text!r} is {value!r}, expected {STAGES} numbers up to {maximum}"
                )
        if tuple(content["ss"]) != STRIDES:
            raise ValueError(f"ss of {text!r} is {content['ss']}, expected {list(STRIDES)}")
        if len(self.ratios) == 1:
            return Stages(self.block, tuple(content["ds"]), tuple(content["ws"]))
        ratios: Any = content.get("bot_muls")
        groups: Any = content.get("num_gs")
        if not all(
            isinstance(values, list) and len(values) == STAGES for values in (ratios, groups)
        ) or not all(map(_is_valid_bottleneck, content["ws"], ratios, groups)):
            raise ValueError(
                f"bot_muls {ratios!r} and num_gs {groups!r} of {text!r}: expected {STAGES} of each, so that"
                f" width times bot_mul is an integer up to {MAX_CHANNELS} and divisible by num_gs"
            )
        return Stages(
            self.block, tuple(content["ds"]), tuple(content["ws"]), tuple(map(float, ratios)), tuple(groups)
        )

    def write(self, graph: Graph, architecture: Stages) -> Value:
        x = graph.block(conv_bn_relu, graph.input, STEM, 3)
        for i, stride in enumerate(STRIDES):
            for k in range(architecture.depths[i]):
                x = graph.block(self.write_block, x, *architecture.stage(i), 1 if k else stride)
        return graph.classifier(x, CLASSES)

    def write_block(self, graph: Graph, x: Value, width: int, inner: int, groups: int, stride: int) -> Value:
        """Write one block of a stage.

        Args:
            graph: graph to write to.
            x: input of the block.
            width: output channels.
            inner: channels of the bottleneck; 0 without one.
            groups: groups of the bottleneck's convolution; 0 without one.
            stride: stride of the block.
        """
        raise NotImplementedError


class Vanilla(StageSpace):
    """The Vanilla space: plain blocks of two convolutions."""

    name = "nds_vanilla"
    block = "vanilla_block"
    depths = (1, 2, 3, 4, 6, 8, 12, 16, 24)
    widths = (16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)

    def write_block(self, graph: Graph, x: Value, width: int, inner: int, groups: int, stride: int) -> Value:
        return conv_bn_relu(graph, conv_bn_relu(graph, x, width, 3, stride), width, 3)


class ResNet(StageSpace):
    """The ResNet space: residual blocks of two convolutions."""

    name = "nds_resnet"
    block = "res_basic_block"
    depths, widths = Vanilla.depths, Vanilla.widths

    def write_block(self, graph: Graph, x: Value, width: int, inner: int, groups: int, stride: int) -> Value:
        y = conv_bn(graph, conv_bn_relu(graph, x, width, 3, stride), width, 3)
        return _add_shortcut(graph, x, y, stride)


class ResNeXtA(StageSpace):
    """The ResNeXt-A space: residual bottleneck blocks with grouped convolutions."""

    name = "nds_resnext_a"
    block = "res_bottleneck_block"
    depths = (1, 2, 4, 8, 16)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256)
    ratios = (1.0, 0.5, 0.25)
    groups: tuple[int, ...] = (1, 2, 4)

    def write_block(self, graph: Graph, x: Value, width: int, inner: int, groups: int, stride: int) -> Value:
        y = conv_bn_relu(graph, x, inner, 1)
        y = conv_bn_relu(graph, y, inner, 3, stride, groups)
        return _add_shortcut(graph, x, conv_bn(graph, y, width, 1), stride)


class ResNeXtB(ResNeXtA):
    """The ResNeXt-B space: ResNeXt-A with more channels and groups."""

    name = "nds_resnext_b"
    widths, groups = (64, 128, 256, 512, 1024), (1, 2, 4, 8, 16)


def _add_shortcut(graph: Graph, x: Value, y: Value, stride: int) -> Value:
    """Write the sum of a block's input `x`, projected if shapes differ, and its output `y`; then ReLU."""
    shortcut = x if stride == 1 and x.channels == y.channels else conv_bn(graph, x, y.channels, 1, stride)
    return graph.op("Relu", add(graph, shortcut, y))


def _is_valid_bottleneck(width: int, ratio: object, groups: object) -> bool:
    """Return True if the bottleneck has an integer number of channels that is divisible by the groups."""
    if not isinstance(ratio, int | float) or isinstance(ratio, bool):
        return False
    inner = width * ratio
    is_channels = 1 <= inner <= MAX_CHANNELS and inner == int(inner)
    return is_channels and is_int_between(groups, 1, MAX_CHANNELS) and inner % groups == 0
