"""Shapes of operators that rearrange, join, resize or create tensors."""

from __future__ import annotations

import math

from onnx import TensorProto, helper

from nas_rlm.graph.onnx_graphs.shapes.registry import OperatorCall, checked_axis, shape_of
from nas_rlm.graph.onnx_graphs.tensors import (
    FLOAT,
    INT64,
    Dim,
    Dims,
    Tensor,
    add,
    broadcast,
    divide,
    num_elements,
    product,
)
from search_spaces.wording import counted

MAX_RANK = 64  # as in NumPy


@shape_of("Shape")
def _shape(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    if x.shape is None:
        return [Tensor(INT64, (None,))]
    sizes = x.shape[slice(call.attribute("start", 0), call.attribute("end", len(x.shape)))]
    return [Tensor(INT64, (len(sizes),), sizes=sizes)]


@shape_of("Size")
def _size(call: OperatorCall) -> list[Tensor]:
    shape = call.shape(0)
    return [Tensor(INT64, (), sizes=(None if shape is None else product(shape),))]


def open_shape(target: Tensor) -> Dims | None:
    """Return as many open sizes as a vector of unknown sizes has elements; None if the number is not known.

    Raises:
        ValueError: it has more than MAX_RANK elements.
    """
    length = target.known_shape
    if not length:
        return None
    if length[0] > MAX_RANK:
        raise ValueError(f"a shape of {length[0]:,} sizes: expected at most {MAX_RANK}")
    return (None,) * length[0]


@shape_of("Reshape")
def _reshape(call: OperatorCall) -> list[Tensor]:
    x, target = call.input(0), call.input(1)
    sizes = target.integers
    if sizes is None:
        return [Tensor(x.dtype, open_shape(target))]
    keeps_zero = not call.attribute("allowzero", 0)
    shape: list[Dim] = []
    for k, d in enumerate(sizes):
        if d == 0 and keeps_zero:
            if x.shape is not None and k >= len(x.shape):
                raise ValueError(
                    f"the target {_list(sizes)} copies size {k} of {counted(len(x.shape), 'dimension')}"
                )
            d = None if x.shape is None else x.shape[k]
        shape.append(d)
    if shape.count(-1) > 1 or any(type(d) is int and d < -1 for d in shape):
        raise ValueError(f"the target {_list(sizes)}: expected sizes and at most one -1")
    if -1 in shape:
        k = shape.index(-1)
        shape[k] = None if x.shape is None else _remaining(list(x.shape), shape[:k] + shape[k + 1 :], sizes)
    elif x.shape is not None:
        before, after = num_elements(x.shape), num_elements(tuple(shape))
        if before is not None and after is not None and before != after:
            raise ValueError(f"the target {_list(sizes)} does not fit the shape {_list(x.shape)}")
    return [Tensor(x.dtype, tuple(shape), sizes=x.sizes if len(shape) < 2 else None)]


def _remaining(before: list[Dim], known: list[Dim], target: Dims) -> Dim:
    """Return the size that -1 stands for; None if it is unknown."""
    if before.count(None) or known.count(None):
        return None
    for d in [d for d in known if type(d) is str]:
        if d not in before:
            return None
        before.remove(d)
        known.remove(d)
    names = [d for d in before if type(d) is str]
    total = math.prod(d for d in before if type(d) is int)
    rest = math.prod(d for d in known if type(d) is int)
    if names:
        return names[0] if len(names) == 1 and total == rest else None
    if rest == 0 and total == 0:
        return 0
    if rest == 0 or total % rest:
        raise ValueError(f"the target {_list(target)} does not fit {counted(total, 'element')}")
    return total // rest


def _list(sizes: Dims) -> str:
    return f"[{','.join('?' if d is None else str(d) for d in sizes)}]"


@shape_of("Flatten")
def _flatten(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    if x.shape is None:
        return [Tensor(x.dtype, (None, None))]
    axis = call.attribute("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        raise ValueError(f"axis {axis} is not one of {counted(len(x.shape), 'dimension')}")
    axis = axis + len(x.shape) if axis < 0 else axis
    return [Tensor(x.dtype, (product(x.shape[:axis]), product(x.shape[axis:])))]


@shape_of("Transpose", "com.microsoft.QLinearTranspose")
def _transpose(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    if x.shape is None:
        return [Tensor(x.dtype, None)]
    order = call.attribute("perm", range(len(x.shape))[::-1])
    if sorted(order) != list(range(len(x.shape))):
        raise ValueError(f"perm {list(order)} is no order of {counted(len(x.shape), 'dimension')}")
    return [Tensor(x.dtype, tuple([x.shape[a] for a in order]))]


def given_axes(call: OperatorCall, position: int = 1) -> list[int] | None:
    """Return axes from an attribute or a constant input; None if they are not known."""
    axes = call.attribute("axes")
    if axes is None:
        given = call.optional(position)
        axes = None if given is None else given.integers
    if axes is None or any(type(a) is not int for a in axes):
        return None
    return list(axes)


@shape_of("Squeeze")
def _squeeze(call: OperatorCall) -> list[Tensor]:
    x, axes = call.input(0), given_axes(call)
    if x.shape is None:
        return [Tensor(x.dtype, None)]
    if axes is None:
        if call.has(1) or any(type(d) is not int for d in x.shape):
            return [Tensor(x.dtype, None)]
        removed = {k for k, d in enumerate(x.shape) if d == 1}
    else:
        removed = {checked_axis(a, len(x.shape)) for a in axes}
        for a in removed:
            if type(x.shape[a]) is int and x.shape[a] != 1:
                raise ValueError(f"dimension {a} of {_list(x.shape)} has the size {x.shape[a]}: expected 1")
    return [Tensor(x.dtype, tuple([d for k, d in enumerate(x.shape) if k not in removed]), sizes=x.sizes)]


@shape_of("Unsqueeze")
def _unsqueeze(call: OperatorCall) -> list[Tensor]:
    x, axes = call.input(0), given_axes(call)
    if x.shape is None or axes is None:
        return [Tensor(x.dtype, None)]
    rank = len(x.shape) + len(axes)
    added = {checked_axis(a, rank) for a in axes}
    if len(added) < len(axes):
        raise ValueError(f"axes {axes} name a dimension twice")
    rest = iter(x.shape)
    shape = tuple([1 if k in added else next(rest) for k in range(rank)])
    return [Tensor(x.dtype, shape, sizes=x.sizes if rank < 2 else None)]


@shape_of("Concat")
def _concat(call: OperatorCall) -> list[Tensor]:
    inputs = [call.input(k) for k in range(len(call.inputs))]
    dtype = inputs[0].dtype
    if any(x.shape is None for x in inputs):
        return [Tensor(dtype, None)]
    shapes = [x.shape for x in inputs if x.shape is not None]
    rank = len(shapes[0])
    if any(len(s) != rank for s in shapes):
        raise ValueError(
            f"inputs of {', '.join(str(len(s)) for s in shapes)} dimensions: expected equal numbers"
        )
    axis = checked_axis(call.attributes["axis"], rank)
    out: list[Dim] = []
    for k in range(rank):
        dims = [s[k] for s in shapes]
        if k == axis:
            out.append(sum(dims) if all(type(d) is int for d in dims) else None)  # type: ignore[arg-type]
            continue
        known = {d for d in dims if type(d) is int}
        if len(known) > 1:
            raise ValueError(f"shapes {', '.join(map(_list, shapes))} differ in dimension {k}")
        named = {d for d in dims if type(d) is str}
        out.append(known.pop() if known else named.pop() if len(named) == 1 and None not in dims else None)
    sizes = None
    if rank == 1 and any(x.sizes is not None for x in inputs):
        parts = [x.integers for x in inputs]
        if all(p is not None for p in parts):
            sizes = tuple([d for p in parts if p is not None for d in p])
    return [Tensor(dtype, tuple(out), sizes=sizes)]


@shape_of("Split")
def _split(call: OperatorCall) -> list[Tensor]:
    x, n = call.input(0), call.num_outputs
    if x.shape is None:
        return [Tensor(x.dtype, None)] * n
    axis = call.axis(0, len(x.shape))
    side = x.shape[axis]
    given = call.optional(1)
    sizes: Dims | None = call.attribute("split") if given is None else given.integers or (None,) * n
    if sizes is None:
        if type(side) is int:
            part = -(-side // n)
            sizes = (*[part] * (n - 1), side - part * (n - 1))
        else:
            sizes = (None,) * n
    total = sum(d for d in sizes if type(d) is int)
    if len(sizes) != n or (all(type(d) is int for d in sizes) and type(side) is int and total != side):
        raise ValueError(f"the parts {_list(tuple(sizes))} of size {side} for {counted(n, 'output')}")
    return [Tensor(x.dtype, (*x.shape[:axis], d, *x.shape[axis + 1 :])) for d in sizes]


@shape_of("Expand")
def _expand(call: OperatorCall) -> list[Tensor]:
    x, target = call.input(0), call.input(1)
    sizes = target.integers
    if sizes is None:
        shape = open_shape(target)
        if shape is None or x.shape is None:
            return [Tensor(x.dtype, None)]
        return [Tensor(x.dtype, (None,) * max(len(shape), len(x.shape)))]
    return [Tensor(x.dtype, broadcast([x.shape, sizes]))]


@shape_of("Tile")
def _tile(call: OperatorCall) -> list[Tensor]:
    x, times = call.input(0), call.input(1).integers
    if x.shape is None or times is None:
        return [Tensor(x.dtype, None if x.shape is None else (None,) * len(x.shape))]
    if len(times) != len(x.shape):
        raise ValueError(f"{counted(len(times), 'repeat')} for {counted(len(x.shape), 'dimension')}")
    return [Tensor(x.dtype, tuple([product(pair) for pair in zip(x.shape, times, strict=True)]))]


@shape_of("Pad")
def _pad(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    pads: Dims | None = call.attribute("pads") or (call.input(1).integers if call.has(1) else None)
    if x.shape is None or pads is None:
        return [Tensor(x.dtype, None if x.shape is None else (None,) * len(x.shape))]
    axes = call.input(3).integers if call.has(3) else tuple(range(len(x.shape)))
    if axes is None or any(type(a) is not int for a in axes):
        return [Tensor(x.dtype, (None,) * len(x.shape))]
    if len(pads) != 2 * len(axes):
        raise ValueError(
            f"{counted(len(pads), 'pad')} for {counted(len(axes), 'dimension')}: expected {2 * len(axes)}"
        )
    out = list(x.shape)
    for k, a in enumerate(axes):
        axis = checked_axis(a, len(out))  # type: ignore[arg-type]
        out[axis] = add(add(out[axis], pads[k]), pads[k + len(axes)])
    return [Tensor(x.dtype, tuple(out))]


@shape_of("Resize", "Upsample")
def _resize(call: OperatorCall) -> list[Tensor]:
    x = call.input(0)
    if x.shape is None:
        return [Tensor(x.dtype, None)]
    rank = len(x.shape)
    axes = call.attribute("axes")
    axes = [checked_axis(a, rank) for a in axes] if axes else list(range(rank))
    out: list[Dim] = [None if k in axes else d for k, d in enumerate(x.shape)]
    sizes = call.input(3).integers if call.has(3) else None
    scales = (
        call.input(2 if call.kind == "Resize" else 1) if call.has(2 if call.kind == "Resize" else 1) else None
    )
    if sizes and len(sizes) == len(axes):
        for a, d in zip(axes, sizes, strict=True):
            out[a] = d
        policy = call.attribute("keep_aspect_ratio_policy", b"stretch")
        if policy != b"stretch" and all(type(x.shape[a]) is int and type(out[a]) is int for a in axes):
            ratios = [out[a] / x.shape[a] for a in axes]
            ratio = min(ratios) if policy == b"not_larger" else max(ratios)
            for a in axes:
                out[a] = math.floor(ratio * x.shape[a] + 0.5)
    elif sizes:
        raise ValueError(f"{counted(len(sizes), 'size')} for {counted(len(axes), 'dimension')}")
    elif scales is not None and scales.array is not None and scales.array.size == len(axes):
        for a, factor in zip(axes, scales.array.reshape(-1), strict=True):
            side = x.shape[a]
            exact = float(factor)
            if not math.isfinite(exact) or exact <= 0:
                raise ValueError(f"the scale {exact}: expected a positive number")
            out[a] = math.floor(side * exact) if type(side) is int else side if exact == 1 else None
    elif scales is not None and scales.array is not None and scales.array.size:
        raise ValueError(f"{counted(scales.array.size, 'scale')} for {counted(len(axes), 'dimension')}")
    return [Tensor(x.dtype, tuple(out))]


@shape_of("ConstantOfShape")
def _constant_of_shape(call: OperatorCall) -> list[Tensor]:
    value = call.attribute("value")
    dtype = FLOAT if value is None else helper.np_dtype_to_tensor_dtype(value.dtype)
    target = call.input(0)
    sizes = target.integers
    if sizes is None:
        return [Tensor(dtype, open_shape(target))]
    return [Tensor(dtype, sizes)]


@shape_of("Range")
def _range(call: OperatorCall) -> list[Tensor]:
    dtype = call.input(0).dtype
    bounds = [call.input(k).array for k in range(3)]
    if any(b is None for b in bounds):
        partial = [call.input(k).integers for k in range(3)]
        is_count = partial[0] == (0,) and partial[2] == (1,) and partial[1]
        return [Tensor(dtype, (partial[1][0] if is_count else None,))]  # type: ignore[index]
    start, limit, delta = (b.reshape(-1)[0] for b in bounds if b is not None)
    if delta == 0:
        raise ValueError("a step of 0")
    if dtype in (INT64, TensorProto.INT32, TensorProto.INT16):
        return [Tensor(dtype, (max(0, -((int(start) - int(limit)) // int(delta))),))]
    count = (float(limit) - float(start)) / float(delta)
    return [Tensor(dtype, (max(0, math.ceil(count)) if math.isfinite(count) else None,))]


@shape_of("DepthToSpace")
def _depth_to_space(call: OperatorCall) -> list[Tensor]:
    x, side = call.shape(0, rank=4), call.attributes["blocksize"]
    dtype = call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None)]
    if side < 1 or (type(x[1]) is int and x[1] % side**2):
        raise ValueError(f"blocksize {side} for an input of shape {list(x)}")
    return [Tensor(dtype, (x[0], divide(x[1], side**2), product((x[2], side)), product((x[3], side))))]


@shape_of("SpaceToDepth")
def _space_to_depth(call: OperatorCall) -> list[Tensor]:
    x, side = call.shape(0, rank=4), call.attributes["blocksize"]
    dtype = call.input(0).dtype
    if x is None:
        return [Tensor(dtype, None)]
    if side < 1 or any(type(d) is int and d % side for d in x[2:]):
        raise ValueError(f"blocksize {side} for an image of {_list(x[2:])}")
    return [Tensor(dtype, (x[0], product((x[1], side**2)), divide(x[2], side), divide(x[3], side)))]
