"""Calibration: temperatures at which prediction intervals contain as many true values as they claim.

Training makes a model overconfident where rows are few. Its logits divided by a temperature above 1 give
wider intervals around nearly the same median (Guo et al. 2017, On Calibration of Modern Neural Networks).
With a surrogate, predictions use the product of the probabilities of network and surrogate. The network
temperature then is the one at which the product ranks held-out rows best. A second, combined temperature
divides the logarithm of the product, since the errors of the two are correlated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nas_rlm.data.genome import Genome, genome_features_of_rows
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import Table
from nas_rlm.metrics import coverage, kendall
from nas_rlm.model import decoding
from nas_rlm.model.batching import DEFAULT_BATCH_SIZE
from nas_rlm.model.network import Memory
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.given_numbers import rows_by_given
from nas_rlm.surrogates.graphs.features import other_batch
from nas_rlm.surrogates.predictive import DEFAULT_COMBINED_TEMPERATURE, DEFAULT_NETWORK_TEMPERATURE
from nas_rlm.surrogates.registry import Surrogate, predictive_distributions
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import MEDIAN

TEMPERATURES = tuple(float(t) for t in np.geomspace(0.5, 6.0, 11))
INTERVAL = (0.1, 0.9)  # quantile levels
TARGET_COVERAGE = INTERVAL[1] - INTERVAL[0]
# Of a network with a surrogate; the default comes first, since the first of equals is chosen.
NETWORK_TEMPERATURES = [DEFAULT_NETWORK_TEMPERATURE * 1.45**k for k in (0, 1, -1, 2, -2, -3, -4, -5, -6)]
MIN_ROWS, MAX_ROWS = 20, 500  # held-out rows of an objective
PRIOR_ROWS = 60  # weight of a default temperature, in rows
DEFAULT_TEMPERATURE = 2.0  # of a network without surrogate that was trained on few rows


def calibrate(rlm: Ensemble, held_out: Sequence[Table], prior_rows: int = 0, progress: bool = False) -> None:
    """Set temperatures of a model and its surrogates so that 80 % intervals cover 80 % of held-out values.

    Args:
        rlm: the model; the temperatures of each space and objective with at least `MIN_ROWS` rows are
            replaced.
        held_out: tables of rows that the model was not trained on.
        prior_rows: weight of the default temperatures, in rows; at least `PRIOR_ROWS` for the network
            temperature with a surrogate, since rank correlations of few rows are noisy.
        progress: show a progress bar.
    """
    parts = [(t, space) for t in held_out for space in dict.fromkeys(row.space for row in t.rows)]
    for table, space in progress_bar(parts, "calibrate", unit="table", disable=not progress):
        part = Table(table.name, [row for row in table.rows if row.space == space]).sample(MAX_ROWS)
        values = {name: part.column(name) for name in part.objectives if name in rlm.objectives}
        if any(map(_are_enough, values.values())):
            texts, genomes = texts_of_rows(part.rows), genome_features_of_rows(part.rows)
            rows, _ = rows_by_given(texts, {}, genomes)[0]  # each text with its first genome
            values = {name: column[rows] for name, column in values.items()}
            genome_of = {texts[i]: genomes[i] for i in rows}
            calibrate_space(rlm, space, [texts[i] for i in rows], values, prior_rows, genome_of)


def calibrate_space(
    rlm: Ensemble,
    space: str,
    texts: Sequence[str],
    measured: Mapping[str, np.ndarray],
    prior_rows: int = 0,
    genomes: Mapping[str, Genome] | None = None,
) -> None:
    """Set the temperatures of a model and its surrogates in one space, see `calibrate`.

    Args:
        rlm: the model.
        space: name of the space; empty for texts without a space.
        texts: N texts that the model was not trained on.
        measured: values of each objective, float64 [N], NaN where there is none.
        prior_rows: see `calibrate`.
        genomes: genome features by text, where the architecture is known.
    """
    values = {name: column for name, column in measured.items() if _are_enough(column)}
    if not values:
        return
    space_surrogates = rlm.surrogates.get(space, ())
    fitted = fit_temperatures(rlm, texts, values)
    fitted = _shrink(DEFAULT_TEMPERATURE, fitted, values, prior_rows)
    rlm.temperatures = {**rlm.temperatures, space: {**rlm.temperatures.get(space, {}), **fitted}}
    covered = {
        n: v for n, v in values.items() if any(n in surrogate.objectives for surrogate in space_surrogates)
    }
    if covered:
        batch = other_batch(space, texts, [*covered])
        network = fit_network_temperatures(rlm, texts, covered, space_surrogates, genomes, batch)
        network = _shrink(DEFAULT_NETWORK_TEMPERATURE, network, covered, max(prior_rows, PRIOR_ROWS))
        combined = fit_temperatures(rlm, texts, covered, space_surrogates, network, genomes, batch)
        combined = _shrink(DEFAULT_COMBINED_TEMPERATURE, combined, covered, prior_rows)
        of_space = [_with_temperatures(surrogate, combined, network) for surrogate in space_surrogates]
        rlm.surrogates = {**rlm.surrogates, space: of_space}


def _are_enough(values: np.ndarray) -> bool:
    """Return whether there are enough finite values for calibration."""
    return int(np.isfinite(values).sum()) >= MIN_ROWS


def _with_temperatures(
    surrogate: Surrogate, combined: Mapping[str, float], network: Mapping[str, float]
) -> Surrogate:
    """Return a copy of a surrogate with new temperatures of its objectives."""
    names = surrogate.objectives
    return replace(
        surrogate,
        temperatures={**surrogate.temperatures, **_select(combined, names)},
        network_temperatures={**surrogate.network_temperatures, **_select(network, names)},
    )


def _select(temperatures: Mapping[str, float], names: Collection[str]) -> dict[str, float]:
    return {name: t for name, t in temperatures.items() if name in names}


def _shrink(
    default: float, fitted: Mapping[str, float], values: Mapping[str, np.ndarray], prior_rows: int
) -> dict[str, float]:
    """Return the geometric mean of each fitted temperature and the default, weighted by rows."""
    counts = {name: np.isfinite(v).sum() for name, v in values.items()}
    weights = {name: count / (count + prior_rows) for name, count in counts.items()}
    return {name: float(fitted[name] ** w * default ** (1 - w)) for name, w in weights.items()}


def fit_temperatures(
    rlm: Ensemble,
    texts: Sequence[str],
    values: Mapping[str, np.ndarray],
    surrogates: Sequence[Surrogate] = (),
    network_temperatures: Mapping[str, float] | None = None,
    genomes: Mapping[str, Genome] | None = None,
    batch: int | None = None,
) -> dict[str, float]:
    """Fit temperatures at which 80 % of true values lie between the quantiles at 0.1 and 0.9.

    Args:
        rlm: the model.
        texts: N texts that it was not trained on.
        values: measured values of each objective, float64 [N], NaN where there is none.
        surrogates: surrogates for all of the objectives; empty to fit the temperatures of the network alone.
        network_temperatures: network temperature of each objective in combination with the surrogates.
        genomes: genome features by text, where the architecture is known.
        batch: see `nas_rlm.surrogates.registry.predictive_distributions`.

    Returns:
        The combined temperature of each objective, or without surrogates that of the network.
    """
    names, fixed = list(values), network_temperatures
    grid = [([fixed[name] for name in names] if fixed else [t] * len(names), t) for t in TEMPERATURES]
    bounds = _quantiles_on_grid(rlm, texts, names, INTERVAL, grid, surrogates, genomes, batch)
    fitted = {}
    for (name, true), intervals in zip(values.items(), bounds.transpose(1, 2, 3, 0), strict=True):
        measured = np.isfinite(true)
        covered = [coverage(low[measured], high[measured], true[measured]) for low, high in intervals]
        log_temperature = np.interp(TARGET_COVERAGE, np.maximum.accumulate(covered), np.log(TEMPERATURES))
        fitted[name] = float(np.exp(log_temperature))
    return fitted


def fit_network_temperatures(
    rlm: Ensemble,
    texts: Sequence[str],
    values: Mapping[str, np.ndarray],
    surrogates: Sequence[Surrogate],
    genomes: Mapping[str, Genome] | None = None,
    batch: int | None = None,
) -> dict[str, float]:
    """Fit network temperatures in combination with surrogates: those whose medians rank true values best.

    Among equals, the first of `NETWORK_TEMPERATURES` is returned.

    Args:
        rlm: the model.
        texts: N texts that neither the network nor the surrogates were trained on.
        values: measured values of each objective, float64 [N], NaN where there is none.
        surrogates: surrogates for all of the objectives.
        genomes: genome features by text, where the architecture is known.
        batch: see `nas_rlm.surrogates.registry.predictive_distributions`.

    Returns:
        The network temperature of each objective.
    """
    names = list(values)
    grid = [([t] * len(names), DEFAULT_COMBINED_TEMPERATURE) for t in NETWORK_TEMPERATURES]
    medians = _quantiles_on_grid(rlm, texts, names, MEDIAN, grid, surrogates, genomes, batch)[..., 0]
    fitted = {}
    for (name, true), predictions in zip(values.items(), medians.transpose(1, 2, 0), strict=True):
        measured = np.isfinite(true)
        correlations = [kendall(predicted[measured], true[measured]) for predicted in predictions]
        fitted[name] = NETWORK_TEMPERATURES[int(np.argmax(correlations))]
    return fitted


def _quantiles_on_grid(
    rlm: Ensemble,
    texts: Sequence[str],
    names: Sequence[str],
    levels: Sequence[float],
    grid: Sequence[tuple[Sequence[float], float]],
    surrogates: Sequence[Surrogate],
    genomes: Mapping[str, Genome] | None,
    batch: int | None,
) -> np.ndarray:
    """Return quantiles of the model's predictions at several temperatures.

    Args:
        rlm: the model.
        texts: N texts.
        names: names of K objectives.
        levels: Q quantile levels.
        grid: G pairs of the network temperatures of the objectives and the combined temperature.
        surrogates: surrogates that are combined with the network.
        genomes: genome features by text, where the architecture is known.
        batch: see `nas_rlm.surrogates.registry.predictive_distributions`.

    Returns:
        float64 [N, K, G, Q].
    """

    def decode(memory: Memory, of_batch: list[str]) -> np.ndarray:
        distributions = predictive_distributions(surrogates, of_batch, names, genomes=genomes, batch=batch)
        results = []
        for network, combined in grid:
            tempered = [replace(d, temperature=combined) if d else None for d in distributions]
            results.append(decoding.quantile(rlm.network, memory, names, levels, network, tempered))
        return np.stack(results, axis=2)

    shape = (len(names), len(grid), len(levels))
    return rlm.decode_texts(texts, decode, shape, batch_size=DEFAULT_BATCH_SIZE, progress=False)
