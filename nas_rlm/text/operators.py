"""The operators of a text, one after the other, with the shapes of what they read and make.

Texts say the same things again and again, so that ONNX is asked once for what an operator makes of values of
some types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper

from .reader import DOMAIN, OPSET

_MAIN = re.compile(r"<ir_version:10,opset_import:\[[^\n]*\]>\nmain\(([^\n]*)\)=>\(([^\n]*)\)\n")
_HEAD = re.compile(r"(\w+)(?:<[\w,]*>)?\(([\w,]*)\)=>\(([\w,]*)\)")
_STATEMENT = re.compile(r"([\w,]+)=([\w.]+)(<.*>)?\(([\w,]*)\)")
_DECLARED = re.compile(r"(\w+)(?:\[([^\]]*)\])? (\w+)(?:,|$)")
_HANDED = re.compile(r"(g\d+)=(\d+)")
_GROUP = re.compile(r":int=@(g\d+)")
_VALUE = re.compile(r"[xvd]\d+")  # the name of what a network reads, other than its weights
START = 200  # characters in which ONNX text names its version
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a flat graph.

    Args:
        kind: the ONNX operator.
        values: that it reads of what is computed from the network's inputs.
        weights: the shapes of the weights that it reads.
        outputs: the values that it makes.
        shape: of the first; a dimension that is not known is 0.
        group: of a convolution, otherwise 1.
        is_zero: it is a product with zero.
    """

    kind: str
    values: tuple[str, ...]
    weights: tuple[Shape, ...]
    outputs: tuple[str, ...]
    shape: Shape
    group: int = 1
    is_zero: bool = False


@dataclass(frozen=True)
class Flat:
    """A network without functions: the values that it is given, its operators in order, its results."""

    inputs: tuple[str, ...]
    operators: list[Operator]
    outputs: tuple[str, ...]


def is_network(text: str) -> bool:
    """Whether a text is that of a network as `from_onnx` gives it, not of a program."""
    return _MAIN.match(text) is not None and text.rstrip().endswith("}")


def is_onnx(text: str) -> bool:
    """Whether a text is that of a network, whoever wrote it, not of a program."""
    start = text[:START].lstrip()
    return start.startswith("<") and "ir_version" in start


def operators(text: str) -> Flat:
    """The operators of a network's text.

    >>> import numpy as np, search_spaces
    >>> from nas_rlm.text import from_architecture
    >>> space = search_spaces.get("nats_size")
    >>> flat = operators(from_architecture(space, space.sample(np.random.default_rng(0))))
    >>> flat.operators[0].kind, flat.operators[0].shape[2:]
    ('Conv', (32, 32))

    Args:
        text: as `from_onnx` gives it.

    Raises:
        ValueError: it is no such text.
    """
    try:
        return _Reader(text).flat()
    except (ValueError, KeyError, RuntimeError, onnx.parser.ParseError) as error:
        raise ValueError(f"{text[:60]!r} is not the text of a network: {error}") from None


class _Type(NamedTuple):
    """What ONNX calls a tensor's type; a dimension that is not known is 0."""

    element: int
    shape: Shape


class _Known(NamedTuple):
    """What is known of a value where it is read.

    Args:
        name: in the flat graph.
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


class _Function(NamedTuple):
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    statements: tuple[_Statement, ...]


class _Made(NamedTuple):
    """What an operator makes: the types of its outputs, and the group of a convolution."""

    types: tuple[_Type | None, ...]
    group: int


class _Reader:
    def __init__(self, text: str) -> None:
        main, *functions = text.split(f'\n<domain:"{DOMAIN}",')
        head = _MAIN.match(main)
        if head is None:
            raise ValueError("expected a text as from_onnx gives it")
        given = [
            _Known(*_declared(*d), is_weight=not _VALUE.fullmatch(d[2])) for d in _DECLARED.findall(head[1])
        ]
        self.inputs = tuple([v.name for v in given if not v.is_weight])
        if not self.inputs:
            raise ValueError("it has no input x0 or v0")
        self.main = _Function(
            (), tuple([d[2] for d in _DECLARED.findall(head[2])]), _statements(main[head.end() :])
        )
        self.functions = dict(map(_function, functions))
        self.names = {v.name: v for v in given}
        self.operators: list[Operator] = []

    def flat(self) -> Flat:
        outputs = self.call(self.main, self.names, {})
        return Flat(self.inputs, self.operators, tuple([v.name for v in outputs]))

    def call(self, function: _Function, names: dict[str, _Known], groups: dict[str, str]) -> list[_Known]:
        """Take down what a function does, and tell what it returns."""
        for outputs, op, attributes, arguments in function.statements:
            if groups and "=@g" in attributes:
                attributes = _GROUP.sub(lambda m: f"={groups[m[1]]}", attributes)
            if op == "Constant":
                names[outputs[0]] = _Known(outputs[0], _constant(attributes).type, attributes)
                continue
            read = [names[a] if a else None for a in arguments]
            if op.startswith(f"{DOMAIN}."):
                called = self.functions[op[len(DOMAIN) + 1 :]]
                inside = dict(zip(called.parameters, [v for v in read if v], strict=True))
                made = self.call(called, inside, dict(_HANDED.findall(attributes)))
            else:
                made = self.operator(op, attributes, read, len(outputs))
            names.update(zip(outputs, made, strict=True))
        return [names[v] for v in function.outputs]

    def operator(self, op: str, attributes: str, read: Sequence[_Known | None], outputs: int) -> list[_Known]:
        """Take down an operator, and tell what it makes."""
        types = tuple([None if v is None else (v.type, v.constant) for v in read])
        known = _made(op, attributes, types, outputs)
        number = len(self.operators)
        made = [_Known(f"{number}.{k}", t) for k, t in enumerate(known.types)]
        present = [v for v in read if v]
        self.operators.append(
            Operator(
                op,
                tuple([v.name for v in present if not v.is_weight and not v.constant]),
                tuple([v.type.shape for v in present if v.is_weight and v.type]),
                tuple([v.name for v in made]),
                known.types[0].shape if known.types[0] else (),
                known.group,
                op == "Mul" and any(v.is_zero for v in present),
            )
        )
        return made


def _declared(element: str, shape: str, name: str) -> tuple[str, _Type]:
    """A value's name and type."""
    dimensions = tuple([int(d) if d.isdigit() else 0 for d in shape.split(",") if d])
    return name, _Type(TensorProto.DataType.Value(element.upper()), dimensions)


@lru_cache(maxsize=1 << 12)
def _function(text: str) -> tuple[str, _Function]:
    """A function's name and definition, from the text after its domain."""
    _, head, body = text.split("\n", 2)
    found = _HEAD.fullmatch(head)
    if found is None:
        raise ValueError(f"{head[:60]!r} is no head of a function")
    return found[1], _Function(_names(found[2]), _names(found[3]), _statements(body))


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
