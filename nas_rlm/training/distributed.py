"""Data-parallel training in several processes that torchrun starts.

    torchrun --nproc-per-node 2 -m nas_rlm train nas --out runs/nas

Each process computes the gradient of its share of every batch. Gradients are summed over processes, so that
each step equals the step of a single process. A single process needs no process group. Each process uses its
own GPU where there are any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that torchrun started, for the duration of the context."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Return the index of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """Return whether this is the main process, the one that writes files and shows progress."""
    return rank() == 0


def device() -> torch.device:
    """Return the device of this process."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def local_rows(num_rows: int) -> tuple[Tensor, float]:
    """Return the rows of a batch that this process computes, and the weight of their loss.

    Args:
        num_rows: number of rows of the full batch.

    Returns:
        Indices of the rows, int64, and the weight 1. With fewer rows than processes, the processes without a
        row get the first one with weight 0, since every process must compute a gradient.
    """
    rows = torch.arange(rank(), num_rows, world_size())
    return (rows, 1.0) if len(rows) else (torch.zeros(1, dtype=torch.long), 0.0)


def all_reduce(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its sum over processes."""
    if world_size() == 1:
        return
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    for t, summed in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        t.copy_(summed.view_as(t))


def broadcast(value: float) -> float:
    """Return the main process's value in all processes."""
    if world_size() == 1:
        return value
    tensor = torch.tensor([value], dtype=torch.float64, device=device())
    dist.broadcast(tensor, 0)
    return float(tensor.item())


def barrier() -> None:
    """Wait until all processes have reached this call."""
    if world_size() > 1:
        dist.barrier()
