"""Temperatures, so that intervals hold as many true values as they say.

Training makes a model too sure of itself where rows are few. Its logits divided by a temperature above 1 give
wider intervals around a median that hardly moves (Guo et al. 2017, On Calibration of Modern Neural
Networks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tqdm import tqdm

from nas_rlm import decoding
from nas_rlm.checkpoint import Temperatures
from nas_rlm.data import tables
from nas_rlm.data.tables import Table
from nas_rlm.expert import beliefs
from nas_rlm.metrics import coverage
from nas_rlm.model import Memory
from nas_rlm.rlm import RLM

GRID = tuple(float(t) for t in np.geomspace(0.5, 6.0, 11))
LEVELS = (0.1, 0.9)
WANTED = LEVELS[1] - LEVELS[0]
LEAST, MOST = 20, 500  # rows with fewer tell nothing; more are not needed


def calibrate(rlm: RLM, held: Sequence[Table], progress: bool = False) -> Temperatures:
    """The temperatures at which 80 % intervals hold 80 % of the values of held-out rows.

    Args:
        rlm: the model.
        held: rows that it did not learn from.
        progress: show a bar.

    Returns:
        For each space and each objective of `LEAST` rows or more, a temperature.
    """
    found: dict[str, dict[str, float]] = {}
    parts = [(t, space) for t in held for space in dict.fromkeys(row.space for row in t.rows)]
    for table, space in tqdm(parts, "calibrate", unit="table", disable=not progress):
        part = Table(table.name, [row for row in table.rows if row.space == space]).sampled(MOST)
        measured = {name: part.column(name) for name in part.objectives if name in rlm.objectives}
        values = {name: v for name, v in measured.items() if np.isfinite(v).sum() >= LEAST}
        if values:
            fitted = temperatures(rlm, tables.texts(part.rows), values, space)
            found.setdefault(space, {}).update(fitted)
    return found


def temperatures(
    rlm: RLM, texts: Sequence[str], values: Mapping[str, np.ndarray], space: str = ""
) -> dict[str, float]:
    """The temperatures at which 80 % of true values lie between the model's quantiles of .1 and .9.

    Args:
        rlm: the model.
        texts: N texts that it did not learn from.
        values: of each objective, float64 [N], NaN where it was not measured.
        space: whose experts count.
    """

    def decode(memory: Memory, read: list[str]) -> np.ndarray:
        names = list(values)
        held = beliefs(rlm.experts.get(space, ()), read, names)
        each = [decoding.quantile(rlm.network, memory, names, LEVELS, [t] * len(names), held) for t in GRID]
        return np.stack(each, axis=2)

    shape = (len(values), len(GRID), len(LEVELS))
    bounds = rlm.decode_texts(texts, decode, shape, batch_size=64, progress=False)
    found = {}
    for (name, true), of_name in zip(values.items(), bounds.transpose(1, 2, 3, 0), strict=True):
        known = np.isfinite(true)
        held = [coverage(low[known], high[known], true[known]) for low, high in of_name]
        found[name] = float(np.exp(np.interp(WANTED, np.maximum.accumulate(held), np.log(GRID))))
    return found
