"""Graph features of cells with a random forest, after GRAF (Kadlecová et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from nas_rlm.benchmarks.baselines.gcn import Cell, cell_graph
from nas_rlm.data.tables import Row

NUM_TREES = 300
NO_OPERATOR = "none"  # through which no path leads
UNREACHABLE = 100.0  # length of a path that does not exist


def graf_features(rows: Sequence[Row]) -> np.ndarray:
    """Return operator counts, path lengths and degrees for each subset of the operators, float64 [N, F].

    For each subset: the shortest path from input to output that only has operators of the subset, the longest
    path counted in those operators, and the number of edges into and out of them.

    Args:
        rows: N rows of a space with a cell graph.
    """
    cells = [cell_graph(row) for row in rows]
    operators = sorted({operator for nodes, _ in cells for operator in nodes[1:-1]} - {NO_OPERATOR})
    subsets = [set(s) for n in range(1, len(operators) + 1) for s in combinations(operators, n)]
    return np.array([_features(cell, operators, subsets) for cell in cells])


def graf_forest(features: np.ndarray, train_indices: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Fit a random forest to labelled rows and predict all rows.

    Args:
        features: features of N rows [N, F].
        train_indices: indices of M labelled rows.
        labels: measured values [M].

    Returns:
        Predictions [N].
    """
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(NUM_TREES, random_state=0)
    predicted: np.ndarray = model.fit(features[train_indices], labels).predict(features)
    return predicted


def _features(cell: Cell, operators: Sequence[str], subsets: Sequence[set[str]]) -> list[float]:
    nodes, edges = cell
    features = [float(nodes.count(operator)) for operator in operators]
    sources: list[list[int]] = [[] for _ in nodes]
    for a, b in edges:
        sources[b].append(a)
    for subset in subsets:
        shortest = [0.0] + [UNREACHABLE] * (len(nodes) - 1)
        longest = [0.0] + [-UNREACHABLE] * (len(nodes) - 1)
        for v in range(1, len(nodes)):
            if nodes[v] == NO_OPERATOR:
                continue
            counts = float(nodes[v] in subset)
            if counts or v == len(nodes) - 1:
                shortest[v] = min([UNREACHABLE, *(shortest[u] + 1 for u in sources[v])])
            longest[v] = max([-UNREACHABLE, *(longest[u] + counts for u in sources[v])])
        features += [
            shortest[-1],
            longest[-1],
            float(sum(nodes[b] in subset for _, b in edges)),
            float(sum(nodes[a] in subset for a, _ in edges)),
        ]
    return features
