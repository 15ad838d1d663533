"""A network as operators with shapes, from which costs and path features are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Shape = tuple[int, ...]


class OperatorCosts(NamedTuple):
    """Costs of an operator.

    Args:
        macs: multiply-accumulates; None if they are not known.
        params: elements of the weights that no other operator reads.
        shared: elements of the weights that several operators read, by name.
        activations: elements of the first output; 0 if its size is not known.
        problem: reason why the multiply-accumulates are not known.
    """

    macs: int | None
    params: int
    shared: tuple[tuple[str, int], ...]
    activations: int
    problem: str = ""


NO_COSTS = OperatorCosts(0, 0, (), 0)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator with the shapes of its weights and output.

    Args:
        kind: name of the ONNX operator.
        values: names of the values that it reads; weights and constants are left out.
        weights: shapes of the weights that it reads.
        outputs: names of its outputs.
        shape: shape of the first output; 0 for an unknown dimension.
        group: groups of a convolution, otherwise 1.
        is_zero: True for a multiplication by zero.
        kernel: shape of the weight of a convolution, also of a quantized or computed one, with a height of 1
            for signals, see `as_of_images`; otherwise empty.
        costs: what the operator costs.
    """

    kind: str
    values: tuple[str, ...]
    weights: tuple[Shape, ...]
    outputs: tuple[str, ...]
    shape: Shape
    group: int = 1
    is_zero: bool = False
    kernel: Shape = ()
    costs: OperatorCosts = NO_COSTS


@dataclass(frozen=True, slots=True)
class Call:
    """The call of a function.

    Args:
        body: the called function.
        values: names of the values that the call passes; weights and constants are left out.
        outputs: names of the values that the call defines.
    """

    body: Body
    values: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Body:
    """The body of a network, or of a function for arguments of certain types and shapes.

    All calls of one function with arguments of equal types share one object.

    Args:
        inputs: names of the inputs; weights and constants are left out.
        steps: operators and calls in order.
        outputs: names of the outputs.
        input_sizes: number of elements of each input; 0 if it is not known.
    """

    inputs: tuple[str, ...]
    steps: tuple[Operator | Call, ...]
    outputs: tuple[str, ...]
    input_sizes: tuple[int, ...]


def image_side(op: Operator) -> int:
    """Return the longer image side of the output in pixels; 0 if the output is no image."""
    return max(op.shape[2:], default=0) if len(op.shape) > 2 and "MatMul" not in op.kind else 0


def as_of_images(kernel: Shape) -> Shape:
    """Return the shape of a convolution's weight; signals are images of height 1, as runtimes compute them.

    Examples:
        >>> as_of_images((16, 6, 5)), as_of_images((16, 6, 3, 3))
        ((16, 6, 1, 5), (16, 6, 3, 3))
    """
    return (*kernel[:2], 1, kernel[2]) if len(kernel) == 3 else kernel
