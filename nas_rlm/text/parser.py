"""Parsing of canonical ONNX text into operators with shapes.

Texts repeat themselves. ONNX therefore infers the outputs of an operator once for each combination of input
types, and all calls of a function with arguments of equal types share one object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper

from nas_rlm.graph.operators import Body, Call, Operator, Shape
from nas_rlm.graph.reader import FUNCTION_DOMAIN, OPSET

_MAIN = re.compile(r"<ir_version:10,opset_import:\[[^\n]*\]>\nmain\(([^\n]*)\)=>\(([^\n]*)\)\n")
_HEAD = re.compile(r"(\w+)(?:<[\w,]*>)?\(([\w,]*)\)=>\(([\w,]*)\)")
_STATEMENT = re.compile(r"([\w,]+)=([\w.]+)(<.*>)?\(([\w,]*)\)")
_DECLARED = re.compile(r"(\w+)(?:\[([^\]]*)\])? (\w+)(?:,|$)")
_GROUP_ARGUMENT = re.compile(r"(g\d+)=(\d+)")
_GROUP = re.compile(r":int=@(g\d+)")
_VALUE = re.compile(r"[xvd]\d+")  # the name of an input other than a weight
_PREFIX = f"{FUNCTION_DOMAIN}."
HEADER_CHARACTERS = 200  # ONNX text names its version within them


def is_network_text(text: str) -> bool:
    """Return True for canonical text, as `from_onnx` writes it."""
    return _MAIN.match(text) is not None and text.rstrip().endswith("}")


def is_onnx_text(text: str) -> bool:
    """Return True for ONNX text, canonical or not; False for other text, such as program code."""
    start = text[:HEADER_CHARACTERS].lstrip()
    return start.startswith("<") and "ir_version" in start


def parse_network(text: str) -> Body:
    """Return the operators of a canonical text, with inferred shapes.

    Examples:
        >>> import numpy as np, search_spaces
        >>> from nas_rlm.text import from_architecture
        >>> space = search_spaces.get("nats_size")
        >>> network = parse_network(from_architecture(space, space.sample(np.random.default_rng(0))))
        >>> first = network.steps[0].body.steps[0]
        >>> first.kind, first.shape[2:]
        ('Conv', (32, 32))

    Args:
        text: canonical text, as `from_onnx` writes it.

    Raises:
        ValueError: the text is not canonical ONNX text.
    """
    try:
        return _read_network(text)
    except (ValueError, KeyError, RuntimeError, onnx.parser.ParseError) as error:
        raise ValueError(f"{text[:60]!r} is not canonical ONNX text: {error}") from None


class _Type(NamedTuple):
    """Element type and shape of a tensor; 0 for an unknown dimension."""

    element: int
    shape: Shape


class _Value(NamedTuple):
    """A value of a function, as its statements read it.

    Args:
        name: name of the value in its function.
        type: type and shape; None if ONNX cannot infer them.
        constant: attributes of the Constant operator that defines it; empty if it is no constant.
        is_weight: True for a weight of the network.
    """

    name: str
    type: _Type | None
    constant: str = ""
    is_weight: bool = False

    @property
    def is_zero(self) -> bool:
        """True for a constant that is zero."""
        return bool(self.constant) and _parse_constant(self.constant).is_zero


class _Statement(NamedTuple):
    """A parsed statement: names of its outputs and arguments, operator and attributes as text."""

    outputs: tuple[str, ...]
    op: str
    attributes: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Definition:
    """A parsed function whose calls of other functions are names."""

    name: str
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    statements: tuple[_Statement, ...]

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """Names of the functions that this function calls."""
        names = [s.op.removeprefix(_PREFIX) for s in self.statements if s.op.startswith(_PREFIX)]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, eq=False)
class _Function:
    """A parsed function, and the functions that it calls by their names."""

    definition: _Definition
    callees: dict[str, _Function]


class _InferredOutputs(NamedTuple):
    """The types of the outputs of an operator, and the groups of a convolution."""

    types: tuple[_Type | None, ...]
    group: int


class _Signature(NamedTuple):
    """An argument or result of a function, without its name; the fields are those of `_Value`."""

    type: _Type | None
    constant: str
    is_weight: bool


def _read_network(text: str) -> Body:
    """Parse a text and infer all shapes; `parse_network` adds the text to its errors."""
    main, *functions = text.split(f'\n<domain:"{FUNCTION_DOMAIN}",')
    head = _MAIN.match(main)
    if head is None:
        raise ValueError("expected text as from_onnx writes it")
    arguments = [
        _Value(*_parse_declaration(*d), is_weight=not _VALUE.fullmatch(d[2]))
        for d in _DECLARED.findall(head[1])
    ]
    if all(v.is_weight for v in arguments):
        raise ValueError("expected an input x0 or v0")
    outputs = tuple([d[2] for d in _DECLARED.findall(head[2])])
    definition = _Definition("", (), outputs, _parse_statements(main[head.end() :]))
    definitions = {d.name: d for d in map(_parse_definition, functions)}
    function = _Function(definition, {name: _link(name, definitions) for name in definition.calls})
    body, _ = _infer_body(function, {v.name: v for v in arguments}, {})
    return body


def _link(name: str, definitions: Mapping[str, _Definition]) -> _Function:
    """Return the function of a name, linked to the functions that it calls."""
    definition = definitions[name]
    return _function(definition, tuple([_link(callee, definitions) for callee in definition.calls]))


@lru_cache(maxsize=1 << 12)
def _function(definition: _Definition, callees: tuple[_Function, ...]) -> _Function:
    """Return the function with these callees; equal functions are one object."""
    return _Function(definition, {callee.definition.name: callee for callee in callees})


@lru_cache(maxsize=1 << 12)
def _infer_function(
    function: _Function, arguments: tuple[_Signature, ...], groups: tuple[tuple[str, str], ...]
) -> tuple[Body, tuple[_Signature, ...]]:
    """Return the body of a function for arguments and `group` attributes, and its results."""
    parameters = function.definition.parameters
    names = {p: _Value(p, *arg) for p, arg in zip(parameters, arguments, strict=True)}
    return _infer_body(function, names, dict(groups))


def _infer_body(
    function: _Function, names: dict[str, _Value], groups: Mapping[str, str]
) -> tuple[Body, tuple[_Signature, ...]]:
    """Infer the shapes in a function, and return its body and results.

    Args:
        function: function to infer.
        names: arguments by parameter name; defined values are added.
        groups: values of the attributes that the function passes to `group`.
    """
    inputs = tuple([v.name for v in names.values() if not v.is_weight and not v.constant])
    steps: list[Operator | Call] = []
    for outputs, op, attributes, arguments in function.definition.statements:
        if groups and "=@g" in attributes:
            attributes = _GROUP.sub(lambda m: f"={groups[m[1]]}", attributes)
        if op == "Constant":
            names[outputs[0]] = _Value(outputs[0], _parse_constant(attributes).type, attributes)
            continue
        read = [names[a] if a else None for a in arguments]
        present = [v for v in read if v]
        values = tuple([v.name for v in present if not v.is_weight and not v.constant])
        inferred: tuple[_Signature, ...]
        if op.startswith(_PREFIX):
            signature = tuple([_Signature(v.type, v.constant, v.is_weight) for v in present])
            passed_groups = tuple(_GROUP_ARGUMENT.findall(attributes))
            callee = function.callees[op.removeprefix(_PREFIX)]
            body, inferred = _infer_function(callee, signature, passed_groups)
            steps.append(Call(body, values, outputs))
        else:
            operands = tuple([None if v is None else (v.type, v.constant) for v in read])
            types, group = _infer_outputs(op, attributes, operands, len(outputs))
            weights = tuple([v.type.shape for v in present if v.is_weight and v.type])
            is_zero = op == "Mul" and any(v.is_zero for v in present)
            inferred = tuple([_Signature(t, "", False) for t in types])
            steps.append(
                Operator(op, values, weights, outputs, types[0].shape if types[0] else (), group, is_zero)
            )
        names.update({name: _Value(name, *output) for name, output in zip(outputs, inferred, strict=True)})
    results = [names[v] for v in function.definition.outputs]
    signatures = tuple([_Signature(v.type, v.constant, v.is_weight) for v in results])
    return Body(inputs, tuple(steps), tuple([v.name for v in results])), signatures


def _parse_declaration(element: str, shape: str, name: str) -> tuple[str, _Type]:
    """Return the name and type of a declared value."""
    dimensions = tuple([int(d) if d.isdigit() else 0 for d in shape.split(",") if d])
    return name, _Type(TensorProto.DataType.Value(element.upper()), dimensions)


@lru_cache(maxsize=1 << 12)
def _parse_definition(text: str) -> _Definition:
    """Parse a function; the text starts after the domain of the function."""
    _, head, body = text.split("\n", 2)
    match = _HEAD.fullmatch(head)
    if match is None:
        raise ValueError(f"{head[:60]!r} is not the header of a function")
    return _Definition(match[1], _split_names(match[2]), _split_names(match[3]), _parse_statements(body))


def _parse_statements(body: str) -> tuple[_Statement, ...]:
    """Parse the statements in the braces of a scope."""
    return tuple([_parse_statement(line) for line in body.strip().strip("{}").strip().split("\n")])


@lru_cache(maxsize=1 << 14)
def _parse_statement(line: str) -> _Statement:
    """Parse one line of a scope."""
    match = _STATEMENT.fullmatch(line)
    if match is None:
        raise ValueError(f"{line[:60]!r} is not a statement")
    return _Statement(_split_names(match[1]), match[2], match[3] or "", _split_names(match[4]))


def _split_names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated text."""
    return tuple(text.split(",")) if text else ()


class _Constant(NamedTuple):
    """Type and value of a constant."""

    type: _Type
    tensor: TensorProto
    is_zero: bool


@lru_cache(maxsize=1 << 10)
def _parse_constant(attributes: str) -> _Constant:
    """Parse the attributes of a Constant operator."""
    value = onnx.parser.parse_node(f"c=Constant{attributes}()").attribute[0]
    if value.type == AttributeProto.TENSOR:
        array = numpy_helper.to_array(value.t)
    else:
        kind = np.float32 if value.type in (AttributeProto.FLOAT, AttributeProto.FLOATS) else np.int64
        array = np.array(helper.get_attribute_value(value), dtype=kind)
    tensor = numpy_helper.from_array(array)
    return _Constant(_Type(tensor.data_type, array.shape), tensor, not array.any())


@lru_cache(maxsize=1 << 14)
def _infer_outputs(
    op: str, attributes: str, operands: tuple[tuple[_Type | None, str] | None, ...], num_outputs: int
) -> _InferredOutputs:
    """Infer the outputs of an operator.

    Args:
        op: name of the operator.
        attributes: attributes as ONNX text.
        operands: type of each input and, for a constant, its attributes; None for an omitted input.
        num_outputs: number of outputs.
    """
    names = [f"i{k}" if v else "" for k, v in enumerate(operands)]
    outputs = [f"o{k}" for k in range(num_outputs)]
    node = onnx.parser.parse_node(f"{','.join(outputs)}={op}{attributes}({','.join(names)})")
    group = next((a.i for a in node.attribute if a.name == "group"), 1)
    present = {name: v for name, v in zip(names, operands, strict=True) if v}
    types = {name: _to_type_proto(t) for name, (t, _) in present.items() if t}
    data = {name: _parse_constant(c).tensor for name, (_, c) in present.items() if c}
    if not node.domain and not onnx.defs.has(op, OPSET):
        raise ValueError(f"ONNX has no operator {op}")
    if len(types) < len(present) or node.domain:
        return _InferredOutputs((None,) * num_outputs, group)
    inferred = onnx.shape_inference.infer_node_outputs(onnx.defs.get_schema(op, OPSET), node, types, data)
    return _InferredOutputs(
        tuple([_from_type_proto(inferred[name]) if name in inferred else None for name in outputs]), group
    )


def _to_type_proto(type_: _Type) -> TypeProto:
    """Return the ONNX type of a tensor."""
    return helper.make_tensor_type_proto(type_.element, [d or None for d in type_.shape])


def _from_type_proto(proto: TypeProto) -> _Type | None:
    """Return the type and shape of an ONNX type; None if it has no shape."""
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return None
    return _Type(tensor.elem_type, tuple([d.dim_value for d in tensor.shape.dim]))
