"""Reading of ONNX models as graphs, without names, default attributes and metadata."""

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

OPSET = 21  # operator set of the text
MAX_BYTES = 512 * 1024 * 1024  # of an ONNX file
MAX_NODES = 10_000
MAX_FOLDED_ELEMENTS = 4096  # larger constants are weights
MAX_CONSTANT_ELEMENTS = 64  # larger integer constants are weights
FUNCTION_DOMAIN = "f"  # domain of local functions in the text
_DOMAIN = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_GROUPED_OPERATORS = ("Conv", "ConvTranspose")
_SIZE_OPERATORS = ("ConstantOfShape", "Expand", "Reshape", "Resize", "Split", "Tile")
Scope = dict[str, int | Leaf | None]  # by name: value id, leaf, or None for an omitted input
_DEFAULT_VALUES = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}


def load(source: onnx.ModelProto | str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> onnx.ModelProto:
    """Load an ONNX model.

    Args:
        source: path to an ONNX file; a model is returned as it is.
        max_bytes: maximum size of the file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not an ONNX model or is larger than `max_bytes`.
    """
    if isinstance(source, onnx.ModelProto):
        return source
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"{source!r} is not an ONNX model: expected a model or the path of a file")
    path = Path(source)
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a directory: expected an ONNX file")
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
    _load_small_tensors(model, path)
    return model


def _load_small_tensors(model: onnx.ModelProto, path: Path) -> None:
    """Load small tensors from external data files, since the text has the values of integers and scalars."""
    for tensor in model.graph.initializer:
        is_small = int(np.prod(tensor.dims)) <= MAX_FOLDED_ELEMENTS
        if tensor.data_location == TensorProto.EXTERNAL and is_small:
            try:
                load_external_data_for_tensor(tensor, str(path.parent))
            except (OSError, ValueError, onnx.checker.ValidationError) as error:
                if tensor.data_type in _FLOATS and len(tensor.dims) > 0:
                    continue  # a weight: the shape is enough
                raise ValueError(
                    f"{str(path)!r} has external data for {tensor.name!r} that cannot be read: {error}"
                ) from None
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def weight_name(type_name: str, shape: tuple[int, ...]) -> str:
    """Return the name of a weight in the text: its shape, and its type unless that is float."""
    return ("W" if type_name == "float" else f"{type_name}_") + "_".join(map(str, shape))


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its local functions inlined.

    Raises:
        ValueError: the inlined model would have more than MAX_NODES nodes.
    """
    num_nodes = _count_nodes(model)
    if num_nodes > MAX_NODES:
        raise ValueError(f"the graph has {num_nodes:,} nodes, more than the limit of {MAX_NODES:,}")
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _count_nodes(model: onnx.ModelProto) -> int:
    """Return the number of nodes that the model would have with functions inlined."""
    functions = {(f.domain, f.name): f for f in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count_all(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(
            count_in_function((n.domain, n.op_type)) if (n.domain, n.op_type) in functions else 1
            for n in nodes
        )

    def count_in_function(key: tuple[str, str]) -> int:
        if key not in counts:
            counts[key] = 0  # prevents endless recursion; ONNX's checker refuses recursive functions
            counts[key] = count_all(functions[key].node)
        return counts[key]

    return count_all(model.graph.node)


def read_graph(model: onnx.ModelProto) -> Block:
    """Return the graph of a model without local functions.

    Raises:
        ValueError: the graph has no operators or outputs, reads an undefined value, or has a subgraph.
    """
    return _Reader(model).read_network()


def _type_name(elem_type: int) -> str:
    """Return the name of an ONNX element type, such as `float`."""
    return TensorProto.DataType.Name(elem_type).lower()


def _shape_text(tensor_type: onnx.TypeProto.Tensor, symbols: dict[str, str]) -> str:
    """Return a shape as ONNX text; names of open sizes become N0, N1, ..., recorded in `symbols`."""
    dims = []
    for d in tensor_type.shape.dim:
        if d.HasField("dim_value"):
            dims.append(str(d.dim_value))
        else:
            dims.append(symbols.setdefault(d.dim_param or f"?{len(symbols)}", f"N{len(symbols)}"))
    return f"[{','.join(dims)}]" if dims else ""


def _float_text(value: float) -> str:
    """Return the shortest text of a float32 value."""
    text = repr(float(str(np.float32(value))))
    return text if any(c in text for c in ".en") else f"{text}.0"


def constant_leaf(array: np.ndarray) -> Leaf:
    """Return the leaf of a constant: with its value if it is a scalar or a few integers, else its shape."""
    if (
        array.dtype == object
        or array.size > MAX_CONSTANT_ELEMENTS
        or (array.dtype.kind == "f" and array.ndim > 0)
    ):
        return leaf(_type_name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)
    kind = _type_name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    is_integer = array.dtype.kind in "iub" or kind.startswith(("int", "uint"))
    text = [str(int(v)) if is_integer else _float_text(float(v)) for v in array.reshape(-1)]
    return leaf(kind, array.shape, ",".join(text))


def _tensor_leaf(tensor: TensorProto) -> Leaf:
    """Return the leaf of an initialiser: with its value if it is small and not a weight, else its shape."""
    elements = int(np.prod(tensor.dims)) if tensor.dims else 1
    kind = _type_name(tensor.data_type)
    is_weight = elements > MAX_CONSTANT_ELEMENTS or (
        len(tensor.dims) > 0 and kind in ("float", "float16", "double", "bfloat16")
    )
    if is_weight or tensor.data_location == TensorProto.EXTERNAL:
        return leaf(kind, tuple(tensor.dims))
    return constant_leaf(numpy_helper.to_array(tensor))


def operator_spec(
    kind: str, attributes: Sequence[AttributeProto], pattern: Pattern, domain: str = "", opset: int = OPSET
) -> Spec:
    """Return an operator as an operation, without attributes that have their default values.

    Args:
        kind: name of the operator.
        attributes: attributes of the operator.
        pattern: inputs of the operator, see `nas_rlm.graph.ir.Pattern`.
        domain: domain of the operator; empty for ONNX's own.
        opset: version of the operator set that defines the defaults.

    Raises:
        ValueError: the operator has a subgraph, or its domain cannot be written as ONNX text.
    """
    while pattern and pattern[-1] is None:
        pattern = pattern[:-1]
    if domain and (domain == FUNCTION_DOMAIN or not _DOMAIN.fullmatch(domain)):
        raise ValueError(
            f"the domain {domain!r} of {kind} cannot be written:"
            f" expected a dotted name other than {FUNCTION_DOMAIN!r}"
        )
    name = f"{domain}.{kind}" if domain else kind
    groups = [a.i for a in attributes if a.name == GROUP and a.i > 1 and name in _GROUPED_OPERATORS]
    if name in _SIZE_OPERATORS:
        pattern = tuple([_as_size(a) if isinstance(a, Leaf) else a for a in pattern])
    written = []
    for a in sorted(attributes, key=lambda a: a.name):
        if a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise ValueError(
                f"{kind} has a subgraph: control flow is not supported, unroll it before the export"
            )
        value = onnx.helper.get_attribute_value(a)
        if a.name == GROUP and name in _GROUPED_OPERATORS:
            written += [f"{GROUP}@"] * (a.i > 1)
        elif not _is_default(kind, domain, opset, a.name, value):
            written.append(f"{a.name}{_attribute_text(a.type, value)}")
    leaves = [leaf(GROUP, (), str(g), is_size=True) for g in groups]
    return spec(name, f"<{','.join(written)}>" if written else "", (*pattern, *leaves))


def _as_size(constant: Leaf) -> Leaf:
    """Return a constant with `is_size` set."""
    if constant.value is None:
        return constant
    return leaf(constant.type, constant.shape, constant.value, is_size=True)


def _is_default(kind: str, domain: str, opset: int, name: str, value: object) -> bool:
    """Return True if an attribute has its default value, or is the kernel shape, which the weight implies."""
    if name in _DEFAULT_VALUES and isinstance(value, list):
        return all(v == _DEFAULT_VALUES[name] for v in value)
    if name == "kernel_shape" and kind in _GROUPED_OPERATORS:
        return True
    try:
        schema = onnx.defs.get_schema(kind, opset, domain)
    except onnx.defs.SchemaError:
        return False
    default = schema.attributes.get(name)
    if default is None or default.default_value.type == AttributeProto.UNDEFINED:
        return False
    return bool(onnx.helper.get_attribute_value(default.default_value) == value)


class _Reader:
    """Reader of an ONNX model without local functions; a scope maps names of values to ids or leaves."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
        self.value_ids = count()

    def read_network(self) -> Block:
        """Return the network with its inputs and outputs."""
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
                raise ValueError(
                    f"input {i.name!r} has no numeric tensor type: expected floats, integers or booleans"
                )
            shape = tuple(d.dim_value for d in tensor.shape.dim)
            if shape and i.name == weight_name(_type_name(tensor.elem_type), shape):
                scope[i.name] = leaf(_type_name(tensor.elem_type), shape)
                continue
            scope[i.name] = next(self.value_ids)
            inputs.append(scope[i.name])
            types.append(_type_name(tensor.elem_type) + _shape_text(tensor, symbols))
        nodes = self.read_nodes(graph.node, scope)
        outputs = []
        for o in graph.output:
            value = scope.get(o.name)
            if not isinstance(value, int):
                raise ValueError(f"output {o.name!r} is computed by no node of the graph")
            outputs.append(value)
        if not outputs:
            raise ValueError(f"the graph {graph.name!r} has no outputs")
        if not nodes:
            raise ValueError(f"the graph {graph.name!r} has no operators: expected at least one node")
        output_types = tuple(
            _type_name(o.type.tensor_type.elem_type) + _shape_text(o.type.tensor_type, symbols)
            for o in graph.output
        )
        return Block(
            tuple(v for v in inputs if isinstance(v, int)),
            tuple(outputs),
            nodes,
            input_types=tuple(types),
            output_types=output_types,
        )

    def read_nodes(self, protos: Iterable[onnx.NodeProto], scope: Scope) -> list[Node]:
        """Return the nodes, without constants and Identity; names of defined values are added to `scope`."""
        nodes = []
        for proto in protos:
            try:
                args = [scope[name] for name in proto.input]
            except KeyError as missing:
                raise ValueError(
                    f"node {proto.op_type} reads {missing.args[0]!r}, which no earlier node defines"
                ) from None
            if proto.op_type == "Constant" and not proto.domain:
                scope[proto.output[0]] = self.constant_node_leaf(proto)
            elif proto.op_type == "Identity" and not proto.domain:
                scope[proto.output[0]] = args[0]
            else:
                nodes.append(self.read_node(proto, args, scope))
        return nodes

    def read_node(self, proto: onnx.NodeProto, args: list[int | Leaf | None], scope: Scope) -> Node:
        """Return a node with the inputs `args`; names of its outputs are added to `scope`."""
        outs = tuple(next(self.value_ids) for _ in proto.output)
        scope.update(zip((o for o in proto.output), outs, strict=True))
        scope[""] = None
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if not domain and not onnx.defs.has(proto.op_type):
            raise ValueError(
                f"ONNX has no operator {proto.op_type!r}: expected a standard operator, or one with a domain"
            )
        pattern = tuple(... if isinstance(a, int) else a for a in args)
        operation = operator_spec(proto.op_type, proto.attribute, pattern, domain, self.opset)
        return Node(operation, tuple(a for a in args if isinstance(a, int)), outs)

    def constant_node_leaf(self, proto: onnx.NodeProto) -> Leaf:
        """Return the leaf of a Constant operator."""
        attribute = proto.attribute[0]
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return _tensor_leaf(value)
        if attribute.name in ("value_int", "value_ints"):
            return constant_leaf(np.array(value, dtype=np.int64))
        if attribute.name in ("value_float", "value_floats"):
            return constant_leaf(np.array(value, dtype=np.float32))
        raise ValueError(
            f"a Constant with {attribute.name!r} is not supported: expected a tensor, ints or floats"
        )


def _attribute_text(kind: int, value: object) -> str:
    """Return the type and value of an attribute as ONNX text."""
    if kind == AttributeProto.TENSOR:
        assert isinstance(value, TensorProto)
        array = numpy_helper.to_array(value)
        if array.size > MAX_CONSTANT_ELEMENTS:
            raise ValueError(
                f"an attribute is a tensor of {array.size:,} elements:"
                f" expected at most {MAX_CONSTANT_ELEMENTS}"
            )
        shape = f"[{','.join(map(str, array.shape))}]" if array.ndim else ""
        elements = ",".join(_scalar_text(v) for v in array.reshape(-1).tolist())
        return f"={_type_name(value.data_type)}{shape}{{{elements}}}"
    if isinstance(value, list | tuple):
        items = ",".join(_scalar_text(v) for v in value)
        return f"=[{items}]" if items else f":{AttributeProto.AttributeType.Name(kind).lower()}=[]"
    return f"={_scalar_text(value)}"


def _scalar_text(value: object) -> str:
    """Return a string, float or integer as ONNX text."""
    if isinstance(value, bytes):
        return '"' + value.decode("utf-8", "replace").replace("\\", "\\\\").replace('"', '\\"') + '"'
    return _float_text(value) if isinstance(value, float) else str(int(value))  # type: ignore[call-overload]
