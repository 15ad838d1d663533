"""Networks to measure, and the command of a fake worker."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import search_spaces

SPACE = search_spaces.get("nasbench201")
FAKE_WORKER = Path(__file__).parent / "fake_worker.py"


def cells(count: int, seed: int = 0) -> list:
    rng = np.random.default_rng(seed)
    return [SPACE.sample(rng) for _ in range(count)]


def onnx_files(count: int) -> list[tuple[int, bytes]]:
    return [(i, SPACE.to_onnx(a, weights=True).SerializeToString()) for i, a in enumerate(cells(count))]


def fake_worker_command(log: Path, **behaviour: str) -> str:
    """A command for `python` that starts the fake worker, which writes its requests to a log."""
    arguments = " ".join(f"{name}={value}" for name, value in behaviour.items())
    return f"{sys.executable} {FAKE_WORKER} {log} {arguments}".strip()
