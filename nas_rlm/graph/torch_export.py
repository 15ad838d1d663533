"""Export of torch modules to ONNX, with batch normalization as an operator of its own."""

from __future__ import annotations

import inspect
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from nas_rlm.graph.onnx_graphs.tensors import FLOATS, MAX_FOLDED_ELEMENTS, NOT_LEARNT

WEIGHTS_FILE = "weights"  # a name, which the model refers to
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of terminals, in torch's messages


def export_module(
    module: nn.Module,
    example_inputs: torch.Tensor | Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """Return the ONNX model of a torch module in evaluation mode, by `torch.export`.

    The values of large weights are left out, since only their shapes count. Floats that are registered
    buffers or other constants of the module are marked as not learnt, except for the running statistics of
    batch normalizations.

    Args:
        module: the module; its mode and weights stay as they are.
        example_inputs: a tensor, or the positional arguments of a call; None for a call with named arguments
            alone. Their shapes are those of the model.
        kwargs: named arguments of a call.

    Raises:
        ValueError: the module cannot be exported, or the example inputs are not those of a call.
    """
    _check_module(module)
    arguments, named = _arguments(module, example_inputs, kwargs)
    try:
        with _evaluation_mode(module), _quiet(), torch.no_grad(), operators_read_once():
            exported = torch.export.export(module, arguments, named)
            program = torch.onnx.export(exported, dynamo=True, optimize=False, verbose=False)
            assert program is not None
            _leave_out_values(program)
            model: onnx.ModelProto = program.model_proto
    except ModuleNotFoundError as error:
        raise ValueError(
            f"torch modules are exported by onnxscript: pip install onnxscript ({error})"
        ) from None
    except Exception as error:  # torch.export raises exceptions of many types for code that it cannot trace
        lines = COLOUR.sub("", str(error)).splitlines()
        reason = next((line for line in lines if line.strip()), type(error).__name__)
        raise ValueError(
            f"{type(module).__name__} cannot be exported by torch.export: {reason.rstrip('.')}; expected"
            " example inputs that forward accepts, and a module without control flow on values, or an ONNX"
            " file"
        ) from None
    signature = exported.graph_signature
    _drop_zero_biases(model)
    constants = {*signature.inputs_to_buffers.values(), *signature.inputs_to_lifted_tensor_constants.values()}
    _mark_constants(model, constants - set(signature.inputs_to_parameters.values()))
    return model


def _check_module(module: nn.Module) -> None:
    """Refuse what is no module with weights.

    Raises:
        ValueError: it is no module, or a weight has no values.
    """
    if not isinstance(module, nn.Module):
        hint = ": expected an instance of the class" if isinstance(module, type) else ""
        raise ValueError(f"{module!r} is not a torch module{hint}")
    for name, weight in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(weight):
            raise ValueError(
                f"{type(module).__name__} has the lazy parameter {name!r}: call the module once before"
            )
        if weight.is_meta:
            raise ValueError(
                f"{type(module).__name__} has {name!r} on the device meta: expected weights with values,"
                " such as after module.to_empty(device='cpu')"
            )


def _arguments(
    module: nn.Module, example_inputs: torch.Tensor | Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments of a call of a module.

    Raises:
        ValueError: they are not those of a call, or have no tensors.
    """
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ValueError(f"kwargs is {_kind(kwargs)}: expected a mapping of names to arguments")
    named = dict(kwargs or {})
    if isinstance(example_inputs, torch.Tensor):
        arguments: tuple[Any, ...] = (example_inputs,)
    elif isinstance(example_inputs, tuple | list):
        arguments = tuple(example_inputs)
    elif example_inputs is None and named:
        arguments = ()
    else:
        hint = "; named arguments are given as kwargs" if isinstance(example_inputs, Mapping) else ""
        raise ValueError(
            f"example_inputs is {_kind(example_inputs)}: expected a tensor, such as"
            f" torch.zeros(1, 3, 224, 224), or a tuple of the arguments of a call{hint}"
        )
    tensors = [x for x in tree_leaves((arguments, named)) if isinstance(x, torch.Tensor)]
    if not tensors:
        given = ", ".join(_kind(x) for x in (*arguments, *named.values())) or "nothing"
        raise ValueError(f"the example inputs have no tensor ({given}): expected torch.zeros(…) for a shape")
    if any(x.is_meta for x in tensors):
        raise ValueError("an example input is on the device meta: expected the device of the module")
    try:
        inspect.signature(module.forward).bind(*arguments, **named)
    except TypeError as error:
        raise ValueError(
            f"forward of {type(module).__name__} does not take the example inputs: {error}"
        ) from None
    return arguments, named


def _kind(value: object) -> str:
    """Return the type of a value for a message."""
    return "None" if value is None else f"of type {type(value).__name__}"


def _leave_out_values(program: torch.onnx.ONNXProgram) -> None:
    """Replace the values of large weights by references to a file, which is not written.

    The text does not need them, and a model with more than two gigabytes of weights cannot be serialised.
    """
    import onnx_ir

    for name, value in program.model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.size > MAX_FOLDED_ELEMENTS:
            shape = onnx_ir.Shape(tensor.shape.numpy())
            value.const_value = onnx_ir.ExternalTensor(
                WEIGHTS_FILE, 0, tensor.nbytes, tensor.dtype, shape=shape, name=name
            )


def _drop_zero_biases(model: onnx.ModelProto) -> None:
    """Drop the biases of zero that torch's exporter adds to convolutions without a bias.

    That of a three-dimensional convolution has a wrong shape.
    """
    producers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        bias = producers.get(node.input[2]) if node.op_type == "Conv" and len(node.input) == 3 else None
        while bias is not None and bias.op_type in ("Expand", "CastLike", "Cast", "Identity"):
            bias = producers.get(bias.input[0])
        if bias is not None and bias.op_type == "Constant" and not _constant(bias).any():
            del node.input[2]


def _constant(node: onnx.NodeProto) -> np.ndarray:
    """Return the value of a Constant."""
    value = onnx.helper.get_attribute_value(node.attribute[0])
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.array(value)


def _mark_constants(model: onnx.ModelProto, names: set[str]) -> None:
    """Mark float initialisers as not learnt, except for those of batch normalizations."""
    statistics = {v for n in model.graph.node if n.op_type == "BatchNormalization" for v in n.input[1:]}
    for tensor in model.graph.initializer:
        if tensor.name in names and tensor.name not in statistics and tensor.data_type in FLOATS:
            tensor.metadata_props.add(key=NOT_LEARNT, value="true")


@contextmanager
def operators_read_once() -> Iterator[None]:
    """Read the ONNX functions of torch's operators only once in this process, within a `with` block.

    `torch.onnx.export(..., dynamo=True)` reads their source at each call, which takes longer than the rest of
    the export of a small module. It also looks up all composite operators again for each namespace of
    operators, of which there are dozens; here it does so once. Versions of torch that keep these functions
    elsewhere export as before.

    Examples:
        >>> with operators_read_once():
        ...     program = torch.onnx.export(
        ...         torch.nn.Linear(8, 4), (torch.zeros(1, 8),), dynamo=True, verbose=False
        ...     )
    """
    try:
        from torch._export import utils
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        read, look_up = ONNXRegistry.from_torchlib, utils._materialize_cpp_cia_ops
    except (ImportError, AttributeError):
        yield
        return
    with (
        patch.object(ONNXRegistry, "from_torchlib", staticmethod(_with_cache(read))),
        patch.object(utils, "_materialize_cpp_cia_ops", cache(look_up)),
    ):
        yield


@cache
def _with_cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that keeps its results, and at each call the same one."""
    return cache(function)


@contextmanager
def _evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Set a module and its parts to evaluation mode within a `with` block."""
    was_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in was_training:
            part.training = True


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings and log messages of the exporter within a `with` block."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
