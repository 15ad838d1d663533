"""The picture of a comparison: where each network spends its time, by block of layers.

`block_info` computes what is shown, and `draw_blocks` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from nas_rlm.plotting.style import FAINT, FRONT, HUES, INK, MUTED, style_axis
from nas_rlm.reports.comparison import BLOCK_CLASSES, BlockLatency, Comparison
from nas_rlm.utils.axes import axis_label

COLORS = dict(zip(BLOCK_CLASSES, (*HUES, FRONT, FAINT), strict=True))
MIN_LABEL_SHARE = 0.04  # of the longest bar that a stage needs for its label
MAX_NAME_LENGTH = 40  # characters
BAR_HEIGHT = 0.5


@dataclass(frozen=True)
class Segment:
    """A part of a bar.

    Args:
        start: where it starts, in ms.
        width: its latency in ms.
        layer_class: class of its layers.
    """

    start: float
    width: float
    layer_class: str


@dataclass(frozen=True)
class Stage:
    """The part of a bar with one image side.

    Args:
        start: where it starts, in ms.
        width: its latency in ms.
        label: its image side; empty if it is too small for a label.
    """

    start: float
    width: float
    label: str


@dataclass(frozen=True)
class Bar:
    """The latency of a network.

    Args:
        name: name of the network.
        total: latency in ms.
        segments: its blocks in order.
        stages: groups of blocks with one image side.
    """

    name: str
    total: float
    segments: tuple[Segment, ...]
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class BlockInfo:
    """What the picture of a comparison shows.

    Args:
        title: of the picture.
        label: of the axis of latencies.
        bars: a bar for each network.
        classes: classes of layers that occur.
    """

    title: str
    label: str
    bars: tuple[Bar, ...]
    classes: tuple[str, ...]


def block_info(comparison: Comparison) -> BlockInfo:
    """Compute what the picture of a comparison shows.

    Args:
        comparison: the networks.

    Raises:
        ValueError: the model does not know the latency of each layer.
    """
    objective = comparison.block_objective
    check_block_latency(objective, comparison.objectives)
    names = shortened([network.name for network in comparison.networks])
    longest = max([network.predictions[objective].median for network in comparison.networks])
    bars = [
        _bar(name, network.blocks, longest) for name, network in zip(names, comparison.networks, strict=True)
    ]
    used = {segment.layer_class for bar in bars for segment in bar.segments}
    classes = tuple([name for name in BLOCK_CLASSES if name in used])
    return BlockInfo("predicted latency by block", axis_label(objective), tuple(bars), classes)


def check_block_latency(block_objective: str, objectives: Sequence[str]) -> None:
    """Refuse a picture without latencies of blocks.

    Args:
        block_objective: the latency that is known for each layer; empty if there is none.
        objectives: the predicted objectives.

    Raises:
        ValueError: there is none.
    """
    if not block_objective:
        latencies = [name for name in objectives if name.startswith("latency/")]
        others = f" and {len(latencies) - 1} more" if len(latencies) > 1 else ""
        raise ValueError(
            f"no layer surrogate predicts {latencies[0] if latencies else 'an objective'}{others}, so that"
            " there is no picture of blocks; `nas-rlm devices` lists the latencies that are predicted for"
            " networks of any family"
        )


def shortened(paths: Sequence[str]) -> list[str]:
    """Return the names of files without their directories where they stay distinct, and not too long.

    Examples:
        >>> shortened(["a/net.onnx", "a/other.onnx"]), shortened(["a/net.onnx", "b/net.onnx"])
        (['net.onnx', 'other.onnx'], ['a/net.onnx', 'b/net.onnx'])

    Args:
        paths: paths of the files.
    """
    names = [Path(path).name for path in paths]
    shown = names if len({*names}) == len({*paths}) else paths
    return [name if len(name) <= MAX_NAME_LENGTH else f"…{name[1 - MAX_NAME_LENGTH :]}" for name in shown]


def _bar(name: str, blocks: Sequence[BlockLatency], longest: float) -> Bar:
    """Return the bar of a network.

    Args:
        name: name of the network.
        blocks: its blocks in order.
        longest: latency of the slowest network in ms.
    """
    start, segments, stages = 0.0, [], []
    for side, group in groupby(blocks, lambda block: block.side):
        first = start
        for block in group:
            segments.append(Segment(start, block.latency, block.layer_class))
            start += block.latency
        is_wide = start - first >= MIN_LABEL_SHARE * longest
        stages.append(Stage(first, start - first, (f"{side} px" if side else "no image") if is_wide else ""))
    return Bar(name, start, tuple(segments), tuple(stages))


def draw_blocks(info: BlockInfo) -> Figure:
    """Draw a stacked bar for each network, from large images on the left to small ones on the right.

    Args:
        info: see `block_info`.
    """
    figure = Figure(figsize=(9.6, 1.9 + 0.75 * len(info.bars)), layout="constrained")
    axis = figure.subplots()
    for y, bar in enumerate(info.bars):
        for segment in bar.segments:
            axis.barh(
                y, segment.width, BAR_HEIGHT, segment.start, color=COLORS[segment.layer_class], linewidth=0
            )
        for stage in bar.stages:
            if stage.start:
                axis.plot([stage.start] * 2, [y - BAR_HEIGHT / 2, y + BAR_HEIGHT / 2], color="white")
            center = stage.start + stage.width / 2
            axis.text(center, y - 0.6 * BAR_HEIGHT, stage.label, ha="center", fontsize=7.5, color=MUTED)
        axis.text(bar.total, y, f"  {bar.total:.4g} ms", va="center", fontsize=9, color=INK)
    axis.set_yticks(range(len(info.bars)), [bar.name for bar in info.bars], parse_math=False)
    axis.set_ylim(len(info.bars) - 0.5, -0.7)
    axis.margins(x=0.1)
    axis.set_xlim(left=0)
    axis.set_title(info.title, loc="left", fontsize=12, color=INK)
    axis.set_xlabel(info.label, color=INK)
    style_axis(axis)
    axis.grid(visible=False, axis="y")
    handles = [Patch(color=COLORS[name], label=name) for name in info.classes]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False, fontsize=8.5)
    return figure
