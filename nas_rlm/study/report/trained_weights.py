"""Trained weights of trials: whether they are of the network of the trial, and its ONNX model with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from safetensors.torch import load_file

from nas_rlm.graph.torch_module import to_torch

COMPILED, WRAPPED = "_orig_mod.", "module."  # parts of names that wrappers of a module add
# Each element of a weight gets a number, exact in float32 and no constant of a network, and it is then found
# in the torch module, whose weights may have other shapes and orders.
FIRST_MARK, MARKS = 2**22, 2**23


def weights_of_network(path: Path, model: onnx.ModelProto) -> dict[str, torch.Tensor] | None:
    """Return trained weights if they are of a network.

    Args:
        path: file of the weights.
        model: the network, with initial weights.

    Returns:
        See `matching_weights`; None also if an operator of the network has no torch module.
    """
    try:
        network = to_torch(model)
    except ValueError:
        return None
    return matching_weights(load_file(path), network.state_dict())


def matching_weights(
    weights: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor] | None:
    """Return the weights of a module among given ones, under the names of the module.

    The given ones may be of the module within `torch.compile`, `DataParallel` or `AveragedModel`, and may
    have further tensors.

    Args:
        weights: trained weights by name.
        expected: `state_dict` of the module.

    Returns:
        A weight for each name of `expected`; None if one is missing or has another shape.
    """
    for named in (weights, {_without_wrappers(name): tensor for name, tensor in weights.items()}):
        if all(key in named and named[key].shape == tensor.shape for key, tensor in expected.items()):
            return {key: named[key] for key in expected}
    return None


def _without_wrappers(name: str) -> str:
    """The name of a weight in the module that wrappers hold."""
    name = name.replace(COMPILED, "")
    while name.startswith(WRAPPED):
        name = name.removeprefix(WRAPPED)
    return name


def with_weights(model: onnx.ModelProto, weights: Mapping[str, torch.Tensor]) -> onnx.ModelProto | None:
    """Return an ONNX model with the weights of its torch module.

    Args:
        model: the model, with initial weights.
        weights: `state_dict` of `to_torch(model)`.

    Returns:
        A copy of the model; None if the weights are of another module.
    """
    tensors = _weights_of(model)
    if not tensors:
        return None
    initial = np.concatenate([numpy_helper.to_array(tensor).flatten() for tensor in tensors])
    trained = initial.copy()
    for start in range(0, len(initial), MARKS):
        marks, count = np.zeros_like(initial), min(MARKS, len(initial) - start)
        marks[start : start + count] = FIRST_MARK + np.arange(count)
        for key, tensor in to_torch(_with_values(model, marks)).state_dict().items():
            numbers = tensor.flatten().numpy()
            is_mark = (numbers >= FIRST_MARK) & (numbers < FIRST_MARK + count)
            if not tensor.is_floating_point() or not is_mark.any():
                continue
            if key not in weights or weights[key].shape != tensor.shape:
                return None
            positions = numbers[is_mark].astype(np.int64) - FIRST_MARK + start
            trained[positions] = weights[key].float().flatten().numpy()[is_mark]
    found = _with_values(model, trained)
    state = to_torch(found).state_dict()
    floats = [key for key in weights.keys() & state.keys() if state[key].is_floating_point()]
    is_equal = all(torch.allclose(state[k], weights[k].float(), 0, 0, equal_nan=True) for k in floats)
    return found if is_equal else None


def _weights_of(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The initialisers that are weights."""
    return [t for t in model.graph.initializer if t.dims and t.data_type == onnx.TensorProto.FLOAT]


def _with_values(model: onnx.ModelProto, values: np.ndarray) -> onnx.ModelProto:
    """Return a copy of a model with these elements of all its weights, in order."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    tensors = _weights_of(copy)
    ends = np.cumsum([int(np.prod(tensor.dims)) for tensor in tensors])
    for tensor, part in zip(tensors, np.split(values, ends[:-1]), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(part.reshape(tuple(tensor.dims)), tensor.name))
    return copy
