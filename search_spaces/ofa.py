"""Once-for-All: subnets of MobileNetV3, ProxylessNAS and ResNet50 supernets on ImageNet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from search_spaces.blocks import make_divisible
from search_spaces.graph import Graph, Value
from search_spaces.layers import conv_bn, conv_bn_relu, relu6
from search_spaces.notation import abbreviated, read_json
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

RESOLUTIONS = tuple(range(128, 225, 4))
KERNELS, EXPANSIONS, DEPTHS = (3, 5, 7), (3, 4, 6), (2, 3, 4)
CLASSES = 1000
MIN_DEPTHS, EXTRA_DEPTHS, WIDTHS = (
    (2, 2, 4, 2),
    (0, 1, 2),
    (256, 512, 1024, 2048),
)  # ResNet50's blocks a stage, and channels
RATIOS, MULTIPLIERS = (0.2, 0.25, 0.35), (0.65, 0.8, 1.0)


@dataclass(frozen=True)
class Setting:
    """An architecture: the values of each elastic dimension, such as kernel or depth, by its name."""

    dimensions: tuple[tuple[str, tuple[float, ...]], ...]

    def __str__(self) -> str:
        lists: dict[str, Any] = {k: list(v) for k, v in self.dimensions}
        return json.dumps({**lists, "r": lists["r"][0]})

    def __getitem__(self, name: str) -> tuple[float, ...]:
        return dict(self.dimensions)[name]


class _OnceForAll(SearchSpace[Setting]):
    """Base class of the Once-for-All supernets (Cai et al. 2020), with a gene for each elastic value.

    Blocks beyond the depth of a stage have genes, but are not in the network.
    """

    elastic: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...]  # choices of each value, by dimension

    def __init__(self) -> None:
        self.choices: dict[str, tuple[tuple[float, ...], ...]] = {**dict(self.elastic), "r": (RESOLUTIONS,)}
        self.genes = tuple(len(c) for values in self.choices.values() for c in values)

    def decode(self, genome: np.ndarray) -> Setting:
        genes = iter(self.validate_genome(genome))
        return Setting(
            tuple((k, tuple(c[next(genes)] for c in values)) for k, values in self.choices.items())
        )

    def encode(self, architecture: Setting) -> np.ndarray:
        return np.array(
            [
                c.index(v)
                for name, values in self.choices.items()
                for c, v in zip(values, architecture[name], strict=True)
            ]
        )

    def parse(self, text: str) -> Setting:
        expected = f"JSON with {', '.join(self.choices)} such as {self.decode(np.zeros(len(self.genes)))}"
        content = read_json(text, expected, tuple(self.choices))
        if not isinstance(content, dict):
            raise ValueError(f"{abbreviated(text)} is not {expected}")
        if len(content) < len(self.choices):
            raise ValueError(f"{abbreviated(text)} has {', '.join(content)}; expected {expected}")
        dimensions = []
        for name, values in self.choices.items():
            written = [content["r"]] if name == "r" else content[name]
            if not isinstance(written, list) or len(written) != len(values):
                raise ValueError(
                    f"{name} of {text!r} is {written!r}, expected {counted(len(values), 'value')}"
                )
            for i, (v, c) in enumerate(zip(written, values, strict=True)):
                if isinstance(v, bool) or v not in c:
                    position = name if name == "r" else f"{name}[{i}]"
                    raise ValueError(
                        f"{position} of {text!r} is {v!r}, expected one of {', '.join(map(str, c))}"
                    )
            dimensions.append((name, tuple(c[c.index(v)] for v, c in zip(written, values, strict=True))))
        return Setting(tuple(dimensions))

    def shape(self, architecture: Setting) -> tuple[int, int, int]:
        side = int(architecture["r"][0])
        return 3, side, side


class _Mobile(_OnceForAll):
    """Base class of supernets of inverted residual blocks with elastic kernel, expansion and depth."""

    widths: tuple[int, ...]
    strides: tuple[int, ...]

    def key(self, architecture: Setting) -> str:
        return json.dumps([architecture["r"], *([*b] for b in self._blocks(architecture))])

    def _blocks(self, architecture: Setting) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield stage, channels, stride, kernel and expansion of each block of the network."""
        depths = [int(d) for d in architecture["d"]]
        depths += [1] * (len(self.widths) - len(depths))
        for stage, (depth, width, stride) in enumerate(zip(depths, self.widths, self.strides, strict=True)):
            for i in range(depth):
                k = stage * max(DEPTHS) + i
                kernel, expansion = int(architecture["ks"][k]), int(architecture["e"][k])
                yield stage, width, stride if i == 0 else 1, kernel, expansion


class OFAMobileNetV3(_Mobile):
    """The MobileNetV3 supernet of width 1.0 (Cai et al. 2020).

    `size` counts networks without their 25 possible input resolutions.
    """

    name = "ofa_mbv3"
    size = sum((len(KERNELS) * len(EXPANSIONS)) ** d for d in DEPTHS) ** 5
    elastic = (("ks", (KERNELS,) * 20), ("e", (EXPANSIONS,) * 20), ("d", (DEPTHS,) * 5))
    widths = (24, 40, 80, 112, 160)
    strides = (2, 2, 2, 1, 2)
    activations = ("Relu", "Relu", "HardSwish", "HardSwish", "HardSwish")
    squeezed = (False, True, False, True, True)

    def write(self, graph: Graph, architecture: Setting) -> Value:
        x = graph.op("HardSwish", conv_bn(graph, graph.input, 16, 3, 2))
        x = graph.block(inverted_residual, x, 16, 1, 3, 1, "Relu")
        for stage, *block in self._blocks(architecture):
            x = graph.block(inverted_residual, x, *block, self.activations[stage], self.squeezed[stage])
        x = graph.op("HardSwish", conv_bn(graph, x, 960, 1))
        x = graph.op("GlobalAveragePool", x, side=1)
        x = graph.op("HardSwish", graph.conv(x, 1280, 1))
        return graph.linear(graph.op("Flatten", x, side=0), CLASSES)


class OFAProxyless(_Mobile):
    """The ProxylessNAS supernet of width 1.3, whose last stage is always a single block."""

    name = "ofa_proxyless"
    size = OFAMobileNetV3.size * len(KERNELS) * len(EXPANSIONS)
    elastic = (("ks", (KERNELS,) * 21), ("e", (EXPANSIONS,) * 21), ("d", (DEPTHS,) * 5))
    widths = (32, 56, 104, 128, 248, 416)
    strides = (2, 2, 2, 1, 2, 1)

    def write(self, graph: Graph, architecture: Setting) -> Value:
        x = relu6(graph, conv_bn(graph, graph.input, 40, 3, 2))
        x = graph.block(inverted_residual, x, 24, 1, 3, 1, "Clip")
        for _, *block in self._blocks(architecture):
            x = graph.block(inverted_residual, x, *block, "Clip")
        return graph.classifier(relu6(graph, conv_bn(graph, x, 1664, 1)), CLASSES)


class OFAResNet50(_OnceForAll):
    """The ResNet50 supernet with elastic depth, bottleneck expansion and width."""

    name = "ofa_resnet50"
    size = (
        2
        * len(MULTIPLIERS) ** 6
        * prod(sum(len(RATIOS) ** (min_depth + d) for d in EXTRA_DEPTHS) for min_depth in MIN_DEPTHS)
    )
    elastic = (
        ("d", ((0, EXTRA_DEPTHS[-1]), *(EXTRA_DEPTHS,) * len(MIN_DEPTHS))),
        ("e", (RATIOS,) * (sum(MIN_DEPTHS) + EXTRA_DEPTHS[-1] * len(MIN_DEPTHS))),
        ("w", (MULTIPLIERS,) * (2 + len(WIDTHS))),
    )

    def key(self, architecture: Setting) -> str:
        widths = [*map(list, self._blocks(architecture))]
        return json.dumps([architecture["r"], architecture["d"][0], architecture["w"], widths])

    def write(self, graph: Graph, architecture: Setting) -> Value:
        hidden, stem = (make_divisible(c * w) for c, w in zip((32, 64), architecture["w"][:2], strict=True))
        x = graph.block(conv_bn_relu, graph.input, hidden, 3, 2)
        if architecture["d"][0] == EXTRA_DEPTHS[-1]:
            x = graph.op("Add", x, graph.block(conv_bn_relu, x, hidden, 3))
        x = graph.pool("MaxPool", graph.block(conv_bn_relu, x, stem, 3), 3, stride=2, padded=True)
        for channels, stride, expansion in self._blocks(architecture):
            x = graph.block(bottleneck, x, channels, stride, expansion)
        return graph.classifier(x, CLASSES)

    def _blocks(self, architecture: Setting) -> Iterator[tuple[int, int, float]]:
        """Yield channels, stride and expansion of each block of the network."""
        first = 0
        rows = zip(MIN_DEPTHS, WIDTHS, architecture["d"][1:], architecture["w"][2:], strict=True)
        for stage, (min_depth, width, extra_depth, multiplier) in enumerate(rows):
            for i in range(min_depth + int(extra_depth)):
                stride = 2 if stage and i == 0 else 1
                yield make_divisible(width * multiplier), stride, architecture["e"][first + i]
            first += min_depth + EXTRA_DEPTHS[-1]


def inverted_residual(
    graph: Graph,
    x: Value,
    channels: int,
    stride: int,
    kernel: int,
    expansion: int,
    activation: str,
    squeezed: bool = False,
) -> Value:
    """Write an inverted residual block, with squeeze-and-excitation if `squeezed` is set."""
    y = x
    if expansion > 1:
        y = graph.block(_activated, y, make_divisible(round(x.channels * expansion)), 1, 1, 1, activation)
    y = graph.block(_activated, y, y.channels, kernel, stride, y.channels, activation)
    if squeezed:
        y = graph.block(squeeze_excite, y)
    y = graph.block(conv_bn, y, channels, 1)
    return graph.op("Add", x, y) if stride == 1 and channels == x.channels else y


def squeeze_excite(graph: Graph, x: Value) -> Value:
    """Write squeeze-and-excitation with a bottleneck of a quarter of the channels."""
    y = graph.op("GlobalAveragePool", x, side=1)
    y = graph.op("Relu", graph.conv(y, make_divisible(x.channels // 4), 1, bias=True))
    y = graph.op("HardSigmoid", graph.conv(y, x.channels, 1, bias=True), alpha=1 / 6)
    return graph.op("Mul", x, y)


def bottleneck(graph: Graph, x: Value, channels: int, stride: int, expansion: float) -> Value:
    """Write a residual bottleneck block, whose shortcut has an average pool before the projection."""
    hidden = make_divisible(round(channels * expansion))
    y = graph.block(conv_bn_relu, x, hidden, 1)
    y = graph.block(conv_bn_relu, y, hidden, 3, stride)
    y = graph.block(conv_bn, y, channels, 1)
    if stride > 1:
        x = graph.pool("AveragePool", x, stride, stride=stride, ceil=True)
    if x.channels != channels:
        x = graph.block(conv_bn, x, channels, 1)
    return graph.op("Relu", graph.op("Add", x, y))


def _activated(
    graph: Graph, x: Value, channels: int, kernel: int, stride: int, groups: int, activation: str
) -> Value:
    """Write a convolution, batch norm and an activation."""
    y = conv_bn(graph, x, channels, kernel, stride, groups)
    return relu6(graph, y) if activation == "Clip" else graph.op(activation, y)
