"""A graph convolutional network on cells, after BRP-NAS (Dudziak et al. 2020)."""

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

CELL_SPACES = ("nasbench101", "nasbench201")
WIDTH, NUM_LAYERS, DROPOUT = 144, 4, 0.2
EPOCHS, BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY = 300, 16, 1e-3, 5e-4
PREDICTION_BATCH_SIZE = 1024
Cell = tuple[list[str], list[tuple[int, int]]]  # operators of the nodes, and edges


def gcn(train_rows: Sequence[Row], labels: np.ndarray, test_rows: Sequence[Row], seed: int = 0) -> np.ndarray:
    """Train a graph convolutional network from scratch and predict the test rows.

    Args:
        train_rows: M labelled rows of one of `CELL_SPACES`.
        labels: measured values [M].
        test_rows: N rows of the same space.
        seed: seed of weights and batches.

    Returns:
        Predictions [N].

    Raises:
        ValueError: the space has no cell graph.
    """
    cells = [cell_graph(row) for row in (*train_rows, *test_rows)]
    operators = sorted({operator for nodes, _ in cells for operator in nodes})
    max_nodes = max(len(nodes) for nodes, _ in cells)
    features, graphs = _tensors(cells, operators, max_nodes)
    torch.manual_seed(seed)
    network, num_train = _Network(len(operators)), len(train_rows)
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    total_steps = EPOCHS * -(-num_train // BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total_steps)
    mean, deviation = labels.mean(), labels.std() or 1.0
    targets = torch.from_numpy((labels - mean) / deviation).float()
    for _ in range(EPOCHS):
        for rows in torch.randperm(num_train).split(BATCH_SIZE):
            loss = F.mse_loss(network(features[rows], graphs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.inference_mode():
        batches = zip(
            features[num_train:].split(PREDICTION_BATCH_SIZE),
            graphs[num_train:].split(PREDICTION_BATCH_SIZE),
            strict=True,
        )
        predicted = torch.cat([network(x, graph) for x, graph in batches]).double().numpy()
    return predicted * deviation + mean


class _Network(nn.Module):
    """Graph convolutions along the edges, and a linear layer on a global node with edges from all nodes."""

    def __init__(self, num_operators: int) -> None:
        super().__init__()
        widths = [num_operators + 1, *[WIDTH] * NUM_LAYERS]
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.dropout(F.relu(graph @ layer(x)), DROPOUT, self.training)
        y: Tensor = self.out(x[:, 0])[:, 0]
        return y


def _tensors(cells: Sequence[Cell], operators: list[str], max_nodes: int) -> tuple[Tensor, Tensor]:
    """One-hot operators [N, V, 1 + operators] and averaging matrices [N, V, V] of V = 1 + max_nodes nodes."""
    features = torch.zeros(len(cells), 1 + max_nodes, 1 + len(operators))
    graphs = torch.eye(1 + max_nodes).repeat(len(cells), 1, 1)
    features[:, 0, 0] = 1
    for k, (nodes, edges) in enumerate(cells):
        features[k, range(1, 1 + len(nodes)), [1 + operators.index(o) for o in nodes]] = 1
        graphs[k, 0, 1 : 1 + len(nodes)] = 1
        for a, b in edges:
            graphs[k, 1 + b, 1 + a] = 1
    return features, graphs / graphs.sum(2, keepdim=True)


def cell_graph(row: Row) -> Cell:
    """Return the operators and the edges of a cell, in topological order for NAS-Bench-101.

    Args:
        row: a row of one of `CELL_SPACES`.

    Raises:
        ValueError: the space has no cell graph.
    """
    architecture: Any = search_spaces.get(row.space).parse(row.arch_str)
    if isinstance(architecture, Cell101):
        cell = architecture.pruned()
        assert cell is not None
        return list(cell.ops), [(u, v) for v in range(len(cell.ops)) for u in cell.sources(v)]
    if isinstance(architecture, Cell201):
        nodes = {edge: 1 + k for k, edge in enumerate(EDGES)}
        edges = [(a, b) for (i, j), a in nodes.items() for (k, _), b in nodes.items() if k == j]
        edges += [(0, b) for (i, _), b in nodes.items() if i == 0]
        edges += [(a, 1 + len(EDGES)) for (_, j), a in nodes.items() if j == max(j for _, j in EDGES)]
        return ["input", *architecture.operators, "output"], edges
    raise ValueError(f"{row.space} has no cell graph; expected one of {', '.join(CELL_SPACES)}")
