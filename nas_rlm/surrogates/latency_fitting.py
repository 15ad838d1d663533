"""Fitting of surrogates of latencies: additive ones to few labels, layer surrogates to many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

import search_spaces
from nas_rlm.data import synthetic
from nas_rlm.data.objective_kinds import LATENCY_PREFIX
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import Row, Table
from nas_rlm.surrogates.conditional import other_labels
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, random_raw_features
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.graphs.transfer import SourceSurrogate
from nas_rlm.surrogates.latency.device_transfer import DeviceTransfer, FewLabelLatency
from nas_rlm.surrogates.latency.features import LatencyFeatures
from nas_rlm.surrogates.latency.layer_fitting import fit_layers_of_texts
from nas_rlm.surrogates.latency.layer_network import LayerCounts
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.latency.samples import (
    RepeatedMeasurements,
    check_plausible,
    fit_without_outliers,
    warn_of_outliers,
    warn_of_short_samples,
)
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.registry import Surrogate, graph_surrogates
from nas_rlm.surrogates.source_selection import device_sources
from search_spaces.wording import counted

MAX_LATENCY_LABELS = 500  # of a latency that an additive surrogate is fitted to


def is_few_label_latency(rows: Sequence[Row], objective: str) -> bool:
    """Return whether an objective is a latency with at most `MAX_LATENCY_LABELS` labels."""
    num_labels = sum(row.is_measured(objective) for row in rows)
    return objective.startswith(LATENCY_PREFIX) and num_labels <= MAX_LATENCY_LABELS


def fit_latency_surrogate(
    space: str,
    rows: Sequence[Row],
    objective: str,
    existing: Mapping[str, Sequence[GraphSurrogate]] | None = None,
    measured: Sequence[str] = (),
) -> LatencySurrogate:
    """Fit an additive surrogate of a latency with few labels.

    Its sources are the same device in other spaces and other devices in the same space. Samples of the same
    network count as one, see `RepeatedMeasurements`. Outliers among the samples are left out.

    Args:
        space: name of the space.
        rows: measured networks of the space.
        objective: name of the latency.
        existing: surrogates by space, see `device_sources`.
        measured: objectives whose labels the surrogate stores as well, see `nas_rlm.surrogates.conditional`.

    Raises:
        ValueError: fewer than `MIN_LABELS` different networks are measured.

    Warns:
        UserWarning: measurements contradict each other, or are implausible.
    """
    return _fit_own_latency(space, rows, objective, existing or {}, measured)[0]


def fit_few_label_latency(
    space: str,
    rows: Sequence[Row],
    objective: str,
    existing: Mapping[str, Sequence[Surrogate]],
    measured: Sequence[str],
) -> FewLabelLatency:
    """Fit a surrogate of a latency with few labels; known devices help to predict networks of any families.

    Arguments are those of `fit_latency_surrogate`, with surrogates of any kind.
    """
    own, texts = _fit_own_latency(space, rows, objective, graph_surrogates(existing), measured)
    if space in search_spaces.names():
        return own
    known = [s for group in existing.values() for s in group if isinstance(s, LayerSurrogate)]
    return DeviceTransfer.fit(own, LayerCounts.of_texts(texts), known) or own


def _fit_own_latency(
    space: str,
    rows: Sequence[Row],
    objective: str,
    existing: Mapping[str, Sequence[GraphSurrogate]],
    measured: Sequence[str],
) -> tuple[LatencySurrogate, list[str]]:
    """Fit an additive surrogate; returns it with the texts of the networks that it is fitted to.

    Arguments are those of `fit_latency_surrogate`.
    """
    labelled = [row for row in rows if row.is_measured(objective)]
    texts, names = texts_of_rows(labelled), [row.arch_str or row.identifier or "network" for row in labelled]
    measurements = RepeatedMeasurements.of_networks(texts, Table("", labelled).column(objective))
    distinct, values = measurements.first_samples, measurements.medians
    if len(distinct) < MIN_LABELS:
        raise ValueError(
            f"{counted(len(labelled), 'row has', 'rows have')} {objective}, of"
            f" {counted(len(distinct), 'different network')}:"
            f" expected at least {MIN_LABELS} networks"
        )
    names = [names[i] for i in distinct]
    samples = [
        replace(labelled[i], targets={**labelled[i].targets, objective: value})
        for i, value in zip(distinct, values, strict=True)
    ]
    raw_features = synthetic.graph_features_of_texts([texts[i] for i in distinct], MAX_CHAIN_LENGTH, True)
    check_plausible(values, np.array([raw["flops"] for raw in raw_features]), objective)
    sources = device_sources(space, samples, raw_features, objective, existing)
    definition = latency_features(space, raw_features, sources)
    features = definition.transform(raw_features)

    def fit(indices: np.ndarray) -> LatencySurrogate:
        return LatencySurrogate.fit(definition, features[indices], values[indices], objective)

    def log_predicted(fitted: LatencySurrogate, indices: np.ndarray) -> np.ndarray:
        return fitted.predict(features[indices], objective).mean

    undecided = measurements.undecided
    others = np.setdiff1d(np.arange(len(values)), undecided)
    if len(undecided) and len(others) >= MIN_LABELS:
        values = measurements.nearest(undecided, log_predicted(fit(others), undecided))
    measurements.warn_of_contradictions(values, names, objective)
    surrogate, outliers = fit_without_outliers(
        fit,
        lambda fitted: fitted.log_left_out,
        lambda fitted, i: float(log_predicted(fitted, np.array([i]))[0]),
        values,
    )
    warn_of_outliers(outliers, names, objective)
    left_out = {outlier.sample for outlier in outliers}
    kept = [i for i in range(len(samples)) if i not in left_out]
    warn_of_short_samples(surrogate.log_left_out, values[kept], [names[i] for i in kept], objective)
    table = Table("", [samples[i] for i in kept])
    surrogate = replace(surrogate, others=other_labels(table, measured, [objective]))
    return surrogate, [texts[distinct[i]] for i in kept]


def many_label_latencies(space: str, rows: Sequence[Row], objectives: Sequence[str]) -> list[str]:
    """Return the latencies that a layer surrogate predicts: with many labels, and of no registered space.

    Args:
        space: name of the space.
        rows: measured networks of the space.
        objectives: names of objectives.
    """
    if space in search_spaces.names():
        return []
    return [
        name
        for name in objectives
        if name.startswith(LATENCY_PREFIX) and not is_few_label_latency(rows, name)
    ]


def fit_layer_surrogate(rows: Sequence[Row], objectives: Sequence[str]) -> LayerSurrogate:
    """Fit a surrogate of latencies of networks that need not be of one family.

    A network's family is its group, or its space if it has none.

    Args:
        rows: measured networks.
        objectives: names of the latencies.
    """
    table = Table("", [row for row in rows if any(row.is_measured(name) for name in objectives)])
    groups = [row.group or row.space for row in table.rows]
    values = {name: table.column(name) for name in objectives}
    is_grouped = len(set(groups)) > 1 and all(groups)
    return fit_layers_of_texts(texts_of_rows(table.rows), values, groups if is_grouped else ())


def latency_features(
    space: str, raw_features: Sequence[Mapping[str, float]], sources: Sequence[SourceSurrogate]
) -> LatencyFeatures:
    """Return features for the latencies of a space.

    Args:
        space: name of the space, whose random networks the features are standardised on if it is registered.
        raw_features: features of the measured networks, with executed layers.
        sources: source surrogates.
    """
    random = _random_networks_with_layers(space) if space in search_spaces.names() else ()
    return LatencyFeatures.fit([*random, *raw_features], sources)


@lru_cache(maxsize=4)
def _random_networks_with_layers(name: str) -> list[dict[str, float]]:
    """Return the raw features of random networks of a space, with executed layers."""
    return random_raw_features(search_spaces.get(name), with_layers=True)
