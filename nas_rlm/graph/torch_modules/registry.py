"""Constants, sizes, and operations: what the translations of operators read and call."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import onnx
import torch
from torch import fx, nn


@dataclass(frozen=True)
class Constant:
    """A value that is known before the model runs.

    Args:
        array: the value.
        source: name that identifies it: constants of one source are one parameter or buffer.
        trainable: whether it is a weight: a float initialiser or computed from one.
    """

    array: np.ndarray
    source: str
    trainable: bool = False


class Sizes(NamedTuple):
    """A Python integer or list of integers that is computed at run time, such as the shape of a tensor.

    Sizes are no tensors, so that compilers see shapes and a GPU need not be waited for.

    Args:
        value: node that returns it.
        is_length: whether it is a list of one element, the length of other sizes.
    """

    value: fx.Node
    is_length: bool = False


Value = Constant | Sizes | fx.Node


class Graph(Protocol):
    """The module in the making to which operations add calls: a `translator.Translator`."""

    opset: int
    values: dict[str, Value]
    graph: fx.Graph
    first_input: fx.Node

    def tensor(self, value: Value | None) -> fx.Node:
        """Return a value as a tensor."""

    def parameter(self, constant: Constant) -> nn.Parameter:
        """Return the trainable parameter of a constant."""

    def is_shared(self, constant: Constant) -> bool:
        """Return whether several nodes read a weight."""

    def layer(self, module: nn.Module, args: tuple[Any, ...]) -> fx.Node:
        """Add a module with weights and return its output."""


class Operation:
    """A node of a model whose inputs are translated.

    Args:
        translator: the translator of the model.
        node: the node.
    """

    def __init__(self, translator: Graph, node: onnx.NodeProto) -> None:
        self.translator, self.node, self.kind = translator, node, node.op_type
        self.opset = translator.opset
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.inputs: list[Any] = [translator.values[name] if name else None for name in node.input]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, with text as str."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def has(self, position: int) -> bool:
        """Return whether an optional input is given."""
        return len(self.inputs) > position and self.inputs[position] is not None

    def require(self, name: str, *allowed: Any) -> None:
        """Check that an attribute has one of the supported values; the first is the default.

        Raises:
            ValueError: it has another value.
        """
        value = self.attribute(name, allowed[0])
        if value not in allowed:
            expected = " or ".join(map(str, allowed))
            raise ValueError(f"{name} {value} of {self.kind} is not supported: expected {expected}")

    def require_absent(self, position: int, name: str) -> None:
        """Check that an optional input that is not supported is not given.

        Raises:
            ValueError: it is given.
        """
        if self.has(position):
            raise ValueError(f"input {name} of {self.kind} is not supported: expected none")

    def is_constant(self, position: int) -> bool:
        """Return whether an input is a constant."""
        return isinstance(self.inputs[position], Constant)

    def array(self, position: int) -> np.ndarray:
        """Return an input that must be constant.

        Raises:
            ValueError: it is computed.
        """
        value = self.inputs[position]
        if not isinstance(value, Constant):
            raise ValueError(f"input {position} of {self.kind} is computed: expected a constant")
        return value.array

    def parameter(self, position: int) -> nn.Parameter:
        """Return a constant input as a trainable parameter, one for all readers of a weight."""
        self.array(position)
        return self.translator.parameter(self.inputs[position])

    def tensor(self, position: int = 0) -> fx.Node:
        """Return an input as a tensor."""
        return self.translator.tensor(self.inputs[position])

    def optional(self, position: int) -> fx.Node | None:
        """Return an optional input as a tensor, None if it is not given."""
        return self.tensor(position) if self.has(position) else None

    def operand(self, position: int) -> Any:
        """Return an input of arithmetic: a tensor, or a number if it is a constant without dimensions."""
        value = self.inputs[position]
        if isinstance(value, Constant) and value.array.ndim == 0:
            return value.array.item()
        return self.tensor(position)

    def operands(self) -> list[Any]:
        """Return all inputs, of which at least the first is a tensor."""
        return [self.tensor(0), *(self.operand(i) for i in range(1, len(self.inputs)))]

    def integers(self, position: int) -> Any:
        """Return an input of sizes or axes: a list, or a node that returns one at run time."""
        value = self.inputs[position]
        if isinstance(value, Constant):
            return value.array.reshape(-1).tolist()
        return self.call(listed, value.value if isinstance(value, Sizes) else value)

    def axes(self, position: int = 1) -> Any:
        """Return the axes: an attribute in old operator sets, an input in new ones, None if not given."""
        if "axes" in self.attributes:
            return list(self.attributes["axes"])
        return self.integers(position) if self.has(position) else None

    def is_shared(self, position: int) -> bool:
        """Return whether other nodes read a constant input too."""
        value = self.inputs[position]
        return isinstance(value, Constant) and self.translator.is_shared(value)

    def item(self, node: fx.Node, index: int) -> fx.Node:
        """Return an element of a node that returns a tuple."""
        return self.call(operator.getitem, node, index)

    def layer(self, module: nn.Module, *args: Any) -> fx.Node:
        """Add a module with weights and return its output."""
        return self.translator.layer(module, args)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Add the call of a function and return its output."""
        return self.translator.graph.call_function(function, args, kwargs)


def listed(sizes: Any) -> list[Any]:
    """Return sizes or a tensor as a list of numbers."""
    if isinstance(sizes, torch.Tensor):
        return sizes.reshape(-1).tolist()
    return list(sizes) if isinstance(sizes, list | tuple) else [sizes]


Translate = Callable[[Operation], Any]  # returns the output, a node or Sizes, or a list of outputs
