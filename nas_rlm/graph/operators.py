"""Operators of a network with shapes: the typed graph on which costs and paths are counted."""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator.

    Args:
        kind: the ONNX operator.
        values: that it reads of what is computed from the inputs.
        weights: the shapes of the weights that it reads.
        outputs: the values that it makes.
        shape: of the first; a dimension that is not known is 0.
        group: of a convolution, otherwise 1.
        is_zero: it is a product with zero.
    """

    kind: str
    values: tuple[str, ...]
    weights: tuple[Shape, ...]
    outputs: tuple[str, ...]
    shape: Shape
    group: int = 1
    is_zero: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """The call of a function: what it does, the values that it is given, and those that it makes."""

    body: Body
    values: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Body:
    """What a network does, or a function with values of some types: one object for all calls that are alike.

    Args:
        inputs: the values that it is given, weights apart.
        steps: in order.
        outputs: the values that are its results.
    """

    inputs: tuple[str, ...]
    steps: tuple[Operator | Call, ...]
    outputs: tuple[str, ...]
