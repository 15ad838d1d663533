"""Nodes of a network that is being built: values, weights, constants, operators, and calls of blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import helper


@dataclass(eq=False, slots=True)
class Value:
    """The output of a node.

    Args:
        id: number that is unique in the graph.
        channels: number of channels or features.
        side: height in pixels; 0 for features.
        width: width in pixels; 0 for features.
    """

    id: int
    channels: int
    side: int
    width: int


@dataclass(frozen=True)
class Weight:
    """A weight that an operator reads.

    Args:
        shape: shape of the tensor.
        fill: initial value; None for He's normal initialisation.
        use: number that distinguishes weights of one shape; None if all of them are one input of the model.
    """

    shape: tuple[int, ...]
    fill: float | None = None
    use: int | None = None

    @property
    def signature(self) -> object:
        """Number of dimensions, which is equal in all calls of one function."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """Name in the ONNX model."""
        return "W" + "_".join(map(str, self.shape)) + ("" if self.use is None else f"_use{self.use}")


@dataclass(frozen=True)
class Constant:
    """Integers or one float that an operator reads."""

    value: tuple[int, ...] | float

    @property
    def signature(self) -> object:
        """Value of a float, which is equal in all calls of one function; integers may differ."""
        return self.value if isinstance(self.value, float) else "int"

    @property
    def name(self) -> str:
        """Name in the ONNX model."""
        return "C" + re.sub(r"\W", "_", repr(self.value))

    def node(self) -> onnx.NodeProto:
        """Return the ONNX Constant node."""
        if isinstance(self.value, float):
            return helper.make_node("Constant", [], [self.name], value_float=self.value)
        return helper.make_node("Constant", [], [self.name], value_ints=list(self.value))


Leaf = Weight | Constant
Argument = Value | Leaf


@dataclass(eq=False, slots=True)
class Op:
    """An operator.

    Args:
        kind: name of the ONNX operator.
        arguments: values, weights and constants that it reads.
        attributes: attributes of the ONNX operator by name.
        output: value that it computes.
    """

    kind: str
    arguments: tuple[Argument, ...]
    attributes: tuple[tuple[str, Any], ...]
    output: Value

    @property
    def leaves(self) -> list[Leaf]:
        """Weights and constants among the arguments, in order."""
        return [a for a in self.arguments if not isinstance(a, Value)]


@dataclass
class Call:
    """The call of a block.

    Args:
        input: value that the block reads.
        body: nodes of the block.
        output: value that the block computes.
        key: structure of the body; equal for calls of one function.
        leaves: weights and constants that the body reads, in order.
    """

    input: Value
    body: list[Op | Call]
    output: Value
    key: tuple[object, ...] = ()
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def height(self) -> int:
        """Depth of nested blocks: 1 for a block of operators."""
        return 1 + _height(self.body)


def _height(body: Sequence[Op | Call]) -> int:
    """Return the largest height of the calls in a body; 0 without calls."""
    return max((n.height for n in body if isinstance(n, Call)), default=0)
