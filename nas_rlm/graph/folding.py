"""Constant folding and rewriting of the nodes of an ONNX model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from nas_rlm.graph.reader import MAX_FOLDED_ELEMENTS, OPSET

_RANDOM = (
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
)


class RewriteGraph:
    """The nodes of a model, with the shapes and constants that are known, while they are rewritten.

    Args:
        model: model without local functions; large weights have no values.
        initializer_names: initialisers of the original model, to distinguish its weights from computed
            constants: a trained bias can be zero by chance, but a computed zero is always zero.

    Attributes:
        nodes: nodes in order.
        weights: initialisers without values, by name.
        constants: known values, by name.
        outputs: names of the model's outputs.
        types: ONNX element types, by value name.
        shapes: shapes without open sizes, by value name.
        readers: how often each value is read, as of the start of the current pass.
        producers: the node that defines each value.
        renamed: values that are replaced by another one, old name to new name.
    """

    def __init__(self, model: onnx.ModelProto, initializer_names: set[str]) -> None:
        self.initializer_names = initializer_names
        self.inferred_model = shape_inference.infer_shapes(model, data_prop=True)
        graph = self.inferred_model.graph
        self.nodes = list(graph.node)
        self.weights = {t.name: t for t in graph.initializer if t.data_location == TensorProto.EXTERNAL}
        self.constants = {
            t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name not in self.weights
        }
        self.outputs = [o.name for o in graph.output]
        self.num_new_names = 0
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

    def simplify(self, rules: Mapping[str, Rule]) -> bool:
        """Fold constants and apply rewrite rules in one pass over the nodes.

        Args:
            rules: rewrite rule for some operators, by operator name.

        Returns:
            True if anything changed.
        """
        self.readers = Counter(name for n in self.nodes for name in n.input) + Counter(self.outputs)
        self.producers = {name: n for n in self.nodes for name in n.output}
        self.renamed: dict[str, str] = {}
        nodes, changed = self.nodes, False
        self.nodes = []
        for node in nodes:
            if any(name in self.renamed for name in node.input):
                node = copy_node(node, [self.renamed.get(name, name) for name in node.input])
            replacement = self.rewrite_node(node, rules)
            if replacement is None:
                self.nodes.append(node)
                continue
            changed = True
            self.nodes += replacement
            self.producers |= {name: n for n in replacement for name in n.output}
        self.outputs = [self.renamed.get(name, name) for name in self.outputs]
        self.nodes = self.live_nodes()
        return changed

    def live_nodes(self) -> list[NodeProto]:
        """Return the nodes that an output depends on."""
        needed, live = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                live.append(node)
        return live[::-1]

    def rewrite_node(self, node: NodeProto, rules: Mapping[str, Rule]) -> list[NodeProto] | None:
        """Return the nodes by which a rule or folding replaces a node; None if the node is unchanged."""
        if node.domain not in ("", "ai.onnx"):
            return None
        if self.fold_constant(node):
            return []
        rule = rules.get(node.op_type)
        return rule(self, node) if rule else None

    def fold_constant(self, node: NodeProto) -> bool:
        """Record the outputs of a node as constants if they can be computed; return False if they cannot."""
        if node.op_type == "Shape" and node.input[0] in self.shapes:
            shape = self.shapes[node.input[0]]
            start, end = get_attribute(node, "start", 0), get_attribute(node, "end", len(shape))
            self.set_constant(node.output[0], np.array(shape[start:end], dtype=np.int64))
            return True
        if node.op_type == "Identity" and node.input[0] in self.initializer_names:
            return False
        if node.op_type in _RANDOM or any(name and name not in self.constants for name in node.input):
            return False
        if any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
            return False
        size = self.shapes.get(node.output[0])
        if size is None or int(np.prod(size)) > MAX_FOLDED_ELEMENTS:
            return False
        names = [name for name in node.input if name]
        inputs = [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(self.constants[n].dtype), self.constants[n].shape
            )
            for n in names
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "node", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        try:
            values = ReferenceEvaluator(model).run(None, {n: self.constants[n] for n in names})
        except (ArithmeticError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return False
        for name, value in zip(node.output, values, strict=True):
            self.set_constant(name, np.asarray(value))
        return True

    def set_constant(self, name: str, value: np.ndarray) -> None:
        """Record the value of a constant."""
        self.constants[name] = value
        self.shapes[name] = value.shape
        self.types[name] = helper.np_dtype_to_tensor_dtype(value.dtype)

    def add_constant(self, values: Sequence[int]) -> str:
        """Add a constant of integers; return its name."""
        name = self.new_name()
        self.set_constant(name, np.array(values, dtype=np.int64))
        return name

    def new_name(self, shape: tuple[int, ...] | None = None) -> str:
        """Return an unused name for a value, and record the shape of the value unless it is None."""
        self.num_new_names += 1
        name = f"normal_{self.num_new_names}"
        if shape is not None:
            self.shapes[name] = shape
        return name

    def exclusive_producer(self, name: str, kind: str) -> NodeProto | None:
        """Return the node that defines a value; None if its operator is not `kind` or others read it too."""
        node = self.producers.get(name)
        return node if node is not None and node.op_type == kind and self.readers[name] == 1 else None

    def to_model(self) -> onnx.ModelProto:
        """Return the graph as an ONNX model."""
        graph = self.inferred_model.graph
        used = {name for n in self.nodes for name in n.input} | set(self.outputs)
        outputs = [
            onnx.ValueInfoProto(name=n, type=o.type) for o, n in zip(graph.output, self.outputs, strict=True)
        ]
        tensors = [
            numpy_helper.from_array(value, name) for name, value in self.constants.items() if name in used
        ]
        tensors += [t for name, t in self.weights.items() if name in used]
        inputs = [i for i in graph.input if i.name not in self.constants and i.name not in self.weights]
        rewritten = helper.make_graph(self.nodes, graph.name, inputs, outputs, tensors)
        return helper.make_model(
            rewritten, opset_imports=list(self.inferred_model.opset_import), ir_version=10
        )


# A rewrite rule returns the nodes that replace a node; None if it does not apply.
Rule = Callable[[RewriteGraph, NodeProto], list[NodeProto] | None]


def get_attribute(node: NodeProto, name: str, default: Any) -> Any:
    """Return an attribute of a node, or the default if the node does not have it."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def copy_node(node: NodeProto, inputs: Sequence[str], **changes: Any) -> NodeProto:
    """Return a copy of a node with other inputs.

    Args:
        node: node to copy.
        inputs: names of the new inputs.
        changes: new values of attributes; None removes an attribute.
    """
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(inputs)
    if changes:
        attributes = [a for a in node.attribute if a.name not in changes]
        attributes += [helper.make_attribute(k, v) for k, v in changes.items() if v is not None]
        del copy.attribute[:]
        copy.attribute.extend(attributes)
    return copy


def weight_without_values(name: str, kind: int, shape: Sequence[int]) -> TensorProto:
    """Return a tensor without values: ONNX stores it as a tensor whose values are in another file."""
    tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="nowhere")
    return tensor
