"""Reading of ONNX models as flat graphs: functions inlined, values numbered, attributes as Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import onnx
from onnx import AttributeProto, TypeProto

from nas_rlm.graph.limits import DEFAULT_LIMITS, Limits
from nas_rlm.graph.onnx_graphs.stored_tensors import (
    _ELEMENT_TYPES,
    attribute_value,
    declared_tensor,
    input_types,
    stored_tensor,
)
from nas_rlm.graph.onnx_graphs.tensors import (
    STORED,
    Tensor,
    check_shape,
)

OPSET = 21  # operator set of the text
MIN_OPSET, MAX_OPSET = 6, onnx.defs.onnx_opset_version()  # operator sets that are read
STANDARD_DOMAINS = ("", "ai.onnx")
LARGE_MODELS = "large.ai.onnx.ml"  # domain of classical models whose tables are not part of the text
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_UNDECLARED = ("SimplifiedLayerNormalization",)  # operators that onnxruntime writes without their domain


class Op:
    """An operator of a flat graph.

    Args:
        kind: name of the operator, after its domain and a dot if that is not ONNX's own.
        attributes: values by name: int, float, bytes, tuples of them, NumPy arrays, or `FlatGraph`.
        inputs: numbers of the values that it reads; None for an omitted one.
        outputs: numbers of the values that it defines.
        opset: operator set of the function that it comes from, if that is not the model's.
    """

    __slots__ = ("attributes", "inputs", "kind", "opset", "outputs")

    def __init__(
        self,
        kind: str,
        attributes: dict[str, Any],
        inputs: tuple[int | None, ...],
        outputs: tuple[int, ...],
        opset: int | None = None,
    ) -> None:
        self.kind, self.attributes, self.inputs, self.outputs = kind, attributes, inputs, outputs
        self.opset = opset

    @property
    def subgraphs(self) -> list[tuple[str, FlatGraph]]:
        """The subgraphs of a control flow operator, by the names of their attributes."""
        if not self.attributes or (self.kind not in CONTROL_FLOW and "." not in self.kind):
            return []
        return sorted((name, v) for name, v in self.attributes.items() if isinstance(v, FlatGraph))

    def reads(self) -> list[int]:
        """Return the values that the operator reads, including those that its subgraphs capture."""
        values = [v for v in self.inputs if v is not None]
        for _, graph in self.subgraphs:
            values += graph.captured()
        return values

    def changed(self, inputs: Sequence[int | None] | None = None, **attributes: Any) -> Op:
        """Return a copy with other inputs or attributes; the value None removes an attribute."""
        merged = {k: v for k, v in (self.attributes | attributes).items() if v is not None}
        return Op(self.kind, merged, self.inputs if inputs is None else tuple(inputs), self.outputs)

    def with_outputs(self, outputs: tuple[int, ...]) -> Op:
        """Return a copy that defines other values."""
        return Op(self.kind, self.attributes, self.inputs, outputs)


class FlatGraph:
    """A graph without local functions.

    Args:
        inputs: numbers of the input values.
        outputs: numbers of the output values.
        ops: operators in topological order.

    Attributes:
        has_text_opset: True if the graph is normalized: the operators are those of the text's operator set.
    """

    __slots__ = ("has_text_opset", "inputs", "ops", "outputs")

    def __init__(self, inputs: list[int], outputs: list[int], ops: list[Op]) -> None:
        self.inputs, self.outputs, self.ops = inputs, outputs, ops
        self.has_text_opset = False

    def copy(self) -> FlatGraph:
        """Return a copy whose subgraphs are copies too."""
        ops = []
        for op in self.ops:
            attributes = op.attributes | {name: graph.copy() for name, graph in op.subgraphs}
            ops.append(Op(op.kind, attributes, op.inputs, op.outputs, op.opset) if op.subgraphs else op)
        copy = FlatGraph(list(self.inputs), list(self.outputs), ops)
        copy.has_text_opset = self.has_text_opset
        return copy

    def replace(self, other: FlatGraph) -> None:
        """Take over the contents of another graph."""
        self.inputs, self.outputs, self.ops = other.inputs, other.outputs, other.ops
        self.has_text_opset = other.has_text_opset

    def captured(self) -> list[int]:
        """Return the values that the graph reads from outside."""
        own = {v for op in self.ops for v in op.outputs}.union(self.inputs)
        reads = [v for op in self.ops for v in op.reads()] + self.outputs
        return list(dict.fromkeys(v for v in reads if v not in own))


class Network(NamedTuple):
    """A model as a flat graph.

    Args:
        graph: the graph.
        tensors: what is known of each value, by number.
        names: names of the inputs and outputs in the file.
        output_types: types of the outputs as the file declares them.
        opset: operator set of ONNX's own operators in the file.
        new_value: function that returns an unused number of a value.
    """

    graph: FlatGraph
    tensors: dict[int, Tensor]
    names: dict[int, str]
    output_types: list[TypeProto]
    opset: int
    new_value: Callable[[], int]


def read_network(
    model: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Network:
    """Return a model as a flat graph.

    Args:
        model: the model; it is not changed.
        shapes: shapes of inputs with open sizes, by name.
        limits: limits on the number of nodes and the depth.

    Raises:
        ValueError: the model is not valid, or exceeds a limit.
    """
    return _Reader(model, limits).network(shapes or {})


class _Scope(NamedTuple):
    """Names of values in a graph or function, and the attributes of the function's call."""

    values: dict[str, int | None]
    outer: _Scope | None
    attributes: Mapping[str, AttributeProto]

    def lookup(self, name: str) -> int | None:
        """Return the number of a value; None for an omitted input."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)


class _Reader:
    """Reader of a model; `tensors` has what is known of each value."""

    def __init__(self, model: onnx.ModelProto, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self.functions = {(_domain(f.domain), f.name): f for f in model.functions}
        self.opsets = _operator_sets(model.opset_import)
        self.next_value = count()
        self.tensors: dict[int, Tensor] = {}
        self.num_nodes = 0

    def network(self, shapes: Mapping[str, Sequence[int]]) -> Network:
        """Return the model's graph."""
        proto = self.model.graph
        if not proto.output:
            raise ValueError(f"the graph {proto.name!r} has no outputs")
        if not proto.node:
            raise ValueError(f"the graph {proto.name!r} has no operators: expected at least one node")
        scope = _Scope({"": None}, None, {})
        stored = self._read_stored(proto, scope)
        graph_inputs = [i for i in proto.input if i.name not in stored]
        types = input_types(self.model, shapes)
        inputs: list[int] = []
        for value in graph_inputs:
            if value.name in scope.values:
                raise ValueError(f"the input {value.name!r} is defined twice")
            tensor = types[value.name]
            scope.values[value.name] = number = self._new(tensor)
            if tensor.is_static:
                continue
            inputs.append(number)
        ops = self._read_nodes(proto.node, scope, 0)
        outputs = self._outputs(proto.output, scope)
        names = {n: i.name for i in graph_inputs if (n := scope.values[i.name]) is not None}
        names |= {n: o.name for n, o in zip(outputs, proto.output, strict=True) if n not in names}
        opset = self.opsets.get("", OPSET)
        graph = FlatGraph(inputs, outputs, ops)
        output_types = [o.type for o in proto.output]
        return Network(graph, self.tensors, names, output_types, opset, self.next_value.__next__)

    def _new(self, tensor: Tensor) -> int:
        """Return the number of a new value of which this is known."""
        number = next(self.next_value)
        self.tensors[number] = tensor
        return number

    def _read_stored(self, proto: onnx.GraphProto, scope: _Scope) -> set[str]:
        """Add the initialisers of a graph to the scope; return their names."""
        for t in proto.initializer:
            if t.name in scope.values:
                raise ValueError(f"the initialiser {t.name!r} is defined twice")
            scope.values[t.name] = number = self._new(stored_tensor(t))
            self._set_source(number)
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            if not name or name in scope.values:
                raise ValueError(f"the sparse initialiser {name!r} has no name of its own")
            check_shape(tuple(sparse.dims), f"the sparse initialiser {name!r}")
            if sparse.values.data_type not in _ELEMENT_TYPES:
                raise ValueError(f"the sparse initialiser {name!r} has the type {sparse.values.data_type}")
            tensor = Tensor(sparse.values.data_type, tuple(sparse.dims), origin=STORED)
            scope.values[name] = number = self._new(tensor)
            self._set_source(number)
        return {name for name in scope.values if name}

    def _set_source(self, number: int) -> None:
        """Make a stored value its own source if it may be a weight."""
        if self.tensors[number].may_be_learnt:
            self.tensors[number].sources = frozenset((number,))

    def _outputs(self, protos: Iterable[onnx.ValueInfoProto], scope: _Scope) -> list[int]:
        """Return the numbers of the outputs of a graph."""
        outputs = []
        for o in protos:
            try:
                value = scope.lookup(o.name)
            except KeyError:
                value = None
            if value is None:
                raise ValueError(f"output {o.name!r} is computed by no node of the graph")
            outputs.append(value)
        return outputs

    def _read_nodes(self, protos: Iterable[onnx.NodeProto], scope: _Scope, depth: int) -> list[Op]:
        """Return nodes as operators, with functions inlined; defined names are added to the scope."""
        if depth > self.limits.max_depth:
            raise ValueError(
                f"functions or subgraphs are nested deeper than the limit of {self.limits.max_depth}"
            )
        ops: list[Op] = []
        for proto in _in_order(list(protos), scope):
            try:
                inputs = tuple(
                    [scope.values[n] if n in scope.values else scope.lookup(n) for n in proto.input]
                )
            except KeyError as missing:
                raise ValueError(
                    f"node {proto.op_type} reads {missing.args[0]!r}, which no earlier node defines"
                ) from None
            domain = _domain(proto.domain)
            function = self.functions.get((domain, proto.op_type)) if self.functions else None
            if function is not None:
                ops += self._inline(function, proto, inputs, scope, depth)
                continue
            self.num_nodes += 1
            if self.num_nodes > self.limits.max_nodes:
                raise ValueError(f"the graph has more nodes than the limit of {self.limits.max_nodes:,}")
            attributes = {}
            for a in proto.attribute:
                attribute = self._attribute(a, scope, depth)
                if attribute is not None:
                    attributes[a.name] = attribute
            outputs = tuple([self._define(name, scope, proto.op_type) for name in proto.output])
            if proto.op_type in _UNDECLARED and not domain:
                domain = "com.microsoft"
            if not domain and "." in proto.op_type:
                raise ValueError(f"ONNX has no operator {proto.op_type!r}: expected a name without a dot")
            kind = f"{domain}.{proto.op_type}" if domain else proto.op_type
            ops.append(Op(kind, attributes, inputs, outputs, self.opsets.get("")))
        return ops

    def _define(self, name: str, scope: _Scope, kind: str) -> int:
        """Return the number of a new value, added to the scope."""
        number = next(self.next_value)
        if name:
            if name in scope.values:
                raise ValueError(f"node {kind} defines {name!r}, which is already defined")
            scope.values[name] = number
        return number

    def _inline(
        self,
        function: onnx.FunctionProto,
        proto: onnx.NodeProto,
        inputs: Sequence[int | None],
        scope: _Scope,
        depth: int,
    ) -> list[Op]:
        """Return the operators of a function for one call of it."""
        if len(inputs) > len(function.input) or len(proto.output) > len(function.output):
            raise ValueError(f"the call of the function {proto.op_type} has more arguments than the function")
        given = {a.name: a for a in proto.attribute}
        attributes = {a.name: a for a in function.attribute_proto} | {
            name: self._resolved(a, scope) for name, a in given.items()
        }
        values: dict[str, int | None] = {"": None, **dict.fromkeys(function.input)}
        values |= dict(zip(function.input, inputs, strict=False))
        inner = _Scope(values, None, {k: a for k, a in attributes.items() if a is not None})
        outer_opsets = self.opsets
        self.opsets = outer_opsets | _operator_sets(function.opset_import)
        ops = self._read_nodes(function.node, inner, depth + 1)
        self.opsets = outer_opsets
        for name, result in zip(proto.output, function.output, strict=False):
            if name:
                if name in scope.values:
                    raise ValueError(f"node {proto.op_type} defines {name!r}, which is already defined")
                if result not in values:
                    raise ValueError(f"the function {proto.op_type} does not define its output {result!r}")
                scope.values[name] = values[result]
        return ops

    def _resolved(self, attribute: AttributeProto, scope: _Scope) -> AttributeProto | None:
        """Return an attribute, or the one of the enclosing function's call that it refers to."""
        return scope.attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute

    def _attribute(self, attribute: AttributeProto, scope: _Scope, depth: int) -> Any:
        """Return the value of an attribute; None if it is not set."""
        resolved = self._resolved(attribute, scope)
        if resolved is None:
            return None
        if resolved.type == AttributeProto.GRAPH:
            return self._subgraph(resolved.g, scope, depth)
        return attribute_value(resolved)

    def _subgraph(self, proto: onnx.GraphProto, scope: _Scope, depth: int) -> FlatGraph:
        """Return a subgraph, which may read values of the enclosing graphs."""
        inner = _Scope({}, scope, scope.attributes)
        self._read_stored(proto, inner)
        inputs = []
        for value in proto.input:
            if value.name in inner.values:
                continue  # an input with a default value
            inner.values[value.name] = number = self._new(declared_tensor(value.type))
            inputs.append(number)
        ops = self._read_nodes(proto.node, inner, depth + 1)
        return FlatGraph(inputs, self._outputs(proto.output, inner), ops)


def _in_order(protos: list[onnx.NodeProto], scope: _Scope) -> list[onnx.NodeProto]:
    """Return nodes in topological order, as they are if they have one; some converters append nodes."""
    defined, is_sorted = set[str](), True
    outputs = {name for proto in protos for name in proto.output if name}
    for proto in protos:
        if is_sorted and any(n not in defined and n in outputs for n in proto.input if n not in scope.values):
            is_sorted = False
        defined.update(proto.output)
    if is_sorted:
        return protos
    waiting = {id(p): {n for n in _names_read(p) if n in outputs and n not in scope.values} for p in protos}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for proto in protos:
        for name in waiting[id(proto)]:
            readers.setdefault(name, []).append(proto)
    ready, ordered = [p for p in protos if not waiting[id(p)]], list[onnx.NodeProto]()
    while ready:
        ordered.append(ready.pop(0))
        for name in ordered[-1].output:
            for reader in readers.pop(name, ()):
                waiting[id(reader)].discard(name)
                if not waiting[id(reader)]:
                    ready.append(reader)
    return ordered if len(ordered) == len(protos) else protos


def _names_read(proto: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and its subgraphs read."""
    yield from proto.input
    for a in proto.attribute:
        for inner in a.g.node if a.type == AttributeProto.GRAPH else ():
            yield from _names_read(inner)
        if a.type == AttributeProto.GRAPH:
            yield from (o.name for o in a.g.output)


def _domain(domain: str) -> str:
    """Return a domain; empty for ONNX's own."""
    return "" if domain in STANDARD_DOMAINS else domain


def _operator_sets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Return versions by domain.

    Raises:
        ValueError: ONNX's own operators have a version that is not read.
    """
    versions = {_domain(o.domain): o.version for o in imports}
    version = versions.get("", OPSET)
    if not MIN_OPSET <= version <= MAX_OPSET:
        raise ValueError(
            f"operator set {version}: expected {MIN_OPSET} to {MAX_OPSET}; convert the model"
            " with onnx.version_converter"
        )
    return versions
