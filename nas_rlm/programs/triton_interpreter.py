"""Corrections of Triton's interpreter, and what programs for a GPU need in it.

The interpreter stores bfloat16 as uint16 and computes with these bit patterns as if they were integers.
Here its operations convert such operands to float32, and round results to the nearest bfloat16.
Comparisons of scalars stay Boolean in masks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

# Methods of the interpreter's builder, and the position of the operand that has the type of the result.
ARITHMETIC = {
    **{"unary_op": 0, "binary_op": 0, "ternary_op": 2, "create_fma": 2, "create_dot": 2},
    **{"create_rsqrt": 0, "create_erf": 0},
}

# Functions of the GPU's library that Triton's interpreter lacks.
INTERPRETED_FUNCTIONS = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil")},
    **{name: getattr(np, name) for name in ("trunc", "fmod", "hypot", "isnan", "isinf")},
    **{"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2},
    **{"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh},
    **{"abs": np.abs, "pow": np.power, "rint": np.rint, "nearbyint": np.rint, "round": np.round},
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def patch_interpreter() -> None:
    """Replace operations of Triton's interpreter, in this process, by corrected ones."""
    builder: Any = interpreter.InterpreterBuilder
    for name, position in ARITHMETIC.items():
        if hasattr(builder, name):
            setattr(builder, name, _in_float32(getattr(builder, name), position))
    builder.create_splat = _keep_booleans(builder.create_splat)
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_atomic_rmw = _atomic_rmw(builder.create_atomic_rmw)
    for reduction in (interpreter.ReduceOps, interpreter.ScanOps):
        reduction.apply_impl = _reduce_in_float32(reduction.apply_impl)


def replace_gpu_functions() -> None:
    """Replace functions of torch and Triton, so that programs that were written for a GPU run on the CPU."""
    from torch._inductor.runtime import triton_helpers

    guards: Any = torch._C._dynamo.guards
    guards._empty_strided_cuda = guards._empty_strided_cpu
    bindings: Any = torch._C
    bindings._cuda_getCurrentRawStream = lambda device: 0
    cuda: Any = torch.cuda
    cuda._DeviceGuard = lambda index: nullcontext()
    cuda.set_device = lambda device: None
    library = triton_helpers.libdevice
    replacements = {
        name: _interpreted(function)
        for name, function in INTERPRETED_FUNCTIONS.items()
        if hasattr(library, name)
    }
    library.__dict__.update(replacements)


def _interpreted(function: Callable[..., np.ndarray]) -> Callable[..., Any]:
    """Return a NumPy function as a function on the tensors of Triton's interpreter."""

    def call(*values: Any) -> Any:
        tensor = next(value for value in values if isinstance(value, tl.tensor))
        arrays = [widen(value.handle).data if isinstance(value, tl.tensor) else value for value in values]
        with np.errstate(all="ignore"):
            result = np.asarray(function(*arrays))
        if tensor.handle.dtype == tl.bfloat16:
            return tl.tensor(narrow(result), tensor.type)
        result = result.astype(tensor.handle.data.dtype)
        return tl.tensor(TensorHandle(result, tensor.handle.dtype), tensor.type)

    return call


def widen(value: Any) -> Any:
    """Return a bfloat16 tensor of the interpreter as float32, and any other value as it is."""
    if not _is_bfloat16(value):
        return value
    bits = torch.from_numpy(np.array(value.data).view(np.int16))
    return TensorHandle(bits.view(torch.bfloat16).float().numpy(), tl.float32)


def narrow(data: np.ndarray) -> Any:
    """Return numbers as a tensor of the interpreter, rounded to the nearest bfloat16."""
    rounded = torch.from_numpy(np.array(data, np.float32)).to(torch.bfloat16)
    return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)


def _is_bfloat16(value: Any) -> bool:
    """Return whether a value is a bfloat16 tensor; results of comparisons have its type, but are Boolean."""
    return isinstance(value, TensorHandle) and value.dtype == tl.bfloat16 and value.data.dtype == np.uint16


def _in_float32(method: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Return an operation that computes in float32 where an operand is bfloat16.

    Args:
        method: the operation of the interpreter.
        position: position of the operand that has the type of the result.
    """

    @wraps(method)
    def call(self: Any, *operands: Any) -> Any:
        result = method(self, *map(widen, operands))
        is_number = result.data.dtype == np.float32
        return narrow(result.data) if is_number and _is_bfloat16(operands[position]) else result

    return call


def _keep_booleans(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a scalar to all elements that keeps the result of a comparison Boolean."""

    @wraps(method)
    def call(self: Any, target_type: Any, scalar: Any) -> Any:
        result = method(self, target_type, scalar)
        is_boolean = scalar.data.dtype == np.bool_
        return TensorHandle(result.data.astype(bool), tl.int1) if is_boolean else result

    return call


def _cast(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a cast that rounds to bfloat16, and converts from it."""

    @wraps(method)
    def call(self: Any, source: Any, target_type: Any) -> Any:
        source = widen(source)
        return narrow(source.data) if target_type.scalar == tl.bfloat16 else method(self, source, target_type)

    return call


def _atomic_rmw(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return an atomic operation that also adds 16-bit floating-point numbers."""

    @wraps(method)
    def call(self: Any, operation: Any, pointer: Any, value: Any, mask: Any, *settings: Any) -> Any:
        is_sum = "FADD" in str(operation)
        if not is_sum or value.dtype.scalar not in (tl.float16, tl.bfloat16):
            return method(self, operation, pointer, value, mask, *settings)
        previous = np.zeros_like(value.data)
        for index in np.ndindex(value.data.shape):
            if mask.data[index]:
                previous[index] = _add_at(self, pointer.data[index], value.data[index], value.dtype)
        return TensorHandle(previous, value.dtype.scalar)

    return call


def _add_at(builder: Any, address: np.uint64, number: np.generic, dtype: Any) -> np.generic:
    """Add a number to the one at an address, and return the previous one."""
    pointer, mask = np.array([address], np.uint64), np.ones(1, bool)
    operand = np.array([number])
    stored = interpreter._interpreter.load(pointer, mask, operand, operand.dtype)
    total = builder.binary_op(TensorHandle(stored, dtype.scalar), TensorHandle(operand, dtype.scalar), np.add)
    interpreter._interpreter.store(pointer, total.data, mask)
    return stored[0]


def _reduce_in_float32(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction or scan that computes in float32 where a tensor is bfloat16."""

    @wraps(method)
    def call(self: Any, tensors: tuple[Any, ...]) -> Any:
        results = method(self, tuple(map(_widen_tensor, tensors)))
        if not isinstance(results, list | tuple):  # older versions of Triton return a single result
            return _narrow_tensor(results, tensors[0])
        return [_narrow_tensor(*pair) for pair in zip(results, tensors, strict=True)]

    return call


def _widen_tensor(tensor: Any) -> Any:
    """Return a bfloat16 tensor of the language as float32, and any other tensor as it is."""
    if not _is_bfloat16(tensor.handle):
        return tensor
    return tl.core.tensor(widen(tensor.handle), _with_element(tensor.type, tl.float32))


def _narrow_tensor(result: Any, tensor: Any) -> Any:
    """Return a float32 result of a bfloat16 tensor as bfloat16, and any other result as it is."""
    if not _is_bfloat16(tensor.handle) or result.dtype != tl.float32:
        return result
    return tl.core.tensor(narrow(result.handle.data), _with_element(result.type, tl.bfloat16))


def _with_element(tensor_type: Any, element: Any) -> Any:
    """Return the type of a tensor with another type of elements."""
    return tl.block_type(element, tensor_type.shape) if tensor_type.is_block() else element
