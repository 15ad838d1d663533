"""Pseudo-labels for random networks, from surrogates of measured rows or from a teacher model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

import numpy as np

import search_spaces
from nas_rlm.data import synthetic
from nas_rlm.data.disk_cache import cached_strings
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row, Table
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.fitting import fit_graph_surrogate, objectives_with_enough_labels
from nas_rlm.surrogates.graphs.features import GraphFeatures, random_networks


def pseudo_labels(
    rows: Sequence[Row], objectives: Sequence[str], num_networks: int, seed: int = 0
) -> list[Row]:
    """Draw random networks of the rows' spaces, with labels drawn from surrogates of the rows.

    Args:
        rows: measured architectures.
        objectives: names of the objectives to label; those with too few measurements are left out.
        num_networks: number of networks of each registered space, but at most half of the space.
        seed: seed of networks and labels.

    Returns:
        Rows whose targets are draws from the surrogates' predictive distributions.
    """
    rng = np.random.default_rng(seed)
    labelled = []
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        if space not in search_spaces.names():
            continue
        measured = list(group)
        names = objectives_with_enough_labels(measured, objectives)
        if not names:
            continue
        networks = random_networks(space, num_networks, seed)
        raw_features = [row.targets for row in networks]
        graph_features = GraphFeatures.fit(raw_features)
        surrogate = fit_graph_surrogate(graph_features, measured, names)
        features = graph_features.transform(raw_features)
        values = np.stack([surrogate.predict(features, n).sample(rng) for n in surrogate.objectives], 1)
        labelled += [
            Row(space, row.arch_str, dict(zip(surrogate.objectives, labels, strict=True)))
            for row, labels in zip(networks, values.tolist(), strict=True)
        ]
    return labelled


def distil(teacher: Ensemble, space_name: str, num_networks: int, seed: int = 0) -> Table:
    """Draw random networks of a space, with a teacher's median predictions as targets.

    The objectives are those that the teacher was trained on in the space. Predictions for many networks are
    cached on disk. Source: Hinton et al. 2015, Distilling the Knowledge in a Neural Network.

    Args:
        teacher: model whose predictions are the targets.
        space_name: name of a registered space.
        num_networks: number of networks, or all of a space that has fewer.
        seed: seed of the networks.

    Raises:
        ValueError: the teacher was not trained on the space.
    """
    trained = teacher.trained_on[space_name].objectives if space_name in teacher.trained_on else ()
    objectives = [n for n in teacher.objectives if n in trained and n not in EXACT_OBJECTIVES]
    if not objectives:
        raise ValueError(
            f"the teacher was not trained on {space_name}: expected a space that it was trained on"
        )
    networks = synthetic.distinct_architectures(search_spaces.get(space_name), num_networks, seed)

    def predict() -> list[str]:
        predictions = teacher.predict(space_name, list(networks), objectives, progress=True)
        return [json.dumps(medians) for medians in predictions.tolist()]

    key = (teacher.fingerprint, objectives, list(networks))
    lines = cached_strings("prediction", key, len(networks), predict)
    rows = [
        Row(space_name, name, dict(zip(objectives, values, strict=True)))
        for name, values in zip(networks, map(json.loads, lines), strict=True)
    ]
    return Table(space_name, rows)
