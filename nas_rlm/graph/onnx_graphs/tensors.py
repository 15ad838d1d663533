"""What is known of the tensors of a network: element type, shape, and the values of constants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Dim = int | str | None  # a size, the name of an open size, or None for a size that depends on data
Dims = tuple[Dim, ...]

MAX_FOLDED_ELEMENTS = 4096  # larger constants are not computed
MAX_VALUE_ELEMENTS = 2**34
FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
    | {v for name, v in TensorProto.DataType.items() if name.startswith("FLOAT8") or name == "FLOAT4E2M1"}
)
_SMALL_INTEGERS = frozenset(
    v
    for name, v in TensorProto.DataType.items()
    if name.removeprefix("U") in ("INT2", "INT4", "INT8", "INT16")
)
INT64, FLOAT, BOOL, STRING = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.STRING
VARIABLE, STORED, COMPUTED = 0, 1, 2  # origins of a tensor
NO_SOURCES: frozenset[int] = frozenset()
NOT_LEARNT = "nas_rlm.not_learnt"  # key of the metadata of an initialiser that is no parameter
NOT_A_TENSOR = -1  # element type of sequences, maps and optional values


class Tensor:
    """What is known of a tensor.

    Args:
        dtype: ONNX element type; 0 if it is unknown, NOT_A_TENSOR for a sequence, map or optional value.
        shape: sizes, see `Dim`; None if the number of dimensions is unknown.
        array: values of a constant.
        sizes: for a vector or scalar of integers of which only some are known: all of them, see `Dim`.
        source: message of the file that holds the values.
        origin: STORED for a weight or constant of the file and what is computed from it, COMPUTED for what is
            computed from sizes alone, and VARIABLE for what depends on the inputs of the network.
        sources: numbers of the stored values from which this is computed, if they may be weights.
        mark: for a weight of a text its `nas_rlm.graph.ir.Leaf.tie` and `learnt`.
        elements: for a sequence, map or optional value its type as an ONNX message.
    """

    __slots__ = ("_array", "dtype", "elements", "mark", "origin", "shape", "sizes", "source", "sources")

    def __init__(
        self,
        dtype: int,
        shape: Dims | None,
        array: np.ndarray | None = None,
        sizes: Dims | None = None,
        source: TensorProto | None = None,
        origin: int = VARIABLE,
        sources: frozenset[int] = NO_SOURCES,
        mark: tuple[int, int] | None = None,
        elements: Any = None,
    ) -> None:
        self.dtype, self.shape, self._array, self.sizes = dtype, shape, array, sizes
        self.source, self.origin, self.elements = source, origin, elements
        self.sources, self.mark = sources, mark

    @property
    def array(self) -> np.ndarray | None:
        """Values of a constant of at most MAX_FOLDED_ELEMENTS elements; otherwise None."""
        if self._array is None and self.is_constant:
            assert self.source is not None
            self._array = (
                _strings(self.source) if self.dtype == STRING else numpy_helper.to_array(self.source)
            )
        return self._array

    @property
    def is_constant(self) -> bool:
        """True if the values are known."""
        if self._array is not None:
            return True
        source = self.source
        return source is not None and source.data_location != TensorProto.EXTERNAL and _is_small(self.shape)

    @property
    def is_static(self) -> bool:
        """True for a constant or weight, whether or not its values are known."""
        return self.origin != VARIABLE

    @property
    def may_be_learnt(self) -> bool:
        """True for a stored tensor that may be a weight: floats, but no scalar, or many small integers."""
        if self.origin != STORED:
            return False
        return bool(self.shape) if self.dtype in FLOATS else self.dtype in _SMALL_INTEGERS and self.is_large

    @property
    def is_large(self) -> bool:
        """True for more than MAX_FOLDED_ELEMENTS elements."""
        return not _is_small(self.shape)

    @property
    def known_shape(self) -> tuple[int, ...] | None:
        """The shape if all sizes are known; otherwise None."""
        shape = self.shape
        if shape is None:
            return None
        for d in shape:
            if type(d) is not int:
                return None
        return shape  # type: ignore[return-value]

    @property
    def integers(self) -> Dims | None:
        """The elements of a scalar or vector of integers, with unknown ones as in `sizes`; otherwise None."""
        if self.sizes is not None:
            return self.sizes
        array = self.array
        if array is None or array.ndim > 1 or array.dtype.kind not in "iub":
            return None
        return tuple(array.reshape(-1).tolist())


def _strings(tensor: TensorProto) -> np.ndarray:
    """Return a tensor of strings, which may not be UTF-8."""
    strings = [value.decode("utf-8", "surrogateescape") for value in tensor.string_data]
    return np.array(strings, dtype=object).reshape(tuple(tensor.dims))


def _is_small(shape: Dims | None) -> bool:
    """Return True for a shape of at most MAX_FOLDED_ELEMENTS elements."""
    size = num_elements(shape)
    return size is not None and size <= MAX_FOLDED_ELEMENTS


def constant(array: np.ndarray, origin: int = COMPUTED) -> Tensor:
    """Return the tensor of a constant with these values."""
    return Tensor(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array, origin=origin)


def vector(values: Iterable[int]) -> Tensor:
    """Return a constant vector of int64."""
    return constant(np.array(tuple(values), dtype=np.int64))


def broadcast(shapes: Sequence[Dims | None]) -> Dims | None:
    """Return the shape of an element-wise operation on tensors of these shapes.

    Raises:
        ValueError: the shapes cannot be broadcast to one shape.
    """
    first = shapes[0]
    if all(shape == first for shape in shapes) and first is not None and None not in first:
        return first
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    rank = max(map(len, known))
    padded = [(*[1] * (rank - len(shape)), *shape) for shape in known]
    return tuple([broadcast_dims(dims, known) for dims in zip(*padded, strict=True)])


def broadcast_dims(dims: Sequence[Dim], shapes: Sequence[Dims]) -> Dim:
    """Return the size to which sizes of one axis are broadcast; `shapes` are named in the error."""
    result: Dim = 1
    for d in dims:
        if d == 1 or (d == result and d is not None):
            continue
        if type(result) is int and result != 1:
            if type(d) is int:
                raise ValueError(f"shapes {', '.join(map(shape_text, shapes))} do not fit each other")
            continue  # an unknown size has to be the known one
        result = d if result == 1 or type(d) is int else None
    return result


def num_elements(shape: Dims | None) -> int | None:
    """Return the number of elements of a shape; None if a size is not known."""
    total = 1
    for d in shape if shape is not None else (None,):
        if type(d) is not int:
            return None
        total *= d
    return total


def shape_text(shape: Dims | None) -> str:
    """Return a shape for a message, such as `[1,3,height,?]`."""
    return "[…]" if shape is None else f"[{','.join('?' if d is None else str(d) for d in shape)}]"


def divide(a: Dim, b: Dim) -> Dim:
    """Return a / b; None if one is unknown or they are not divisible."""
    return a // b if type(a) is int and type(b) is int and b and a % b == 0 else None


def add(a: Dim, b: Dim) -> Dim:
    """Return a + b; None if one is unknown."""
    return a + b if type(a) is int and type(b) is int else a if b == 0 else None


def product(sizes: Iterable[Dim]) -> Dim:
    """Return the product of sizes; None if one is not known."""
    known = tuple(sizes)
    if all(type(d) is int for d in known):
        return math.prod(known)  # type: ignore[arg-type]
    named = [d for d in known if d != 1]
    return named[0] if len(named) == 1 else None


def check_shape(shape: Dims | None, what: str) -> None:
    """Refuse impossible shapes.

    Raises:
        ValueError: a size is negative, or the tensor has more than MAX_VALUE_ELEMENTS elements.
    """
    total = 1
    for d in shape or ():
        if type(d) is int:
            if d < 0:
                raise ValueError(f"{what} has the shape {shape_text(shape)}: expected no negative size")
            total *= d
    if total > MAX_VALUE_ELEMENTS:
        raise ValueError(
            f"{what} has the shape {shape_text(shape)}: expected at most {MAX_VALUE_ELEMENTS:,} elements"
        )
