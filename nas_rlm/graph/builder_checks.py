"""Shapes, element types and multiply-accumulates of the operators that a user's own search space writes.

Operators are checked as those of an ONNX file are: they exist, their inputs and attributes are as ONNX
defines them, and the shapes fit each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import numpy as np
import onnx

from nas_rlm.graph.multiplications import multiply_accumulates
from nas_rlm.graph.onnx_graphs.evaluation import evaluate
from nas_rlm.graph.onnx_graphs.flat_graph import CONTROL_FLOW, OPSET, Op
from nas_rlm.graph.onnx_graphs.operator_checks import check_operator, schema_of
from nas_rlm.graph.onnx_graphs.shapes import SHAPE_FUNCTIONS, OperatorCall
from nas_rlm.graph.onnx_graphs.tensors import (
    COMPUTED,
    MAX_FOLDED_ELEMENTS,
    STORED,
    Tensor,
    broadcast,
    check_shape,
    constant,
    num_elements,
    shape_text,
)
from nas_rlm.graph.onnx_graphs.weight_names import type_name
from search_spaces.nodes import Inferred, TensorInfo
from search_spaces.wording import counted


def infer_operator(
    kind: str, attributes: tuple[tuple[str, Any], ...], inputs: tuple[TensorInfo | None, ...]
) -> Inferred:
    """Check an operator of a builder; return its output and its multiply-accumulates.

    Args:
        kind: name of the operator.
        attributes: its attributes, with tuples in place of lists.
        inputs: what is known of its inputs; None for an omitted one.

    Raises:
        ValueError: the operator does not exist, or its inputs and attributes do not fit it or each other.
    """
    return _cached(kind, attributes, repr(attributes), inputs)


@lru_cache(maxsize=1 << 14)
def _cached(
    kind: str, attributes: tuple[tuple[str, Any], ...], text: str, inputs: tuple[TensorInfo | None, ...]
) -> Inferred:
    """See `infer_operator`; `text` distinguishes attributes such as 1 and 1.0, which are equal."""
    try:
        return _infer(kind, attributes, inputs)
    except ValueError as error:
        raise ValueError(f"graph.op({kind!r}) on {_describe(inputs)}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(
            f"graph.op({kind!r}) on {_describe(inputs)}: a wrong type or number of arguments: {error!r}"
        ) from None


def _infer(
    kind: str, attributes: tuple[tuple[str, Any], ...], inputs: tuple[TensorInfo | None, ...]
) -> Inferred:
    if kind in CONTROL_FLOW or kind == "Split":
        reason = "several outputs: use Slice" if kind == "Split" else "control flow"
        raise ValueError(f"{reason}; expected an operator with one output and without subgraphs")
    if "." in kind:
        raise ValueError("the operator of another domain: expected one of ONNX")
    if schema_of(kind, OPSET) is None:
        similar = get_close_matches(kind, _operator_names(), n=1, cutoff=0)
        raise ValueError(
            f"ONNX has no operator {kind!r} in operator set {OPSET}; did you mean {similar[0]!r}?"
        )
    values = {name: v.encode() if isinstance(v, str) else v for name, v in attributes}
    check_operator(
        Op(kind, values, tuple([None if x is None else k for k, x in enumerate(inputs)]), (0,)), OPSET
    )
    _check_types(kind, inputs)
    function = SHAPE_FUNCTIONS.get(kind)
    if function is None:
        raise ValueError("the shape of its output is not known: expected another operator")
    call = OperatorCall(kind, values, [None if x is None else _tensor(x) for x in inputs], 1)
    output = function(call)[0]
    shape = output.known_shape
    if shape is None or output.dtype <= 0:
        raise ValueError("the shape or type of its output depends on data: expected known sizes")
    check_shape(shape, "the output")
    if 0 in shape:
        raise ValueError(f"its output has the shape {list(shape)}: expected at least one element")
    _check_channels(call, shape)
    macs = multiply_accumulates(call, output)
    if macs is None:
        raise ValueError("its multiply-accumulates depend on data: expected known sizes")
    return Inferred(TensorInfo(output.dtype, shape, _values(call, output)), macs)


def _values(call: OperatorCall, output: Tensor) -> tuple[Any, ...] | None:
    """Return the elements of an output that is computed from sizes and constants alone; otherwise None."""
    sizes = output.integers
    if sizes is not None and all(type(d) is int for d in sizes):
        return sizes
    size = num_elements(output.shape)
    if size is None or size > MAX_FOLDED_ELEMENTS:
        return None
    if not call.inputs or not all(x is None or x.is_constant for x in call.inputs):
        return None
    arrays = evaluate(call.kind, call.attributes, call.inputs, 1)
    return None if arrays is None else tuple(arrays[0].reshape(-1).tolist())


def _tensor(info: TensorInfo) -> Tensor:
    """Return what is known of an input as shape functions read it."""
    if info.values is not None:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.dtype)
        return constant(np.array(info.values, dtype=dtype).reshape(info.shape), COMPUTED)
    return Tensor(info.dtype, info.shape, origin=STORED) if info.is_weight else Tensor(info.dtype, info.shape)


def _check_types(kind: str, inputs: Sequence[TensorInfo | None]) -> None:
    """Refuse element types that ONNX does not allow, and different ones of inputs that need the same type.

    Raises:
        ValueError: an input has such a type.
    """
    names, allowed = _formal_types(kind)
    types: dict[str, int] = {}
    for k, x in enumerate(inputs):
        if x is None:
            continue
        name = names[min(k, len(names) - 1)]
        own = type_name(x.dtype)
        options = allowed.get(name)
        if options is not None and f"tensor({own})" not in options:
            raise ValueError(f"input {k} is {own}: expected {', '.join(_short(options))}")
        other = types.setdefault(name, x.dtype)
        if options is not None and other != x.dtype:
            raise ValueError(f"input {k} is {own}, others are {type_name(other)}: expected one type")


def _check_channels(call: OperatorCall, shape: tuple[int, ...]) -> None:
    """Refuse scales, biases, statistics and slopes of another size than the channels.

    Raises:
        ValueError: one has another shape.
    """
    if call.kind in ("BatchNormalization", "InstanceNormalization", "GroupNormalization"):
        channels = shape[1]
        for k, x in enumerate(call.inputs[1:], 1):
            if x is not None and x.shape != (channels,):
                raise ValueError(f"input {k} has the shape {shape_text(x.shape)}: expected [{channels}]")
        groups = call.attribute("num_groups", 1)
        if groups < 1 or channels % groups:
            raise ValueError(
                f"{counted(groups, 'group does', 'groups do')} not divide {counted(channels, 'channel')}"
            )
    if call.kind == "PRelu" and broadcast([shape, call.shape(1)]) != shape:
        raise ValueError(f"the slope has the shape {shape_text(call.shape(1))}: expected one a channel")


def _short(options: frozenset[str]) -> list[str]:
    """Return a few of the types that an input may have, for a message."""
    types = sorted(o.removeprefix("tensor(").removesuffix(")") for o in options if o.startswith("tensor("))
    return ["float"] if "float" in types else types[:4]


@lru_cache(maxsize=512)
def _formal_types(kind: str) -> tuple[list[str], dict[str, frozenset[str]]]:
    """Return the type of each input in the definition of an operator, and what a variable type may be.

    The elements of a variadic input may have different types if the definition says so; such a type has no
    entry.
    """
    schema = onnx.defs.get_schema(kind, OPSET, "")
    names = [i.type_str for i in schema.inputs]
    mixed = {i.type_str for i in schema.inputs if not i.is_homogeneous}
    constraints = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    allowed = {name: constraints.get(name, frozenset((name,))) for name in names if name not in mixed}
    return names, allowed


@lru_cache(maxsize=1)
def _operator_names() -> list[str]:
    """Return the names of the operators of ONNX."""
    return sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain and schema_of(s.name, OPSET)})


def _describe(inputs: Sequence[TensorInfo | None]) -> str:
    """Return the types and shapes of inputs for a message, such as `float[1,16,8,8], weight[16]`."""
    texts = []
    for x in inputs:
        if x is None:
            texts.append("no input")
        elif x.values is not None:
            values = x.values if x.shape else x.values[0]
            texts.append(f"constant {str(values)[:40]}")
        else:
            kind = "weight" if x.is_weight else type_name(x.dtype)
            texts.append(f"{kind}{list(x.shape)}".replace(" ", ""))
    return ", ".join(texts)
