"""Foreign models, brought to the form that the builders of `search_spaces` write.

Exporters differ in operator sets, in how they spell the same computation, and in what they leave behind.
Here a model loses its weights' values, is converted to one operator set, has its constants folded, and a few
spellings are replaced by one: a mean over all positions is a GlobalAveragePool, Dropout is nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper, shape_inference, version_converter
from onnx.reference import ReferenceEvaluator

from .reader import FOLDED, OPSET

END = np.iinfo(np.int32).max  # where a slice ends that goes to the end
_RANDOM = (
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
)


def normalised(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that computes the same, in ONNX's operator set 21, its large weights without values.

    Args:
        model: flat, without local functions; it is left as it is.

    Raises:
        ValueError: it cannot be converted to that operator set.
    """
    bare = _without_values(model)
    version = next((o.version for o in bare.opset_import if o.domain in ("", "ai.onnx")), 1)
    if version != OPSET:
        try:
            bare = version_converter.convert_version(bare, OPSET)
        except (RuntimeError, version_converter.ConvertError) as error:
            raise ValueError(f"operator set {version} cannot be converted to {OPSET}: {error}") from None
    changed, given = True, {t.name for t in model.graph.initializer}
    while changed:  # each round knows more shapes than the one before
        graph = _Graph(bare, given)
        changed = graph.simplify()
        while graph.simplify():
            pass
        bare = graph.model()
    return bare


def check(model: onnx.ModelProto) -> None:
    """Refuse a model that breaks ONNX's rules; values that lie in other files are not asked for.

    Raises:
        onnx.checker.ValidationError: it breaks one.
    """
    elsewhere = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    if elsewhere:
        here = [t for t in model.graph.initializer if t.data_location != TensorProto.EXTERNAL]
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(here)
        known = {i.name for i in copy.graph.input}
        copy.graph.input.extend(
            helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
            for t in elsewhere
            if t.name not in known
        )
        model = copy
    onnx.checker.check_model(model)


def _without_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initialisers have a shape alone."""
    graph = onnx.GraphProto(name=model.graph.name)
    for name in ("node", "output", "value_info"):
        getattr(graph, name).extend(getattr(model.graph, name))
    held = {t.name for t in model.graph.initializer}
    graph.input.extend(i for i in model.graph.input if i.name not in held)
    _read_as_one(graph)
    for t in model.graph.initializer:
        is_large = int(np.prod(t.dims)) > FOLDED or t.data_location == TensorProto.EXTERNAL
        graph.initializer.append(_weight(t.name, t.data_type, t.dims) if is_large else t)
    copy = onnx.ModelProto(ir_version=max(model.ir_version, 8))
    copy.opset_import.extend(model.opset_import)
    copy.graph.CopyFrom(graph)
    return copy


def _read_as_one(graph: onnx.GraphProto) -> None:
    """A batch of any size is read as one of a single example: the first dimension, where it is open."""
    open_first = set()
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if len(dims) > 1 and not dims[0].HasField("dim_value"):
            open_first.add(dims[0].dim_param)
            dims[0].dim_value = 1
    if not open_first:
        return
    del graph.value_info[:]  # shapes are inferred anew
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param and dim.dim_param in open_first:
                dim.dim_value = 1


def _weight(name: str, kind: int, shape: Sequence[int]) -> TensorProto:
    """A tensor without values, which ONNX says by values elsewhere."""
    tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="nowhere")
    return tensor


class _Graph:
    """The nodes of a model with what is known of their values: shapes, and the constants themselves."""

    def __init__(self, model: onnx.ModelProto, given: set[str]) -> None:
        self.given = given  # a trained bias may be zero by chance, what is computed to be zero always is
        self.source = shape_inference.infer_shapes(model, data_prop=True)
        graph = self.source.graph
        self.nodes = list(graph.node)
        self.weights = {t.name: t for t in graph.initializer if t.data_location == TensorProto.EXTERNAL}
        self.constants = {
            t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name not in self.weights
        }
        self.outputs = [o.name for o in graph.output]
        self.fresh = 0
        self.types: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            self.types[value.name] = tensor.elem_type
            if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
                self.shapes[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
        self.shapes |= {name: array.shape for name, array in self.constants.items()}
        self.shapes |= {name: tuple(t.dims) for name, t in self.weights.items()}
        self.types |= {t.name: t.data_type for t in graph.initializer}

    def simplify(self) -> bool:
        """One pass over the nodes; whether anything changed."""
        self.readers = Counter(name for n in self.nodes for name in n.input) + Counter(self.outputs)
        self.producers = {name: n for n in self.nodes for name in n.output}
        self.renamed: dict[str, str] = {}
        self.gone: set[str] = set()
        before, changed = self.nodes, False
        self.nodes = []
        for node in before:
            if any(name in self.renamed for name in node.input):
                node = _copy(node, [self.renamed.get(name, name) for name in node.input])
            replaced = self.fold(node)
            if replaced is None:
                self.nodes.append(node)
                continue
            changed = True
            self.nodes += replaced
            self.producers |= {name: n for n in replaced for name in n.output}
        self.outputs = [self.renamed.get(name, name) for name in self.outputs]
        self.nodes = self.alive()
        return changed

    def alive(self) -> list[NodeProto]:
        """The nodes that an output depends on."""
        wanted, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if wanted.intersection(node.output):
                wanted.update(node.input)
                kept.append(node)
        return kept[::-1]

    def fold(self, node: NodeProto) -> list[NodeProto] | None:
        """What takes the place of a node; None if it stays."""
        if node.domain not in ("", "ai.onnx"):
            return None
        if self.evaluate(node):
            return []
        rule = RULES.get(node.op_type)
        return rule(self, node) if rule else None

    def evaluate(self, node: NodeProto) -> bool:
        """Compute a node whose inputs are constants, or the shape of a value where that is known."""
        if node.op_type == "Shape" and node.input[0] in self.shapes:
            shape = self.shapes[node.input[0]]
            start, end = _attribute(node, "start", 0), _attribute(node, "end", len(shape))
            self.keep(node.output[0], np.array(shape[start:end], dtype=np.int64))
            return True
        if node.op_type in _RANDOM or any(name and name not in self.constants for name in node.input):
            return False
        if any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
            return False
        size = self.shapes.get(node.output[0])
        if size is None or int(np.prod(size)) > FOLDED:
            return False
        names = [name for name in node.input if name]
        inputs = [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(self.constants[n].dtype), self.constants[n].shape
            )
            for n in names
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        alone = helper.make_graph([node], "alone", inputs, outputs)
        model = helper.make_model(alone, opset_imports=[helper.make_opsetid("", OPSET)])
        try:
            values = ReferenceEvaluator(model).run(None, {n: self.constants[n] for n in names})
        except (ArithmeticError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return False  # what cannot be computed beforehand stays a node
        for name, value in zip(node.output, values, strict=True):
            self.keep(name, np.asarray(value))
        return True

    def keep(self, name: str, value: np.ndarray) -> None:
        """Remember a constant."""
        self.constants[name] = value
        self.shapes[name] = value.shape
        self.types[name] = helper.np_dtype_to_tensor_dtype(value.dtype)

    def constant(self, values: Sequence[int]) -> str:
        """The name of a new constant of integers."""
        name = self.name()
        self.keep(name, np.array(values, dtype=np.int64))
        return name

    def name(self, shape: tuple[int, ...] | None = None) -> str:
        """The name of a new value."""
        self.fresh += 1
        name = f"normal_{self.fresh}"
        if shape is not None:
            self.shapes[name] = shape
        return name

    def only_reader(self, name: str, kind: str) -> NodeProto | None:
        """The node of a kind that makes a value which nothing else reads."""
        made = self.producers.get(name)
        return made if made is not None and made.op_type == kind and self.readers[name] == 1 else None

    def model(self) -> onnx.ModelProto:
        """The graph as a model again."""
        graph = self.source.graph
        used = {name for n in self.nodes for name in n.input} | set(self.outputs)
        outputs = [
            onnx.ValueInfoProto(name=n, type=o.type) for o, n in zip(graph.output, self.outputs, strict=True)
        ]
        tensors = [
            numpy_helper.from_array(value, name) for name, value in self.constants.items() if name in used
        ]
        tensors += [t for name, t in self.weights.items() if name in used]
        inputs = [i for i in graph.input if i.name not in self.constants and i.name not in self.weights]
        found = helper.make_graph(self.nodes, graph.name, inputs, outputs, tensors)
        return helper.make_model(found, opset_imports=list(self.source.opset_import), ir_version=10)


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _copy(node: NodeProto, inputs: Sequence[str], **changes: Any) -> NodeProto:
    """A node that reads other inputs, with some attributes replaced, or dropped where they are None."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(inputs)
    if changes:
        kept = [a for a in node.attribute if a.name not in changes]
        kept += [helper.make_attribute(k, v) for k, v in changes.items() if v is not None]
        del copy.attribute[:]
        copy.attribute.extend(kept)
    return copy


def _nothing(graph: _Graph, node: NodeProto) -> list[NodeProto]:
    """The node's output is its input."""
    graph.renamed[node.output[0]] = node.input[0]
    return []


def _batch_norm(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """The text is of the network that predicts: how its statistics were gathered does not matter."""
    if len(node.output) == 1 and not any(a.name in ("momentum", "training_mode") for a in node.attribute):
        return None
    plain = _copy(node, node.input, momentum=None, training_mode=None)
    del plain.output[1:]
    return [plain]


def _cast(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    same = graph.types.get(node.input[0]) == _attribute(node, "to", 0)
    return _nothing(graph, node) if same else None


def _transpose(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    shape = graph.shapes.get(node.input[0])
    order = list(_attribute(node, "perm", range(len(shape))[::-1] if shape is not None else (1, 0)))
    if node.input[0] in graph.weights and shape is not None:
        kind = graph.weights[node.input[0]].data_type
        name = node.output[0]
        graph.weights[name] = _weight(name, kind, [shape[a] for a in order])
        graph.shapes[name], graph.types[name] = tuple(shape[a] for a in order), kind
        return []
    return _nothing(graph, node) if order == sorted(order) else None


def _reduce_mean(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """A mean over all positions of a map is a GlobalAveragePool, flat if it drops them."""
    shape = graph.shapes.get(node.input[0])
    axes = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
    if shape is None or axes is None or len(shape) < 3:
        return None
    if sorted(int(a) % len(shape) for a in axes.reshape(-1)) != list(range(2, len(shape))):
        return None
    if _attribute(node, "keepdims", 1):
        return [helper.make_node("GlobalAveragePool", [node.input[0]], node.output)]
    pooled = graph.name((*shape[:2], *[1] * (len(shape) - 2)))
    return [
        helper.make_node("GlobalAveragePool", [node.input[0]], [pooled]),
        helper.make_node("Flatten", [pooled], node.output),
    ]


def _reshape(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """Reshapes to a row for each image are Flatten; others keep no flag that does not matter."""
    before, after = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    if before is not None and before == after:
        return _nothing(graph, node)
    is_flat = before is not None and after is not None and len(before) > 2 and len(after) == 2
    if is_flat and before is not None and after is not None and before[0] == after[0]:
        return [helper.make_node("Flatten", [node.input[0]], node.output)]
    wanted = graph.constants.get(node.input[1]) if node.op_type == "Reshape" else None
    if _attribute(node, "allowzero", 0) and wanted is not None and (wanted != 0).all():
        return [_copy(node, node.input, allowzero=None)]
    return None


def _average_pool(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """Whether padding counts is no matter where there is none."""
    padded = _auto_pad(graph, node)
    if padded is not None:
        return padded
    counts, pads = _attribute(node, "count_include_pad", 0), _attribute(node, "pads", [0])
    is_padded = any(pads) or _attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    if not counts or is_padded or _attribute(node, "ceil_mode", 0):
        return None
    return [_copy(node, node.input, count_include_pad=None)]


def _auto_pad(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """Padding that follows from the sizes is told in numbers."""
    how, shape = _attribute(node, "auto_pad", b"NOTSET"), graph.shapes.get(node.input[0])
    if how == b"VALID":
        return [_copy(node, node.input, auto_pad=None, pads=None)]
    kernel = _attribute(node, "kernel_shape", graph.shapes.get(node.input[-1], ())[2:])
    if how == b"NOTSET" or shape is None or len(shape) != 2 + len(kernel) or not kernel:
        return None
    ones = [1] * len(kernel)
    strides, dilations = _attribute(node, "strides", ones), _attribute(node, "dilations", ones)
    totals = [
        max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        for size, k, s, d in zip(shape[2:], kernel, strides, dilations, strict=True)
    ]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    pads = [*less, *more] if how == b"SAME_UPPER" else [*more, *less]
    return [_copy(node, node.input, auto_pad=None, pads=pads)]


def _slice(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """Slices of one axis after another are one slice; ends beyond the end are all the same end."""
    bounds = _bounds(graph, node)
    if bounds is None:
        return None
    before = graph.only_reader(node.input[0], "Slice")
    inner = _bounds(graph, before) if before is not None else None
    if before is not None and inner is not None and not set(inner) & set(bounds):
        merged, source = {**inner, **bounds}, before.input[0]
    elif bounds != _written(graph, node):
        merged, source = bounds, node.input[0]
    else:
        return None
    axes = sorted(merged)
    columns = [[merged[a][k] for a in axes] for k in range(3)]
    steps = [graph.constant(columns[2])] if any(s != 1 for s in columns[2]) else []
    inputs = [source, graph.constant(columns[0]), graph.constant(columns[1]), graph.constant(axes), *steps]
    return [helper.make_node("Slice", inputs, node.output)]


def _written(graph: _Graph, node: NodeProto) -> dict[int, tuple[int, int, int]] | None:
    """Start, end and step of each axis, as a Slice has them."""
    given = [graph.constants.get(name) for name in node.input[1:]]
    if any(g is None for g in given) or len(given) < 3:
        return None
    starts, ends, axes, *rest = ([int(v) for v in g.reshape(-1)] for g in given if g is not None)
    steps = rest[0] if rest else [1] * len(starts)
    return {a: (s, e, k) for a, s, e, k in zip(axes, starts, ends, steps, strict=True)}


def _bounds(graph: _Graph, node: NodeProto) -> dict[int, tuple[int, int, int]] | None:
    """The same with positive axes, and one number for the end of an axis."""
    written, shape = _written(graph, node), graph.shapes.get(node.input[0])
    if written is None or shape is None:
        return None
    found = {}
    for axis, (start, end, step) in written.items():
        axis %= len(shape)
        found[axis] = (start, int(END) if step > 0 and end >= shape[axis] else end, step)
    return found


def _pad(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    pads = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
    return _nothing(graph, node) if pads is not None and not pads.any() else None


def _cast_like(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    value, kind = graph.constants.get(node.input[0]), graph.types.get(node.input[1], 0)
    if value is None or not kind:
        return None
    graph.keep(node.output[0], value.astype(helper.tensor_dtype_to_np_dtype(kind)))
    return []


def _conv(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """Padding with zeros before a convolution is the convolution's own, and a bias of zeros is none."""
    bias = node.input[2] if len(node.input) > 2 else ""
    if bias in graph.constants and bias not in graph.given and not graph.constants[bias].any():
        return [_copy(node, node.input[:2])]
    padded = _auto_pad(graph, _copy(node, node.input[:2]))
    if padded is not None:
        return [_copy(padded[0], node.input)]
    before = graph.only_reader(node.input[0], "Pad")
    if before is None or _attribute(before, "mode", b"constant") != b"constant" or len(before.input) > 3:
        return None
    pads = graph.constants.get(before.input[1])
    value = graph.constants.get(before.input[2]) if len(before.input) > 2 and before.input[2] else np.zeros(1)
    if pads is None or value is None or value.any() or _attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
        return None
    half = len(pads) // 2
    spatial = [int(p) for p in (*pads[2:half], *pads[half + 2 :])]
    if pads[:2].any() or pads[half : half + 2].any() or min(spatial) < 0:
        return None
    total = np.add(spatial, _attribute(node, "pads", [0] * len(spatial))).tolist()
    return [_copy(node, [before.input[0], *node.input[1:]], pads=total)]


def _neutral(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """Adding a scalar zero, or multiplying by a scalar one, is nothing."""
    sides = (0, 1) if node.op_type in ("Add", "Mul") else (1,)
    for k in sides:
        value = graph.constants.get(node.input[k])
        if value is not None and value.ndim == 0 and value == (node.op_type in ("Mul", "Div")):
            graph.renamed[node.output[0]] = node.input[1 - k]
            return []
    return None


def _add(graph: _Graph, node: NodeProto) -> list[NodeProto] | None:
    """A product of rows with a matrix, plus a vector, is a linear layer; zero adds nothing."""
    if _neutral(graph, node) is not None:
        return []
    for product, vector in (node.input, tuple(node.input)[::-1]):
        made = graph.only_reader(product, "MatMul")
        shape = graph.shapes.get(vector)
        if made is None or shape is None or len(shape) != 1 or vector in graph.producers:
            continue
        left, right = (graph.shapes.get(name) for name in made.input)
        if left is not None and right is not None and len(left) == len(right) == 2:
            return [helper.make_node("Gemm", [*made.input, vector], node.output)]
    return None


RULES: dict[str, Callable[[_Graph, NodeProto], list[NodeProto] | None]] = {
    "Add": _add,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Conv": _conv,
    "Div": _neutral,
    "Dropout": _nothing,
    "Identity": _nothing,
    "MaxPool": _auto_pad,
    "Mul": _neutral,
    "Pad": _pad,
    "ReduceMean": _reduce_mean,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _reshape,
    "Sub": _neutral,
    "Transpose": _transpose,
}
