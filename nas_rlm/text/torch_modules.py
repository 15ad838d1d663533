"""Conversion of torch modules to canonical text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from nas_rlm.graph.torch_export import export_module
from nas_rlm.text.canonical import from_onnx


def from_torch(
    module: nn.Module,
    example_inputs: torch.Tensor | Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None = None,
) -> str:
    """Return the canonical text of a torch module in evaluation mode.

    Examples:
        >>> module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        >>> text = from_torch(module, torch.zeros(1, 3, 32, 32))
        >>> "ConvBatchNormalizationRelu" in text
        True

    The text equals that of `nas_rlm.text.from_onnx` for the same network, and that of a search space for its
    architectures. Batch normalization is not fused into convolutions. Registered buffers of floats are
    constants and no parameters.

    Args:
        module: the module; its mode and weights stay as they are.
        example_inputs: a tensor, or the positional arguments of a call; None for a call with named arguments
            alone. Their shapes are those of the network.
        kwargs: named arguments of a call.

    Raises:
        ValueError: `torch.export` cannot trace the module, or the example inputs are not those of a call.
    """
    return from_onnx(export_module(module, example_inputs, kwargs))
