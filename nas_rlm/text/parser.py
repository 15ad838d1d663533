"""Parsing of canonical ONNX text into operators with shapes.

Texts repeat themselves. ONNX therefore infers the outputs of an operator once for each combination of input
types, and all calls of a function with arguments of equal types share one object.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from nas_rlm.graph.costs import graph_costs, operator_costs
from nas_rlm.graph.onnx_graphs.shapes import SHAPE_FUNCTIONS, OperatorCall
from nas_rlm.graph.onnx_graphs.shapes.convolutions import CONVOLUTIONS, convolution_inputs
from nas_rlm.graph.onnx_graphs.stored_tensors import attribute_value
from nas_rlm.graph.onnx_graphs.tensors import COMPUTED, NOT_A_TENSOR, STORED, VARIABLE, Dims, Tensor, constant
from nas_rlm.graph.onnx_graphs.weight_names import mark_of_name
from nas_rlm.graph.operator_text import FUNCTION_DOMAIN
from nas_rlm.graph.operators import Body, Call, Operator, OperatorCosts, Shape, as_of_images
from nas_rlm.graph.rewriting.normalization import normalize_model
from nas_rlm.text.declarations import DECLARED, MAIN, VARIABLE_NAME

_HEAD = re.compile(r"(\w+)(?:<[\w,]*>)?\(([\w,]*)\)=>\(([\w,]*)\)")
_STATEMENT = re.compile(r"([\w,]+)=([\w.]+)(<.*>)?\(([\w,]*)\)")
_GROUP_ARGUMENT = re.compile(r"(g\d+)=(\d+)")
_GROUP = re.compile(r":int=@(g\d+)")
_PREFIX = f"{FUNCTION_DOMAIN}."
HEADER_CHARACTERS = 200  # ONNX text names its version within them


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
    except (
        ArithmeticError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
        onnx.parser.ParseError,
    ) as error:
        raise ValueError(f"{text[:60]!r} is not canonical ONNX text: {error}") from None


class _Type(NamedTuple):
    """What is known of a value; the fields are those of `nas_rlm.graph.onnx_graphs.tensors.Tensor`."""

    element: int
    shape: Dims | None
    sizes: Dims | None = None


UNKNOWN_TYPE = _Type(0, None)


class _Value(NamedTuple):
    """A value of a function, as its statements read it.

    Args:
        name: name of the value in its function.
        type: what is known of it.
        constant: attributes of the Constant operator that defines it; empty if it is no constant.
        weight: WEIGHT or TABLE for a weight of the network, followed by its number if several operators share
            it, and by the number of learnt parameters if that is not its size; empty for any other value.
    """

    name: str
    type: _Type
    constant: str = ""
    weight: str = ""

    @property
    def is_zero(self) -> bool:
        """True for a constant that is zero."""
        array = _parse_constant(self.constant) if self.constant else None
        return array is not None and array.dtype != object and not array.any()


WEIGHT, TABLE = "W", "C"  # kinds of weights: those that are learnt, and computed constants


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


class _Result(NamedTuple):
    """The outputs of an operator, and what it costs.

    Args:
        types: what is known of each output.
        group: groups of a convolution.
        kernel: shape of the weight of a convolution; otherwise empty.
        costs: costs of the operator.
    """

    types: tuple[_Type, ...]
    group: int
    kernel: Shape
    costs: OperatorCosts


class _Signature(NamedTuple):
    """An argument or result of a function, without its name; the fields are those of `_Value`."""

    type: _Type
    constant: str
    weight: str


def _read_network(text: str) -> Body:
    """Parse a text and infer all shapes; `parse_network` adds the text to its errors."""
    main, *functions = text.split(f'\n<domain:"{FUNCTION_DOMAIN}",')
    head = MAIN.match(main)
    if head is None:
        raise ValueError("expected text as from_onnx writes it")
    arguments = [_declared_value(*d) for d in DECLARED.findall(head[2])]
    outputs = tuple([d[2] for d in DECLARED.findall(head[3])])
    definition = _Definition("", (), outputs, _parse_statements(main[head.end() :]))
    definitions = {d.name: d for d in map(_parse_definition, functions)}
    function = _Function(definition, {name: _link(name, definitions) for name in definition.calls})
    names = {v.name: v for v in arguments}
    if len(names) < len(arguments) or sum(len(d[0]) for d in DECLARED.findall(head[2])) == 0 < len(head[2]):
        raise ValueError("expected inputs with types and different names")
    body, _ = _infer_body(function, names, {}, int(head[1]))
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
    function: _Function, arguments: tuple[_Signature, ...], groups: tuple[tuple[str, str], ...], opset: int
) -> tuple[Body, tuple[_Signature, ...]]:
    """Return the body of a function for arguments and `group` attributes, and its results."""
    parameters = function.definition.parameters
    names = {p: _Value(p, *arg) for p, arg in zip(parameters, arguments, strict=True)}
    return _infer_body(function, names, dict(groups), opset)


def _infer_body(
    function: _Function, names: dict[str, _Value], groups: Mapping[str, str], opset: int
) -> tuple[Body, tuple[_Signature, ...]]:
    """Infer the shapes in a function, and return its body and results.

    Args:
        function: function to infer.
        names: arguments by parameter name; defined values are added.
        groups: values of the attributes that the function passes to `group`.
        opset: version of ONNX's own operators.
    """
    arguments_read = [v for v in names.values() if not v.weight and not v.constant]
    inputs = tuple([v.name for v in arguments_read])
    input_sizes = tuple([math.prod(_sizes(v.type.shape)) if v.type.shape else 0 for v in arguments_read])
    steps: list[Operator | Call] = []
    for outputs, op, attributes, arguments in function.definition.statements:
        if groups and "=@g" in attributes:
            attributes = _GROUP.sub(lambda m: f"={groups[m[1]]}", attributes)
        if op == "Constant":
            array = _parse_constant(attributes)
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            names[outputs[0]] = _Value(outputs[0], _Type(element, array.shape), attributes)
            continue
        read = [names[a] if a else None for a in arguments]
        present = [v for v in read if v]
        values = tuple([v.name for v in present if not v.weight and not v.constant])
        inferred: tuple[_Signature, ...]
        if op.startswith(_PREFIX):
            signature = tuple([_Signature(v.type, v.constant, v.weight) for v in present])
            passed_groups = tuple(_GROUP_ARGUMENT.findall(attributes))
            callee = function.callees[op.removeprefix(_PREFIX)]
            body, inferred = _infer_function(callee, signature, passed_groups, opset)
            steps.append(Call(body, values, outputs))
        else:
            captured = tuple([(n, _signature(names[n])) for n in _captured_names(attributes) if n in names])
            operands = tuple([None if v is None else _signature(v) for v in read])
            found = _infer_outputs(op, attributes, operands, len(outputs), opset, captured)
            values += tuple([n for n, v in captured if not v.weight and not v.constant and n not in values])
            weights = tuple([_sizes(v.type.shape) for v in present if v.weight])
            is_zero = op == "Mul" and any(v.is_zero for v in present)
            inferred = tuple([_Signature(t, "", "") for t in found.types])
            shape = _sizes(found.types[0].shape)
            kernel = as_of_images(found.kernel)
            steps.append(
                Operator(op, values, weights, outputs, shape, found.group, is_zero, kernel, found.costs)
            )
        names.update({name: _Value(name, *output) for name, output in zip(outputs, inferred, strict=True)})
    results = [names[v] for v in function.definition.outputs]
    body = Body(inputs, tuple(steps), tuple([v.name for v in results]), input_sizes)
    return body, tuple(map(_signature, results))


def _signature(value: _Value) -> _Signature:
    """Return a value without its name."""
    return _Signature(value.type, value.constant, value.weight)


def _sizes(shape: Dims | None) -> Shape:
    """Return a shape with 0 for unknown sizes."""
    return tuple([d if isinstance(d, int) else 0 for d in shape or ()])


def _declared_value(element: str, shape: str, name: str) -> _Value:
    """Return a declared input."""
    if "(" in element:
        return _Value(name, _Type(NOT_A_TENSOR, None))
    sizes = shape.strip("[]").split(",")
    dims = None if shape == "[]" else tuple([int(d) if d.isdigit() else d for d in sizes if d])
    weight = "" if VARIABLE_NAME.fullmatch(name) else TABLE if name.startswith("C") else WEIGHT
    if weight == WEIGHT and any(mark_of_name(name)):
        tie, learnt = mark_of_name(name)
        weight = f"{WEIGHT}{tie or ''}:{learnt}"
    return _Value(name, _Type(TensorProto.DataType.Value(element.upper()), dims), weight=weight)


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


@lru_cache(maxsize=1 << 10)
def _parse_constant(attributes: str) -> np.ndarray:
    """Return the value of a Constant operator."""
    value = onnx.parser.parse_node(f"c=Constant{attributes}()").attribute[0]
    if value.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(value.t)
    kind = np.float32 if value.type in (AttributeProto.FLOAT, AttributeProto.FLOATS) else np.int64
    return np.array(helper.get_attribute_value(value), dtype=kind)


_SUBGRAPH = re.compile(r"=\w+\([\w,]*\)=>\(")
_NAMES = re.compile(r"[A-Za-z_]\w*")


def _captured_names(attributes: str) -> list[str]:
    """Return the names in the subgraphs of an operator that may be values of the enclosing scope."""
    return list(dict.fromkeys(_NAMES.findall(attributes))) if _SUBGRAPH.search(attributes) else []


@lru_cache(maxsize=1 << 14)
def _infer_outputs(
    op: str,
    attributes: str,
    operands: tuple[_Signature | None, ...],
    num_outputs: int,
    opset: int,
    captured: tuple[tuple[str, _Signature], ...],
) -> _Result:
    """Infer the outputs of an operator.

    Args:
        op: name of the operator, after its domain.
        attributes: attributes as ONNX text.
        operands: what is known of each input; None for an omitted one.
        num_outputs: number of outputs.
        opset: version of ONNX's own operators.
        captured: values that its subgraphs read, by name.
    """
    inputs = [f"i{k}" if v else "" for k, v in enumerate(operands)]
    outputs = [f"o{k}" for k in range(num_outputs)]
    proto = onnx.parser.parse_node(f"{','.join(outputs)}={op}{attributes}({','.join(inputs)})")
    if not proto.domain and not onnx.defs.has(proto.op_type, opset):
        raise ValueError(f"ONNX has no operator {op}")
    if captured or any(a.type == AttributeProto.GRAPH for a in proto.attribute):
        given = dict(zip(inputs, operands, strict=True)) | dict(captured)
        return _infer_control_flow(proto, {n: v for n, v in given.items() if v is not None}, opset)
    values = {a.name: attribute_value(a) for a in proto.attribute}
    tensors = [None if v is None else _tensor(v) for v in operands]
    call = OperatorCall(op, values, tensors, num_outputs)
    function = SHAPE_FUNCTIONS.get(op)
    found = [] if function is None else function(call)[:num_outputs]
    found += [Tensor(0, None)] * (num_outputs - len(found))
    weights = {
        k: v.weight.removeprefix(WEIGHT)
        for k, v in enumerate(operands)
        if v is not None and v.weight and v.weight != TABLE
    }
    kernel = _sizes(call.shape(convolution_inputs(op)[1])) if op in CONVOLUTIONS else ()
    types = tuple([_Type(x.dtype, x.shape, x.sizes) for x in found])
    return _Result(types, values.get("group", 1), kernel, operator_costs(call, found[0], weights))


def _tensor(value: _Signature) -> Tensor:
    """Return what is known of a value as a tensor."""
    if value.constant:
        return constant(_parse_constant(value.constant))
    origin = VARIABLE if not value.weight else COMPUTED if value.weight == TABLE else STORED
    return Tensor(value.type.element, value.type.shape, sizes=value.type.sizes, origin=origin)


def _infer_control_flow(proto: onnx.NodeProto, given: Mapping[str, _Signature], opset: int) -> _Result:
    """Infer the outputs of an operator with subgraphs.

    Args:
        proto: the operator.
        given: the values that it and its subgraphs read, by name.
        opset: version of ONNX's own operators.
    """
    graph = onnx.GraphProto(node=[proto], name="node")
    weights = {}
    for name, value in given.items():
        if value.constant:
            graph.initializer.append(numpy_helper.from_array(_parse_constant(value.constant), name))
        elif value.type.element == NOT_A_TENSOR:
            element = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
            graph.input.append(helper.make_value_info(name, helper.make_sequence_type_proto(element)))
        else:
            element_type = value.type.element or TensorProto.FLOAT
            graph.input.append(helper.make_tensor_value_info(name, element_type, value.type.shape))
            if value.weight not in ("", TABLE):
                weights[name] = value.weight.removeprefix(WEIGHT)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in proto.output)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    normal = normalize_model(model)
    names = {name: v for v, name in normal.network.names.items()}
    by_value = {names[name]: tie for name, tie in weights.items() if name in names}
    found = [normal.tensors[v] for v in normal.graph.outputs]
    costs = graph_costs(normal, normal.graph, by_value)
    return _Result(tuple([_Type(x.dtype, x.shape) for x in found]), 1, (), costs)
