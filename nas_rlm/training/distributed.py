"""Training in several processes that torchrun starts, each of which takes its part of every batch.

    torchrun --nproc-per-node 2 -m nas_rlm train nas --out runs/nas

Gradients are added up over the processes, so that each step is the one that a single process would take. A
process alone needs none of this. Where there are GPUs, each process has its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


@contextmanager
def joined() -> Iterator[None]:
    """Within it the processes that torchrun started work together."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Which of the processes this is, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_first() -> bool:
    """Whether this process writes files and shows bars."""
    return rank() == 0


def device() -> torch.device:
    """Where this process computes."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def part(rows: int) -> tuple[Tensor, float]:
    """The rows of a batch that this process takes, and how much they count.

    Where there are fewer rows than processes, some take the first one and let it count for nothing.
    """
    mine = torch.arange(rank(), rows, size())
    return (mine, 1.0) if len(mine) else (torch.zeros(1, dtype=torch.long), 0.0)


def add_up(tensors: Sequence[Tensor]) -> None:
    """Put into each tensor the sum over the processes."""
    if size() == 1:
        return
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    for t, summed in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        t.copy_(summed.view_as(t))


def agreed(value: float) -> float:
    """What the first process has."""
    if size() == 1:
        return value
    held = torch.tensor([value], dtype=torch.float64, device=device())
    dist.broadcast(held, 0)
    return float(held.item())


def wait() -> None:
    """Wait until all processes have come here."""
    if size() > 1:
        dist.barrier()
