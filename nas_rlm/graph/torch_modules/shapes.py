"""Translations of operators that change the shape of tensors or make tensors of a shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F

from nas_rlm.graph.torch_modules.elementwise import torch_type
from nas_rlm.graph.torch_modules.registry import Constant, Operation, Sizes, Translate

PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}


def _reshape(operation: Operation) -> Any:
    """Translate Reshape."""
    keeps_zero = bool(operation.attribute("allowzero", 0))
    return operation.call(_reshaped, operation.tensor(), operation.integers(1), keeps_zero)


def _reshaped(x: torch.Tensor, shape: list[int], keeps_zero: bool) -> torch.Tensor:
    """Reshape a tensor, where size 0 keeps the size of the same axis unless zeros are kept."""
    if keeps_zero:
        return x.reshape(shape)
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])


def _flatten(operation: Operation) -> Any:
    """Translate Flatten to two axes."""
    axis = operation.attribute("axis", 1)
    if axis == 1:
        return operation.call(torch.flatten, operation.tensor(), 1)
    return operation.call(_flattened, operation.tensor(), axis)


def _flattened(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Return a matrix with the axes before one as rows."""
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _transpose(operation: Operation) -> Any:
    """Translate Transpose, by default to the reverse order of axes."""
    order = operation.attribute("perm")
    if order is None:
        return operation.call(_reversed_axes, operation.tensor())
    return operation.call(torch.permute, operation.tensor(), tuple(order))


def _reversed_axes(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor with its axes in reverse order."""
    return x.permute(tuple(reversed(range(x.ndim))))


def _unsqueeze(operation: Operation) -> Any:
    """Translate Unsqueeze."""
    return operation.call(_with_axes, operation.tensor(), operation.axes())


def _with_axes(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    """Return a tensor with new axes of size 1; the axes count in the result."""
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _squeeze(operation: Operation) -> Any:
    """Translate Squeeze."""
    return operation.call(_without_axes, operation.tensor(), operation.axes())


def _without_axes(x: torch.Tensor, axes: list[int] | None) -> torch.Tensor:
    """Return a tensor without axes of size 1: these, or all such axes."""
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _expanded(x: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Return a tensor, broadcast with a shape."""
    return x.expand(torch.broadcast_shapes(x.shape, shape))


def _concat(operation: Operation) -> Any:
    """Translate Concat."""
    tensors = [operation.tensor(i) for i in range(len(operation.inputs))]
    return operation.call(torch.cat, tensors, operation.attribute("axis"))


def _split(operation: Operation) -> list[Any]:
    """Translate Split into parts of given sizes or of equal ones."""
    sizes = operation.attribute("split")
    if sizes is None and operation.has(1):
        sizes = operation.integers(1)
    num_parts = operation.attribute("num_outputs", len(operation.node.output))
    axis = operation.attribute("axis", 0)
    if sizes is None:
        parts = operation.call(_equal_parts, operation.tensor(), num_parts, axis)
    else:
        parts = operation.call(torch.split, operation.tensor(), sizes, axis)
    return [operation.item(parts, i) for i in range(len(operation.node.output))]


def _equal_parts(x: torch.Tensor, num_parts: int, axis: int) -> tuple[torch.Tensor, ...]:
    """Return parts of equal sizes; the last may be smaller."""
    return torch.split(x, -(-x.shape[axis] // num_parts), axis)


def _pad(operation: Operation) -> Any:
    """Translate Pad."""
    mode = operation.attribute("mode", "constant")
    if mode not in PAD_MODES:
        raise ValueError(f"mode {mode} of Pad is not supported: expected one of {', '.join(PAD_MODES)}")
    value = operation.operand(2) if operation.has(2) else 0
    if isinstance(value, torch.fx.Node):
        value = operation.call(torch.Tensor.item, value)
    axes = operation.axes(3)
    return operation.call(_padded, operation.tensor(), operation.integers(1), PAD_MODES[mode], value, axes)


def _padded(
    x: torch.Tensor, pads: list[int], mode: str, value: float, axes: list[int] | None
) -> torch.Tensor:
    """Return a tensor with elements before and after those of axes, or of all axes."""
    pairs = [(0, 0)] * x.ndim
    numbers = range(x.ndim) if axes is None else axes
    for axis, before, after in zip(numbers, pads[: len(numbers)], pads[len(numbers) :], strict=True):
        pairs[axis] = (before, after)
    if mode == "constant":
        return F.pad(x, [p for pair in reversed(pairs) for p in pair], value=value)
    for axis, pair in enumerate(pairs):
        if pair != (0, 0):  # torch pads only the last axes in these modes
            rows = x.movedim(axis, -1)
            padded = F.pad(rows.reshape(1, -1, rows.shape[-1]), pair, mode)
            x = padded.reshape(*rows.shape[:-1], padded.shape[-1]).movedim(-1, axis)
    return x


def _depth_to_space(operation: Operation) -> Any:
    """Translate DepthToSpace."""
    size, mode = operation.attribute("blocksize"), operation.attribute("mode", "DCR")
    return operation.call(_depth_as_space, operation.tensor(), size, mode == "DCR")


def _depth_as_space(x: torch.Tensor, size: int, is_depth_last: bool) -> torch.Tensor:
    """Return a tensor with groups of channels as blocks of positions."""
    if not is_depth_last:
        return F.pixel_shuffle(x, size)
    n, c, h, w = x.shape
    blocks = x.reshape(n, size, size, c // size**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return blocks.reshape(n, c // size**2, h * size, w * size)


def _space_to_depth(operation: Operation) -> Any:
    """Translate SpaceToDepth."""
    return operation.call(_space_as_depth, operation.tensor(), operation.attribute("blocksize"))


def _space_as_depth(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return a tensor with blocks of positions as groups of channels."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // size, size, w // size, size).permute(0, 3, 5, 1, 2, 4)
    return blocks.reshape(n, c * size**2, h // size, w // size)


def _constant_of_shape(operation: Operation) -> Any:
    """Translate ConstantOfShape."""
    value = operation.attributes.get("value")
    array = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    first_input = operation.translator.first_input
    options = {"dtype": getattr(torch, array.dtype.name)}
    return operation.call(_full, operation.integers(0), array.item(), first_input, **options)


def _full(shape: list[int], value: float, like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of one value on the device of another tensor."""
    return torch.full(shape, value, dtype=dtype, device=like.device)


def _range(operation: Operation) -> Any:
    """Translate Range."""
    bounds = [_number(operation, i) for i in range(3)]
    types = [value.array.dtype.name for value in operation.inputs if isinstance(value, Constant)]
    dtype = getattr(torch, types[0]) if types else None
    return operation.call(_numbers, *bounds, operation.translator.first_input, dtype)


def _number(operation: Operation, position: int) -> Any:
    """Return an input without dimensions as a number."""
    value = operation.inputs[position]
    if isinstance(value, Constant):
        return value.array.item()
    return value.value if isinstance(value, Sizes) else operation.call(torch.Tensor.item, value)


def _numbers(
    start: float, end: float, step: float, like: torch.Tensor, dtype: torch.dtype | None
) -> torch.Tensor:
    """Return a range of numbers on the device of another tensor."""
    return torch.arange(start, end, step, device=like.device, dtype=dtype)


def _eye_like(operation: Operation) -> Any:
    """Translate EyeLike."""
    elem_type = operation.attribute("dtype")
    dtype = None if elem_type is None else torch_type(elem_type)
    return operation.call(_eye, operation.tensor(), operation.attribute("k", 0), dtype)


def _eye(x: torch.Tensor, diagonal: int, dtype: torch.dtype | None) -> torch.Tensor:
    """Return a matrix of the shape of another, with ones on a diagonal."""
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    return (rows[:, None] + diagonal == columns).to(dtype or x.dtype)


OPERATORS: dict[str, Translate] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": lambda operation: operation.call(_expanded, operation.tensor(), operation.integers(1)),
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": lambda operation: operation.call(torch.tile, operation.tensor(), operation.integers(1)),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
