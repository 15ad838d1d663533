"""Translations of pools and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from nas_rlm.graph.torch_modules.padding import Padding
from nas_rlm.graph.torch_modules.registry import Operation, Translate

MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOLS: dict[int, Callable[..., Any]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _pool(operation: Operation) -> tuple[Padding, dict[str, Any]]:
    """Return the padding and options of a pool."""
    sides = tuple(operation.attribute("kernel_shape"))
    if len(sides) not in MAX_POOLS:
        raise ValueError(f"a {operation.kind} has a window of sides {list(sides)}: expected 1 to 3 sides")
    padding = Padding(operation, sides)
    return padding, {
        "kernel_size": sides,
        "stride": tuple(operation.attribute("strides", (1,) * len(sides))),
        "padding": padding.symmetric,
        "ceil_mode": bool(operation.attribute("ceil_mode", 0)),
    }


def _max_pool(operation: Operation) -> Any:
    """Translate a max pool, without its indices."""
    padding, options = _pool(operation)
    rank = len(padding.symmetric)
    dilations = tuple(operation.attribute("dilations", (1,) * rank))
    x = padding.padded(operation.tensor(), -math.inf)
    return operation.call(MAX_POOLS[rank], x, dilation=dilations, **options)


def _average_pool(operation: Operation) -> Any:
    """Translate an average pool, which by default does not count padding."""
    padding, options = _pool(operation)
    rank = len(padding.symmetric)
    dilations = list(operation.attribute("dilations", (1,) * rank))
    if dilations != [1] * rank:
        raise ValueError(f"dilations {dilations} of AveragePool are not supported: expected none")
    counts_padding = bool(operation.attribute("count_include_pad", 0))
    x = padding.padded(operation.tensor(), 0.0)
    function = AVERAGE_POOLS[rank]
    average = operation.call(function, x, count_include_pad=counts_padding, **options)
    if counts_padding or not padding.is_needed():
        return average
    ones = padding.padded(operation.call(torch.ones_like, operation.tensor()), 0.0)
    return operation.call(torch.div, average, operation.call(function, ones, **options))


def _global_pool(function: Callable[..., Any]) -> Translate:
    """Return the translation of a pool over all axes after the channels."""
    return lambda operation: operation.call(_pooled, operation.tensor(), function.__name__)


def _pooled(x: torch.Tensor, function: str) -> torch.Tensor:
    """Return the mean or maximum over all axes after the channels."""
    axes = tuple(range(2, x.ndim))
    return x.mean(axes, keepdim=True) if function == "mean" else x.amax(axes, keepdim=True)


def _reduction(function: str) -> Translate:
    """Return the translation of a reduction to one of `REDUCTIONS`."""

    def translate(operation: Operation) -> Any:
        axes = operation.axes()
        if not axes and operation.attribute("noop_with_empty_axes", 0):
            return operation.tensor()
        keep = bool(operation.attribute("keepdims", 1))
        return operation.call(_reduced, operation.tensor(), function, axes, keep)

    return translate


def _reduced(x: torch.Tensor, function: str, axes: list[int] | None, keep: bool) -> torch.Tensor:
    """Return a reduction over axes, over all if there are none."""
    return REDUCTIONS[function](x, tuple(axes or range(x.ndim)), keep)


def _product(x: torch.Tensor, axes: tuple[int, ...], keep: bool) -> torch.Tensor:
    """Return the product over axes."""
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


REDUCTIONS: dict[str, Callable[[torch.Tensor, tuple[int, ...], bool], torch.Tensor]] = {
    "l1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "l2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keepdim=keep),
    "log_sum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "log_sum_exp": lambda x, axes, keep: x.logsumexp(axes, keepdim=keep),
    "max": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "mean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "min": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "product": _product,
    "sum": lambda x, axes, keep: x.sum(axes, keepdim=keep, dtype=x.dtype),
    "sum_square": lambda x, axes, keep: x.square().sum(axes, keepdim=keep, dtype=x.dtype),
}


def _arg_extreme(function: Callable[..., Any]) -> Translate:
    """Return the translation of the position of an extreme value."""

    def translate(operation: Operation) -> Any:
        operation.require("select_last_index", 0)
        axis, keep = operation.attribute("axis", 0), bool(operation.attribute("keepdims", 1))
        return operation.call(function, operation.tensor(), axis, keep)

    return translate


OPERATORS: dict[str, Translate] = {
    "ArgMax": _arg_extreme(torch.argmax),
    "ArgMin": _arg_extreme(torch.argmin),
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool(torch.mean),
    "GlobalMaxPool": _global_pool(torch.amax),
    "MaxPool": _max_pool,
    "ReduceL1": _reduction("l1"),
    "ReduceL2": _reduction("l2"),
    "ReduceLogSum": _reduction("log_sum"),
    "ReduceLogSumExp": _reduction("log_sum_exp"),
    "ReduceMax": _reduction("max"),
    "ReduceMean": _reduction("mean"),
    "ReduceMin": _reduction("min"),
    "ReduceProd": _reduction("product"),
    "ReduceSum": _reduction("sum"),
    "ReduceSumSquare": _reduction("sum_square"),
}
