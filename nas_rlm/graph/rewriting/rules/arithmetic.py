"""Rewrite rules of arithmetic operators, and of functions that exporters write with them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from nas_rlm.graph.onnx_graphs.flat_graph import Op
from nas_rlm.graph.onnx_graphs.tensors import VARIABLE, constant
from nas_rlm.graph.rewriting.rewriter import Rewriter
from nas_rlm.graph.rewriting.rules.common import drop

# Distance from 1 to the next larger number. Exporters often round numbers of type double to float.
_PRECISIONS: dict[int, float] = {
    TensorProto.FLOAT16: 2.0**-10,
    TensorProto.BFLOAT16: 2.0**-7,
    TensorProto.FLOAT: 2.0**-23,
    TensorProto.DOUBLE: 2.0**-23,
}


def cast(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a cast to the type that the input already has."""
    x = graph.tensor(op, 0)
    is_same = x is not None and x.dtype == op.attributes["to"]
    return drop(graph, op) if is_same else None


def cast_like(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace by Cast."""
    kind = graph.tensors[op.outputs[0]].dtype
    return [Op("Cast", {"to": kind}, op.inputs[:1], op.outputs)] if kind > 0 else None


def drop_neutral(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop an addition or subtraction of scalar zero, and a multiplication or division by scalar one."""
    positions = (0, 1) if op.kind in ("Add", "Mul") else (1,)
    for k in positions:
        x = graph.tensor(op, k)
        value = None if x is None or x.shape != () else x.array
        if value is not None and value == (op.kind in ("Mul", "Div")):
            graph.rename(op.outputs[0], op.inputs[1 - k])
            return []
    return None


def multiply(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace by HardSwish or Gelu, drop a factor of one, and write a factor of one element as a scalar."""
    if drop_neutral(graph, op) is not None:
        return []
    if op.kind == "Mul":
        for x, gate in (op.inputs, op.inputs[::-1]):
            producer = graph.exclusive_producer(gate, "HardSigmoid")
            if producer is not None and producer.inputs[0] == x and _is_hard_swish(producer):
                return [Op("HardSwish", {}, (x,), op.outputs)]
        gelu_input = _gelu_input(graph, op)
        if gelu_input is not None:
            return [Op("Gelu", {}, (gelu_input,), op.outputs)]
    return _scalar_factor(graph, op)


def _scalar_factor(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write a constant factor of one element as a scalar."""
    for k in (0, 1):
        x, other = graph.tensor(op, k), graph.tensor(op, 1 - k)
        if x is None or not x.shape or other is None or other.shape is None or x.origin == VARIABLE:
            continue
        is_single = all(d == 1 for d in x.shape) and len(x.shape) <= len(other.shape)
        if is_single and x.array is not None:
            inputs = list(op.inputs)
            inputs[k] = graph.new(constant(x.array.reshape(()), x.origin))
            return [op.changed(inputs)]
    return None


def _is_hard_swish(gate: Op) -> bool:
    """Return True for the HardSigmoid of a HardSwish."""
    alpha, beta = gate.attributes.get("alpha", 0.2), gate.attributes.get("beta", 0.5)
    return beta == 0.5 and _is_close(alpha, 1 / 6, _PRECISIONS[TensorProto.FLOAT])


def _gelu_input(graph: Rewriter, op: Op) -> int | None:
    """Return x for a product that computes x / 2 · (1 + erf(x / √2)); None for any other."""
    factors = _factors(graph, op)
    halves = [v for v in factors if _is_number(graph, v, 0.5)]
    gates = [v for v in factors if graph.exclusive_producer(v, "Add") is not None]
    rest = [v for v in factors if v not in (*halves[:1], *gates[:1])]
    if len(factors) != 3 or len(halves) != 1 or len(gates) != 1 or len(rest) != 1:
        return None
    add = graph.exclusive_producer(gates[0], "Add")
    assert add is not None
    for erf_value, one in (add.inputs, add.inputs[::-1]):
        erf = graph.exclusive_producer(erf_value, "Erf")
        if erf is None or not _is_number(graph, one, 1.0):
            continue
        for kind, scalar in (("Div", 2**0.5), ("Mul", 0.5**0.5)):
            scaled = graph.exclusive_producer(erf.inputs[0], kind)
            if scaled is None:
                continue
            pairs = (scaled.inputs, scaled.inputs[::-1]) if kind == "Mul" else (scaled.inputs,)
            numbers = [number for x, number in pairs if x == rest[0] and _is_number(graph, number, scalar)]
            constants = (halves[0], one, *numbers)
            if numbers and all(_keeps_shape(graph, v, rest[0]) for v in constants):
                return rest[0]
    return None


def _keeps_shape(graph: Rewriter, number: int | None, value: int) -> bool:
    """Return True if a constant of one element does not add dimensions to a value."""
    shape = () if number is None else graph.tensors[number].shape
    other = graph.tensors[value].shape
    return not shape or (other is not None and len(shape) <= len(other))


def _factors(graph: Rewriter, op: Op) -> list[int]:
    """Return the factors of a product of two or three values."""
    factors: list[int] = []
    for v in op.inputs:
        inner = graph.exclusive_producer(v, "Mul") if len(factors) < 2 else None
        factors += [w for w in (inner.inputs if inner is not None else (v,)) if w is not None]
    return factors


def _is_number(graph: Rewriter, value: int | None, expected: float) -> bool:
    """Return True for a constant of one element that is a number, up to the rounding of its type."""
    x = graph.tensors[value] if value is not None else None
    if x is None or x.origin == VARIABLE or x.array is None or x.array.size != 1:
        return False
    if x.dtype not in _PRECISIONS:
        return False
    return _is_close(float(x.array.reshape(-1)[0]), expected, _PRECISIONS[x.dtype])


def _is_close(value: float, expected: float, precision: float) -> bool:
    """Return True if a number differs from a positive one by rounding."""
    return abs(value - expected) <= 2 * precision * expected


def add(graph: Rewriter, op: Op) -> list[Op] | None:
    """Replace MatMul of matrices plus a bias vector by Gemm, and drop an addition of zero."""
    if drop_neutral(graph, op) is not None:
        return []
    for product, bias in (op.inputs, op.inputs[::-1]):
        matmul = graph.exclusive_producer(product, "MatMul")
        x = graph.tensors[bias] if bias is not None else None
        if matmul is None or x is None or x.shape is None or len(x.shape) != 1 or x.origin == VARIABLE:
            continue
        if graph.tensors[op.outputs[0]].shape != graph.tensors[matmul.outputs[0]].shape:
            continue
        left, right = graph.tensor(matmul, 0), graph.tensor(matmul, 1)
        if left is not None and right is not None and len(left.shape or ()) == len(right.shape or ()) == 2:
            return [Op("Gemm", {}, (*matmul.inputs, bias), op.outputs)]
    return None


def clip(graph: Rewriter, op: Op) -> list[Op] | None:
    """Write bounds as scalars, and drop those that no finite number exceeds."""
    inputs = list(op.inputs)
    for k in range(1, len(inputs)):
        x = graph.tensor(op, k)
        if x is None or x.array is None or x.array.size != 1:
            continue
        bound = x.array.reshape(())
        sign = -1 if k == 1 else 1
        if x.dtype == TensorProto.FLOAT and sign * bound >= np.finfo(np.float32).max:
            inputs[k] = None
        elif x.shape:
            inputs[k] = graph.new(constant(bound, x.origin))
    while inputs[-1] is None:
        inputs.pop()
    return [op.changed(inputs)] if tuple(inputs) != op.inputs else None


def where(graph: Rewriter, op: Op) -> list[Op] | None:
    """Drop a choice whose condition is constant."""
    condition = graph.tensor(op, 0)
    value = None if condition is None else condition.array
    if value is None or value.size == 0 or not (value.all() or not value.any()):
        return None
    chosen = op.inputs[1 if value.all() else 2]
    if chosen is None or graph.tensors[chosen].known_shape != graph.tensors[op.outputs[0]].known_shape:
        return None
    graph.rename(op.outputs[0], chosen)
    return []
