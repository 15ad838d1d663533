"""Translations of operators that select, order or replace elements."""

from __future__ import annotations

from typing import Any

import torch

from nas_rlm.graph.torch_modules.registry import Operation, Translate

SCATTER_REDUCTIONS = {"mul": "prod", "max": "amax", "min": "amin", "add": "sum"}


def _slice(operation: Operation) -> Any:
    """Translate Slice."""
    starts, ends = operation.integers(1), operation.integers(2)
    axes = operation.integers(3) if operation.has(3) else None
    steps = operation.integers(4) if operation.has(4) else None
    return operation.call(_part, operation.tensor(), starts, ends, axes, steps)


def _part(
    x: torch.Tensor, starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None
) -> torch.Tensor:
    """Return a part of a tensor."""
    axes = list(range(len(starts))) if axes is None else axes
    index, flipped = [slice(None)] * x.ndim, []
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        size = x.shape[axis]
        if step > 0:
            index[axis] = slice(start, end, step)
            continue
        # Torch has no negative steps: the same elements in the other order, then flipped.
        positions = range(size)[start : None if end < -size else end : step]
        first, last = (positions[-1], positions[0] + 1) if positions else (0, 0)
        index[axis] = slice(first, last, -step)
        flipped.append(axis)
    part = x[tuple(index)]
    return part.flip(flipped) if flipped else part


def _gather(operation: Operation) -> Any:
    """Translate Gather, of one constant position to a selection."""
    axis = operation.attribute("axis", 0)
    position = operation.operand(1)
    if isinstance(position, torch.fx.Node):
        return operation.call(_gathered, operation.tensor(), position, axis)
    return operation.call(torch.select, operation.tensor(), axis, position)


def _gathered(x: torch.Tensor, positions: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the slices of an axis at positions, which may count from the end."""
    return x[(slice(None),) * (axis % x.ndim) + (positions,)]


def _gather_elements(operation: Operation) -> Any:
    """Translate GatherElements."""
    axis = operation.attribute("axis", 0)
    return operation.call(_elements, operation.tensor(), operation.tensor(1), axis)


def _elements(x: torch.Tensor, positions: torch.Tensor, axis: int) -> torch.Tensor:
    """Return an element of an axis for each position."""
    return torch.gather(x, axis, _from_start(positions, x.shape[axis]))


def _from_start(positions: torch.Tensor, size: int) -> torch.Tensor:
    """Return positions, those that count from the end as positions from the start."""
    return torch.where(positions < 0, positions + size, positions).long()


def _gather_nd(operation: Operation) -> Any:
    """Translate GatherND."""
    operation.require("batch_dims", 0)
    return operation.call(_at, operation.tensor(), operation.tensor(1))


def _at(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the elements at positions in the first axes."""
    return x[positions.unbind(-1)]


def _scatter_nd(operation: Operation) -> Any:
    """Translate ScatterND."""
    operation.require("reduction", "none", "add")
    is_sum = operation.attribute("reduction", "none") == "add"
    return operation.call(_replaced_at, *(operation.tensor(i) for i in range(3)), is_sum)


def _replaced_at(
    x: torch.Tensor, positions: torch.Tensor, values: torch.Tensor, is_sum: bool
) -> torch.Tensor:
    """Return a tensor with values at positions in the first axes, replaced or added."""
    return x.index_put(positions.unbind(-1), values, accumulate=is_sum)


def _scatter_elements(operation: Operation) -> Any:
    """Translate ScatterElements."""
    operation.require("reduction", "none", *SCATTER_REDUCTIONS)
    reduction = SCATTER_REDUCTIONS.get(operation.attribute("reduction", "none"))
    tensors = (operation.tensor(i) for i in range(3))
    return operation.call(_replaced, *tensors, operation.attribute("axis", 0), reduction)


def _replaced(
    x: torch.Tensor, positions: torch.Tensor, values: torch.Tensor, axis: int, reduction: str | None
) -> torch.Tensor:
    """Return a tensor with values at positions of an axis, replaced or reduced."""
    positions = _from_start(positions, x.shape[axis])
    if reduction is None:
        return x.scatter(axis, positions, values)
    return x.scatter_reduce(axis, positions, values, reduction)


def _top_k(operation: Operation) -> list[Any]:
    """Translate TopK."""
    options = {name: bool(operation.attribute(name, 1)) for name in ("largest", "sorted")}
    axis = operation.attribute("axis", -1)
    found = operation.call(_largest, operation.tensor(), operation.integers(1), axis, **options)
    return [operation.item(found, i) for i in range(2)]


def _largest(
    x: torch.Tensor, count: list[int], axis: int, largest: bool, sorted: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest or smallest elements of an axis and their positions."""
    values, positions = torch.topk(x, count[0], axis, largest, sorted)
    return values, positions


def _trilu(operation: Operation) -> Any:
    """Translate Trilu."""
    function = torch.triu if operation.attribute("upper", 1) else torch.tril
    diagonal = int(operation.array(1)) if operation.has(1) else 0
    return operation.call(function, operation.tensor(), diagonal)


def _cumulative_sum(operation: Operation) -> Any:
    """Translate CumSum."""
    options = {name: bool(operation.attribute(name, 0)) for name in ("exclusive", "reverse")}
    axis = int(operation.array(1).item())
    return operation.call(_sums, operation.tensor(), axis, **options)


def _sums(x: torch.Tensor, axis: int, exclusive: bool, reverse: bool) -> torch.Tensor:
    """Return the sums of the elements so far in an axis."""
    x = x.flip(axis) if reverse else x
    sums = x.cumsum(axis, dtype=x.dtype)
    sums = sums - x if exclusive else sums
    return sums.flip(axis) if reverse else sums


def _einsum(operation: Operation) -> Any:
    """Translate Einsum."""
    tensors = [operation.tensor(i) for i in range(len(operation.inputs))]
    return operation.call(torch.einsum, operation.attribute("equation"), *tensors)


OPERATORS: dict[str, Translate] = {
    "CumSum": _cumulative_sum,
    "Einsum": _einsum,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "TopK": _top_k,
    "Trilu": _trilu,
}
