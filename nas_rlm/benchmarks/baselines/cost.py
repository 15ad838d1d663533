"""Ranking by cost alone: multiply-accumulates and parameters, counted from the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import search_spaces
from nas_rlm.data.tables import Row


def flops(rows: Sequence[Row]) -> np.ndarray:
    """Multiply-accumulates of each row's network: float64 [N]."""
    return np.array([_counted(row, "flops") for row in rows])


def params(rows: Sequence[Row]) -> np.ndarray:
    """Parameters of each row's network: float64 [N]."""
    return np.array([_counted(row, "params") for row in rows])


def _counted(row: Row, count: str) -> float:
    if count in row.targets:
        return row.targets[count]
    space = search_spaces.get(row.space)
    return float(getattr(space, count)(space.parse(row.arch_str)))
