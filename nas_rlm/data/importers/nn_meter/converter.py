"""Conversion of nn-Meter's graphs to ONNX models: order of nodes, tensors, weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import NodeProto, TensorProto, helper

from search_spaces.wording import counted

OPERATOR_SET = 17
WEIGHTS_FILE = "weights.bin"  # named by the weights, which have shapes alone
CONSTANTS = ("Const", "Pack")  # operators with values instead of a tensor of the network


@dataclass(frozen=True)
class ConvertedTensor:
    """A tensor of the ONNX model.

    Args:
        name: its name.
        shape: its shape in TensorFlow, where channels follow height and width.
        height: axis of the height in that shape, which the width follows; None if it has none. In ONNX both
            are the last axes.
    """

    name: str
    shape: tuple[int, ...]
    height: int | None = None

    @property
    def axes(self) -> list[int]:
        """Axis in TensorFlow of each axis in ONNX."""
        axes = list(range(len(self.shape)))
        if self.height is None:
            return axes
        return [*axes[: self.height], *axes[self.height + 2 :], self.height, self.height + 1]

    @property
    def onnx_shape(self) -> list[int]:
        """Its shape in ONNX."""
        return [self.shape[axis] for axis in self.axes]

    def onnx_axis(self, axis: int) -> int:
        """Return the axis in ONNX of an axis in TensorFlow."""
        if not -len(self.shape) <= axis < len(self.shape):
            raise ValueError(f"there is no axis {axis} in a tensor of shape {list(self.shape)}")
        return self.axes.index(axis % len(self.shape))

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of a batch of images.

        Raises:
            ValueError: it is none.
        """
        if len(self.shape) != 4 or self.height != 1:
            raise ValueError(f"the input has the shape {list(self.shape)}: expected a batch of images")
        return self.shape[1], self.shape[2]


class GraphConverter:
    """Converter of the nodes of a graph.

    Args:
        graph: nodes by name, see `nas_rlm.data.importers.nn_meter.operators.to_onnx`.
        operators: converter of each operator of TensorFlow.
    """

    def __init__(self, graph: Mapping[str, Any], operators: Mapping[str, Convert]) -> None:
        self.graph, self.operators = graph, operators
        self.count = 0  # of nodes, for their names
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[ConvertedTensor] = []
        self.outputs: dict[str, list[ConvertedTensor]] = {}  # of each converted node

    def model(self) -> onnx.ModelProto:
        """Return the converted graph."""
        sinks = [name for name in self.graph if not self.graph[name]["outbounds"] and self.data_inputs(name)]
        for sink in sinks:
            for name in self.order(sink):
                self.convert(name)
        results = [tensor for sink in sinks for tensor in self.outputs[sink]]
        if not self.inputs or not results:
            raise ValueError("the graph has no path from a Placeholder to an output")
        graph = helper.make_graph(self.nodes, "network", _values(self.inputs), _values(results), self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPERATOR_SET)])

    def order(self, sink: str) -> Iterator[str]:
        """Yield the nodes that are not converted yet and that a node needs, and the node, in their order."""
        stack, opened = [sink], set()
        while stack:
            name = stack[-1]
            if name in self.outputs:
                stack.pop()
                continue
            missing = [source for source, _ in self.data_inputs(name) if source not in self.outputs]
            if not missing:
                yield stack.pop()
            elif name in opened:
                raise ValueError(f"{name} depends on itself")
            else:
                opened.add(name)
                stack += missing

    def convert(self, name: str) -> None:
        """Convert a node whose inputs are converted."""
        kind = self.kind(name)
        try:
            convert = self.operators.get(kind)
            if convert is None:
                raise ValueError(
                    f"the operator is not supported: expected one of {', '.join(self.operators)}"
                )
            outputs = convert(self, name)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{name}, {kind}: {reason}") from None
        self.outputs[name] = outputs if isinstance(outputs, list) else [outputs]

    def kind(self, name: str) -> str:
        """Return the operator of a node."""
        return str(self.graph[name]["attr"]["type"])

    def attribute(self, name: str, attribute: str) -> Any:
        """Return an attribute of a node.

        Raises:
            KeyError: the node has none of that name.
        """
        return self.graph[name]["attr"]["attr"][attribute]

    def sources(self, name: str) -> list[tuple[str, int | None]]:
        """Return the node of each input, and which of its outputs it is if the name of the input says it.

        Names of weights, which are not part of the graph, are left out.
        """
        sources: list[tuple[str, int | None]] = []
        for source in self.graph[name]["inbounds"]:
            base, colon, index = source.rpartition(":")
            if source in self.graph:
                sources.append((source, None))
            elif colon and base in self.graph:
                sources.append((base, int(index)))
        return sources

    def data_inputs(self, name: str) -> list[tuple[str, int | None]]:
        """Return the sources of a node that have tensors of the network."""
        sources = [source for source in self.sources(name) if not self.is_weight(source[0])]
        return sources[:1] if self.kind(name) in ("Reshape", "Transpose", "Split") else sources

    def is_weight(self, name: str) -> bool:
        """Return whether a node is a constant, or reads a weight."""
        kind = self.kind(name)
        return kind in CONSTANTS or (kind == "Identity" and not self.data_inputs(name))

    def tensors(self, name: str) -> list[ConvertedTensor]:
        """Return the tensors of the network that a node reads.

        The k-th reader of a node with several outputs reads the k-th output.
        """
        tensors = []
        seen: dict[str, int] = {}
        for source, index in self.data_inputs(name):
            outputs = self.outputs[source]
            if index is None and len(outputs) > 1:
                readers = [i for i, reader in enumerate(self.graph[source]["outbounds"]) if reader == name]
                index = readers[seen.get(source, 0)]
                seen[source] = seen.get(source, 0) + 1
            tensors.append(outputs[index or 0])
        return tensors

    def tensor(self, name: str) -> ConvertedTensor:
        """Return the only tensor of the network that a node reads."""
        tensors = self.tensors(name)
        if len(tensors) != 1:
            raise ValueError(f"it has {counted(len(tensors), 'input')}: expected 1")
        return tensors[0]

    def constant(self, name: str) -> list[Any] | None:
        """Return the values of the first constant that a node reads; None if there is none."""
        for source, _ in self.sources(name):
            if self.kind(source) in CONSTANTS:
                values: list[Any] = self.attribute(source, "constant")
                return values
        return None

    def add(self, name: str, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add an ONNX node with one output, and return the name of the output."""
        self.count += 1
        output = f"{name}.{self.count}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def weight(self, *shape: int) -> str:
        """Add a weight of a shape, and return its name."""
        if not all(type(size) is int and size > 0 for size in shape):
            raise ValueError(f"a weight has the shape {list(shape)}: expected positive sizes")
        tensor = TensorProto(name=f"weight{len(self.weights)}", dims=shape, data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=WEIGHTS_FILE)
        self.weights.append(tensor)
        return tensor.name

    def values(self, kind: int, shape: Sequence[int], values: Sequence[float]) -> str:
        """Add constant values, and return their name."""
        tensor = helper.make_tensor(f"constant{len(self.weights)}", kind, shape, values)
        self.weights.append(tensor)
        return str(tensor.name)

    def reshaped(self, name: str, tensor: ConvertedTensor, shape: Sequence[int]) -> ConvertedTensor:
        """Return a tensor in another shape, which is that in TensorFlow."""
        target = _resolved(tensor.shape, shape)
        result = ConvertedTensor("", target, _height_of_reshaped(tensor, target))
        sizes = self.values(TensorProto.INT64, [len(target)], result.onnx_shape)
        output = self.add(name, "Reshape", [tensor.name, sizes])
        return ConvertedTensor(output, target, result.height)


Convert = Callable[["GraphConverter", str], ConvertedTensor | list[ConvertedTensor]]  # of the node of a name


def _resolved(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Return the target of a reshape with its open size."""
    total, known = math.prod(shape), math.prod(size for size in target if size != -1)
    if list(target).count(-1) == 1 and known > 0 and total % known == 0:
        return tuple(total // known if size == -1 else size for size in target)
    if min(target) < 1 or known != total:
        raise ValueError(f"the shape {list(shape)} cannot become {list(target)}")
    return tuple(target)


def _height_of_reshaped(tensor: ConvertedTensor, target: Sequence[int]) -> int | None:
    """Return the axis of the height after a reshape, which may divide and merge the other axes.

    Height and width disappear if the images become vectors. The order of a vector's elements in ONNX is that
    of its channels, which only permutes the weights after it.

    Raises:
        ValueError: the reshape mixes height or width with other axes.
    """
    shape, height = tensor.shape, tensor.height
    if height is None:
        is_pixel = len(target) == 4 and tuple(target[1:3]) == (1, 1)
        if len(target) == 4 and not is_pixel:
            raise ValueError(f"the shape {list(shape)} becomes that of images, {list(target)}")
        return 1 if is_pixel else None
    size, before = shape[height : height + 2], math.prod(shape[:height])
    for axis in range(len(target) - 1):
        if tuple(target[axis : axis + 2]) == size and math.prod(target[:axis]) == before:
            return axis
    if len(target) == 2 and target[0] == shape[0]:
        return None
    raise ValueError(f"the reshape of {list(shape)} to {list(target)} mixes height or width with other axes")


def _values(tensors: Sequence[ConvertedTensor]) -> list[onnx.ValueInfoProto]:
    """Return the declarations of inputs or outputs."""
    return [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, t.onnx_shape) for t in tensors]
