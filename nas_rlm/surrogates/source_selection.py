"""Which surrogates of other spaces and devices are the sources of a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from torch import Tensor

from nas_rlm.data.objective_kinds import ACCURACY, LATENCY_PREFIX
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.graphs.features import batch_of_objectives, sampled_raw_features, source_predictions
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.graphs.transfer import SourceSurrogate, is_source
from nas_rlm.surrogates.registry import surrogate_by_objective, transferable

MAX_SOURCES = 8  # source surrogates of a latency


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
    raw_features = sampled_raw_features(space, rows, batch_of_objectives(space, [objective]))
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
    raw_features = sampled_raw_features(space, rows, batch_of_objectives(space, [objective]))
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
