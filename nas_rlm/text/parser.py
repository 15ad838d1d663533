"""The operators of a text, function by function, with the shapes of what they read and make.

Texts say the same things again and again. So ONNX is asked once for what an operator makes of values of some
types, and what a function does with values of some types is one object wherever it is called.
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
from nas_rlm.graph.reader import DOMAIN, OPSET

_MAIN = re.compile(r"<ir_version:10,opset_import:\[[^\n]*\]>\nmain\(([^\n]*)\)=>\(([^\n]*)\)\n")
_HEAD = re.compile(r"(\w+)(?:<[\w,]*>)?\(([\w,]*)\)=>\(([\w,]*)\)")
_STATEMENT = re.compile(r"([\w,]+)=([\w.]+)(<.*>)?\(([\w,]*)\)")
_DECLARED = re.compile(r"(\w+)(?:\[([^\]]*)\])? (\w+)(?:,|$)")
_HANDED = re.compile(r"(g\d+)=(\d+)")
_GROUP = re.compile(r":int=@(g\d+)")
_VALUE = re.compile(r"[xvd]\d+")  # the name of what a network reads, other than its weights
_PREFIX = f"{DOMAIN}."
START = 200  # characters in which ONNX text names its version


def is_network(text: str) -> bool:
    """Whether a text is that of a network as `from_onnx` gives it, not of a program."""
    return _MAIN.match(text) is not None and text.rstrip().endswith("}")


def is_onnx(text: str) -> bool:
    """Whether a text is that of a network, whoever wrote it, not of a program."""
    start = text[:START].lstrip()
    return start.startswith("<") and "ir_version" in start


def operators(text: str) -> Body:
    """The operators of a network's text.

    >>> import numpy as np, search_spaces
    >>> from nas_rlm.text import from_architecture
    >>> space = search_spaces.get("nats_size")
    >>> network = operators(from_architecture(space, space.sample(np.random.default_rng(0))))
    >>> first = network.steps[0].body.steps[0]
    >>> first.kind, first.shape[2:]
    ('Conv', (32, 32))

    Args:
        text: as `from_onnx` gives it.

    Raises:
        ValueError: it is no such text.
    """
    try:
        return _network(text)
    except (ValueError, KeyError, RuntimeError, onnx.parser.ParseError) as error:
        raise ValueError(f"{text[:60]!r} is not the text of a network: {error}") from None


class _Type(NamedTuple):
    """What ONNX calls a tensor's type; a dimension that is not known is 0."""

    element: int
    shape: Shape


class _Known(NamedTuple):
    """What is known of a value where it is read.

    Args:
        name: where it is made.
        type: None if ONNX does not tell.
        constant: the attributes of the operator that makes it, if it is a constant.
        is_weight: whether it is a weight of the network.
    """

    name: str
    type: _Type | None
    constant: str = ""
    is_weight: bool = False

    @property
    def is_zero(self) -> bool:
        return bool(self.constant) and _constant(self.constant).is_zero


class _Statement(NamedTuple):
    outputs: tuple[str, ...]
    op: str
    attributes: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Definition:
    """A function as its text has it, which may call others by name."""

    name: str
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    statements: tuple[_Statement, ...]

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """The names of the functions that it calls."""
        called = [s.op.removeprefix(_PREFIX) for s in self.statements if s.op.startswith(_PREFIX)]
        return tuple(dict.fromkeys(called))


@dataclass(frozen=True, eq=False)
class _Function:
    """A function, and the functions that it calls."""

    definition: _Definition
    called: dict[str, _Function]


class _Made(NamedTuple):
    """What an operator makes: the types of its outputs, and the group of a convolution."""

    types: tuple[_Type | None, ...]
    group: int


class _Signature(NamedTuple):
    """What a function must know of what it is given; of a weight no less than of a value."""

    type: _Type | None
    constant: str
    is_weight: bool


def _network(text: str) -> Body:
    main, *functions = text.split(f'\n<domain:"{DOMAIN}",')
    head = _MAIN.match(main)
    if head is None:
        raise ValueError("expected a text as from_onnx gives it")
    given = [_Known(*_declared(*d), is_weight=not _VALUE.fullmatch(d[2])) for d in _DECLARED.findall(head[1])]
    if all(v.is_weight for v in given):
        raise ValueError("it has no input x0 or v0")
    outputs = tuple([d[2] for d in _DECLARED.findall(head[2])])
    definition = _Definition("", (), outputs, _statements(main[head.end() :]))
    known = {d.name: d for d in map(_definition, functions)}
    function = _Function(definition, {name: _linked(name, known) for name in definition.calls})
    body, _ = _body(function, {v.name: v for v in given}, {})
    return body


def _linked(name: str, known: Mapping[str, _Definition]) -> _Function:
    definition = known[name]
    return _function(definition, tuple([_linked(called, known) for called in definition.calls]))


@lru_cache(maxsize=1 << 12)
def _function(definition: _Definition, called: tuple[_Function, ...]) -> _Function:
    return _Function(definition, {one.definition.name: one for one in called})


@lru_cache(maxsize=1 << 12)
def _called(
    function: _Function, given: tuple[_Signature, ...], groups: tuple[tuple[str, str], ...]
) -> tuple[Body, tuple[_Signature, ...]]:
    """What a function does with what it is given, and what is known of its results."""
    parameters = function.definition.parameters
    names = {p: _Known(p, *one) for p, one in zip(parameters, given, strict=True)}
    return _body(function, names, dict(groups))


def _body(
    function: _Function, names: dict[str, _Known], groups: Mapping[str, str]
) -> tuple[Body, tuple[_Signature, ...]]:
    inputs = tuple([v.name for v in names.values() if not v.is_weight and not v.constant])
    steps: list[Operator | Call] = []
    for outputs, op, attributes, arguments in function.definition.statements:
        if groups and "=@g" in attributes:
            attributes = _GROUP.sub(lambda m: f"={groups[m[1]]}", attributes)
        if op == "Constant":
            names[outputs[0]] = _Known(outputs[0], _constant(attributes).type, attributes)
            continue
        read = [names[a] if a else None for a in arguments]
        present = [v for v in read if v]
        values = tuple([v.name for v in present if not v.is_weight and not v.constant])
        made: tuple[_Signature, ...]
        if op.startswith(_PREFIX):
            signature = tuple([_Signature(v.type, v.constant, v.is_weight) for v in present])
            handed = tuple(_HANDED.findall(attributes))
            body, made = _called(function.called[op.removeprefix(_PREFIX)], signature, handed)
            steps.append(Call(body, values, outputs))
        else:
            given = tuple([None if v is None else (v.type, v.constant) for v in read])
            types, group = _made(op, attributes, given, len(outputs))
            weights = tuple([v.type.shape for v in present if v.is_weight and v.type])
            is_zero = op == "Mul" and any(v.is_zero for v in present)
            made = tuple([_Signature(t, "", False) for t in types])
            steps.append(
                Operator(op, values, weights, outputs, types[0].shape if types[0] else (), group, is_zero)
            )
        names.update({name: _Known(name, *known) for name, known in zip(outputs, made, strict=True)})
    results = [names[v] for v in function.definition.outputs]
    told = tuple([_Signature(v.type, v.constant, v.is_weight) for v in results])
    return Body(inputs, tuple(steps), tuple([v.name for v in results])), told


def _declared(element: str, shape: str, name: str) -> tuple[str, _Type]:
    """A value's name and type."""
    dimensions = tuple([int(d) if d.isdigit() else 0 for d in shape.split(",") if d])
    return name, _Type(TensorProto.DataType.Value(element.upper()), dimensions)


@lru_cache(maxsize=1 << 12)
def _definition(text: str) -> _Definition:
    """A function, from the text after its domain."""
    _, head, body = text.split("\n", 2)
    found = _HEAD.fullmatch(head)
    if found is None:
        raise ValueError(f"{head[:60]!r} is no head of a function")
    return _Definition(found[1], _names(found[2]), _names(found[3]), _statements(body))


def _statements(body: str) -> tuple[_Statement, ...]:
    return tuple([_statement(line) for line in body.strip().strip("{}").strip().split("\n")])


@lru_cache(maxsize=1 << 14)
def _statement(line: str) -> _Statement:
    found = _STATEMENT.fullmatch(line)
    if found is None:
        raise ValueError(f"{line[:60]!r} is no statement")
    return _Statement(_names(found[1]), found[2], found[3] or "", _names(found[4]))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


class _Constant(NamedTuple):
    type: _Type
    tensor: TensorProto
    is_zero: bool


@lru_cache(maxsize=1 << 10)
def _constant(attributes: str) -> _Constant:
    value = onnx.parser.parse_node(f"c=Constant{attributes}()").attribute[0]
    if value.type == AttributeProto.TENSOR:
        array = numpy_helper.to_array(value.t)
    else:
        kind = np.float32 if value.type in (AttributeProto.FLOAT, AttributeProto.FLOATS) else np.int64
        array = np.array(helper.get_attribute_value(value), dtype=kind)
    tensor = numpy_helper.from_array(array)
    return _Constant(_Type(tensor.data_type, array.shape), tensor, not array.any())


@lru_cache(maxsize=1 << 14)
def _made(op: str, attributes: str, read: tuple[tuple[_Type | None, str] | None, ...], outputs: int) -> _Made:
    """What an operator makes of what it reads: the type of each value and the attributes of each constant."""
    names = [f"i{k}" if v else "" for k, v in enumerate(read)]
    made = [f"o{k}" for k in range(outputs)]
    node = onnx.parser.parse_node(f"{','.join(made)}={op}{attributes}({','.join(names)})")
    group = next((a.i for a in node.attribute if a.name == "group"), 1)
    given = {name: v for name, v in zip(names, read, strict=True) if v}
    types = {name: _type_proto(t) for name, (t, _) in given.items() if t}
    data = {name: _constant(c).tensor for name, (_, c) in given.items() if c}
    if not node.domain and not onnx.defs.has(op, OPSET):
        raise ValueError(f"ONNX has no operator {op}")
    if len(types) < len(given) or node.domain:
        return _Made((None,) * outputs, group)
    found = onnx.shape_inference.infer_node_outputs(onnx.defs.get_schema(op, OPSET), node, types, data)
    return _Made(tuple([_type(found[name]) if name in found else None for name in made]), group)


def _type_proto(known: _Type) -> TypeProto:
    return helper.make_tensor_type_proto(known.element, [d or None for d in known.shape])


def _type(found: TypeProto) -> _Type | None:
    tensor = found.tensor_type
    if not tensor.HasField("shape"):
        return None
    return _Type(tensor.elem_type, tuple([d.dim_value for d in tensor.shape.dim]))
