"""Export of torch modules to ONNX, with batch normalization as an operator of its own."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from torch import nn


def export_module(
    module: nn.Module, example_inputs: torch.Tensor | tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> onnx.ModelProto:
    """Return the ONNX model of a torch module in evaluation mode, by `torch.export`.

    Args:
        module: the module; its mode and weights stay as they are.
        example_inputs: a tensor, or the positional arguments of a call. Their shapes are those of the model.
        kwargs: named arguments of a call.

    Raises:
        ValueError: the module cannot be exported.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"{module!r} is not a torch module")
    arguments = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    try:
        with _evaluation_mode(module), _quiet(), torch.no_grad():
            exported = torch.export.export(module, arguments, dict(kwargs or {}))
            program = torch.onnx.export(exported, dynamo=True, optimize=False, verbose=False)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"torch modules are exported by onnxscript: pip install onnxscript ({error})"
        ) from None
    except Exception as error:  # torch.export raises exceptions of many types for code that it cannot trace
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(
            f"{type(module).__name__} cannot be exported by torch.export: {reason}; expected a module without"
            " control flow on values, or an ONNX file"
        ) from None
    assert program is not None
    return program.model_proto


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
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
