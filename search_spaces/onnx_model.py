"""The ONNX model of a network that was built: its nodes with their weights, as inputs or as initialisers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from search_spaces.functions import DOMAIN, OPSET, FunctionOutliner, node_proto
from search_spaces.nodes import Call, Constant, Op, Table, TensorInfo, Value, Weight, ops_before, ops_in

IR_VERSION = 10
MAX_FILE_BYTES = 2**31 - 2**20  # of an ONNX file with its weights, less some space for the graph


class Port(NamedTuple):
    """The input or the output of a network, with its type and its shape."""

    value: Value
    info: TensorInfo


def onnx_model(outliner: FunctionOutliner, source: Port, result: Port, seed: int | None) -> onnx.ModelProto:
    """Return the ONNX model of a network.

    Args:
        outliner: makes functions of the blocks of the network.
        source: the input of the network.
        result: its output.
        seed: random seed of the initial weights; None for weights that are inputs.

    Raises:
        ValueError: the weights are larger than an ONNX file can be.
    """
    body, functions = outliner.result()
    leaves = list(dict.fromkeys(leaf for node in body for leaf in outliner.call_arguments(node)))
    weights = [leaf for leaf in leaves if isinstance(leaf, Weight)]
    initialisers = [] if seed is None else _initialisers(weights, seed)
    nodes = [leaf.node() for leaf in leaves if isinstance(leaf, Constant)]
    nodes += [node for leaf in leaves if isinstance(leaf, Table) for node in leaf.nodes()]
    names = {source.value: "x", result.value: "y"}
    nodes += [node_proto(n, names, {}, functions) for n in body]
    inputs = [helper.make_tensor_value_info("x", source.info.dtype, list(source.info.shape))]
    if seed is None:
        inputs += [helper.make_tensor_value_info(w.name, TensorProto.FLOAT, list(w.shape)) for w in weights]
    outputs = [helper.make_tensor_value_info("y", result.info.dtype, list(result.info.shape))]
    return helper.make_model(
        helper.make_graph(nodes, "network", inputs, outputs, initialisers),
        functions=[f.proto for f in functions.values()],
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)],
        ir_version=IR_VERSION,
    )


def share_weights(body: Sequence[Op | Call], out: Value) -> None:
    """Make one input of all weights of a shape, except of weights that several operators read.

    Args:
        body: nodes of a network, changed in place.
        out: its output, which decides the operators that count.
    """
    reads = Counter(
        leaf for op in ops_before(body, out)[::-1] for leaf in op.leaves if isinstance(leaf, Weight)
    )
    ties = {w: Weight(w.shape, tie=k) for k, w in enumerate((w for w, n in reads.items() if n > 1), 1)}
    for op in ops_in(body):
        op.arguments = tuple(
            [ties.get(a) or Weight(a.shape) if isinstance(a, Weight) else a for a in op.arguments]
        )


def _initialisers(weights: Sequence[Weight], seed: int) -> list[TensorProto]:
    """Return the initial values of weights.

    Raises:
        ValueError: they are larger than an ONNX file can be.
    """
    total = sum(prod(w.shape) for w in weights)
    if 4 * total > MAX_FILE_BYTES:
        raise ValueError(
            f"the network has {total:,} weights: expected at most {MAX_FILE_BYTES // 4:,}, which fit into an"
            " ONNX file of 2 GiB"
        )
    rng = np.random.default_rng(seed)
    return [numpy_helper.from_array(_initial_values(w, rng), w.name) for w in weights]


def _initial_values(weight: Weight, rng: np.random.Generator) -> np.ndarray:
    """Return the initial values of a weight: constant, or He's normal initialisation."""
    if weight.fill is not None:
        return np.full(weight.shape, weight.fill, dtype=np.float32)
    fan_in = prod(weight.shape[1:])
    return (rng.standard_normal(weight.shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)
