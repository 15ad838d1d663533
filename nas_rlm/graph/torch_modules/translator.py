"""Translation of the nodes of a model, one after the other, to a graph of torch calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import NodeProto, numpy_helper
from torch import fx, nn

from nas_rlm.graph.onnx_graphs.weight_names import mark_of_name, type_name, weight_name
from nas_rlm.graph.torch_modules.registry import Constant, Operation, Sizes, Translate, Value

DOMAINS = ("", "ai.onnx")


class Translator:
    """Translator of the nodes of a model to torch modules and functions.

    Args:
        model: model without local functions.
        operators: translations of operators to tensors, by name.
        size_operators: translations for sizes, which return None where a tensor is needed.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        operators: Mapping[str, Translate],
        size_operators: Mapping[str, Translate],
    ) -> None:
        self.operators, self.size_operators = operators, size_operators
        self.opset = max((o.version for o in model.opset_import if o.domain in DOMAINS), default=1)
        self.model = model
        self.root, self.graph = nn.Module(), fx.Graph()
        self.values: dict[str, Value] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        self._attribute_nodes: dict[str, fx.Node] = {}

    def module(self) -> fx.GraphModule:
        """Return the translated model."""
        graph = self.model.graph
        for tensor in graph.initializer:
            array = numpy_helper.to_array(tensor)
            trainable = array.dtype.kind == "f" and array.ndim > 0
            self.values[tensor.name] = Constant(array, tensor.name, trainable)
        inputs = [i for i in graph.input if i.name not in self.values]
        _check_no_weights(inputs)
        names = ["x"] if len(inputs) == 1 else [f"x{position}" for position in range(len(inputs))]
        placeholders = [self.graph.placeholder(name) for name in names]
        self.values |= {value.name: node for value, node in zip(inputs, placeholders, strict=True)}
        self.first_input = placeholders[0]
        self._num_reads = self._count_reads()
        for node in graph.node:
            self._translate(node)
        outputs = [self.tensor(self.values[o.name]) for o in graph.output]
        self.graph.output(outputs[0] if len(outputs) == 1 else tuple(outputs))
        module = fx.GraphModule(self.root, self.graph)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module

    def _count_reads(self) -> Counter[str]:
        """Return how many nodes read each initialiser, also by way of Identity."""
        sources: dict[str, str] = {}
        reads: Counter[str] = Counter()
        for node in self.model.graph.node:
            names = [sources.get(name, name) for name in node.input]
            if node.op_type == "Identity":
                sources[node.output[0]] = names[0]
            else:
                reads.update(names)
        return reads

    def _translate(self, node: NodeProto) -> None:
        """Translate one node and keep the values of its outputs."""
        operation = Operation(self, node)
        if node.op_type == "Identity":
            outputs: Sequence[Any] = [_identity(node, operation.inputs[0])]
        elif node.op_type == "Constant":
            outputs = [Constant(_constant(node), node.output[0])]
        elif node.domain not in DOMAINS or node.op_type not in self.operators:
            supported = ", ".join(sorted(self.operators))
            raise ValueError(f"{node.op_type} is not supported: expected one of {supported}")
        elif self._is_foldable(operation):
            outputs = self._fold(operation)
        else:
            outputs = self._call(operation)
        for position, name in enumerate(node.output):
            if position < len(outputs):
                self.values[name] = outputs[position]
            elif name and self._is_read(name):
                raise ValueError(f"output {position} of {node.op_type} is not supported: expected no reader")

    def _is_read(self, name: str) -> bool:
        """Return whether a node or the model's outputs read a value."""
        return self._num_reads[name] > 0 or name in {o.name for o in self.model.graph.output}

    def _is_foldable(self, operation: Operation) -> bool:
        """Return whether a node can be computed now: of constants, none of them a shared weight."""
        inputs = [value for value in operation.inputs if value is not None]
        if not all(isinstance(value, Constant) for value in inputs):
            return False
        shared = any(self.is_shared(value) for value in inputs)
        return operation.kind in ("Shape", "Size") or not shared

    def is_shared(self, constant: Constant) -> bool:
        """Return whether several nodes read a weight."""
        return constant.trainable and self._num_reads[constant.source] > 1

    def _fold(self, operation: Operation) -> list[Constant]:
        """Return the outputs of a node of constants, which a module of this node alone computes."""
        names = [name for name in operation.node.input if name]
        single = Translator(self.model, self.operators, self.size_operators)
        single.values = self.values
        single.first_input = single.tensor(Constant(np.zeros(0), ""))
        outputs = single._call(Operation(single, operation.node))
        single.graph.output([single.tensor(output) for output in outputs])
        with torch.no_grad():
            arrays = [x.numpy() for x in fx.GraphModule(single.root, single.graph).eval()()]
        constants = [value for name in names if isinstance(value := self.values[name], Constant)]
        trainable = any(constant.trainable for constant in constants)
        return [
            Constant(array, name, trainable and array.dtype.kind == "f" and array.ndim > 0)
            for array, name in zip(arrays, operation.node.output, strict=False)
        ]

    def _call(self, operation: Operation) -> list[Any]:
        """Return the outputs of a node that is computed at run time."""
        found = None
        if (
            any(isinstance(value, Sizes) for value in operation.inputs)
            and operation.kind in self.size_operators
        ):
            found = self.size_operators[operation.kind](operation)
        if found is None:
            found = self.operators[operation.kind](operation)
        return found if isinstance(found, list) else [found]

    def tensor(self, value: Value | None) -> fx.Node:
        """Return a value as a tensor: computed, a parameter, or a buffer."""
        if isinstance(value, Constant):
            return self._attribute(value)
        if isinstance(value, Sizes):
            return self.graph.call_function(_tensor_of_sizes, (value.value, self.first_input))
        if value is None:
            raise ValueError("an operator lacks an input that it needs")
        return value

    def parameter(self, constant: Constant) -> nn.Parameter:
        """Return the trainable parameter of a constant."""
        if constant.source not in self._parameters:
            self._parameters[constant.source] = nn.Parameter(torch.from_numpy(constant.array.copy()))
        return self._parameters[constant.source]

    def _attribute(self, constant: Constant) -> fx.Node:
        """Return a constant as a parameter or buffer of the module, one for all readers."""
        if constant.source not in self._attribute_nodes:
            if constant.trainable:
                name = f"weight{len(self.root._parameters)}"
                self.root.register_parameter(name, self.parameter(constant))
            else:
                name = f"constant{len(self.root._buffers)}"
                self.root.register_buffer(name, torch.from_numpy(constant.array.copy()))
            self._attribute_nodes[constant.source] = self.graph.get_attr(name)
        return self._attribute_nodes[constant.source]

    def layer(self, module: nn.Module, args: tuple[Any, ...]) -> fx.Node:
        """Add a module with weights and return its output."""
        name = f"{type(module).__name__.lower()}{len(self.root._modules)}"
        self.root.add_module(name, module)
        return self.graph.call_module(name, args)


def _check_no_weights(inputs: Sequence[onnx.ValueInfoProto]) -> None:
    """Check that no input is the weight of a model that was written without values.

    Raises:
        ValueError: there are no inputs, or an input is a weight.
    """
    if not inputs:
        raise ValueError("the model has no inputs: expected at least one")
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        shape, kind = tuple(d.dim_value for d in dims), type_name(value.type.tensor_type.elem_type)
        if value.name == weight_name(kind, shape, *mark_of_name(value.name)):
            raise ValueError(
                f"the model reads the weight {value.name} as an input: expected weights as initialisers"
            )


def _identity(node: NodeProto, value: Any) -> Any:
    """Return the value of an Identity node.

    Exporters replace equal weights by one and Identity nodes. Weights with random values are equal only if
    they are shared. Weights of one repeated number, such as new biases, may be equal by
    chance: each is its own.
    """
    if isinstance(value, Constant) and value.array.size and (value.array == value.array.flat[0]).all():
        return Constant(value.array, node.output[0], value.trainable)
    return value


def _constant(node: NodeProto) -> np.ndarray:
    """Return the value of a Constant node."""
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    return np.array(value, dtype=np.float32 if "float" in attribute.name else np.int64)


def _tensor_of_sizes(sizes: Any, like: torch.Tensor) -> torch.Tensor:
    """Return sizes as a tensor on the device of another tensor.

    They are filled in there, because a CUDA graph cannot record copies from the memory of the host.
    """
    if not isinstance(sizes, Sequence):
        return torch.full((), sizes, device=like.device)
    if not sizes:
        return torch.zeros(0, dtype=torch.int64, device=like.device)
    return torch.stack([torch.full((), size, device=like.device) for size in sizes])
