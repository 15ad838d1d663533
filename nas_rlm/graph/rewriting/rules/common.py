"""Rewrite rules that others use."""

from __future__ import annotations

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.rewriting.rewriter import Rewriter


def drop(graph: Rewriter, op: Op) -> list[Op]:
    """Remove the operator: its output is replaced by its first input."""
    graph.rename(op.outputs[0], op.inputs[0])
    return []


def has_read_outputs(graph: Rewriter, op: Op) -> bool:
    """Return True if an output other than the first one is read."""
    return any(graph.readers[v] for v in op.outputs[1:])
