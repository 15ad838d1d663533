"""Tensors, attributes and types as ONNX files store them, with checks of their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, TypeProto, numpy_helper

from nas_rlm.graph.onnx_graphs.input_shapes import apply_input_shapes, inputs_only
from nas_rlm.graph.onnx_graphs.tensors import (
    COMPUTED,
    MAX_FOLDED_ELEMENTS,
    NOT_A_TENSOR,
    NOT_LEARNT,
    STORED,
    Dim,
    Tensor,
    check_shape,
    constant,
)
from nas_rlm.graph.onnx_graphs.weight_names import constant_name, mark_of_name, type_name, weight_name
from search_spaces.wording import counted


def attribute_value(attribute: AttributeProto) -> Any:
    """Return the value of an attribute: int, float, bytes, a tuple of them, an array, or a type."""
    kind = attribute.type
    if kind == AttributeProto.INT:
        return attribute.i
    if kind == AttributeProto.INTS:
        return tuple(attribute.ints)
    if kind == AttributeProto.FLOAT:
        return attribute.f
    if kind == AttributeProto.STRING:
        return attribute.s
    if kind == AttributeProto.FLOATS:
        return tuple(attribute.floats)
    if kind == AttributeProto.STRINGS:
        return tuple(attribute.strings)
    if kind == AttributeProto.TENSOR:
        return _small_array(attribute.t, attribute.name)
    if kind == AttributeProto.SPARSE_TENSOR:
        return attribute.sparse_tensor
    if kind == AttributeProto.TYPE_PROTO:
        return attribute.tp
    if kind == AttributeProto.UNDEFINED:
        raise ValueError(f"the attribute {attribute.name!r} has no type")
    raise ValueError(
        f"the attribute {attribute.name!r} is a list of tensors or graphs, which no operator has"
    )


def _small_array(tensor: TensorProto, name: str) -> np.ndarray | TensorProto:
    """Return the values of a tensor; the message itself if it is large or elsewhere."""
    if _num_elements(tensor.dims) > MAX_FOLDED_ELEMENTS or tensor.data_location == TensorProto.EXTERNAL:
        check_shape(tuple(tensor.dims), f"the attribute {name!r}")
        return tensor
    return to_array(tensor, f"the attribute {name!r}")


def _num_elements(dims: Iterable[int]) -> int:
    total = 1
    for d in dims:
        total *= d
    return total


def to_array(tensor: TensorProto, what: str) -> np.ndarray:
    """Return the values of a tensor.

    Raises:
        ValueError: its values do not fit its type and shape.
    """
    try:
        return numpy_helper.to_array(tensor)
    except (ArithmeticError, LookupError, TypeError, ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{what} has no valid values: {error}") from None


def stored_tensor(tensor: TensorProto) -> Tensor:
    """Return what is known of an initialiser; its values are read when they are needed."""
    shape, dtype = tuple(tensor.dims), tensor.data_type
    origin = COMPUTED if any(p.key == NOT_LEARNT for p in tensor.metadata_props) else STORED
    if dtype not in _ELEMENT_TYPES:
        raise ValueError(f"the initialiser {tensor.name!r} has the shape {list(shape)} and the type {dtype}")
    total = 1
    for d in shape:
        total *= d
    if total > MAX_FOLDED_ELEMENTS or tensor.data_location == TensorProto.EXTERNAL:
        check_shape(shape, f"the initialiser {tensor.name!r}")
        return Tensor(dtype, shape, source=tensor, origin=origin)
    if min(shape, default=0) < 0:
        raise ValueError(f"the initialiser {tensor.name!r} has the shape {list(shape)} and the type {dtype}")
    _check_size(tensor, total)
    return Tensor(dtype, shape, source=tensor, origin=origin)


_ELEMENT_TYPES = frozenset(v for name, v in TensorProto.DataType.items() if name != "UNDEFINED")


def _check_size(tensor: TensorProto, total: int) -> None:
    """Refuse an initialiser that does not have as many values as its shape says."""
    if tensor.HasField("raw_data") and tensor.data_type in _ITEM_BITS:
        expected = -(-total * _ITEM_BITS[tensor.data_type] // 8)
        if len(tensor.raw_data) != expected:
            raise ValueError(
                f"the initialiser {tensor.name!r} of shape {list(tensor.dims)} has"
                f" {counted(len(tensor.raw_data), 'byte')}: expected {expected}"
            )


@lru_cache(maxsize=1)
def _item_bits() -> dict[int, int]:
    """Return the number of bits of an element by type."""
    bits = {}
    for name, value in TensorProto.DataType.items():
        if name in ("UNDEFINED", "STRING"):
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value)
        bits[value] = (
            4
            if name.endswith("INT4") or name == "FLOAT4E2M1"
            else 2
            if name.endswith("INT2")
            else dtype.itemsize * 8
        )
    return bits


_ITEM_BITS = _item_bits()


def declared_tensor(type_: TypeProto) -> Tensor:
    """Return what a declared type says of a tensor; open sizes keep their names."""
    kind = type_.WhichOneof("value")
    if kind != "tensor_type":
        return Tensor(NOT_A_TENSOR if kind else 0, None, elements=type_ if kind else None)
    tensor = type_.tensor_type
    if not tensor.HasField("shape"):
        return Tensor(tensor.elem_type, None)
    dims: list[Dim] = []
    for d in tensor.shape.dim:
        is_known = d.HasField("dim_value") and d.dim_value > 0
        dims.append(d.dim_value if is_known else d.dim_param or None)
    return Tensor(tensor.elem_type, tuple(dims))


def input_types(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None) -> dict[str, Tensor]:
    """Return what is known of each input that is no initialiser, with given shapes and a batch of 1.

    Raises:
        ValueError: a shape is given for no input, or contradicts the file; or an input has no type.
    """
    bare = inputs_only(model)
    types = {value.name: stored for value in bare.graph.input if (stored := stored_input(value)) is not None}
    for value in apply_input_shapes(bare, shapes).graph.input:
        if value.name in types:
            continue
        tensor = declared_tensor(value.type)
        if tensor.dtype == 0:
            raise ValueError(
                f"input {value.name!r} has no type: expected a tensor, sequence, map or optional value"
            )
        if tensor.shape is not None:
            named = [f"?{value.name} {k}" if d is None else d for k, d in enumerate(tensor.shape)]
            check_shape(tuple(named), f"input {value.name!r}")
            tensor = Tensor(tensor.dtype, tuple(named))
        types[value.name] = tensor
    return types


def stored_input(value: onnx.ValueInfoProto) -> Tensor | None:
    """Return an input of a text that is a weight or computed constant; None for others."""
    tensor = value.type.tensor_type
    if tensor.elem_type not in _ELEMENT_TYPES or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    kind, shape = type_name(tensor.elem_type), tuple([d.dim_value for d in tensor.shape.dim])
    mark = mark_of_name(value.name)
    if value.name == weight_name(kind, shape, *mark):
        return Tensor(tensor.elem_type, shape, origin=STORED, mark=mark)
    if value.name == constant_name(kind, shape):
        return Tensor(tensor.elem_type, shape, origin=COMPUTED)
    return None


def constant_value(attributes: Mapping[str, Any]) -> Tensor:
    """Return the tensor of a Constant operator.

    Raises:
        ValueError: it has not exactly one value.
    """
    values = [(k, v) for k, v in attributes.items() if k != "doc_string"]
    if len(values) != 1:
        raise ValueError("a Constant: expected exactly one value")
    name, value = values[0]
    if name == "value":
        if isinstance(value, TensorProto):
            return stored_tensor(value)
        if not isinstance(value, np.ndarray):
            raise ValueError("a Constant whose value is no tensor")
        return constant(value, STORED)
    if name == "sparse_value":
        if value.values.data_type not in _ELEMENT_TYPES:
            raise ValueError(f"a sparse Constant of the type {value.values.data_type}")
        return Tensor(value.values.data_type, tuple(value.dims), origin=STORED)
    kinds = {"value_int": np.int64, "value_float": np.float32, "value_string": object}
    dtype = kinds.get(name.removesuffix("s"))
    if dtype is None:
        raise ValueError(f"a Constant with {name!r}: expected a tensor, integers, floats or strings")
    return constant(np.array(value, dtype=dtype), STORED)
