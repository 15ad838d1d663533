"""Nodes of a network that is being built: values, weights, constants, operators, and calls of blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

PLAIN_NUMBERS = int, float


class TensorInfo(NamedTuple):
    """What is known of a tensor that an operator reads or computes.

    Args:
        dtype: ONNX element type.
        shape: shape, with the batch size.
        values: elements, if they are known.
        is_weight: True for a weight.
    """

    dtype: int
    shape: tuple[int, ...]
    values: tuple[Any, ...] | None = None
    is_weight: bool = False


class Inferred(NamedTuple):
    """What is known of an operator: its output, and its multiply-accumulates for the whole batch."""

    output: TensorInfo
    macs: int


@dataclass(eq=False, slots=True)
class Value:
    """The output of a node.

    Args:
        id: number that is unique in the graph.
        channels: number of channels or features.
        side: height in pixels; number of tokens of a list of tokens; length of a signal; 0 for vectors.
        width: width in pixels; 0 for vectors, lists of tokens and signals.
        info: type and shape, in a network of a user's own space.
        channels_first: its channels are behind the batch, see `search_spaces.layout`; None if that is not
            known, as of vectors and after many a Reshape.
    """

    id: int
    channels: int
    side: int
    width: int
    info: TensorInfo | None = None
    channels_first: bool | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape with the batch size, in a network of a user's own space."""
        if self.info is None:
            raise ValueError("the graph is built without checks: its values have no shapes")
        return self.info.shape

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """Shape without the batch size; in a network without checks that of an image, tokens or a vector."""
        if self.info is not None:
            return self.info.shape[1:]
        if self.width:
            return self.channels, self.side, self.width
        return (self.side, self.channels) if self.side else (self.channels,)


@dataclass(frozen=True)
class Weight:
    """A weight that an operator reads.

    Args:
        shape: shape of the tensor.
        fill: initial value; None for He's normal initialisation.
        use: number that distinguishes weights of one shape; None if all of them are one input of the model.
        tie: number of a weight that several operators read, in a model without weights; otherwise 0.
    """

    shape: tuple[int, ...]
    fill: float | None = None
    use: int | None = None
    tie: int = 0

    @property
    def signature(self) -> object:
        """Number of dimensions, which is equal in all calls of one function."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """Name in the ONNX model."""
        mark = f"_t{self.tie}" if self.tie else "" if self.use is None else f"_use{self.use}"
        return "W" + ("_".join(map(str, self.shape)) or "scalar") + mark

    @property
    def info(self) -> TensorInfo:
        """Type and shape."""
        return TensorInfo(TensorProto.FLOAT, self.shape, is_weight=True)


@dataclass(frozen=True)
class Constant:
    """A list of integers or floats, one integer or one float, that an operator reads.

    Numbers and arrays of NumPy become numbers of Python, and lists of integers and floats become floats.
    """

    value: tuple[int, ...] | tuple[float, ...] | int | float

    def __post_init__(self) -> None:
        value = self.value
        if type(value) in PLAIN_NUMBERS or (type(value) is tuple and {*map(type, value)} in ({int}, {float})):
            return
        plain = np.asarray(value).tolist()
        if isinstance(plain, list):
            plain = tuple(plain)
        object.__setattr__(self, "value", plain)

    @property
    def is_float(self) -> bool:
        """True for floats."""
        first = self.value[0] if isinstance(self.value, tuple) and self.value else self.value
        return isinstance(first, float)

    @property
    def signature(self) -> object:
        """Value of floats, which is equal in all calls of one function; integers may differ."""
        return self.value if self.is_float else "int" if isinstance(self.value, tuple) else "scalar"

    @property
    def info(self) -> TensorInfo:
        """Type, shape and elements."""
        is_list = isinstance(self.value, tuple)
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        dtype = TensorProto.FLOAT if self.is_float else TensorProto.INT64
        return TensorInfo(dtype, (len(values),) if is_list else (), values)

    @property
    def name(self) -> str:
        """Name in the ONNX model."""
        return "C" + re.sub(r"\W", "_", repr(self.value))

    def node(self) -> onnx.NodeProto:
        """Return the ONNX Constant node."""
        attribute = (
            f"value_{'float' if self.is_float else 'int'}{'s' if isinstance(self.value, tuple) else ''}"
        )
        node = helper.make_node("Constant", [], [self.name])
        node.attribute.append(helper.make_attribute(attribute, self.value))
        return node


Step = tuple[str, tuple[Constant | int, ...], tuple[tuple[str, Any], ...]]


@dataclass(frozen=True)
class Table:
    """A tensor of floats that operators compute from constants, such as a table of positions.

    It is no parameter, and its values are not part of the text. A network computes it once.

    Args:
        name: name in the ONNX model, which no other table of the network has.
        shape: shape of the tensor.
        steps: operators in order, each with its name, its inputs (constants, and positions of earlier steps)
            and its attributes. The last one computes the tensor.
    """

    name: str
    shape: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def signature(self) -> object:
        """Number of dimensions, which is equal in all calls of one function."""
        return "table", len(self.shape)

    @property
    def info(self) -> TensorInfo:
        """Type and shape."""
        return TensorInfo(TensorProto.FLOAT, self.shape)

    def nodes(self) -> list[onnx.NodeProto]:
        """Return the ONNX nodes that compute the tensor."""
        outputs = [f"{self.name}_{k}" for k in range(len(self.steps) - 1)] + [self.name]
        nodes = []
        for (kind, arguments, attributes), output in zip(self.steps, outputs, strict=True):
            inputs = []
            for k, argument in enumerate(arguments):
                if isinstance(argument, Constant):
                    constant = argument.node()
                    constant.output[0] = f"{output}_in{k}"
                    nodes.append(constant)
                    inputs.append(constant.output[0])
                else:
                    inputs.append(outputs[argument])
            nodes.append(helper.make_node(kind, inputs, [output], **dict(attributes)))
        return nodes


Leaf = Weight | Constant | Table
Argument = Value | Leaf | None  # None is an input that is omitted


@dataclass(eq=False, slots=True)
class Op:
    """An operator.

    Args:
        kind: name of the ONNX operator.
        arguments: values and leaves that it reads; None for an omitted input.
        attributes: attributes of the ONNX operator by name.
        output: value that it computes.
    """

    kind: str
    arguments: tuple[Argument, ...]
    attributes: tuple[tuple[str, Any], ...]
    output: Value

    @property
    def leaves(self) -> list[Leaf]:
        """Weights, constants and tables among the arguments, in order."""
        return [a for a in self.arguments if isinstance(a, Leaf)]


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


def ops_in(body: Sequence[Op | Call]) -> Iterator[Op]:
    """Yield all operators of a body in order, including those in blocks."""
    stack = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, Op):
            yield node
        else:
            stack.extend(reversed(node.body))


def ops_before(body: Sequence[Op | Call], out: Value) -> list[Op]:
    """Return the operators of a body on which a value depends, the last one first."""
    needed, found = {out.id}, []
    for op in reversed(list(ops_in(body))):
        if op.output.id in needed:
            needed.update(a.id for a in op.arguments if isinstance(a, Value))
            found.append(op)
    return found
