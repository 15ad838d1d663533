"""Temperatures, so that intervals hold as many true values as they say.

Training makes a model too sure of itself where rows are few. Its logits divided by a temperature above 1 give
wider intervals around a median that hardly moves (Guo et al. 2017, On Calibration of Modern Neural
Networks). Where an expert speaks as well, the network is heard at the temperature at which both together
rank held-out rows best, and what both say has a second one, since they err alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from nas_rlm.data import tables
from nas_rlm.data.tables import Table
from nas_rlm.metrics import coverage, kendall
from nas_rlm.model import decoding
from nas_rlm.model.network import Memory
from nas_rlm.surrogates.ensemble import BATCH, Ensemble
from nas_rlm.surrogates.graph_surrogate import BESIDE, Knowing, beliefs
from nas_rlm.surrogates.predictive import SHARED
from nas_rlm.utils.validation import MEDIAN

GRID = tuple(float(t) for t in np.geomspace(0.5, 6.0, 11))
LEVELS = (0.1, 0.9)
WANTED = LEVELS[1] - LEVELS[0]
# temperatures of a network beside an expert, from the guess outwards
WEIGHTS = [BESIDE * 1.45**k for k in (0, 1, -1, 2, -2, -3, -4, -5, -6)]
LEAST, MOST = 20, 500  # rows with fewer tell nothing; more are not needed
GUESSED = 60  # rows that a guess counts for
ALONE = 2.0  # temperature of a network that learnt from few rows, where too few are there to tell it


def calibrate(rlm: Ensemble, held: Sequence[Table], guessed: int = 0, progress: bool = False) -> None:
    """Give a model and its experts the temperatures at which 80 % intervals hold 80 % of held-out values.

    Args:
        rlm: the model; temperatures of each space and each objective of `LEAST` rows or more are new.
        held: rows that it did not learn from.
        guessed: so many rows a guess of how wide intervals are counts for, beside what held-out ones tell;
            of how much the network counts beside an expert it is `GUESSED` at least, since a rank
            correlation of few rows tells little.
        progress: show a bar.
    """
    own = {space: dict(known) for space, known in rlm.temperatures.items()}
    experts = dict(rlm.experts)
    parts = [(t, space) for t in held for space in dict.fromkeys(row.space for row in t.rows)]
    for table, space in tqdm(parts, "calibrate", unit="table", disable=not progress):
        part = Table(table.name, [row for row in table.rows if row.space == space]).sampled(MOST)
        measured = {name: part.column(name) for name in part.objectives if name in rlm.objectives}
        values = {name: v for name, v in measured.items() if np.isfinite(v).sum() >= LEAST}
        if not values:
            continue
        texts = tables.texts(part.rows)
        known = experts.get(space, ())
        told = {name: v for name, v in values.items() if any(name in one.objectives for one in known)}
        found = temperatures(rlm, texts, values)
        own[space] = own.get(space, {}) | _towards(ALONE, found, values, guessed)
        if told:
            beside = _towards(BESIDE, ranking(rlm, texts, told, known), told, max(guessed, GUESSED))
            both = temperatures(rlm, texts, told, known, beside)
            both = _towards(SHARED, both, told, guessed)
            experts[space] = [
                replace(
                    one,
                    temperatures={**one.temperatures, **_of(both, one.objectives)},
                    beside={**one.beside, **_of(beside, one.objectives)},
                )
                for one in known
            ]
    rlm.temperatures, rlm.experts = own, experts


def _towards(
    guess: float, found: Mapping[str, float], values: Mapping[str, np.ndarray], guessed: int
) -> dict[str, float]:
    """Temperatures of values, between a guess and what was found, by the rows that each counts for."""
    shares = {name: np.isfinite(v).sum() / (np.isfinite(v).sum() + guessed) for name, v in values.items()}
    return {name: float(found[name] ** share * guess ** (1 - share)) for name, share in shares.items()}


def _of(found: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    return {name: t for name, t in found.items() if name in names}


def temperatures(
    rlm: Ensemble,
    texts: Sequence[str],
    values: Mapping[str, np.ndarray],
    experts: Sequence[Knowing] = (),
    own: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The temperatures at which 80 % of true values lie between the quantiles of .1 and .9.

    Args:
        rlm: the model.
        texts: N texts that it did not learn from.
        values: of each objective, float64 [N], NaN where it was not measured.
        experts: who tell each of the objectives; without them the temperatures are the network's own.
        own: these, of each of the objectives, where there are experts.
    """
    names = list(values)
    grid = [([own[name] for name in names] if own else [t] * len(names), t) for t in GRID]
    bounds = _told(rlm, texts, names, LEVELS, grid, experts)
    found = {}
    for (name, true), of_name in zip(values.items(), bounds.transpose(1, 2, 3, 0), strict=True):
        known = np.isfinite(true)
        held = [coverage(low[known], high[known], true[known]) for low, high in of_name]
        found[name] = float(np.exp(np.interp(WANTED, np.maximum.accumulate(held), np.log(GRID))))
    return found


def ranking(
    rlm: Ensemble, texts: Sequence[str], values: Mapping[str, np.ndarray], experts: Sequence[Knowing]
) -> dict[str, float]:
    """The network's temperatures at which its medians, with experts, rank true values best.

    Where several do, it is the one nearest to what is usual.

    Args:
        rlm: the model.
        texts: N texts that neither it nor the experts learnt from.
        values: of each objective, float64 [N], NaN where it was not measured.
        experts: who tell each of the objectives.
    """
    names = list(values)
    grid = [([t] * len(names), SHARED) for t in WEIGHTS]
    medians = _told(rlm, texts, names, MEDIAN, grid, experts)[..., 0]
    found = {}
    for (name, true), of_name in zip(values.items(), medians.transpose(1, 2, 0), strict=True):
        known = np.isfinite(true)
        found[name] = WEIGHTS[int(np.argmax([kendall(told[known], true[known]) for told in of_name]))]
    return found


def _told(
    rlm: Ensemble,
    texts: Sequence[str],
    names: Sequence[str],
    levels: Sequence[float],
    grid: Sequence[tuple[Sequence[float], float]],
    experts: Sequence[Knowing],
) -> np.ndarray:
    """Quantiles at several temperatures: the network's for each name, and that which experts share with it.

    Returns:
        float64 [N, names, grid, levels].
    """

    def decode(memory: Memory, read: list[str]) -> np.ndarray:
        held = beliefs(experts, read, names)
        each = []
        for of_network, shared in grid:
            of_both = [replace(belief, temperature=shared) if belief else None for belief in held]
            each.append(decoding.quantile(rlm.network, memory, names, levels, of_network, of_both))
        return np.stack(each, axis=2)

    shape = (len(names), len(grid), len(levels))
    return rlm.decode_texts(texts, decode, shape, batch_size=BATCH, progress=False)
