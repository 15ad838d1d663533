"""Translation of Resize: `F.interpolate` where it computes the same, otherwise one axis after the other."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from nas_rlm.graph.torch_modules.registry import Constant, Operation, Translate

CUBIC = -0.75  # torch's coefficient of cubic interpolation
ALIGNMENTS = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize(operation: Operation) -> Any:
    """Translate Resize to sizes or by scales."""
    operation.require("mode", "nearest", "linear", "cubic")
    operation.require("coordinate_transformation_mode", *ALIGNMENTS)
    operation.require("nearest_mode", *NEAREST)
    operation.require("antialias", 0)
    operation.require("exclude_outside", 0)
    operation.require("keep_aspect_ratio_policy", "stretch")
    coefficient = operation.attribute("cubic_coeff_a", CUBIC)
    if abs(coefficient - CUBIC) > 1e-6:
        raise ValueError(f"cubic_coeff_a {coefficient} of Resize is not supported: expected {CUBIC}")
    scales = operation.integers(2) if operation.has(2) and not _is_empty(operation, 2) else None
    sizes = operation.integers(3) if operation.has(3) and scales is None else None
    return operation.call(
        _resized,
        operation.tensor(),
        scales,
        sizes,
        list(operation.attribute("axes")) if operation.attribute("axes") else None,
        operation.attribute("mode", "nearest"),
        operation.attribute("coordinate_transformation_mode", "half_pixel"),
        operation.attribute("nearest_mode", "round_prefer_floor"),
    )


def _is_empty(operation: Operation, position: int) -> bool:
    """Return whether an input is an empty constant, as exporters write for one that is not given."""
    value = operation.inputs[position]
    return isinstance(value, Constant) and value.array.size == 0


def _resized(
    x: torch.Tensor,
    scales: list[float] | None,
    sizes: list[int] | None,
    axes: list[int] | None,
    mode: str,
    alignment: str,
    rounding: str,
) -> torch.Tensor:
    """Return a resized tensor.

    Args:
        x: the tensor.
        scales: scale of each axis, or None.
        sizes: size of each axis after resizing, if there are no scales.
        axes: axes of the scales or sizes; None: all.
        mode: `nearest`, `linear` or `cubic`.
        alignment: one of ALIGNMENTS.
        rounding: one of NEAREST.
    """
    axes = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    new_sizes, factors = list(x.shape), [1.0] * x.ndim
    for position, axis in enumerate(axes):
        if sizes is None and scales is not None:
            factors[axis] = scales[position]
            new_sizes[axis] = math.floor(x.shape[axis] * scales[position])
        elif sizes is not None:
            new_sizes[axis] = sizes[position]
            factors[axis] = sizes[position] / x.shape[axis]
    torch_mode = _torch_mode(x.ndim, mode, alignment, rounding)
    if torch_mode and new_sizes[:2] == list(x.shape[:2]) and _are_exact(x, new_sizes, factors):
        corners = None if mode == "nearest" else alignment == "align_corners"
        return F.interpolate(x, new_sizes[2:], mode=torch_mode, align_corners=corners)
    for axis, (size, factor) in enumerate(zip(new_sizes, factors, strict=True)):
        if size != x.shape[axis] or factor != 1:
            x = _resized_axis(x, axis, size, factor, mode, alignment, rounding)
    return x


def _torch_mode(rank: int, mode: str, alignment: str, rounding: str) -> str | None:
    """Return torch's mode that computes the same, None if there is none."""
    if mode == "nearest":
        return "nearest" if (alignment, rounding) == ("asymmetric", "floor") and 3 <= rank <= 5 else None
    if alignment not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        return None
    if mode == "cubic":
        return "bicubic" if rank == 4 else None
    return {3: "linear", 4: "bilinear", 5: "trilinear"}.get(rank)


def _are_exact(x: torch.Tensor, new_sizes: list[int], factors: list[float]) -> bool:
    """Return whether the scales are those of the sizes, and no axis shrinks to one position."""
    pairs = zip(x.shape, new_sizes, factors, strict=True)
    return all(abs(size * factor - new) < 1e-6 * new and new > 1 for size, new, factor in list(pairs)[2:])


def _resized_axis(
    x: torch.Tensor, axis: int, size: int, factor: float, mode: str, alignment: str, rounding: str
) -> torch.Tensor:
    """Return a tensor with one resized axis, see `_resized`."""
    old = x.shape[axis]
    positions = torch.arange(size, device=x.device, dtype=torch.float64)
    if alignment == "asymmetric":
        places = positions / factor
    elif alignment == "align_corners":
        places = positions * ((old - 1) / (size - 1) if size > 1 else 0)
    elif alignment == "pytorch_half_pixel" and size == 1:
        places = positions * 0
    else:
        places = (positions + 0.5) / factor - 0.5
        if alignment == "half_pixel_symmetric":
            places = places + old / 2 * (1 - size / (old * factor))
    if mode == "nearest":
        return x.index_select(axis, _rounded(places, rounding).long().clamp(0, old - 1))
    base = places.floor()
    distance = (places - base).to(x.dtype)
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for offset, weight in _weights(distance, mode):
        index = (base.long() + offset).clamp(0, old - 1)
        total = total + x.index_select(axis, index) * weight.reshape(shape)
    return total


def _rounded(places: torch.Tensor, rounding: str) -> torch.Tensor:
    """Return places, rounded to positions."""
    if rounding == "floor":
        return places.floor()
    if rounding == "ceil":
        return places.ceil()
    return (places - 0.5).ceil() if rounding == "round_prefer_floor" else (places + 0.5).floor()


def _weights(distance: torch.Tensor, mode: str) -> list[tuple[int, torch.Tensor]]:
    """Return the offsets of neighbours and their weights, by the distance from the neighbour below."""
    if mode == "linear":
        return [(0, 1 - distance), (1, distance)]
    return [(offset, _cubic((distance - offset).abs())) for offset in (-1, 0, 1, 2)]


def _cubic(d: torch.Tensor) -> torch.Tensor:
    """Return the weight of a neighbour at a distance below 2 in cubic interpolation."""
    near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
    far = ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
    return torch.where(d <= 1, near, far)


OPERATORS: dict[str, Translate] = {"Resize": _resize}
