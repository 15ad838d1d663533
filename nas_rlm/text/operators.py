"""The operators of a text, one after the other, with the shapes of what they read and make."""

from __future__ import annotations

import re
from dataclasses import dataclass

import onnx
from onnx import AttributeProto, numpy_helper

from .reader import inlined

_REFUSED = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
_VALUE = re.compile(r"[xvd]\d+")  # the name of what a network reads, other than its weights
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a flat graph.

    Args:
        kind: the ONNX operator.
        values: that it reads of what is computed from the network's inputs.
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


@dataclass(frozen=True)
class Flat:
    """A network without functions: the values that it is given, its operators in order, its results."""

    inputs: tuple[str, ...]
    operators: list[Operator]
    outputs: tuple[str, ...]


def is_network(text: str) -> bool:
    """Whether a text is that of a network as `from_onnx` gives it, not of a program."""
    return text.startswith("<ir_version:")


def operators(text: str) -> Flat:
    """The operators of a network's text.

    >>> import numpy as np, search_spaces
    >>> from nas_rlm.text import from_architecture
    >>> space = search_spaces.get("nats_size")
    >>> flat = operators(from_architecture(space, space.sample(np.random.default_rng(0))))
    >>> flat.operators[0].kind, flat.operators[0].shape[2:]
    ('Conv', (32, 32))

    Args:
        text: as `from_onnx` gives it.

    Raises:
        ValueError: it is no such text.
    """
    try:
        model = onnx.parser.parse_model(text)
        onnx.checker.check_model(model)
        graph = onnx.shape_inference.infer_shapes(inlined(model)).graph
    except (onnx.parser.ParseError, *_REFUSED, RuntimeError) as error:
        raise ValueError(f"{text[:60]!r} is not the text of a network: {error}") from None
    shapes = {
        v.name: tuple([d.dim_value for d in v.type.tensor_type.shape.dim])
        for v in (*graph.input, *graph.value_info, *graph.output)
    }
    inputs = tuple([v.name for v in graph.input if _VALUE.fullmatch(v.name)])
    if not inputs:
        raise ValueError(f"{text[:60]!r} has no input x0 or v0: expected a text as from_onnx gives it")
    weights = {v.name: shapes[v.name] for v in graph.input if not _VALUE.fullmatch(v.name)}
    constants: dict[str, bool] = {}  # whether they are zero
    found = []
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = _is_zero(node.attribute[0])
            continue
        read = [name for name in node.input if name]
        values = tuple([name for name in read if name not in weights and name not in constants])
        found.append(
            Operator(
                node.op_type,
                values,
                tuple([weights[name] for name in read if name in weights]),
                tuple(node.output),
                shapes.get(node.output[0], ()),
                next((a.i for a in node.attribute if a.name == "group"), 1),
                node.op_type == "Mul" and any(constants.get(name, False) for name in read),
            )
        )
    return Flat(inputs, found, tuple([v.name for v in graph.output]))


def _is_zero(value: AttributeProto) -> bool:
    if value.type == AttributeProto.FLOAT:
        return value.f == 0
    return value.type == AttributeProto.TENSOR and not numpy_helper.to_array(value.t).any()
