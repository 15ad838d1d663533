"""Which axis of a value has the channels.

Images [batch, channels, height, width], signals [batch, channels, length] and volumes have them behind the
batch, tokens [batch, tokens, features] and vectors in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.nodes import Argument, Value

OF_CHANNELS = (
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "ConvTranspose",
    "InstanceNormalization",
    "MaxPool",
)
RECURRENT = ("GRU", "LSTM", "RNN")  # whose features are in the end


def channels_and_sides(shape: tuple[int, ...], channels_first: bool | None) -> tuple[int, int, int]:
    """Return the channels, side and width of a shape with the batch size, see `search_spaces.nodes.Value`.

    Examples:
        >>> channels_and_sides((1, 6, 128), True), channels_and_sides((1, 196, 64), False)
        ((6, 128, 0), (64, 196, 0))

    Args:
        shape: the shape.
        channels_first: three sizes are of a signal, and not of tokens; None if that is not known.
    """
    if len(shape) >= 4:
        return shape[1], shape[2], shape[3]
    if len(shape) == 3:
        return (shape[1], shape[2], 0) if channels_first else (shape[2], shape[1], 0)
    return shape[-1] if shape else 1, 0, 0


def has_channels_first(
    kind: str, arguments: Sequence[Argument], attributes: Mapping[str, Any], shape: tuple[int, ...]
) -> bool | None:
    """Return whether the output of an operator has its channels behind the batch; None if that is not known.

    Args:
        kind: name of the ONNX operator.
        arguments: what it reads.
        attributes: its attributes.
        shape: shape of its output, with the batch size.
    """
    read = [a for a in arguments if isinstance(a, Value)]
    if kind in OF_CHANNELS:
        return True
    if not read or len(shape) < 3:
        return None
    x = read[0]
    if kind in ("MatMul", *RECURRENT) or (kind == "Gather" and x is not arguments[0]):  # of an embedding
        return False
    if kind == "Reshape":
        return _after_reshape(x, shape)
    if kind == "Transpose":
        return _after_transpose(attributes.get("perm", range(len(shape))[::-1]), x.channels_first)
    found = {value.channels_first for value in read if value.shape == shape} or {
        value.channels_first for value in read
    }
    return found.pop() if len(found) == 1 else None


def _after_reshape(x: Value, shape: tuple[int, ...]) -> bool | None:
    """Return whether the channels are behind the batch after a reshape; None if it moves or divides them."""
    if x.channels_first:
        return True if x.shape[:2] == shape[:2] else None
    joined = {math.prod(x.shape[axis:]) for axis in range(1, len(x.shape))}  # such as two directions
    return False if x.channels_first is False and shape[-1] in joined else None


def _after_transpose(order: Sequence[int], channels_first: bool | None) -> bool | None:
    """Return whether the channels are behind the batch after a transpose."""
    if channels_first is None:
        return None
    position = list(order).index(1 if channels_first else len(order) - 1)
    return {1: True, len(order) - 1: False}.get(position)
