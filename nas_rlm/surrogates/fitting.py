"""Fitting of surrogates to rows, with the choice of the source surrogates of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from torch import Tensor

import search_spaces
from nas_rlm.data.genome import genome_features_of_rows
from nas_rlm.data.objective_kinds import ACCURACY, LATENCY_PREFIX, is_accuracy, is_of_training
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import Row, Table
from nas_rlm.surrogates.conditional import other_labels
from nas_rlm.surrogates.configurations.surrogate import (
    MIN_CONFIGURATIONS,
    ConfigurationSurrogate,
    are_configurations,
)
from nas_rlm.surrogates.graphs.features import (
    GraphFeatures,
    batch_of_objectives,
    graph_features_of_space,
    sampled_raw_features,
)
from nas_rlm.surrogates.graphs.network_sizes import NetworkSizes
from nas_rlm.surrogates.graphs.surrogate import MAX_FEW_LABELS, GraphSurrogate
from nas_rlm.surrogates.graphs.transfer import SourceSurrogate
from nas_rlm.surrogates.graphs.views import few_labels_views, many_labels_views
from nas_rlm.surrogates.latency_fitting import (
    fit_few_label_latency,
    fit_layer_surrogate,
    is_few_label_latency,
    many_label_latencies,
)
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.programs.fitting import fit_program_surrogates
from nas_rlm.surrogates.programs.surrogate import ProgramSurrogate
from nas_rlm.surrogates.registry import Surrogate, graph_surrogates
from nas_rlm.surrogates.source_selection import accuracy_sources, space_sources

MAX_LABELS = 4000  # of an objective that a Gaussian process is fitted to


def fit_surrogates(
    rows: Sequence[Row],
    objectives: Sequence[str],
    existing: Mapping[str, Sequence[Surrogate]] | None = None,
    by_group: bool = False,
) -> dict[str, list[Surrogate]]:
    """Fit surrogates for each space with enough labels: on graph features of networks, n-grams of programs.

    A latency with few labels has an additive surrogate of its own, also for networks without a space. With
    more labels, the latencies of networks of any families have a layer surrogate. See
    `nas_rlm.surrogates.latency_fitting`.

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
                surrogate = fit_few_label_latency(space, networks, name, existing or {}, objectives)
                surrogates.setdefault(space, []).append(surrogate)
        if many := many_label_latencies(space, networks, objectives):
            surrogates.setdefault(space, []).append(fit_layer_surrogate(networks, many))
    for space, of_programs in _program_surrogates(rows, objectives, by_group, existing or {}).items():
        if space in surrogates:
            raise ValueError(f"{space!r} has networks and programs: expected another space for the programs")
        surrogates[space] = [of_programs]
    return surrogates


def _program_surrogates(
    rows: Sequence[Row],
    objectives: Sequence[str],
    by_group: bool,
    existing: Mapping[str, Sequence[Surrogate]],
) -> dict[str, ProgramSurrogate | ConfigurationSurrogate]:
    """Fit surrogates of programs; spaces such as `LeetCode/Java` and `LeetCode/Go` are learnt together.

    Those of programs that differ only in numbers and words are on these, see `are_learnt_as_configurations`.
    """
    of_programs = [row for row in rows if row.is_program and row.space]
    surrogates: dict[str, ProgramSurrogate | ConfigurationSurrogate] = {}
    for family in dict.fromkeys(row.space.partition("/")[0] for row in of_programs):
        table = Table(family, [row for row in of_programs if row.space.partition("/")[0] == family])
        names = objectives_with_enough_labels(table.rows, objectives, MIN_CONFIGURATIONS)
        values = {name: table.column(name) for name in names}
        spaces, groups = ([getattr(row, key) for row in table.rows] for key in ("space", "group"))
        programs = texts_of_rows(table.rows)
        if not by_group and are_learnt_as_configurations(table.rows, names):
            fitted = ConfigurationSurrogate.fit(programs, values)
            for former in existing.get(spaces[0], ()):
                if isinstance(former, ConfigurationSurrogate):
                    fitted = fitted.with_other_programs(former)
            surrogates[spaces[0]] = fitted
        else:
            enough = {name: values[name] for name in objectives_with_enough_labels(table.rows, names)}
            surrogates |= fit_program_surrogates(programs, spaces, enough, groups, by_group, existing)
    return surrogates


def are_learnt_as_configurations(programs: Sequence[Row], objectives: Sequence[str]) -> bool:
    """Return whether programs of one space have a surrogate that predicts them as configurations alone.

    So it is where most of those with a label of an objective are configurations, and labels are above 0.
    Solutions of many problems are none, even if they differ in words only.

    Args:
        programs: rows of measured programs.
        objectives: objectives to predict, each with at least `MIN_CONFIGURATIONS` labels.
    """
    is_one_space = len({row.space for row in programs}) == 1
    num_groups = len({row.group for row in programs if row.group})
    if not (is_one_space and objectives) or num_groups * MIN_CONFIGURATIONS > len(programs):
        return False
    labelled = {name: [row for row in programs if row.is_measured(name)] for name in objectives}
    return all(
        all(row.targets[name] > 0 for row in rows) and are_configurations([row.input for row in rows])
        for name, rows in labelled.items()
    )


def fit_graph_surrogates(
    rows: Sequence[Row],
    objectives: Sequence[str],
    existing: Mapping[str, Sequence[GraphSurrogate]] | None = None,
) -> dict[str, list[GraphSurrogate]]:
    """Fit graph surrogates for each space of networks with at least `MIN_LABELS` labels of an objective.

    The sources of accuracies are surrogates of other spaces, see `accuracy_sources`. Latencies with few
    labels and those of networks of any families are left out, see `nas_rlm.surrogates.latency_fitting`.

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
            graph_features_of(space, rows, sources, group[0] in few, batch_of_objectives(space, group)),
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
        is_few: whether labels are few, so that the genome is among the features, if all rows have one. In a
            user's own space it always is: it may have genes that no text shows.
        batch: see `nas_rlm.data.synthetic.graph_features`.
    """
    if space not in search_spaces.names():
        fitted = GraphFeatures.fit(sampled_raw_features(space, rows, batch))
        return replace(fitted, sources=tuple(sources))
    uses_genome = is_few or not search_spaces.get(space).is_built_in
    with_genome = uses_genome and all(genome_features_of_rows(rows))
    return replace(graph_features_of_space(space, with_genome), sources=tuple(sources))


def objectives_with_enough_labels(
    rows: Sequence[Row], objectives: Sequence[str], minimum: int = MIN_LABELS
) -> list[str]:
    """Return the objectives with at least a number of labels in the rows."""
    return [name for name in objectives if sum(row.is_measured(name) for row in rows) >= minimum]


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
    features = graph_features.of_rows(table.rows, batch_of_objectives(rows[0].space, objectives))
    fitted = fit_features(graph_features, features, values, objectives)
    is_registered = rows[0].space in search_spaces.names()
    sizes = None if is_registered else NetworkSizes.of_texts(texts_of_rows(table.rows))
    return replace(fitted, others=other_labels(table, measured, objectives), sizes=sizes)


def fit_features(
    graph_features: GraphFeatures,
    features: Tensor,
    values: np.ndarray,
    objectives: Sequence[str],
    weighted: bool = True,
    are_selected: bool = False,
) -> GraphSurrogate:
    """Fit one graph surrogate, with several weighted views of the features.

    Many labels have one, and another one where the genome is among the features. They are weighted without
    fitting hyperparameters again.

    Few labels keep their distances, and many both distances and ranks, see `GraphSurrogate`.

    Args:
        graph_features: definition of the D features.
        features: features of M networks, float64 [M, D].
        values: labels of K objectives, float64 [M, K], NaN where a network is not labelled.
        objectives: names of K objectives.
        weighted: weight the views by cross-validation, which takes most of the time.
        are_selected: whether a search selected the networks; then many labels keep their distances alone too.
    """
    is_few = np.isfinite(values).sum(0).max() <= MAX_FEW_LABELS
    views = few_labels_views(graph_features) if is_few else many_labels_views(graph_features)
    distance_weight = 1.0 if is_few or are_selected else 0.5
    fitted = GraphSurrogate.fit(
        graph_features, features, values, objectives, views, is_few and weighted, distance_weight
    )
    return fitted.conditioned(features, values) if weighted and not is_few and len(views) > 1 else fitted
