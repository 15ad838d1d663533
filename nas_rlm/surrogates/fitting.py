"""Fitting of surrogates to rows, with the choice of the source surrogates of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby

import numpy as np
from torch import Tensor

import search_spaces
from nas_rlm.data import synthetic
from nas_rlm.data.genome import genome_features_of_rows
from nas_rlm.data.objective_kinds import is_accuracy, is_of_training
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.device_transfer import DeviceTransfer
from nas_rlm.surrogates.features import (
    GENOME,
    MAX_CHAIN_LENGTH,
    GraphFeatures,
    batch_of_training,
    graph_features_of_space,
    random_raw_features,
    sampled_raw_features,
    source_predictions,
)
from nas_rlm.surrogates.graph_surrogate import (
    ACCURACY,
    FEW_LABELS_VIEWS,
    GENOME_VIEW,
    GRAPH_GROUPS,
    LATENCY_PREFIX,
    MAX_FEW_LABELS,
    GraphSurrogate,
)
from nas_rlm.surrogates.latency_features import LatencyFeatures
from nas_rlm.surrogates.latency_samples import (
    check_plausible,
    fit_without_outliers,
    merge_duplicates,
    warn_of_outliers,
    warn_of_short_samples,
)
from nas_rlm.surrogates.latency_surrogate import LatencySurrogate
from nas_rlm.surrogates.layer_network import LayerCounts
from nas_rlm.surrogates.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.network_sizes import NetworkSizes
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.program_fitting import fit_program_surrogates
from nas_rlm.surrogates.program_surrogate import ProgramSurrogate
from nas_rlm.surrogates.registry import (
    Surrogate,
    graph_surrogates,
    surrogate_by_objective,
    transferable,
)
from nas_rlm.surrogates.transfer import SourceSurrogate, is_source

MAX_LABELS = 4000  # of an objective that a Gaussian process is fitted to
MAX_SOURCES = 8  # source surrogates of a latency
MAX_LATENCY_LABELS = 500  # of a latency that an additive surrogate is fitted to


def fit_surrogates(
    rows: Sequence[Row],
    objectives: Sequence[str],
    existing: Mapping[str, Sequence[Surrogate]] | None = None,
    by_group: bool = False,
) -> dict[str, list[Surrogate]]:
    """Fit surrogates for each space with enough labels: on graph features of networks, n-grams of programs.

    A latency with at most `MAX_LATENCY_LABELS` labels has an additive surrogate of its own, also for networks
    without a space. With more labels, the latencies of networks of any families have a layer surrogate.

    Args:
        rows: measured networks and programs of any spaces.
        objectives: names of the objectives to predict.
        existing: surrogates by space, see `fit_graph_surrogates`.
        by_group: cross-validate over problems, for predictions of programs that solve other problems.

    Returns:
        The surrogates by space.

    Raises:
        ValueError: a space has both networks and programs.
    """
    sources = graph_surrogates(existing or {})
    graph = fit_graph_surrogates(rows, objectives, sources)
    surrogates: dict[str, list[Surrogate]] = {space: [*fitted] for space, fitted in graph.items()}
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        rows_of_space = list(group)
        networks = [row for row in rows_of_space if not row.is_program]
        for name in objectives_with_enough_labels(networks, objectives):
            if is_few_label_latency(networks, name):
                surrogate = _fit_latency(space, networks, name, existing or {}, objectives)
                surrogates.setdefault(space, []).append(surrogate)
        if many := many_label_latencies(space, networks, objectives):
            surrogates.setdefault(space, []).append(fit_layer_surrogate(networks, many))
    for space, of_programs in _program_surrogates(rows, objectives, by_group).items():
        if space in surrogates:
            raise ValueError(f"{space!r} has networks and programs: expected another space for the programs")
        surrogates[space] = [of_programs]
    return surrogates


def _program_surrogates(
    rows: Sequence[Row], objectives: Sequence[str], by_group: bool
) -> dict[str, ProgramSurrogate]:
    """Fit surrogates of programs; spaces such as `LeetCode/Java` and `LeetCode/Go` are learnt together."""
    programs = [row for row in rows if row.is_program and row.space]
    surrogates: dict[str, ProgramSurrogate] = {}
    for family in dict.fromkeys(row.space.partition("/")[0] for row in programs):
        table = Table(family, [row for row in programs if row.space.partition("/")[0] == family])
        values = {name: table.column(name) for name in objectives_with_enough_labels(table.rows, objectives)}
        spaces, groups = ([getattr(row, key) for row in table.rows] for key in ("space", "group"))
        surrogates |= fit_program_surrogates(texts_of_rows(table.rows), spaces, values, groups, by_group)
    return surrogates


def fit_graph_surrogates(
    rows: Sequence[Row],
    objectives: Sequence[str],
    existing: Mapping[str, Sequence[GraphSurrogate]] | None = None,
) -> dict[str, list[GraphSurrogate]]:
    """Fit graph surrogates for each space of networks with at least `MIN_LABELS` labels of an objective.

    The sources of accuracies are surrogates of other spaces, see `accuracy_sources`. Latencies with few
    labels and those of networks of any families are left out, see `fit_latency_surrogate` and
    `fit_layer_surrogate`.

    Args:
        rows: measured networks of any spaces.
        objectives: names of the objectives to predict.
        existing: surrogates by space, from which sources are taken; none by default.

    Returns:
        The surrogates by space.
    """
    surrogates: dict[str, list[GraphSurrogate]] = {}
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        networks = [row for row in group if not row.is_program]
        names = objectives_with_enough_labels(networks, objectives)
        names = [name for name in names if not is_few_label_latency(networks, name)]
        groups = [names]
        if space not in search_spaces.names():  # networks that may read several inputs at once
            names = [name for name in names if not name.startswith(LATENCY_PREFIX)]
            learnt = [name for name in names if is_of_training(name)]
            groups = [learnt, [name for name in names if name not in learnt]]
        for group_names in filter(None, groups if space else ()):
            fitted = _fit_space(space, networks, group_names, existing or {}, objectives)
            surrogates.setdefault(space, []).extend(fitted)
    return surrogates


def _fit_space(
    space: str,
    rows: Sequence[Row],
    names: Sequence[str],
    existing: Mapping[str, Sequence[GraphSurrogate]],
    measured: Sequence[str],
) -> list[GraphSurrogate]:
    """Fit the surrogates of one space, see `fit_graph_surrogates`; they store labels of `measured`."""
    accuracy_sources_of = {
        name: sources
        for name in names
        if existing and is_accuracy(name) and name != ACCURACY
        if (sources := accuracy_sources(space, rows, name, existing))
    }
    others = [name for name in names if name not in accuracy_sources_of]
    common = space_sources(space, rows, existing) if ACCURACY in names and existing else ()
    few = [name for name in names if sum(row.is_measured(name) for row in rows) <= MAX_FEW_LABELS]
    groups = [
        ([name for name in others if name in few], common),
        ([name for name in others if name not in few], common),
        *(([name], sources) for name, sources in accuracy_sources_of.items()),
    ]
    return [
        fit_graph_surrogate(
            graph_features_of(space, rows, sources, group[0] in few, _batch_of(space, group)),
            rows,
            group,
            measured,
        )
        for group, sources in groups
        if group
    ]


def graph_features_of(
    space: str,
    rows: Sequence[Row],
    sources: Sequence[SourceSurrogate],
    is_few: bool,
    batch: int | None = None,
) -> GraphFeatures:
    """Return the features of a graph surrogate of a space.

    Args:
        space: name of the space.
        rows: labelled networks, on which features are standardised where the space is not registered.
        sources: source surrogates.
        is_few: whether labels are few, so that the genome is among the features, if all rows have one.
        batch: see `nas_rlm.data.synthetic.graph_features`.
    """
    if space not in search_spaces.names():
        fitted = GraphFeatures.fit(sampled_raw_features(space, rows, batch))
        return replace(fitted, sources=tuple(sources))
    with_genome = is_few and all(genome_features_of_rows(rows))
    return replace(graph_features_of_space(space, with_genome), sources=tuple(sources))


def _batch_of(space: str, objectives: Sequence[str]) -> int | None:
    """Return the number of inputs for which features are; None for as many as the networks read at once."""
    return batch_of_training(space) if all(map(is_of_training, objectives)) else None


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
    network count as one, with the median of their latencies. Outliers among the samples are left out.

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


def _fit_latency(
    space: str,
    rows: Sequence[Row],
    objective: str,
    existing: Mapping[str, Sequence[Surrogate]],
    measured: Sequence[str],
) -> LatencySurrogate | DeviceTransfer:
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
    distinct, values = merge_duplicates(texts, Table("", labelled).column(objective), names, objective)
    if len(distinct) < MIN_LABELS:
        raise ValueError(
            f"{len(labelled)} rows have {objective}, of {len(distinct)} different networks:"
            f" expected at least {MIN_LABELS} networks"
        )
    samples, names = [labelled[i] for i in distinct], [names[i] for i in distinct]
    raw_features = synthetic.graph_features_of_texts([texts[i] for i in distinct], MAX_CHAIN_LENGTH, True)
    check_plausible(values, np.array([raw["flops"] for raw in raw_features]), objective)
    sources = device_sources(space, samples, raw_features, objective, existing)
    definition = latency_features(space, raw_features, sources)
    features = definition.transform(raw_features)
    surrogate, outliers = fit_without_outliers(
        lambda indices: LatencySurrogate.fit(definition, features[indices], values[indices], objective),
        lambda fitted: fitted.log_left_out,
        lambda fitted, i: float(fitted.predict(features[i : i + 1], objective).mean[0]),
        values,
    )
    warn_of_outliers(outliers, names, objective)
    left_out = {outlier.sample for outlier in outliers}
    kept = [i for i in range(len(samples)) if i not in left_out]
    warn_of_short_samples(surrogate.log_left_out, values[kept], [names[i] for i in kept], objective)
    table = Table("", [samples[i] for i in kept])
    surrogate = replace(surrogate, others=_other_labels(table, measured, [objective]))
    return surrogate, [texts[distinct[i]] for i in kept]


def _other_labels(table: Table, names: Sequence[str], objectives: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the labels of those named objectives that are not in `objectives`, where there are any."""
    labels = {
        name: table.column(name).astype(np.float32).astype(float) for name in names if name not in objectives
    }
    return {name: values for name, values in labels.items() if np.isfinite(values).sum() >= MIN_LABELS}


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
        for name in objectives_with_enough_labels(rows, objectives)
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
    return LayerSurrogate.fit(texts_of_rows(table.rows), values, groups if is_grouped else ())


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


def space_sources(
    space: str,
    rows: Sequence[Row],
    existing: Mapping[str, Sequence[GraphSurrogate]],
    objective: str = ACCURACY,
) -> tuple[SourceSurrogate, ...]:
    """Return source surrogates from other spaces for the same objective.

    Args:
        space: name of the target space.
        rows: networks of the target space, used where it is not registered.
        existing: surrogates by space.
        objective: accuracy, or the latency on one device.
    """
    candidates = _surrogates_of_other_spaces(space, existing, objective)
    if not candidates:
        return ()
    raw_features = sampled_raw_features(space, rows, _batch_of(space, [objective]))
    sources = [surrogate.source_for_space(objective, raw_features) for surrogate in candidates]
    return tuple(source for source in sources if source is not None)


def accuracy_sources(
    space: str, rows: Sequence[Row], objective: str, existing: Mapping[str, Sequence[GraphSurrogate]]
) -> tuple[SourceSurrogate, ...]:
    """Return source surrogates for an accuracy, such as `accuracy` or `accuracy/mydata`.

    They predict the same objective in other spaces. If there are none, they predict `accuracy` in this and in
    other spaces.

    Args:
        space: name of the target space.
        rows: networks of the target space, used where it is not registered.
        objective: name of the accuracy.
        existing: surrogates by space.
    """
    existing = transferable(existing, space)
    sources = space_sources(space, rows, existing, objective)
    if sources or objective == ACCURACY:
        return sources
    surrogate = surrogate_by_objective(existing.get(space, ())).get(ACCURACY)
    raw_features = sampled_raw_features(space, rows, _batch_of(space, [objective]))
    own = surrogate and surrogate.source_for_space(ACCURACY, raw_features)
    return (*((own,) if own else ()), *space_sources(space, rows, existing))


def device_sources(
    space: str,
    rows: Sequence[Row],
    raw_features: Sequence[Mapping[str, float]],
    objective: str,
    existing: Mapping[str, Sequence[GraphSurrogate]],
) -> tuple[SourceSurrogate, ...]:
    """Return source surrogates for a latency: other devices in its space, and its device in other spaces.

    They are the `MAX_SOURCES` candidates whose predictions have the highest rank correlation with the labels.
    Source surrogates are made only of the devices that a surrogate of the space finds to be so similar.

    Args:
        space: name of the space.
        rows: networks of the space that all have labels of the latency.
        raw_features: raw features of these networks.
        objective: name of the latency.
        existing: surrogates by space.
    """
    labels = Table("", list(rows)).column(objective)
    candidates = list(space_sources(space, rows, existing, objective))
    for surrogate in existing.get(space, ()):
        names = [n for n in surrogate.objectives if n.startswith(LATENCY_PREFIX) and n != objective]
        if names and not surrogate.graph_features.sources:  # with sources it has few labels itself
            own = surrogate.graph_features.transform(raw_features)
            similar = _most_similar((surrogate.mean_scores(own, name) for name in names), labels)
            features = surrogate.graph_features.transform(sampled_raw_features(space, rows))
            sources = [surrogate.source_for_device(names[k], features) for k in similar]
            candidates += [source for source in sources if source is not None]
    return tuple(candidates[k] for k in _most_similar(source_predictions(candidates, raw_features), labels))


def _most_similar(predictions: Iterable[Tensor], labels: np.ndarray) -> list[int]:
    """Return the indices of the `MAX_SOURCES` predictions with the highest rank correlation with labels."""
    correlations = [abs(spearman(predicted.numpy(), labels)) for predicted in predictions]
    return sorted(sorted(range(len(correlations)), key=lambda k: -correlations[k])[:MAX_SOURCES])


def _surrogates_of_other_spaces(
    space: str, existing: Mapping[str, Sequence[GraphSurrogate]], objective: str
) -> list[GraphSurrogate]:
    """Return the surrogate that predicts an objective in each other space that has one."""
    candidates = [
        surrogate_by_objective(surrogates).get(objective)
        for other_space, surrogates in existing.items()
        if other_space != space and is_source(other_space, space, objective)
    ]
    return [surrogate for surrogate in candidates if surrogate is not None]


def objectives_with_enough_labels(rows: Sequence[Row], objectives: Sequence[str]) -> list[str]:
    """Return the objectives with at least `MIN_LABELS` labels in the rows."""
    return [name for name in objectives if sum(row.is_measured(name) for row in rows) >= MIN_LABELS]


def fit_graph_surrogate(
    graph_features: GraphFeatures,
    rows: Sequence[Row],
    objectives: Sequence[str],
    measured: Sequence[str] = (),
) -> GraphSurrogate:
    """Fit one graph surrogate to at most `MAX_LABELS` labels of each objective.

    Args:
        graph_features: features of the networks.
        rows: measured networks of one space.
        objectives: names of K objectives.
        measured: objectives whose labels the surrogate stores as well, see `nas_rlm.surrogates.conditional`.
    """
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    labelled = [[row for row in shuffled if row.is_measured(name)][:MAX_LABELS] for name in objectives]
    used = {id(row) for labelled_rows in labelled for row in labelled_rows}
    table = Table("", [row for row in shuffled if id(row) in used])
    values = np.stack([table.column(name) for name in objectives], 1)
    features = graph_features.of_rows(table.rows, _batch_of(rows[0].space, objectives))
    fitted = fit_features(graph_features, features, values, objectives)
    is_registered = rows[0].space in search_spaces.names()
    sizes = None if is_registered else NetworkSizes.of_texts(texts_of_rows(table.rows))
    return replace(fitted, others=_other_labels(table, measured, objectives), sizes=sizes)


def fit_features(
    graph_features: GraphFeatures,
    features: Tensor,
    values: np.ndarray,
    objectives: Sequence[str],
    weighted: bool = True,
    are_selected: bool = False,
) -> GraphSurrogate:
    """Fit one graph surrogate, with several weighted views of the features where labels are few.

    Few labels keep their distances, see `RobustTransform`.

    Args:
        graph_features: definition of the D features.
        features: features of M networks, float64 [M, D].
        values: labels of K objectives, float64 [M, K], NaN where a network is not labelled.
        objectives: names of K objectives.
        weighted: weight the views by cross-validation, which takes most of the time.
        are_selected: whether a search selected the networks; then many labels keep their distances too.
    """
    is_few = np.isfinite(values).sum(0).max() <= MAX_FEW_LABELS
    views: tuple[Collection[int], ...] = FEW_LABELS_VIEWS if is_few else (GRAPH_GROUPS,)
    if is_few and graph_features.group_sizes[GENOME]:
        views = (*views, GENOME_VIEW)
    return GraphSurrogate.fit(
        graph_features, features, values, objectives, views, is_few and weighted, is_few or are_selected
    )
