"""What a network in the making is of: values, weights, constants, operators, and calls of blocks of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import helper


@dataclass(eq=False, slots=True)
class Value:
    """What a node computes: channels, height (`side`) and width of a map, or features where both are 0."""

    id: int
    channels: int
    side: int
    width: int


@dataclass(frozen=True)
class Weight:
    """A weight, declared where it is used; `fill` is its initial value, None for He's normal."""

    shape: tuple[int, ...]
    fill: float | None = None
    use: int | None = None

    @property
    def sort(self) -> object:
        """What calls of one function have in common."""
        return len(self.shape)

    @property
    def name(self) -> str:
        return "W" + "_".join(map(str, self.shape)) + ("" if self.use is None else f"_use{self.use}")


@dataclass(frozen=True)
class Constant:
    """Integers or one float that an operator reads."""

    value: tuple[int, ...] | float

    @property
    def sort(self) -> object:
        """Floats are structure; integers may differ between calls of one function."""
        return self.value if isinstance(self.value, float) else "int"

    @property
    def name(self) -> str:
        return "C" + re.sub(r"\W", "_", repr(self.value))

    def node(self) -> onnx.NodeProto:
        if isinstance(self.value, float):
            return helper.make_node("Constant", [], [self.name], value_float=self.value)
        return helper.make_node("Constant", [], [self.name], value_ints=list(self.value))


Leaf = Weight | Constant
Argument = Value | Leaf


@dataclass(eq=False, slots=True)
class Op:
    """An operator of a network: what it reads, its attributes by name, and what it computes."""

    kind: str
    arguments: tuple[Argument, ...]
    attributes: tuple[tuple[str, Any], ...]
    output: Value

    @property
    def leaves(self) -> list[Leaf]:
        return [a for a in self.arguments if not isinstance(a, Value)]


@dataclass
class Call:
    """A block in a network: what it reads, the nodes between, and what it computes."""

    input: Value
    body: list[Op | Call]
    output: Value
    key: tuple[object, ...] = ()
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def height(self) -> int:
        """Blocks within blocks: 1 for a block of operators."""
        return 1 + _height(self.body)


def _height(body: Sequence[Op | Call]) -> int:
    return max((n.height for n in body if isinstance(n, Call)), default=0)
