"""Checks that an operator has the inputs, outputs and attributes that ONNX defines for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.flat_graph import MAX_OPSET, FlatGraph, Op
from search_spaces.wording import counted

_Types = onnx.defs.OpSchema.AttrType
_Options = onnx.defs.OpSchema.FormalParameterOption
_PYTHON_TYPES: dict[Any, tuple[type, ...]] = {
    _Types.INT: (int,),
    _Types.FLOAT: (float,),
    _Types.STRING: (bytes,),
    _Types.TENSOR: (np.ndarray, TensorProto),
    _Types.GRAPH: (FlatGraph,),
    _Types.TYPE_PROTO: (onnx.TypeProto,),
    _Types.SPARSE_TENSOR: (onnx.SparseTensorProto,),
}
_ELEMENT_TYPES: dict[Any, type] = {_Types.INTS: int, _Types.FLOATS: float, _Types.STRINGS: bytes}
_TYPE_NAMES = {int: "an integer", float: "a float", bytes: "a string", tuple: "a list", FlatGraph: "a graph"}


class Schema(NamedTuple):
    """What ONNX defines of an operator.

    Args:
        min_inputs: smallest number of inputs.
        max_inputs: largest number of inputs.
        min_outputs: smallest number of outputs.
        max_outputs: largest number of outputs.
        attributes: type of each attribute.
        required: attributes that have to be present.
        required_inputs: positions of inputs that cannot be omitted.
        since: operator set that defined this form.
        defaults: default value of each attribute that has one.
    """

    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    attributes: Mapping[str, Any]
    required: tuple[str, ...]
    required_inputs: tuple[int, ...]
    since: int
    defaults: Mapping[str, Any]


@lru_cache(maxsize=4096)
def schema_of(kind: str, opset: int, domain: str = "") -> Schema | None:
    """Return what ONNX defines of an operator; None if it does not have it in that operator set.

    Args:
        kind: name of the operator.
        opset: version of the operator set.
        domain: domain of the operator set; empty for ONNX's own.
    """
    try:
        schema = onnx.defs.get_schema(kind, opset, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    defaults = {
        name: onnx.helper.get_attribute_value(a.default_value)
        for name, a in schema.attributes.items()
        if a.default_value.type
    }
    return Schema(
        schema.min_input,
        schema.max_input,
        schema.min_output,
        schema.max_output,
        {name: a.type for name, a in schema.attributes.items()},
        tuple([name for name, a in schema.attributes.items() if a.required]),
        tuple([k for k, i in enumerate(schema.inputs) if i.option != _Options.Optional]),
        schema.since_version,
        {name: tuple(v) if isinstance(v, list) else v for name, v in defaults.items()},
    )


def check_operator(op: Op, opset: int) -> None:
    """Check an operator of ONNX's own domain.

    Args:
        op: the operator.
        opset: operator set of the file.

    Raises:
        ValueError: ONNX has no such operator, or its inputs, outputs or attributes are not as defined.
    """
    schema = schema_of(op.kind, opset) or schema_of(op.kind, MAX_OPSET)  # optimizers write later operators
    if schema is None:
        raise ValueError(
            f"ONNX has no operator {op.kind!r}: expected a standard operator, or one with a domain"
        )
    count = len(op.inputs)
    if not schema.min_inputs <= count <= schema.max_inputs:
        raise ValueError(
            f"{counted(count, 'input')}: expected {_range(schema.min_inputs, schema.max_inputs)}"
        )
    for k in schema.required_inputs:
        if k < count and op.inputs[k] is None and op.kind != "Resize":  # exporters omit its required roi
            raise ValueError(f"input {k} is omitted: expected a value")
    if not schema.min_outputs <= len(op.outputs) <= schema.max_outputs:
        raise ValueError(
            f"{counted(len(op.outputs), 'output')}: expected {_range(schema.min_outputs, schema.max_outputs)}"
        )
    for name, value in op.attributes.items():
        expected = schema.attributes.get(name)
        if expected is None:
            raise ValueError(f"the attribute {name!r} does not exist")
        _check_attribute(name, value, expected)
    for name in schema.required:
        if name not in op.attributes:
            raise ValueError(f"the attribute {name!r} is missing")


def _check_attribute(name: str, value: Any, expected: Any) -> None:
    """Refuse a value of a wrong type, and floats that are not finite."""
    types = _PYTHON_TYPES.get(expected)
    if types is not None:
        if not isinstance(value, types):
            wanted = _TYPE_NAMES.get(types[0], "a tensor")
            raise ValueError(f"the attribute {name!r} is {_describe(value)}: expected {wanted}")
        if (
            type(value) is float
            and not math.isfinite(value)
            and name not in ("value", "value_float", "min", "max")
        ):
            raise ValueError(f"the attribute {name!r} is {value}: expected a finite number")
        return
    element = _ELEMENT_TYPES.get(expected)
    if element is not None and not (isinstance(value, tuple) and all(type(v) is element for v in value)):
        raise ValueError(f"the attribute {name!r} is {_describe(value)}: expected a list")


def _describe(value: Any) -> str:
    """Return a value for a message."""
    return (
        repr(value)[:60]
        if isinstance(value, int | float | bytes | tuple)
        else _TYPE_NAMES.get(type(value), "a tensor")
    )


def _range(minimum: int, maximum: int) -> str:
    """Return a range of numbers for a message."""
    return (
        str(minimum)
        if minimum == maximum
        else f"{minimum} to {maximum}"
        if maximum < 1000
        else f"at least {minimum}"
    )
