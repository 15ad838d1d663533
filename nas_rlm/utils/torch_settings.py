"""Global settings of torch that user code may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nas_rlm.utils.process_pool import one_thread


@contextmanager
def restored() -> Iterator[None]:
    """Restore the default device, the default type and whether gradients are enabled after a `with` block."""
    device, dtype, has_gradients = (
        torch.get_default_device(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
    )
    try:
        yield
    finally:
        torch.set_grad_enabled(has_gradients)
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device == torch.device("cpu") else device)


@contextmanager
def standard() -> Iterator[None]:
    """Compute within a `with` block as torch does by default, with one thread: float32, on the processor."""
    with restored(), one_thread(), torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"):
        torch.set_default_dtype(torch.float32)
        yield
