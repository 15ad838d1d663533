"""Example inputs of networks, with values that every operator accepts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import onnx
from onnx import helper

from nas_rlm.graph.onnx_graphs.input_shapes import check_input_shapes, input_shapes, subgraphs
from nas_rlm.graph.onnx_graphs.weight_names import mark_of_name, type_name, weight_name

MAX_INFERRED_ELEMENTS = 4096  # larger weights are not read by shape inference
Inputs = dict[str, np.ndarray]  # by name

MASK = "mask"  # part of the name of attention masks
# Operators that pass on the values of their inputs, so that an index stays one.
_MOVING_OPERATORS = frozenset(
    (
        *("Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape"),
        *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
_GATHER_OPERATORS = ("Gather", "GatherElements")  # read indices of an axis of their first input
_INDEX_OPERATORS = ("EmbedLayerNormalization", "GatherND", "OneHot", "ScatterElements", "ScatterND")


def example_inputs(model: onnx.ModelProto) -> Inputs:
    """Return an array for each input of a model.

    Floats are random. Integers that a Gather reads as indices are random valid indices, integers of 8 bits
    have any value, and other integers, booleans and attention masks are ones.

    Args:
        model: model without local functions whose inputs have known shapes.

    Raises:
        ValueError: the model has no inputs, an open dimension, an input that is not a tensor of floats,
            integers or booleans, or weights as inputs.
    """
    check_input_shapes(model)
    shapes = input_shapes(model)
    if not shapes:
        raise ValueError("the model has no inputs: expected at least one")
    elem_types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    bounds = _index_bounds(model)
    rng = np.random.default_rng(0)
    arrays = {}
    for name, shape in shapes.items():
        dtype, sizes = _dtype(name, elem_types[name]), tuple(size or 0 for size in shape or ())
        if name == weight_name(type_name(elem_types[name]), sizes, *mark_of_name(name)):
            raise ValueError(
                f"the model reads the weight {name} as an input: expected weights as initialisers"
                " (nas-rlm export --weights)"
            )
        arrays[name] = _values(name, dtype, sizes, bounds.get(name), rng)
    return arrays


def describe_inputs(inputs: Inputs) -> str:
    """Return the types and shapes of inputs, for error messages."""
    return ", ".join(f"{name} ({x.dtype}{list(x.shape)})" for name, x in inputs.items())


def _dtype(name: str, elem_type: int) -> np.dtype:
    """Return the NumPy type of an input.

    Raises:
        ValueError: it has no type of floats, integers or booleans in NumPy.
    """
    if elem_type == onnx.TensorProto.UNDEFINED:
        raise ValueError(f"input {name!r} is not a tensor: expected floats, integers or booleans")
    dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    if dtype.kind not in "fiub" or not dtype.isnative or dtype.type.__module__ != "numpy":
        raise ValueError(
            f"input {name!r} has the type {type_name(elem_type)}:"
            " expected float, float16, double, integers of 8 to 64 bits, or booleans"
        )
    return dtype


def _values(
    name: str, dtype: np.dtype, shape: tuple[int, ...], bound: int | None, rng: np.random.Generator
) -> np.ndarray:
    """Return the values of an input, which are indices below `bound` if it is given."""
    if dtype.kind in "iu" and bound is not None:
        return np.asarray(rng.integers(min(bound, np.iinfo(dtype).max), size=shape)).astype(dtype)
    if dtype.kind == "b" or MASK in name.lower():
        return np.ones(shape, dtype)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    if dtype.itemsize == 1:
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max + 1, size=shape)).astype(dtype)
    return np.ones(shape, dtype)


def _index_bounds(model: onnx.ModelProto) -> dict[str, int]:
    """Return the largest number of valid indices from 0 for each input that is read as indices."""
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    graphs = (model.graph, *subgraphs(model.graph))
    for node in chain.from_iterable(graph.node for graph in graphs):
        for position, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, position))
    inferred = _infer_shapes(model).graph
    shapes = {tensor.name: tuple(tensor.dims) for graph in graphs for tensor in graph.initializer}
    for value in (*inferred.input, *inferred.value_info):
        shapes.setdefault(value.name, tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim))
    bounds = {}
    for name in input_shapes(model):
        found = list(_bounds_of_readers(name, readers, shapes))
        if found:
            bounds[name] = max(1, min(found))
    return bounds


def _bounds_of_readers(
    name: str, readers: dict[str, list[tuple[onnx.NodeProto, int]]], shapes: dict[str, tuple[int, ...]]
) -> Iterator[int]:
    """Yield the number of valid indices for each operator that reads a value as indices; 1 if unknown."""
    waiting, seen = [name], {name}
    while waiting:
        for node, position in readers.get(waiting.pop(), ()):
            if node.op_type in _GATHER_OPERATORS and position == 1:
                axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
                data_shape = shapes.get(node.input[0], ())
                yield data_shape[axis] if -len(data_shape) <= axis < len(data_shape) else 1
            elif node.op_type in _INDEX_OPERATORS:
                yield 1
            is_moved = node.op_type in _MOVING_OPERATORS or (
                node.op_type in _GATHER_OPERATORS and position == 0
            )
            if is_moved:
                outputs = [output for output in node.output if output and output not in seen]
                seen.update(outputs)
                waiting += outputs


def _infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph of a model with the shapes of all values that ONNX can infer, without large weights.

    Args:
        model: the model, which is not changed. The shapes of its outputs are inferred anew.

    The inference runs native code, so that this belongs in a worker process.
    """
    light = onnx.ModelProto(ir_version=max(model.ir_version, 8))
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    initializer_names = {tensor.name for tensor in model.graph.initializer}
    light.graph.input.extend(value for value in model.graph.input if value.name not in initializer_names)
    for tensor in model.graph.initializer:
        is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if is_external or int(np.prod(tensor.dims)) > MAX_INFERRED_ELEMENTS:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
        else:
            light.graph.initializer.append(tensor)
    light.graph.output.extend(model.graph.output)
    for value in light.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        return onnx.shape_inference.infer_shapes(light)
    except Exception:  # ONNX raises many types; a shape that is not inferred stays unknown
        return light
