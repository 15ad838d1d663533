"""Padding of convolutions and pools: symmetric in the layer, asymmetric before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from nas_rlm.graph.torch_modules.registry import Operation


class Padding:
    """The padding of a layer with a window.

    Args:
        operation: the layer.
        sides: sides of the window.

    Attributes:
        symmetric: padding of each axis that the layer does itself.
        extra: padding for `F.pad`, empty if the layer does all.
        auto_pad: `SAME_UPPER` or `SAME_LOWER` if the padding depends on the sides of the input, or None.
    """

    def __init__(self, operation: Operation, sides: Sequence[int]) -> None:
        operation.require("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
        self.operation, rank = operation, len(sides)
        self.window = (
            list(sides),
            list(operation.attribute("strides", (1,) * rank)),
            list(operation.attribute("dilations", (1,) * rank)),
        )
        auto_pad = operation.attribute("auto_pad", "NOTSET")
        self.auto_pad = auto_pad if auto_pad.startswith("SAME") else None
        pads = operation.attribute("pads", (0,) * 2 * rank) if auto_pad == "NOTSET" else (0,) * 2 * rank
        before, after = tuple(pads[:rank]), tuple(pads[rank:])
        pairs = list(zip(before, after, strict=True))
        # A pool in torch has at most half of its window as padding.
        is_pool = "Pool" in operation.kind
        is_symmetric = before == after and not (
            is_pool and any(2 * p > s for p, s in zip(before, sides, strict=True))
        )
        self.symmetric = before if is_symmetric else (0,) * rank
        self.extra = [] if is_symmetric else [p for pair in reversed(pairs) for p in pair]

    def padded(self, x: Any, value: float) -> Any:
        """Return the input of a layer, padded as far as the layer does not do it.

        Args:
            x: the input.
            value: value of the padding.
        """
        if self.auto_pad:
            return self.operation.call(_same_padded, x, *self.window, self.auto_pad == "SAME_UPPER", value)
        return self.operation.call(F.pad, x, self.extra, value=value) if self.extra else x

    def is_needed(self) -> bool:
        """Return whether the input must be padded before the layer."""
        return bool(self.auto_pad or self.extra)


def _same_padded(
    x: torch.Tensor, sides: list[int], strides: list[int], dilations: list[int], at_end: bool, value: float
) -> torch.Tensor:
    """Return a tensor, padded so that the output has its sides divided by the strides, rounded up."""
    pads: list[int] = []
    for size, side, stride, dilation in zip(x.shape[2:], sides, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (side - 1) * dilation + 1 - size)
        pair = [total // 2, total - total // 2]
        pads = (pair if at_end else pair[::-1]) + pads
    return F.pad(x, pads, value=value)
