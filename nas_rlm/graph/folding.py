"""A model's nodes with what is known of their values, so that constants are folded and nodes replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from nas_rlm.graph.reader import FOLDED, OPSET

_RANDOM = (
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
)


class KnownGraph:
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

    def simplify(self, rules: Mapping[str, Rule]) -> bool:
        """One pass over the nodes, with a rule for some operators; whether anything changed."""
        self.readers = Counter(name for n in self.nodes for name in n.input) + Counter(self.outputs)
        self.producers = {name: n for n in self.nodes for name in n.output}
        self.renamed: dict[str, str] = {}
        before, changed = self.nodes, False
        self.nodes = []
        for node in before:
            if any(name in self.renamed for name in node.input):
                node = copied(node, [self.renamed.get(name, name) for name in node.input])
            replaced = self.fold(node, rules)
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

    def fold(self, node: NodeProto, rules: Mapping[str, Rule]) -> list[NodeProto] | None:
        """What takes the place of a node; None if it stays."""
        if node.domain not in ("", "ai.onnx"):
            return None
        if self.evaluate(node):
            return []
        rule = rules.get(node.op_type)
        return rule(self, node) if rule else None

    def evaluate(self, node: NodeProto) -> bool:
        """Compute a node whose inputs are constants, or the shape of a value where that is known."""
        if node.op_type == "Shape" and node.input[0] in self.shapes:
            shape = self.shapes[node.input[0]]
            start, end = attribute(node, "start", 0), attribute(node, "end", len(shape))
            self.keep(node.output[0], np.array(shape[start:end], dtype=np.int64))
            return True
        if node.op_type == "Identity" and node.input[0] in self.given:
            return False
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


# What takes the place of a node in a graph; None if it stays.
Rule = Callable[[KnownGraph, NodeProto], list[NodeProto] | None]


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    """An attribute of a node, or what it is by default."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def copied(node: NodeProto, inputs: Sequence[str], **changes: Any) -> NodeProto:
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


def bare_weight(name: str, kind: int, shape: Sequence[int]) -> TensorProto:
    """A tensor without values, which ONNX says by values elsewhere."""
    tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="nowhere")
    return tensor
