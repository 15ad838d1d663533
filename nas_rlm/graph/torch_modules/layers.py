"""Translations of layers with weights: convolutions, products and normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from nas_rlm.graph.torch_modules.padding import Padding
from nas_rlm.graph.torch_modules.registry import Operation, Translate

CONVOLUTIONS: dict[int, Callable[..., Any]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}
CONVOLUTION_FUNCTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED_FUNCTIONS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalization of tensors with any number of axes."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Accept any input."""


def _sides(operation: Operation) -> tuple[int, ...]:
    """Return the sides of the kernel of a convolution."""
    given = operation.attribute("kernel_shape")
    sides = tuple(given) if given else operation.array(1).shape[2:]
    if len(sides) not in CONVOLUTIONS:
        raise ValueError(f"a {operation.kind} has a kernel of sides {list(sides)}: expected 1 to 3 sides")
    return sides


def _conv(operation: Operation) -> Any:
    """Translate a convolution to `nn.Conv2d` or its like, to a function if the weight is computed."""
    sides = _sides(operation)
    padding = Padding(operation, sides)
    x = padding.padded(operation.tensor(), 0.0)
    ones = (1,) * len(sides)
    strides = tuple(operation.attribute("strides", ones))
    dilations = tuple(operation.attribute("dilations", ones))
    groups = operation.attribute("group", 1)
    has_bias = operation.has(2)
    if not operation.is_constant(1) or (has_bias and not operation.is_constant(2)):
        function = CONVOLUTION_FUNCTIONS[len(sides)]
        arguments = (
            operation.tensor(1),
            operation.optional(2),
            strides,
            padding.symmetric,
            dilations,
            groups,
        )
        return operation.call(function, x, *arguments)
    weight = operation.parameter(1)
    layer = CONVOLUTIONS[len(sides)](
        weight.shape[1] * groups,
        weight.shape[0],
        sides,
        strides,
        padding.symmetric,
        dilations,
        groups,
        bias=has_bias,
        device="meta",
    )
    layer.weight = weight
    if has_bias:
        layer.bias = operation.parameter(2)
    return operation.layer(layer, x)


def _conv_transpose(operation: Operation) -> Any:
    """Translate a transposed convolution; asymmetric padding is cut from the output."""
    if operation.attribute("output_shape") is not None:
        raise ValueError("output_shape of ConvTranspose is not supported: expected pads")
    operation.require("auto_pad", "NOTSET", "VALID")
    sides = _sides(operation)
    zeros, ones = (0,) * len(sides), (1,) * len(sides)
    padding = Padding(operation, sides)
    y = operation.call(
        TRANSPOSED_FUNCTIONS[len(sides)],
        operation.tensor(),
        operation.tensor(1),
        operation.optional(2),
        tuple(operation.attribute("strides", ones)),
        padding.symmetric,
        tuple(operation.attribute("output_padding", zeros)),
        operation.attribute("group", 1),
        tuple(operation.attribute("dilations", ones)),
    )
    return operation.call(F.pad, y, [-p for p in padding.extra]) if padding.extra else y


def _batch_norm(operation: Operation) -> Any:
    """Translate batch normalization to a module, to a function if the model itself trains."""
    epsilon = operation.attribute("epsilon", 1e-5)
    if operation.attribute("training_mode", 0):
        arguments = (operation.tensor(1), operation.tensor(2), True, 0.0, epsilon)
        return operation.call(F.batch_norm, operation.tensor(), None, None, *arguments)
    if not all(operation.is_constant(i) for i in range(1, 5)):
        mean_to_bias = [operation.tensor(i) for i in (3, 4, 1, 2)]
        return operation.call(F.batch_norm, operation.tensor(), *mean_to_bias, False, 0.0, epsilon)
    scale = operation.parameter(1)
    layer = BatchNorm2d(len(scale), epsilon, 1 - operation.attribute("momentum", 0.9))
    layer.weight, layer.bias = scale, operation.parameter(2)
    layer.running_mean = torch.from_numpy(operation.array(3).copy())
    layer.running_var = torch.from_numpy(operation.array(4).copy())
    return operation.layer(layer, operation.tensor())


def _layer_norm(operation: Operation) -> Any:
    """Translate layer normalization over the axes from one on."""
    options = {"axis": operation.attribute("axis", -1), "epsilon": operation.attribute("epsilon", 1e-5)}
    return operation.call(
        _normalized, operation.tensor(), operation.tensor(1), operation.optional(2), **options
    )


def _normalized(
    x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, axis: int, epsilon: float
) -> torch.Tensor:
    """Return a tensor, normalized over its axes from one on."""
    shape = x.shape[axis:]
    bias = bias if bias is None else bias.expand(shape)
    return F.layer_norm(x, shape, scale.expand(shape), bias, epsilon)


def _rms_norm(operation: Operation) -> Any:
    """Translate RMS normalization over the axes from one on."""
    options = {"axis": operation.attribute("axis", -1), "epsilon": operation.attribute("epsilon", 1e-5)}
    return operation.call(_rms_normalized, operation.tensor(), operation.tensor(1), **options)


def _rms_normalized(x: torch.Tensor, scale: torch.Tensor, axis: int, epsilon: float) -> torch.Tensor:
    """Return a tensor, divided by its root mean square over its axes from one on."""
    shape = x.shape[axis:]
    return F.rms_norm(x, shape, scale.expand(shape), epsilon)


def _instance_norm(operation: Operation) -> Any:
    """Translate instance normalization."""
    arguments = (None, None, True, 0.0, operation.attribute("epsilon", 1e-5), False)
    x, scale, bias = (operation.tensor(i) for i in range(3))
    return operation.call(torch.instance_norm, x, scale, bias, *arguments)


def _group_norm(operation: Operation) -> Any:
    """Translate group normalization with a scale for each channel."""
    if operation.opset < 21:
        raise ValueError("GroupNormalization before operator set 21 is not supported: expected 21 or later")
    x, scale, bias = (operation.tensor(i) for i in range(3))
    groups = operation.attribute("num_groups")
    return operation.call(F.group_norm, x, groups, scale, bias, operation.attribute("epsilon", 1e-5))


def _local_response_norm(operation: Operation) -> Any:
    """Translate normalization over neighbouring channels."""
    size = operation.attribute("size")
    if size % 2 == 0:
        raise ValueError(f"LRN of {size} channels is not supported: expected an odd number")
    options = {name: operation.attribute(name, d) for name, d in (("alpha", 1e-4), ("beta", 0.75))}
    return operation.call(
        F.local_response_norm, operation.tensor(), size, k=operation.attribute("bias", 1.0), **options
    )


def _gemm(operation: Operation) -> Any:
    """Translate a matrix product with a weight to `nn.Linear`, others to a function."""
    alpha, beta = operation.attribute("alpha", 1.0), operation.attribute("beta", 1.0)
    trans_a, trans_b = operation.attribute("transA", 0), operation.attribute("transB", 0)
    has_bias = operation.has(2)
    is_linear = not trans_a and alpha == beta == 1.0 and operation.is_constant(1)
    is_linear = is_linear and (trans_b or not operation.is_shared(1))
    if has_bias:
        is_linear = is_linear and operation.is_constant(2) and operation.array(2).ndim == 1
    if not is_linear:
        arguments = (operation.tensor(0), operation.tensor(1), operation.optional(2))
        return operation.call(_product, *arguments, trans_a, trans_b, alpha, beta)
    weight = operation.parameter(1)
    weight = weight if trans_b else nn.Parameter(weight.data.T.contiguous())
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=has_bias, device="meta")
    layer.weight = weight
    if has_bias:
        layer.bias = operation.parameter(2)
        if len(layer.bias) != len(weight):
            layer.bias = nn.Parameter(layer.bias.data.expand(len(weight)).contiguous())
    return operation.layer(layer, operation.tensor())


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    trans_a: int,
    trans_b: int,
    alpha: float,
    beta: float,
) -> torch.Tensor:
    """Return `alpha * a @ b + beta * c`, where a and b may be transposed."""
    product = alpha * torch.matmul(a.T if trans_a else a, b.T if trans_b else b)
    return product if c is None else product + beta * c


OPERATORS: dict[str, Translate] = {
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _local_response_norm,
    "LayerNormalization": _layer_norm,
    "MatMul": lambda operation: operation.call(torch.matmul, operation.tensor(0), operation.tensor(1)),
    "RMSNormalization": _rms_norm,
}
