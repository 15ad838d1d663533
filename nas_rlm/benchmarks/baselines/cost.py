"""Ranking by cost: multiply-accumulates and parameters, from the table or the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import search_spaces
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features
from nas_rlm.data.tables import Row
from nas_rlm.text.parser import is_onnx_text


def flops(rows: Sequence[Row], texts: Sequence[str] = ()) -> np.ndarray:
    """Return the multiply-accumulates of each row's network [N].

    Args:
        rows: N networks.
        texts: texts of the rows, if they are known already.
    """
    return _costs(rows, texts, "flops")


def params(rows: Sequence[Row], texts: Sequence[str] = ()) -> np.ndarray:
    """Return the parameters of each row's network [N]; arguments as for `flops`."""
    return _costs(rows, texts, "params")


def _costs(rows: Sequence[Row], texts: Sequence[str], name: str) -> np.ndarray:
    """The cost of each row, see `_cost`."""
    known = texts or (texts_of_rows(rows) if any(row.input for row in rows) else [""] * len(rows))
    return np.array([_cost(row, text, name) for row, text in zip(rows, known, strict=True)])


def _cost(row: Row, text: str, name: str) -> float:
    """The cost in the row's targets, or of its text or architecture."""
    if name in row.targets:
        return row.targets[name]
    if row.input and is_onnx_text(text):
        return float(graph_features(text)[name])
    space = search_spaces.get(row.space)
    return float(getattr(space, name)(space.parse(row.arch_str)))
