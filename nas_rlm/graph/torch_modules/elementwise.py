"""Translations of operators on each element: arithmetic, comparisons, activations and types."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import onnx
import torch
import torch.nn.functional as F
from onnx import helper
from torch import nn

from nas_rlm.graph.torch_modules.registry import Operation, Translate


def _function(function: Callable[..., Any]) -> Translate:
    """Return the translation of an operator without attributes to a function of tensors."""
    return lambda operation: operation.call(
        function, *(operation.tensor(i) for i in range(len(operation.inputs)))
    )


def _arithmetic(function: Callable[..., Any]) -> Translate:
    """Return the translation of an operator to a function of two tensors or of a tensor and a number."""

    def translate(operation: Operation) -> Any:
        a, b = (operation.operand(i) for i in range(2))
        is_constant = not isinstance(a, torch.fx.Node) and not isinstance(b, torch.fx.Node)
        return operation.call(function, operation.tensor(0) if is_constant else a, b)

    return translate


def _with_options(function: Callable[..., Any], **defaults: float) -> Translate:
    """Return the translation of an activation to a function with the attributes of these names."""

    def translate(operation: Operation) -> Any:
        options = {name: operation.attribute(name, value) for name, value in defaults.items()}
        return operation.call(function, operation.tensor(), **options)

    return translate


def _variadic(function: Callable[..., Any]) -> Translate:
    """Return the translation of an operator to a function of two tensors, repeated for several inputs."""
    return lambda operation: functools.reduce(
        functools.partial(operation.call, function),
        (operation.tensor(i) for i in range(len(operation.inputs))),
    )


def _mean(operation: Operation) -> Any:
    """Translate the mean of several tensors."""
    return operation.call(operator.truediv, _variadic(operator.add)(operation), len(operation.inputs))


def _divided(a: Any, b: Any) -> torch.Tensor:
    """Return the quotient, which is rounded towards zero for integers."""
    is_float = any(x.is_floating_point() for x in (a, b) if isinstance(x, torch.Tensor))
    return torch.div(a, b, rounding_mode=None if is_float else "trunc")


def _mod(operation: Operation) -> Any:
    """Translate Mod, whose sign is that of the divisor, or of the dividend with `fmod`."""
    function = torch.fmod if operation.attribute("fmod", 0) else torch.remainder
    return operation.call(function, operation.tensor(0), operation.operand(1))


def _power(base: Any, exponent: Any) -> torch.Tensor:
    """Return the power, in the type of the base."""
    power = torch.pow(base, exponent)
    return power.to(base.dtype) if isinstance(base, torch.Tensor) else power


def _clip(operation: Operation) -> Any:
    """Translate Clip to `torch.clamp`."""
    bounds = [operation.operand(i) if operation.has(i) else None for i in (1, 2)]
    return operation.call(_clamped, operation.tensor(), *bounds)


def _clamped(x: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
    """Return a tensor, limited by bounds that are numbers, tensors or None; the upper one wins."""
    if not isinstance(low, torch.Tensor) and not isinstance(high, torch.Tensor):
        return x if low is None and high is None else torch.clamp(x, low, high)
    if low is not None:
        x = x.clamp(min=low)
    return x if high is None else x.clamp(max=high)


def _hard_sigmoid(operation: Operation) -> Any:
    """Translate HardSigmoid, to `F.hardsigmoid` if the slope is 1/6."""
    alpha, beta = operation.attribute("alpha", 0.2), operation.attribute("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return operation.call(F.hardsigmoid, operation.tensor())
    return operation.call(_clamped_line, operation.tensor(), alpha, beta)


def _clamped_line(x: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    """Return `alpha * x + beta`, clamped to the range from 0 to 1."""
    return (alpha * x + beta).clamp(0, 1)


def _selu(x: torch.Tensor, alpha: float, gamma: float) -> torch.Tensor:
    """Return the scaled exponential linear unit."""
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


def _thresholded(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return the elements above a threshold, and zero for others."""
    return torch.where(x > alpha, x, torch.zeros_like(x))


def _prelu(x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Return the elements, negative ones times a slope that is broadcast."""
    return torch.where(x >= 0, x, slope * x)


def _gelu(operation: Operation) -> Any:
    """Translate Gelu, exact or with tanh."""
    return operation.call(F.gelu, operation.tensor(), approximate=operation.attribute("approximate", "none"))


def _softmax(function: Callable[..., Any]) -> Translate:
    """Return the translation of Softmax or LogSoftmax: of one axis, before operator set 13 of all from it."""

    def translate(operation: Operation) -> Any:
        if operation.opset >= 13:
            return operation.call(function, operation.tensor(), operation.attribute("axis", -1))
        axis = operation.attribute("axis", 1)
        flat = operation.call(torch.flatten, operation.tensor(), axis)
        return operation.call(_in_shape_of, operation.call(function, flat, -1), operation.tensor())

    return translate


def _in_shape_of(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the elements in the shape of another tensor."""
    return x.reshape(like.shape)


def torch_type(elem_type: int) -> torch.dtype:
    """Return the type in torch of an ONNX element type.

    Raises:
        ValueError: torch does not have the type.
    """
    name = helper.tensor_dtype_to_np_dtype(elem_type).name
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        type_name = onnx.TensorProto.DataType.Name(elem_type)
        raise ValueError(f"the type {type_name} is not supported: expected floats, integers or booleans")
    return found


def _cast(operation: Operation) -> Any:
    """Translate Cast."""
    return operation.call(torch.Tensor.to, operation.tensor(), torch_type(operation.attribute("to")))


def _cast_like(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the type of another."""
    return x.to(like.dtype)


def _dropout(operation: Operation) -> Any:
    """Translate Dropout to `nn.Dropout`, which does nothing in evaluation mode, as the operator of a file."""
    ratio = float(operation.array(1)) if operation.has(1) else 0.5
    return operation.layer(nn.Dropout(ratio), operation.tensor())


def _is_inf(operation: Operation) -> Any:
    """Translate IsInf of both signs."""
    operation.require("detect_negative", 1)
    operation.require("detect_positive", 1)
    return operation.call(torch.isinf, operation.tensor())


OPERATORS: dict[str, Translate] = {
    "Abs": _function(torch.abs),
    "Add": _arithmetic(operator.add),
    "And": _function(torch.logical_and),
    "Cast": _cast,
    "CastLike": _function(_cast_like),
    "Ceil": _function(torch.ceil),
    "Celu": _with_options(F.celu, alpha=1.0),
    "Clip": _clip,
    "Cos": _function(torch.cos),
    "Div": _arithmetic(_divided),
    "Dropout": _dropout,
    "Elu": _with_options(F.elu, alpha=1.0),
    "Equal": _arithmetic(operator.eq),
    "Erf": _function(torch.erf),
    "Exp": _function(torch.exp),
    "Floor": _function(torch.floor),
    "Gelu": _gelu,
    "Greater": _arithmetic(operator.gt),
    "GreaterOrEqual": _arithmetic(operator.ge),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _function(F.hardswish),
    "Identity": lambda operation: operation.tensor(),
    "IsInf": _is_inf,
    "IsNaN": _function(torch.isnan),
    "LeakyRelu": lambda operation: operation.call(
        F.leaky_relu, operation.tensor(), operation.attribute("alpha", 0.01)
    ),
    "Less": _arithmetic(operator.lt),
    "LessOrEqual": _arithmetic(operator.le),
    "Log": _function(torch.log),
    "LogSoftmax": _softmax(F.log_softmax),
    "Max": _variadic(torch.maximum),
    "Mean": _mean,
    "Min": _variadic(torch.minimum),
    "Mish": _function(F.mish),
    "Mod": _mod,
    "Mul": _arithmetic(operator.mul),
    "Neg": _function(torch.neg),
    "Not": _function(torch.logical_not),
    "Or": _function(torch.logical_or),
    "PRelu": _function(_prelu),
    "Pow": _arithmetic(_power),
    "Reciprocal": _function(torch.reciprocal),
    "Relu": _function(F.relu),
    "Round": _function(torch.round),
    "Selu": _with_options(_selu, alpha=1.6732632, gamma=1.0507010),
    "Sigmoid": _function(torch.sigmoid),
    "Sign": _function(torch.sign),
    "Sin": _function(torch.sin),
    "Softmax": _softmax(F.softmax),
    "Softplus": _function(F.softplus),
    "Softsign": _function(F.softsign),
    "Sqrt": _function(torch.sqrt),
    "Sub": _arithmetic(operator.sub),
    "Sum": _variadic(operator.add),
    "Tan": _function(torch.tan),
    "Tanh": _function(torch.tanh),
    "ThresholdedRelu": _with_options(_thresholded, alpha=1.0),
    "Where": _function(torch.where),
    "Xor": _function(torch.logical_xor),
}
