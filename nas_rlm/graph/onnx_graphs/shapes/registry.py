"""The table of shape functions, and the description of an operator's call that they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nas_rlm.graph.onnx_graphs.tensors import Dims, Tensor
from search_spaces.wording import counted

ShapeFunction = Callable[["OperatorCall"], list[Tensor]]
SHAPE_FUNCTIONS: dict[str, ShapeFunction] = {}  # by operator; operators of other domains as `domain.Operator`


class OperatorCall:
    """An operator with its attributes and what is known of its inputs.

    Args:
        kind: name of the operator, after its domain if that is not ONNX's own.
        attributes: values of the attributes by name.
        inputs: what is known of each input; None for an omitted one.
        num_outputs: number of outputs.
    """

    __slots__ = ("attributes", "inputs", "kind", "num_outputs")

    def __init__(
        self, kind: str, attributes: Mapping[str, Any], inputs: Sequence[Tensor | None], num_outputs: int
    ) -> None:
        self.kind, self.attributes, self.inputs, self.num_outputs = kind, attributes, inputs, num_outputs

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default if the operator does not have it."""
        return self.attributes.get(name, default)

    def has(self, k: int) -> bool:
        """Return True if input `k` is present."""
        return len(self.inputs) > k and self.inputs[k] is not None

    def input(self, k: int) -> Tensor:
        """Return input `k`.

        Raises:
            ValueError: it is omitted.
        """
        found = self.inputs[k] if len(self.inputs) > k else None
        if found is None:
            raise ValueError(f"input {k} is missing")
        return found

    def optional(self, k: int) -> Tensor | None:
        """Return input `k`; None if it is omitted."""
        return self.inputs[k] if len(self.inputs) > k else None

    def shape(self, k: int, rank: int | None = None) -> Dims | None:
        """Return the shape of input `k`; None if it is unknown.

        Raises:
            ValueError: the input is omitted, or does not have `rank` dimensions.
        """
        shape = self.input(k).shape
        if rank is not None and shape is not None and len(shape) != rank:
            raise ValueError(f"input {k} has {counted(len(shape), 'dimension')}: expected {rank}")
        return shape

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """Return the attribute `axis`, counted from 0.

        Raises:
            ValueError: there is no such axis.
        """
        return checked_axis(self.attribute(name, default), rank)


def checked_axis(axis: int, rank: int) -> int:
    """Return an axis counted from 0.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is not one of {rank} dimensions")
    return axis % rank


def shape_of(*kinds: str) -> Callable[[ShapeFunction], ShapeFunction]:
    """Register a function that returns what is known of the outputs of the operators `kinds`."""

    def register(function: ShapeFunction) -> ShapeFunction:
        for kind in kinds:
            SHAPE_FUNCTIONS[kind] = function
            if kind.startswith("ai.onnx.ml."):
                SHAPE_FUNCTIONS[f"large.{kind}"] = function
        return function

    return register
