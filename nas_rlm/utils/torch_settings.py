"""Global settings of torch that user code may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def restored() -> Iterator[None]:
    """Restore the default device and type, gradients and the number of threads after a `with` block."""
    device, dtype = torch.get_default_device(), torch.get_default_dtype()
    has_gradients, num_threads = torch.is_grad_enabled(), torch.get_num_threads()
    try:
        yield
    finally:
        if torch.get_num_threads() != num_threads:
            torch.set_num_threads(num_threads)
        torch.set_grad_enabled(has_gradients)
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device == torch.device("cpu") else device)


@contextmanager
def standard() -> Iterator[None]:
    """Compute within a `with` block as torch does by default: float32, on the processor, with gradients."""
    is_on_processor = torch.get_default_device() == torch.device("cpu")
    on_processor = nullcontext() if is_on_processor else torch.device("cpu")  # which slows each function
    with restored(), torch.inference_mode(False), torch.enable_grad(), on_processor:
        torch.set_default_dtype(torch.float32)
        yield


@contextmanager
def standard_on_one_thread() -> Iterator[None]:
    """Compute within a `with` block as in `standard`, with one thread."""
    with standard():
        torch.set_num_threads(1)
        yield
