"""Ranking by cost: multiply-accumulates and parameters, from the table or the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import search_spaces
from nas_rlm.data.tables import Row


def flops(rows: Sequence[Row]) -> np.ndarray:
    """Return the multiply-accumulates of each row's network [N]."""
    return np.array([_cost(row, "flops") for row in rows])


def params(rows: Sequence[Row]) -> np.ndarray:
    """Return the parameters of each row's network [N]."""
    return np.array([_cost(row, "params") for row in rows])


def _cost(row: Row, name: str) -> float:
    """The cost in the row's targets, or of its architecture."""
    if name in row.targets:
        return row.targets[name]
    space = search_spaces.get(row.space)
    return float(getattr(space, name)(space.parse(row.arch_str)))
