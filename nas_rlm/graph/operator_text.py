"""Text of types, constants, attributes and operators, without attributes that have their default values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, TypeProto

from nas_rlm.graph.cache import memoized
from nas_rlm.graph.ir import GROUP, Leaf, Pattern, Spec, leaf, spec
from nas_rlm.graph.onnx_graphs.flat_graph import OPSET
from nas_rlm.graph.onnx_graphs.operator_checks import schema_of
from nas_rlm.graph.onnx_graphs.tensors import Dims, Tensor
from nas_rlm.graph.onnx_graphs.weight_names import type_name
from search_spaces.wording import counted

MAX_CONSTANT_ELEMENTS = 64  # larger integer constants are weights
FUNCTION_DOMAIN = "f"  # domain of local functions in the text
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DOMAIN = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)
GROUPED_OPERATORS = ("Conv", "ConvTranspose")
_KERNEL_OPERATORS = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv")
_SIZE_OPERATORS = ("ConstantOfShape", "Expand", "Reshape", "Resize", "Split", "Tile")
_EMPTY_TYPES = {"AttrType.INTS": "ints", "AttrType.FLOATS": "floats", "AttrType.STRINGS": "strings"}
_CONTROL_CHARACTERS = {c: f"\\x{c:02x}" for c in (*range(32), 127)}
_DEFAULT_VALUES = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}


def shape_text(shape: Dims | None, symbols: dict[str, str]) -> str:
    """Return a shape as ONNX text; names of open sizes become N0, N1, ..., recorded in `symbols`."""
    dims = []
    for d in shape or ():
        name = d if isinstance(d, int) else symbols.setdefault(d or f"?{len(symbols)}", f"N{len(symbols)}")
        dims.append(str(name))
    return f"[{','.join(dims)}]" if dims else ""


def type_text(tensor: Tensor, symbols: dict[str, str]) -> str:
    """Return the type of a value as ONNX text."""
    if tensor.elements is not None:
        return proto_text(tensor.elements, symbols)
    if tensor.dtype <= 0:
        return "float"
    rank_is_unknown = tensor.shape is None
    return type_name(tensor.dtype) + ("[]" if rank_is_unknown else shape_text(tensor.shape, symbols))


def proto_text(type_: TypeProto, symbols: dict[str, str]) -> str:
    """Return the type of a sequence, map, optional value or tensor as ONNX text."""
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({proto_text(type_.sequence_type.elem_type, symbols)})"
    if kind == "optional_type":
        return f"optional({proto_text(type_.optional_type.elem_type, symbols)})"
    if kind == "map_type":
        key = type_name(type_.map_type.key_type)
        return f"map({key},{proto_text(type_.map_type.value_type, symbols)})"
    if kind == "tensor_type" and type_.tensor_type.elem_type:
        tensor = type_.tensor_type
        if not tensor.HasField("shape"):
            return f"{type_name(tensor.elem_type)}[]"
        dims = tuple([d.dim_value if d.dim_value > 0 else d.dim_param or None for d in tensor.shape.dim])
        return type_name(tensor.elem_type) + shape_text(dims, symbols)
    raise ValueError("a value of an unknown type: expected a tensor, sequence, map or optional value")


def _float_text(value: float, kind: str = "float") -> str:
    """Return the shortest text of a value of a float type."""
    text = repr(value if kind == "double" else float(str(np.float32(value))))
    return text if any(c in text for c in ".en") else f"{text}.0"


def constant_leaf(array: np.ndarray) -> Leaf:
    """Return the leaf of a constant: with its value if it is a scalar or a few integers, else its shape."""
    kind = type_name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    is_vector = array.dtype.kind not in "iub" and not kind.startswith(("int", "uint")) and array.ndim > 0
    if array.dtype == object or array.size > MAX_CONSTANT_ELEMENTS or is_vector:
        return leaf(kind, array.shape)
    return leaf(kind, array.shape, elements_text(array, kind))


def elements_text(array: np.ndarray, kind: str) -> str:
    """Return the elements of a constant as text; of complex ones real and imaginary parts in turn."""
    if array.dtype == object:
        strings = [
            v if isinstance(v, bytes) else str(v).encode("utf-8", "surrogateescape")
            for v in array.reshape(-1)
        ]
        return ",".join(map(_scalar_text, strings))
    if array.dtype.kind == "c":
        array = array.reshape(-1).view(array.real.dtype)
    is_integer = array.dtype.kind in "iub" or kind.startswith(("int", "uint"))
    return ",".join([str(int(v)) if is_integer else _float_text(float(v), kind) for v in array.reshape(-1)])


@memoized
def _operator_spec(
    kind: str, attributes: tuple[tuple[str, Any], ...], pattern: Pattern, domain: str, opset: int
) -> Spec:
    """Return an operator as an operation; see `operator_spec`."""
    while pattern and pattern[-1] is None:
        pattern = pattern[:-1]
    if domain and (domain == FUNCTION_DOMAIN or not _DOMAIN.fullmatch(domain)):
        raise ValueError(
            f"the domain {domain!r} of {kind} cannot be written:"
            f" expected a dotted name other than {FUNCTION_DOMAIN!r}"
        )
    for identifier in (kind, *[k for k, _ in attributes]):
        if not _IDENTIFIER.fullmatch(identifier):
            raise ValueError(
                f"the name {identifier!r} of an operator or attribute: expected letters and digits"
            )
    name = f"{domain}.{kind}" if domain else kind
    is_grouped = name in GROUPED_OPERATORS
    groups = [v for k, v in attributes if k == GROUP and v > 1 and is_grouped]
    if name in _SIZE_OPERATORS:
        pattern = tuple([_as_size(a) if isinstance(a, Leaf) else a for a in pattern])
    schema = schema_of(kind, opset, domain)
    defaults = {} if schema is None else schema.defaults
    written = []
    for k, v in sorted(attributes):
        if k == GROUP and is_grouped:
            written += [f"{GROUP}@"] * (v > 1)
        elif not _is_default(name, k, v, defaults):
            written.append(
                f"{k}{_attribute_text(v, k, None if schema is None else schema.attributes.get(k))}"
            )
    leaves = [leaf(GROUP, (), str(g), is_size=True) for g in groups]
    return spec(name, f"<{','.join(written)}>" if written else "", (*pattern, *leaves))


def operator_spec(
    kind: str, attributes: Mapping[str, Any], pattern: Pattern, domain: str = "", opset: int = OPSET
) -> Spec:
    """Return an operator as an operation, without attributes that have their default values.

    Args:
        kind: name of the operator.
        attributes: values of its attributes, see `nas_rlm.graph.onnx_graphs.flat_graph.Op`.
        pattern: inputs of the operator, see `nas_rlm.graph.ir.Pattern`.
        domain: domain of the operator; empty for ONNX's own.
        opset: version of the operator set that defines the defaults.

    Raises:
        ValueError: its domain or an attribute cannot be written as ONNX text.
    """
    items = tuple([(k, _hashable(v)) for k, v in attributes.items()])
    return _operator_spec(kind, items, pattern, domain, opset)


class _Array:
    """The values of a tensor attribute, comparable by value."""

    __slots__ = ("array", "key")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.key = (
            array.dtype,
            array.shape,
            array.tobytes() if array.dtype != object else tuple(array.reshape(-1)),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Array) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class AttributeText(str):
    """An attribute that is ONNX text already."""

    __slots__ = ()


def _hashable(value: Any) -> Any:
    """Return an attribute as a value that can be a key."""
    if isinstance(value, np.ndarray):
        return _Array(value)
    if isinstance(value, TensorProto | onnx.SparseTensorProto):
        raise ValueError("a large tensor is an attribute: expected an initialiser or a Constant")
    if isinstance(value, TypeProto):
        return AttributeText(f"={proto_text(value, {})}")
    return value


def _as_size(constant: Leaf) -> Leaf:
    """Return a constant with `is_size` set."""
    if constant.value is None:
        return constant
    return leaf(constant.type, constant.shape, constant.value, is_size=True)


def _is_default(kind: str, name: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    """Return True if an attribute has its default value, or is the kernel shape, which the weight implies."""
    if name in _DEFAULT_VALUES and isinstance(value, tuple):
        return all(v == _DEFAULT_VALUES[name] for v in value)
    if name == "kernel_shape" and kind in _KERNEL_OPERATORS:
        return True
    return name in defaults and type(value) is not _Array and bool(defaults[name] == value)


def _attribute_text(value: Any, name: str, expected: Any) -> str:
    """Return the type and value of an attribute as ONNX text."""
    if isinstance(value, AttributeText):
        return value
    if isinstance(value, _Array):
        array = value.array
        if array.size > MAX_CONSTANT_ELEMENTS:
            raise ValueError(
                f"the attribute {name!r} is a tensor of {counted(array.size, 'element')}:"
                f" expected at most {MAX_CONSTANT_ELEMENTS}"
            )
        kind = type_name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        shape = f"[{','.join(map(str, array.shape))}]" if array.ndim else ""
        return f"={kind}{shape}{{{elements_text(array, kind)}}}"
    if isinstance(value, tuple):
        items = ",".join(_scalar_text(v) for v in value)
        return f"=[{items}]" if items else f":{_EMPTY_TYPES.get(str(expected), 'ints')}=[]"
    return f"={_scalar_text(value)}"


def _scalar_text(value: Any) -> str:
    """Return a string, float or integer as ONNX text."""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace").translate(_CONTROL_CHARACTERS)
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return _float_text(value) if isinstance(value, float) else str(int(value))
