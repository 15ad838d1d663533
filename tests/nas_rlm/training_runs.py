"""Shared helpers for tests of training."""

import numpy as np
import torch

import search_spaces
from nas_rlm.data import Row, write
from nas_rlm.training.state import TrainingState

SPACE = search_spaces.get("nasbench201")
RECIPE = """
tables: [{path: cells.parquet}]
numbers: 2
size: 1
vocab_size: 900
epochs: 3
batch_size: 8
warmup: 2
validation: 0.2
validate_every: 4
checkpoint_every: 3
noise: 0.1
"""


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Row(
            "nasbench201",
            str(SPACE.sample(rng)),
            {"accuracy": 50 + 40 * rng.random(), "latency/mine": rng.random() + 1, "latency/other": 0.0},
        )
        for _ in range(n)
    ]


def prepare_run(directory, monkeypatch):
    """Return the path of `RECIPE` in a directory that has its table."""
    monkeypatch.setenv("NAS_RLM_DATA", str(directory))
    write(directory / "cells.parquet", rows(40))
    (directory / "recipe.yaml").write_text(RECIPE)
    return directory / "recipe.yaml"


def interrupt(monkeypatch, step):
    """Raise KeyboardInterrupt at a step of training."""
    advance = TrainingState.advance

    def interrupted(state, *arguments):
        if state.step == step:
            raise KeyboardInterrupt
        return advance(state, *arguments)

    monkeypatch.setattr(TrainingState, "advance", interrupted)


def losses(module, x, labels, steps):
    """Return the loss of a torch module before each training step."""
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    found = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(module(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
