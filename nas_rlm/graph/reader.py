"""Conversion of normalized models to graphs, without names, default attributes and metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, TypeProto

from nas_rlm.graph.ir import GROUP, UNKNOWN_VALUE, Block, Leaf, Node, leaf
from nas_rlm.graph.onnx_graphs.flat_graph import LARGE_MODELS, MAX_OPSET, OPSET, FlatGraph, Op
from nas_rlm.graph.onnx_graphs.operator_checks import schema_of
from nas_rlm.graph.onnx_graphs.quantization import INTEGER_WEIGHTS, QUANTIZATION_PARAMETERS
from nas_rlm.graph.onnx_graphs.tensors import (
    COMPUTED,
    FLOATS,
    MAX_FOLDED_ELEMENTS,
    Dims,
    Tensor,
    num_elements,
)
from nas_rlm.graph.onnx_graphs.weight_names import type_name
from nas_rlm.graph.operator_text import (
    GROUPED_OPERATORS,
    MAX_CONSTANT_ELEMENTS,
    AttributeText,
    elements_text,
    operator_spec,
    proto_text,
    type_text,
)
from nas_rlm.graph.rewriting.normalization import Normalizer
from nas_rlm.graph.rewriting.shared_weights import weight_marks

PLACEHOLDER = "\x00"  # before the position of a captured input, and after it, in the attributes of a subgraph
_ALL_INPUTS = range(1 << 31)
# Positions of float inputs that decide what an operator computes, and that no training changes.
_FLOAT_VALUES: dict[str, Sequence[int]] = {
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Pow"), (0, 1)),
    **dict.fromkeys(("Max", "Min", "Range"), _ALL_INPUTS),
    **dict.fromkeys(("Clip", "Resize"), (1, 2)),
    **dict.fromkeys(("Pad", "com.microsoft.Pad"), (2,)),
    "MelWeightMatrix": (3, 4),
    "NonMaxSuppression": (3, 4),
    "OneHot": (1, 2),
}
# Positions of float inputs that may be learnt if they have more than one element.
_SINGLE_VALUES: dict[str, Sequence[int]] = {"Where": (1, 2)}
# Positions of integers that decide shapes; lists of up to MAX_FOLDED_ELEMENTS are part of the text.
_SHAPE_VALUES: dict[str, Sequence[int]] = {
    **dict.fromkeys(("Expand", "Reshape", "Split", "SplitToSequence", "Squeeze", "Tile", "Unsqueeze"), (1,)),
    **dict.fromkeys(("Pad", "com.microsoft.Pad"), (1, 3)),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Resize": (3,),
    "Slice": (1, 2, 3, 4),
    "TopK": (1,),
}


def read_graph(normal: Normalizer) -> tuple[Block, int]:
    """Return the graph of a normalized model, and the operator set of its text."""
    reader = _Reader(normal)
    return reader.read_network(), reader.text_opset()


def _all_ops(graph: FlatGraph) -> Iterator[Op]:
    """Yield the operators of a graph and of its subgraphs."""
    for op in graph.ops:
        yield op
        for _, inner in op.subgraphs:
            yield from _all_ops(inner)


def _is_new(op: Op) -> bool:
    """Return True if the usual operator set of texts does not have an operator or one of its attributes."""
    if "." in op.kind:
        return False
    schema = schema_of(op.kind, OPSET)
    return schema is None or not op.attributes.keys() <= schema.attributes.keys()


class _Reader:
    """Reader of a normalized model."""

    def __init__(self, normal: Normalizer) -> None:
        self.normal, self.tensors = normal, normal.tensors
        self.symbols: dict[str, str] = {}
        self.marks = weight_marks(normal.graph, normal.tensors)

    def read_network(self) -> Block:
        """Return the network with its inputs and outputs."""
        normal = self.normal
        graph = normal.graph
        inputs = [v for v in graph.inputs if not self.tensors[v].is_static]
        types = tuple([type_text(self.tensors[v], self.symbols) for v in inputs])
        nodes = [self.read_op(op) for op in graph.ops]
        outputs: list[int] = []
        computed = {v for op in graph.ops for v in op.outputs}
        for v in graph.outputs:
            if v not in computed or v in outputs:  # an input, a constant, or an output that is named twice
                copy = normal.new_value()
                nodes.append(self.read_op(Op("Identity", {}, (v,), (copy,))))
                self.tensors[copy] = self.tensors[v]
                v = copy
            outputs.append(v)
        output_types = tuple(
            [
                self._output_type(v, declared)
                for v, declared in zip(outputs, normal.network.output_types, strict=True)
            ]
        )
        return Block(tuple(inputs), tuple(outputs), nodes, input_types=types, output_types=output_types)

    def _output_type(self, value: int, declared: TypeProto) -> str:
        """Return the type of an output: as inferred, or as declared if it is not known."""
        tensor = self.tensors[value]
        if tensor.elements is not None or (tensor.dtype > 0 and tensor.shape is not None):
            return type_text(tensor, self.symbols)
        if declared.WhichOneof("value"):
            return proto_text(declared, self.symbols)
        return type_text(tensor, self.symbols)

    def read_op(self, op: Op) -> Node:
        """Return an operator as a node."""
        attributes: Mapping[str, Any] = op.attributes
        subgraphs = op.subgraphs
        captured: list[int | Leaf] = []
        if subgraphs:
            values = list(dict.fromkeys(v for _, graph in subgraphs for v in graph.captured()))
            uses = _deciding_uses(subgraphs)
            read = {
                v: a
                for v in values
                if (a := self._argument(*uses.get(v, ("", 0)), v, self.marks.get(v))) is not None
            }
            captured = list(dict.fromkeys(read.values()))
            positions = {v: len(op.inputs) + captured.index(arg) for v, arg in read.items()}
            texts = _SubgraphTexts(self, positions)
            of_subgraphs = {name: AttributeText(f"={texts.graph(name, g)}") for name, g in subgraphs}
            attributes = {**attributes} | of_subgraphs
        op_kind, attributes = _without_long_attributes(op.kind, attributes)
        args = [self._argument(op.kind, k, v, self.marks.get((id(op), k))) for k, v in enumerate(op.inputs)]
        args += captured
        pattern = tuple([... if isinstance(a, int) else a for a in args])
        domain, _, kind = op_kind.rpartition(".")
        operation = operator_spec(kind, attributes, pattern, domain, self.opset_of(kind) if not domain else 1)
        return Node(operation, tuple([a for a in args if isinstance(a, int)]), op.outputs)

    def text_opset(self) -> int:
        """Return the operator set of the text: a later one than usual if an operator is new in it."""
        kinds = {op.kind for op in _all_ops(self.normal.graph) if _is_new(op)}
        schemas = [schema_of(k, self.normal.opset) or schema_of(k, MAX_OPSET) for k in kinds]
        return max((s.since for s in schemas if s is not None), default=OPSET)

    def opset_of(self, kind: str) -> int:
        """Return the operator set that defines an operator in the text."""
        return OPSET if schema_of(kind, OPSET) is not None else self.normal.opset

    def _argument(
        self, kind: str, position: int, value: int | None, mark: tuple[int, int] | None = None
    ) -> int | Leaf | None:
        """Return an input of an operator: the value, or a leaf; `mark` is that of `weight_marks`."""
        if value is None:
            return None
        tensor = self.tensors[value]
        if not tensor.is_static:
            return value
        return self._leaf(tensor, kind, position, mark or (0, 0))

    def _leaf(self, tensor: Tensor, kind: str, position: int, mark: tuple[int, int]) -> Leaf:
        """Return the leaf of a weight or constant."""
        name, shape = type_name(tensor.dtype), tensor.known_shape
        assert shape is not None
        if position in _SHAPE_VALUES.get(kind, ()) and tensor.is_large:
            raise ValueError(
                f"{kind}: input {position} has {num_elements(shape):,} elements:"
                f" expected at most {MAX_FOLDED_ELEMENTS:,} of a constant that decides a shape"
            )
        if position in QUANTIZATION_PARAMETERS.get(kind, ()):
            return leaf(name, shape)  # calibration decides the values
        array = tensor.array if _may_have_value(tensor, shape, kind, position) else None
        if array is not None:
            return leaf(name, shape, elements_text(array, name))
        if tensor.origin == COMPUTED and tensor.dtype in FLOATS:
            return leaf(name, shape, UNKNOWN_VALUE, is_size=True)
        tie, learnt = mark
        return leaf(name, shape, tie=tie, learnt=learnt)


def _may_have_value(tensor: Tensor, shape: Dims, kind: str, position: int) -> bool:
    """Return True for a constant whose value is part of the text."""
    if not tensor.is_constant:
        return False
    if shape and position in INTEGER_WEIGHTS.get(kind, ()):
        return False
    size = num_elements(shape) or 0
    if tensor.dtype not in FLOATS:
        return size <= MAX_CONSTANT_ELEMENTS or position in _SHAPE_VALUES.get(kind, ())
    if position in _SINGLE_VALUES.get(kind, ()):
        return size == 1
    return not shape or (size <= MAX_CONSTANT_ELEMENTS and position in _FLOAT_VALUES.get(kind, ()))


def _deciding_uses(subgraphs: Sequence[tuple[str, FlatGraph]]) -> dict[int, tuple[str, int]]:
    """Return the operator and position that read a value in subgraphs, for values that belong to the text."""
    tables = (_FLOAT_VALUES, _SINGLE_VALUES, _SHAPE_VALUES)
    return {
        v: (op.kind, k)
        for _, graph in subgraphs
        for op in _all_ops(graph)
        for k, v in enumerate(op.inputs)
        if v is not None and any(k in table.get(op.kind, ()) for table in tables)
    }


def _without_long_attributes(kind: str, attributes: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return an operator of a classical model with the sizes of its learnt tables in place of their contents.

    The operator then has the domain LARGE_MODELS, in which ONNX expects no attributes.
    """
    if not kind.startswith("ai.onnx.ml."):
        return kind, attributes
    sizes = {name: _size_of(v) for name, v in attributes.items()}
    if all(size <= MAX_CONSTANT_ELEMENTS for size in sizes.values()):
        return kind, attributes
    short = {n: v for n, v in attributes.items() if sizes[n] <= MAX_CONSTANT_ELEMENTS}
    short |= {f"{n}_size": size for n, size in sizes.items() if size > MAX_CONSTANT_ELEMENTS}
    return f"{LARGE_MODELS}.{kind.rpartition('.')[2]}", short


def _size_of(value: Any) -> int:
    """Return the number of elements of an attribute."""
    if isinstance(value, TensorProto):
        return int(np.prod(value.dims))
    return value.size if isinstance(value, np.ndarray) else len(value) if isinstance(value, tuple) else 1


class _SubgraphTexts:
    """Writer of subgraphs as ONNX text in one line.

    Args:
        reader: the reader of the network.
        positions: values that the subgraphs read from outside, which are further inputs of the operation, and
            the position of each; the text has placeholders for them.
    """

    def __init__(self, reader: _Reader, positions: Mapping[int, int]) -> None:
        self.reader = reader
        self.names = {v: f"{PLACEHOLDER}{k}{PLACEHOLDER}" for v, k in positions.items()}
        self.num_names = 0

    def graph(self, name: str, graph: FlatGraph) -> str:
        """Return the text of a graph."""
        inputs = [self._define(v) for v in graph.inputs]
        statements = [self._statement(op) for op in graph.ops]
        own = {v for op in graph.ops for v in op.outputs}
        outputs = []
        for v in graph.outputs:
            if v in own:
                outputs.append(self._name(v))
            else:  # an input of the graph, or a value from outside
                outputs.append(f"s{self.num_names}")
                self.num_names += 1
                statements.append(f"{outputs[-1]}=Identity({self._name(v)})")
        return f"{name}({','.join(inputs)})=>({','.join(outputs)}){{{' '.join(statements)}}}"

    def _define(self, value: int) -> str:
        """Return the name of a new value."""
        self.names[value] = name = f"s{self.num_names}"
        self.num_names += 1
        return name

    def _name(self, value: int | None) -> str:
        """Return the name of a value."""
        return "" if value is None else self.names[value]

    def _statement(self, op: Op) -> str:
        """Return an operator as a statement."""
        attributes: Mapping[str, Any] = op.attributes
        args = [self._name(v) for v in op.inputs]
        if op.subgraphs:
            attributes = {**attributes} | {n: AttributeText(f"={self.graph(n, g)}") for n, g in op.subgraphs}
        domain, _, kind = op.kind.rpartition(".")
        opset = self.reader.opset_of(kind) if not domain else 1
        group = attributes.get(GROUP, 1) if op.kind in GROUPED_OPERATORS else 1
        text = operator_spec(kind, attributes, (...,), domain, opset).attrs.replace(
            f"{GROUP}@", f"{GROUP}={group}"
        )
        while args and not args[-1]:
            args.pop()
        outputs = ",".join([self._define(v) for v in op.outputs])
        return f"{outputs}={op.kind}{text}({','.join(args)})"
