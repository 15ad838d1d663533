"""Translations of operators on sizes: Python integers and lists that are computed from shapes at run time."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch

from nas_rlm.graph.torch_modules.registry import Constant, Operation, Sizes, Translate


def _shape(operation: Operation) -> Sizes:
    """Translate Shape of a tensor."""
    start, end = operation.attribute("start", 0), operation.attribute("end")
    return Sizes(operation.call(_shape_of, operation.tensor(), start, end))


def _shape_of(x: torch.Tensor, start: int, end: int | None) -> list[int]:
    """Return the sides of a tensor from a first to before a last."""
    return list(x.shape[start:end])


def _size(operation: Operation) -> Sizes:
    """Translate Size of a tensor."""
    return Sizes(operation.call(torch.numel, operation.tensor()))


def _values(operation: Operation) -> list[Any] | None:
    """Return the inputs as sizes, None if one of them is a tensor or a constant of other types."""
    values: list[Any] = []
    for value in operation.inputs:
        if isinstance(value, Sizes):
            values.append(value.value)
        elif isinstance(value, Constant) and value.array.ndim < 2 and value.array.dtype.kind in "iub":
            values.append(value.array.tolist())
        else:
            return None
    return values


def _by_element(name: str) -> Translate:
    """Return the translation of an operator to a function of ELEMENT_FUNCTIONS, with broadcasting."""

    def translate(operation: Operation) -> Sizes | None:
        values = _values(operation)
        return None if values is None else Sizes(operation.call(_each, name, *values))

    return translate


def _each(name: str, *sizes: Any) -> Any:
    """Return the result of a function for each element."""
    function = ELEMENT_FUNCTIONS[name]
    if not any(isinstance(size, list) for size in sizes):
        return function(*sizes)
    lists = [size if isinstance(size, list) else [size] for size in sizes]
    length = max(len(items) for items in lists) if all(lists) else 0
    columns = [items * length if len(items) == 1 else items for items in lists]
    return [function(*items) for items in zip(*columns, strict=True)]


def _divide(a: int, b: int) -> int:
    """Return the quotient, rounded towards zero as in ONNX."""
    return a // b if (a >= 0) == (b >= 0) else -(-a // b)


ELEMENT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "divide": _divide,
    "equal": operator.eq,
    "greater": operator.gt,
    "less": operator.lt,
    "maximum": max,
    "minimum": min,
    "multiply": operator.mul,
    "negative": operator.neg,
    "subtract": operator.sub,
    "where": lambda condition, a, b: a if condition else b,
}


def _cast(operation: Operation) -> Sizes | None:
    """Translate Cast to an integer type, which changes nothing."""
    if operation.attribute("to") != onnx.TensorProto.INT64:
        return None
    return Sizes(operation.inputs[0].value)


def _gather(operation: Operation) -> Sizes | None:
    """Translate Gather of constant positions."""
    values = _values(operation)
    return None if values is None or not operation.is_constant(1) else Sizes(operation.call(_take, *values))


def _take(sizes: list[int], positions: int | list[int]) -> int | list[int]:
    """Return the elements at one position or several."""
    return [sizes[i] for i in positions] if isinstance(positions, list) else sizes[positions]


def _concat(operation: Operation) -> Sizes | None:
    """Translate Concat."""
    values = _values(operation)
    return None if values is None else Sizes(operation.call(_joined, values))


def _joined(lists: list[list[int]]) -> list[int]:
    """Return the elements of all lists in one."""
    return list(itertools.chain.from_iterable(lists))


def _unsqueeze(operation: Operation) -> Sizes | None:
    """Translate Unsqueeze of one number; its axis can only be the first."""
    axes = operation.axes()
    return Sizes(operation.call(_list_of, operation.inputs[0].value)) if axes in ([0], [-1]) else None


def _list_of(size: int) -> list[int]:
    """Return a list of one number."""
    return [size]


def _squeeze(operation: Operation) -> Sizes:
    """Translate Squeeze of a list of one number."""
    return Sizes(operation.call(_take, operation.inputs[0].value, 0))


def _slice(operation: Operation) -> Sizes | None:
    """Translate Slice with bounds of one number each."""
    values = _values(operation)
    if values is None or not all(isinstance(v, list) and len(v) == 1 for v in values[1:]):
        return None
    return Sizes(
        operation.call(_part, values[0], values[1][0], values[2][0], values[4][0] if values[4:] else 1)
    )


def _part(sizes: list[int], start: int, end: int, step: int) -> list[int]:
    """Return a part of a list; with a negative step, an end before the first element includes it."""
    if step < 0 and end < -len(sizes):
        return sizes[start::step]
    return sizes[start:end:step]


def _product(operation: Operation) -> Sizes | None:
    """Translate ReduceProd of a list."""
    product = operation.call(math.prod, operation.inputs[0].value)
    return Sizes(operation.call(_list_of, product) if operation.attribute("keepdims", 1) else product)


def _length(operation: Operation) -> Sizes:
    """Translate Shape of a list."""
    if operation.attributes:
        raise ValueError("Shape of a shape has start or end: expected none")
    return Sizes(operation.call(_list_of, operation.call(len, operation.inputs[0].value)), is_length=True)


def _constant_of_shape(operation: Operation) -> Sizes | None:
    """Translate ConstantOfShape of the length of a list of sizes, to a list of as many integers."""
    value = operation.attributes.get("value")
    array = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    if not operation.inputs[0].is_length or array.dtype.kind != "i":
        return None
    return Sizes(operation.call(_repeated, array.item(), operation.inputs[0].value))


def _repeated(value: int, lengths: list[int]) -> list[int]:
    """Return a list of one number, repeated."""
    return [value] * lengths[0]


def _reshape(operation: Operation) -> Sizes | None:
    """Translate Reshape to one axis."""
    if not operation.is_constant(1) or operation.array(1).tolist() != [-1]:
        return None
    return Sizes(operation.integers(0))


SIZE_OPERATORS: dict[str, Translate] = {
    "Add": _by_element("add"),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _by_element("divide"),
    "Equal": _by_element("equal"),
    "Gather": _gather,
    "Greater": _by_element("greater"),
    "Less": _by_element("less"),
    "Max": _by_element("maximum"),
    "Min": _by_element("minimum"),
    "Mul": _by_element("multiply"),
    "Neg": _by_element("negative"),
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Shape": _length,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _by_element("subtract"),
    "Unsqueeze": _unsqueeze,
    "Where": _by_element("where"),
}
OPERATORS: dict[str, Translate] = {"Shape": _shape, "Size": _size}
