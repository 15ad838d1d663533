"""ONNX models as graphs: names, defaults, metadata and exporter artefacts left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from nas_rlm.graph.ir import GROUP, Block, Leaf, Node, Pattern, Spec, leaf, spec

OPSET = 21  # of the text
MAX_BYTES = 512 * 1024 * 1024
MAX_NODES = 10_000
FOLDED = 4096  # constants of at most this many elements are computed, larger ones are weights
SMALL = 64  # integer constants of at most this many elements are part of the graph, not weights
DOMAIN = "f"  # of the text's own functions
_DOMAIN = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_GROUPED = ("Conv", "ConvTranspose")
_SIZED = ("ConstantOfShape", "Expand", "Reshape", "Resize", "Split", "Tile")
Scope = dict[str, int | Leaf | None]  # a value that a node computes, a leaf, or an input left out
_UNIT = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}


def load(source: onnx.ModelProto | str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> onnx.ModelProto:
    """A model from a file, refused with a clear error if it is not one or is larger than the limit."""
    if isinstance(source, onnx.ModelProto):
        return source
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"{source!r} is no ONNX model: expected a model or the path of a file")
    path = Path(source)
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder: expected an ONNX file")
    if not path.is_file():
        raise FileNotFoundError(f"no ONNX file at {str(path)!r}")
    size = path.stat().st_size
    if size > max_bytes:
        raise ValueError(f"{str(path)!r} has {size:,} bytes, more than the limit of {max_bytes:,}")
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{str(path)!r} is not an ONNX file: {error}") from None
    if not model.HasField("graph") or not model.opset_import:
        raise ValueError(f"{str(path)!r} is not an ONNX model: it has no graph or imports no operator set")
    _read_small(model, path)
    return model


def _read_small(model: onnx.ModelProto, path: Path) -> None:
    """Fetch small tensors from a model's other files: the values of integers and scalars are in the text."""
    for tensor in model.graph.initializer:
        is_small = int(np.prod(tensor.dims)) <= FOLDED
        if tensor.data_location == TensorProto.EXTERNAL and is_small:
            try:
                load_external_data_for_tensor(tensor, str(path.parent))
            except (OSError, ValueError, onnx.checker.ValidationError) as error:
                if tensor.data_type in _FLOATS and len(tensor.dims) > 0:
                    continue  # a weight, whose shape is enough
                raise ValueError(
                    f"{str(path)!r} keeps the values of {tensor.name!r} elsewhere: {error}"
                ) from None
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def weight_name(type_name: str, shape: tuple[int, ...]) -> str:
    """The name of a weight in the text: its shape, and its type unless that is float."""
    return ("W" if type_name == "float" else f"{type_name}_") + "_".join(map(str, shape))


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its local functions called in place."""
    nodes = _nodes(model)
    if nodes > MAX_NODES:
        raise ValueError(f"the graph has {nodes:,} nodes, more than the limit of {MAX_NODES:,}")
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _nodes(model: onnx.ModelProto) -> int:
    """Nodes of the flat graph, counted without making it."""
    functions = {(f.domain, f.name): f for f in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count_of(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(called((n.domain, n.op_type)) if (n.domain, n.op_type) in functions else 1 for n in nodes)

    def called(key: tuple[str, str]) -> int:
        if key not in counts:
            counts[key] = 0  # a function that calls itself is refused by ONNX's checker
            counts[key] = count_of(functions[key].node)
        return counts[key]

    return count_of(model.graph.node)


def read(model: onnx.ModelProto) -> Block:
    """The graph of a model without local functions."""
    return _Reader(model).network()


def _type_name(elem_type: int) -> str:
    return TensorProto.DataType.Name(elem_type).lower()


def _shape(tensor_type: onnx.TypeProto.Tensor, symbols: dict[str, str]) -> str:
    dims = []
    for d in tensor_type.shape.dim:
        if d.HasField("dim_value"):
            dims.append(str(d.dim_value))
        else:
            dims.append(symbols.setdefault(d.dim_param or f"?{len(symbols)}", f"N{len(symbols)}"))
    return f"[{','.join(dims)}]" if dims else ""


def _number(value: float) -> str:
    text = repr(float(str(np.float32(value))))
    return text if any(c in text for c in ".en") else f"{text}.0"


def constant(array: np.ndarray) -> Leaf:
    """A small integer or scalar constant is known by its value, anything else by its shape."""
    if array.dtype == object or array.size > SMALL or (array.dtype.kind == "f" and array.ndim > 0):
        return leaf(_type_name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)
    kind = _type_name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    is_whole = array.dtype.kind in "iub" or kind.startswith(("int", "uint"))
    text = [str(int(v)) if is_whole else _number(float(v)) for v in array.reshape(-1)]
    return leaf(kind, array.shape, ",".join(text))


def _tensor_leaf(tensor: TensorProto) -> Leaf:
    elements = int(np.prod(tensor.dims)) if tensor.dims else 1
    kind = _type_name(tensor.data_type)
    is_weight = elements > SMALL or (
        len(tensor.dims) > 0 and kind in ("float", "float16", "double", "bfloat16")
    )
    if is_weight or tensor.data_location == TensorProto.EXTERNAL:
        return leaf(kind, tuple(tensor.dims))
    return constant(numpy_helper.to_array(tensor))


def operator(
    kind: str, attributes: Sequence[AttributeProto], pattern: Pattern, domain: str = "", opset: int = OPSET
) -> Spec:
    """What an operator does, its attributes at their defaults left out.

    Args:
        kind: the operator.
        attributes: its attributes.
        pattern: its inputs.
        domain: of the operator; empty for ONNX's own.
        opset: the version that defines the defaults.
    """
    while pattern and pattern[-1] is None:
        pattern = pattern[:-1]
    if domain and (domain == DOMAIN or not _DOMAIN.fullmatch(domain)):
        raise ValueError(f"the domain {domain!r} of {kind} has no place in the text: call it otherwise")
    name = f"{domain}.{kind}" if domain else kind
    groups = [a.i for a in attributes if a.name == GROUP and a.i > 1 and name in _GROUPED]
    if name in _SIZED:
        pattern = tuple([_as_size(a) if isinstance(a, Leaf) else a for a in pattern])
    shown = []
    for a in sorted(attributes, key=lambda a: a.name):
        if a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise ValueError(f"{kind} holds a subgraph: control flow has no text form, unroll it first")
        value = onnx.helper.get_attribute_value(a)
        if a.name == GROUP and name in _GROUPED:
            shown += [f"{GROUP}@"] * (a.i > 1)
        elif not _is_default(kind, domain, opset, a.name, value):
            shown.append(f"{a.name}{_attribute(a.type, value)}")
    handed = [leaf(GROUP, (), str(g), is_size=True) for g in groups]
    return spec(name, f"<{','.join(shown)}>" if shown else "", (*pattern, *handed))


def _as_size(constant: Leaf) -> Leaf:
    if constant.value is None:
        return constant
    return leaf(constant.type, constant.shape, constant.value, is_size=True)


def _is_default(kind: str, domain: str, opset: int, name: str, value: object) -> bool:
    if name in _UNIT and isinstance(value, list):
        return all(v == _UNIT[name] for v in value)
    if name == "kernel_shape" and kind in _GROUPED:
        return True
    try:
        schema = onnx.defs.get_schema(kind, opset, domain)
    except onnx.defs.SchemaError:
        return False
    known = schema.attributes.get(name)
    if known is None or known.default_value.type == AttributeProto.UNDEFINED:
        return False
    return bool(onnx.helper.get_attribute_value(known.default_value) == value)


class _Reader:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
        self.fresh = count()

    def network(self) -> Block:
        graph = self.model.graph
        scope: Scope = {"": None}
        scope.update({t.name: _tensor_leaf(t) for t in graph.initializer})
        symbols: dict[str, str] = {}
        inputs, types = [], []
        for i in graph.input:
            if i.name in scope:
                continue
            tensor = i.type.tensor_type
            if tensor.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
                raise ValueError(f"input {i.name!r} is no tensor of numbers, and so has no place in the text")
            shape = tuple(d.dim_value for d in tensor.shape.dim)
            if shape and i.name == weight_name(_type_name(tensor.elem_type), shape):
                scope[i.name] = leaf(_type_name(tensor.elem_type), shape)
                continue
            scope[i.name] = next(self.fresh)
            inputs.append(scope[i.name])
            types.append(_type_name(tensor.elem_type) + _shape(tensor, symbols))
        nodes = self.body(graph.node, scope)
        outputs = []
        for o in graph.output:
            value = scope.get(o.name)
            if not isinstance(value, int):
                raise ValueError(f"output {o.name!r} is computed by no node of the graph")
            outputs.append(value)
        if not outputs:
            raise ValueError(f"the graph {graph.name!r} has no outputs")
        if not nodes:
            raise ValueError(f"the graph {graph.name!r} has no operators, so there is nothing to read")
        output_types = tuple(
            _type_name(o.type.tensor_type.elem_type) + _shape(o.type.tensor_type, symbols)
            for o in graph.output
        )
        return Block(
            tuple(v for v in inputs if isinstance(v, int)),
            tuple(outputs),
            nodes,
            input_types=tuple(types),
            output_types=output_types,
        )

    def body(self, protos: Iterable[onnx.NodeProto], scope: Scope) -> list[Node]:
        nodes = []
        for proto in protos:
            try:
                args = [scope[name] for name in proto.input]
            except KeyError as missing:
                raise ValueError(
                    f"node {proto.op_type} reads {missing.args[0]!r}, which nothing before it defines"
                ) from None
            if proto.op_type == "Constant" and not proto.domain:
                scope[proto.output[0]] = self.leaf_of(proto)
            elif proto.op_type == "Identity" and not proto.domain:
                scope[proto.output[0]] = args[0]
            else:
                nodes.append(self.node(proto, args, scope))
        return nodes

    def node(self, proto: onnx.NodeProto, args: list[int | Leaf | None], scope: Scope) -> Node:
        outs = tuple(next(self.fresh) for _ in proto.output)
        scope.update(zip((o for o in proto.output), outs, strict=True))
        scope[""] = None
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if not domain and not onnx.defs.has(proto.op_type):
            raise ValueError(f"ONNX has no operator {proto.op_type!r}: expected one of its own, or a domain")
        pattern = tuple(... if isinstance(a, int) else a for a in args)
        done = operator(proto.op_type, proto.attribute, pattern, domain, self.opset)
        return Node(done, tuple(a for a in args if isinstance(a, int)), outs)

    def leaf_of(self, proto: onnx.NodeProto) -> Leaf:
        attribute = proto.attribute[0]
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return _tensor_leaf(value)
        if attribute.name in ("value_int", "value_ints"):
            return constant(np.array(value, dtype=np.int64))
        if attribute.name in ("value_float", "value_floats"):
            return constant(np.array(value, dtype=np.float32))
        raise ValueError(
            f"a Constant with {attribute.name!r} is not supported: expected a tensor, ints or floats"
        )


def _attribute(kind: int, value: object) -> str:
    if kind == AttributeProto.TENSOR:
        assert isinstance(value, TensorProto)
        array = numpy_helper.to_array(value)
        if array.size > SMALL:
            raise ValueError(
                f"an attribute holds a tensor of {array.size:,} elements; expected at most {SMALL}"
            )
        shape = f"[{','.join(map(str, array.shape))}]" if array.ndim else ""
        elements = ",".join(_scalar(v) for v in array.reshape(-1).tolist())
        return f"={_type_name(value.data_type)}{shape}{{{elements}}}"
    if isinstance(value, list | tuple):
        items = ",".join(_scalar(v) for v in value)
        return f"=[{items}]" if items else f":{AttributeProto.AttributeType.Name(kind).lower()}=[]"
    return f"={_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, bytes):
        return '"' + value.decode("utf-8", "replace").replace("\\", "\\\\").replace('"', '\\"') + '"'
    return _number(value) if isinstance(value, float) else str(int(value))  # type: ignore[call-overload]
