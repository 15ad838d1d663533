"""A graph network on cells, after BRP-NAS (Dudziak et al. 2020): the rival that reads graphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import search_spaces
from nas_rlm.data.tables import Row
from search_spaces.nasbench101 import Cell101
from search_spaces.nasbench201 import EDGES, Cell201

SPACES = ("nasbench101", "nasbench201")
WIDTH, LAYERS, DROPOUT = 144, 4, 0.2
EPOCHS, BATCH, RATE, DECAY = 300, 16, 1e-3, 5e-4
Cell = tuple[list[str], list[tuple[int, int]]]


def gcn(known: Sequence[Row], values: np.ndarray, asked: Sequence[Row], seed: int = 0) -> np.ndarray:
    """Predictions of a graph convolutional network, trained from nothing.

    Args:
        known: measured rows of a space of `SPACES`.
        values: what was measured, float64 [M].
        asked: N rows of the same space.
        seed: of weights and batches.

    Returns:
        float64 [N].
    """
    cells = [_cell(row) for row in (*known, *asked)]
    operators = sorted({o for ops, _ in cells for o in ops})
    size = max(len(ops) for ops, _ in cells)
    features, graphs = _tensors(cells, operators, size)
    torch.manual_seed(seed)
    network, m = _Network(len(operators)), len(known)
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    steps = EPOCHS * -(-m // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    mean, deviation = values.mean(), values.std() or 1.0
    wanted = torch.from_numpy((values - mean) / deviation).float()
    for _ in range(EPOCHS):
        for rows in torch.randperm(m).split(BATCH):
            loss = F.mse_loss(network(features[rows], graphs[rows]), wanted[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.inference_mode():
        parts = zip(features[m:].split(1024), graphs[m:].split(1024), strict=True)
        found = torch.cat([network(x, a) for x, a in parts]).double().numpy()
    return found * deviation + mean


class _Network(nn.Module):
    """Graph convolutions along the edges, then a linear layer on the global node, which every node feeds."""

    def __init__(self, operators: int) -> None:
        super().__init__()
        widths = [operators + 1, *[WIDTH] * LAYERS]
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.dropout(F.relu(graph @ layer(x)), DROPOUT, self.training)
        y: Tensor = self.out(x[:, 0])[:, 0]
        return y


def _tensors(cells: Sequence[Cell], operators: list[str], size: int) -> tuple[Tensor, Tensor]:
    """One-hot operators [N, 1 + size, 1 + operators], and graphs [N, 1 + size, 1 + size] of means."""
    features = torch.zeros(len(cells), 1 + size, 1 + len(operators))
    graphs = torch.eye(1 + size).repeat(len(cells), 1, 1)
    features[:, 0, 0] = 1
    for k, (ops, edges) in enumerate(cells):
        features[k, range(1, 1 + len(ops)), [1 + operators.index(o) for o in ops]] = 1
        graphs[k, 0, 1 : 1 + len(ops)] = 1
        for a, b in edges:
            graphs[k, 1 + b, 1 + a] = 1
    return features, graphs / graphs.sum(2, keepdim=True)


def _cell(row: Row) -> Cell:
    """The operators of a cell, and its edges."""
    architecture: Any = search_spaces.get(row.space).parse(row.arch_str)
    if isinstance(architecture, Cell101):
        cell = architecture.pruned()
        assert cell is not None
        return list(cell.ops), [(u, v) for v in range(len(cell.ops)) for u in cell.sources(v)]
    if isinstance(architecture, Cell201):
        places = {edge: 1 + k for k, edge in enumerate(EDGES)}
        edges = [(a, b) for (i, j), a in places.items() for (k, _), b in places.items() if k == j]
        edges += [(0, b) for (i, _), b in places.items() if i == 0]
        edges += [(a, 1 + len(EDGES)) for (_, j), a in places.items() if j == max(j for _, j in EDGES)]
        return ["input", *architecture.operators, "output"], edges
    raise ValueError(f"{row.space} has no cell graph; expected one of {', '.join(SPACES)}")
