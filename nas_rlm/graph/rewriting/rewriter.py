"""The state of a network while it is rewritten, which rules and conversions read and change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

from nas_rlm.graph.onnx_graphs.flat_graph import FlatGraph, Network, Op
from nas_rlm.graph.onnx_graphs.tensors import Tensor


class Rewriter(ABC):
    """A network while it is rewritten.

    Args:
        network: the network.

    Attributes:
        tensors: what is known of each value.
        readers: how often each value of the current graph is read, as of the start of a pass.
        producers: the operator that defines each value.
        renamed: values that are replaced by another one.
        opset: operator set of the file.
    """

    def __init__(self, network: Network) -> None:
        self.network, self.graph, self.tensors = network, network.graph, network.tensors
        self.new_value, self.opset = network.new_value, network.opset
        self.readers: Counter[int] = Counter()
        self.producers: dict[int, Op] = {}
        self.renamed: dict[int, int] = {}

    @abstractmethod
    def infer(self, op: Op) -> list[Op]:
        """Record what is known of the outputs of an operator; return it, or nothing if it was folded."""

    @abstractmethod
    def read_op(self, op: Op, graph: FlatGraph) -> list[Op]:
        """Return the operators that replace an operator of the file, and record what is known of them."""

    @abstractmethod
    def normalize(self, graph: FlatGraph) -> None:
        """Bring a graph into its normal form, in place."""

    def resolve(self, value: int) -> int:
        """Return the value that replaces a value; itself without one."""
        while value in self.renamed:
            value = self.renamed[value]
        return value

    def rename(self, old: int, new: int | None) -> None:
        """Replace a value by another one."""
        if new is None:
            raise ValueError("an omitted input is used as a value")
        self.renamed[old] = new
        self.tensors[old] = self.tensors[new]

    def new(self, tensor: Tensor) -> int:
        """Return the number of a new value of which this is known."""
        value = self.new_value()
        self.tensors[value] = tensor
        return value

    def tensor(self, op: Op, k: int) -> Tensor | None:
        """Return what is known of input `k` of an operator; None if it is omitted."""
        value = op.inputs[k] if len(op.inputs) > k else None
        return None if value is None else self.tensors[value]

    def exclusive_producer(self, value: int | None, kind: str) -> Op | None:
        """Return the operator that defines a value; None if it is not `kind` or others read the value too."""
        if value is None or self.readers[value] != 1:
            return None
        op = self.producers.get(value)
        return op if op is not None and op.kind == kind else None
