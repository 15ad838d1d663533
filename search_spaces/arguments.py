"""Forms of what a search space passes to the builder of networks: sizes, and attributes of operators."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np


def checked_size(size: object, shape: Sequence[object]) -> int:
    """Return a size of a weight as an integer.

    Raises:
        ValueError: it is no positive integer.
    """
    if not is_size(size):
        raise ValueError(f"a weight of shape {list(shape)}: expected positive integers")
    return index(size)  # type: ignore[arg-type]


def plain_attribute(value: Any) -> Any:
    """Return an attribute with numbers of Python in place of those of NumPy, and tuples in place of lists."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple([plain_attribute(v) for v in value])
    return int(value) if isinstance(value, bool) else value


def along_axes(value: int | Sequence[int], num_axes: int, what: str) -> tuple[int, ...]:
    """Return a size for each axis along which a layer slides.

    Examples:
        >>> along_axes(3, 2, "kernel"), along_axes((1, 5), 2, "kernel")
        ((3, 3), (1, 5))

    Args:
        value: one size for all axes, or one for each.
        num_axes: number of axes: one for signals, two for images, three for volumes.
        what: what the sizes are, for messages.

    Raises:
        ValueError: there are sizes for another number of axes, or one is no positive integer.
    """
    sizes = (
        tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * num_axes
    )
    if len(sizes) != num_axes or not all(map(is_size, sizes)):
        of_each = f", or one for each of {num_axes} axes" if num_axes > 1 else ""
        raise ValueError(f"{what} is {value!r}: expected a positive integer{of_each}")
    return tuple(map(index, sizes))


def is_size(value: object) -> bool:
    """Return whether a value is a positive integer, also of NumPy."""
    try:
        return index(value) > 0  # type: ignore[arg-type]
    except TypeError:
        return False
