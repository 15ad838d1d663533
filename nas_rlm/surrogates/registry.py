"""Kinds of surrogates: which one predicts an objective, and how each kind is read from a checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

import search_spaces
from nas_rlm.data import synthetic
from nas_rlm.data.genome import Genome
from nas_rlm.data.objective_kinds import depends_on_task, is_of_training
from nas_rlm.surrogates.conditional import Conditional
from nas_rlm.surrogates.configurations.surrogate import ConfigurationSurrogate
from nas_rlm.surrogates.fields.surrogate import FieldSurrogate
from nas_rlm.surrogates.graphs.features import GENOME, MAX_CHAIN_LENGTH
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.latency.device_transfer import DeviceTransfer, FewLabelLatency, without_known_devices
from nas_rlm.surrogates.latency.layer_calibration import MAX_NOVELTY
from nas_rlm.surrogates.latency.layer_network import LayerCounts
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.legacy import upgrade
from nas_rlm.surrogates.predictive import PredictiveDistribution
from nas_rlm.surrogates.programs.ngrams import NgramSurrogate
from nas_rlm.surrogates.programs.surrogate import ProgramSurrogate
from nas_rlm.surrogates.zero_label import AnyZeroLabelSurrogate
from nas_rlm.surrogates.zero_label_latency import ZeroLabelLatency

FeatureSurrogate = GraphSurrogate | LatencySurrogate  # of networks, on the features of `data.synthetic`
TextSurrogate = (  # on features of texts
    LayerSurrogate | NgramSurrogate | FieldSurrogate | ProgramSurrogate | ConfigurationSurrogate
)
Surrogate = FeatureSurrogate | TextSurrogate | DeviceTransfer  # the latter on both
AnySurrogate = Surrogate | AnyZeroLabelSurrogate  # the latter are not saved
SurrogateT = TypeVar("SurrogateT", GraphSurrogate, FeatureSurrogate, Surrogate, AnySurrogate)
WITH_LAYERS = FewLabelLatency | ZeroLabelLatency  # with layers among their features
MAX_LISTED, MAX_NAME_LENGTH = 5, 80  # names in a message, and characters of a name
_warns_of_novelty: ContextVar[bool] = ContextVar("warns_of_novelty", default=True)
_reported: ContextVar[set[str] | None] = ContextVar("reported", default=None)  # objectives with a warning
KINDS: dict[str, type[Surrogate]] = {
    "graph": GraphSurrogate,
    "latency": LatencySurrogate,
    "device transfer": DeviceTransfer,
    "layers": LayerSurrogate,
    "ngrams": NgramSurrogate,
    "fields": FieldSurrogate,
    "programs": ProgramSurrogate,
    "configurations": ConfigurationSurrogate,
}


def from_saved(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> Surrogate:
    """Make a surrogate of any kind from a checkpoint, also from an older one.

    Args:
        tensors: what its method `tensors` returned.
        description: what its method `description` returned.

    Raises:
        ValueError: tensors and description do not fit each other, or the kind is unknown.
    """
    tensors, description = upgrade(tensors, description)
    if description["kind"] not in KINDS:
        raise ValueError(f"surrogate kind is {description['kind']!r}: expected one of {', '.join(KINDS)}")
    return KINDS[description["kind"]].from_saved(tensors, description)


def surrogate_by_objective(surrogates: Sequence[SurrogateT]) -> dict[str, SurrogateT]:
    """Return the surrogate that predicts each objective: the last of those with this objective.

    Args:
        surrogates: surrogates of one space.
    """
    return {name: surrogate for surrogate in surrogates for name in surrogate.objectives}


def graph_surrogates(surrogates: Mapping[str, Sequence[Surrogate]]) -> dict[str, list[GraphSurrogate]]:
    """Return the graph surrogates among the surrogates of each space.

    Args:
        surrogates: surrogates of any kind by space.
    """
    return {
        space: [surrogate for surrogate in space_surrogates if isinstance(surrogate, GraphSurrogate)]
        for space, space_surrogates in surrogates.items()
    }


def uses_genome(surrogates: Sequence[AnySurrogate]) -> bool:
    """Return whether one of the surrogates has the genome among its features."""
    return any(
        isinstance(surrogate, GraphSurrogate) and surrogate.graph_features.group_sizes[GENOME]
        for surrogate in surrogates
    )


def transferable(
    surrogates: Mapping[str, Sequence[GraphSurrogate]],
    space: str,
    task_of: Callable[[str], str] = search_spaces.task_of,
) -> dict[str, Sequence[GraphSurrogate]]:
    """Return the surrogates whose objectives can be transferred to a space.

    Accuracies and other objectives of training are those of one task. Objectives of devices are not.

    Args:
        surrogates: surrogates by space.
        space: name of the space that is predicted.
        task_of: function that returns the task of a space by its name; empty for an unknown one.
    """
    task = task_of(space)
    found: dict[str, Sequence[GraphSurrogate]] = {}
    for other, group in surrogates.items():
        if task and task_of(other) not in ("", task):
            rest = [s.without([name for name in s.objectives if depends_on_task(name)]) for s in group]
            group = [surrogate for surrogate in rest if surrogate is not None]
        found[other] = group
    return found


def predictive_distributions(
    surrogates: Sequence[AnySurrogate],
    texts: Sequence[str],
    objectives: Sequence[str],
    conditional: Mapping[str, Conditional] | None = None,
    given: Mapping[str, np.ndarray] | None = None,
    genomes: Mapping[str, Genome] | None = None,
    batch: int | None = None,
) -> list[PredictiveDistribution | None]:
    """Return the predictive distribution of each objective, or None where no surrogate predicts it.

    Args:
        surrogates: surrogates of one space.
        texts: texts of N networks or programs of the space.
        objectives: names of K objectives.
        conditional: surrogates by objective that are used where other numbers are given.
        given: the given numbers by name, float64 [N].
        genomes: genome features by text, of networks whose architecture is known.
        batch: number of inputs for which the features of objectives of training are, see
            `nas_rlm.surrogates.graphs.features.batch_of_training`; by default as many as each network reads
            at once.
    """
    by_objective = surrogate_by_objective(surrogates)
    selected = [by_objective.get(name) for name in objectives]
    uses_layers = any(isinstance(surrogate, WITH_LAYERS) for surrogate in selected)
    known = genomes or {}

    @cache
    def raw_features(size: int | None) -> list[dict[str, float]]:
        return [
            synthetic.graph_features(text, MAX_CHAIN_LENGTH, uses_layers, size) | known.get(text, {})
            for text in texts
        ]

    features: dict[tuple[int, int | None], Any] = {}

    def features_of(surrogate: AnySurrogate, size: int | None) -> Any:
        key = id(surrogate), size
        if key not in features:
            if isinstance(surrogate, TextSurrogate):
                features[key] = surrogate.transform(texts)
            elif isinstance(surrogate, DeviceTransfer):
                own_features = features_of(surrogate.own, size)
                features[key] = surrogate.with_devices(own_features, LayerCounts.of_texts(texts))
            else:
                features[key] = surrogate.graph_features.transform(raw_features(size))
        return features[key]

    distributions: list[PredictiveDistribution | None] = []
    for surrogate, name in zip(selected, objectives, strict=True):
        if surrogate is None:
            distributions.append(None)
            continue
        size = batch if is_of_training(name) else None
        if conditional and given and name in conditional:
            own_features = features_of(without_known_devices(surrogate), size)
            distributions.append(conditional[name].predict(own_features, given))
        else:
            distributions.append(surrogate.predict(features_of(surrogate, size), name))
    return distributions


def novelties(distributions: Sequence[PredictiveDistribution | None], num_networks: int) -> np.ndarray:
    """Return how unlike the labelled networks N networks are, float64 [N, K].

    Args:
        distributions: predictive distributions of K objectives; None where no surrogate predicts one.
        num_networks: number N of networks.

    Returns:
        The novelties; NaN for objectives that no layer surrogate predicts.
    """
    found = np.full((num_networks, len(distributions)), np.nan)
    for k, distribution in enumerate(distributions):
        if distribution is not None and distribution.novelty is not None:
            found[:, k] = distribution.novelty
    return found


class NoveltyWarning(UserWarning):
    """Networks or programs are unlike all labelled ones, so that their intervals are wide."""


def warn_of_novel_networks(novelties_of: np.ndarray, objectives: Sequence[str], names: Sequence[str]) -> None:
    """Warn of networks that are unlike all labelled ones.

    Args:
        novelties_of: novelties, see `novelties`, float64 [N, K].
        objectives: names of the K objectives.
        names: names of the N networks.

    Warns:
        NoveltyWarning: a novelty is above `MAX_NOVELTY`.
    """
    if not _warns_of_novelty.get():
        return
    of_objectives = dict(zip(objectives, novelties_of.T, strict=True))
    reported = _reported.get()
    if reported is not None:
        of_objectives = {name: values for name, values in of_objectives.items() if name not in reported}
        reported |= {name for name, values in of_objectives.items() if (values > MAX_NOVELTY).any()}
    for message in novelty_messages(of_objectives, names):
        warnings.warn(message, NoveltyWarning, stacklevel=4)


@contextmanager
def novelty_warnings_once() -> Iterator[None]:
    """Within the context, `warn_of_novel_networks` warns of each objective at most once."""
    token = _reported.set(set())
    try:
        yield
    finally:
        _reported.reset(token)


@contextmanager
def without_novelty_warnings() -> Iterator[None]:
    """Within the context, `warn_of_novel_networks` does nothing; for searches, which predict many times."""
    token = _warns_of_novelty.set(False)
    try:
        yield
    finally:
        _warns_of_novelty.reset(token)


def novelty_messages(novelties_of: Mapping[str, np.ndarray], names: Sequence[str]) -> list[str]:
    """Return a line for each group of networks that are unlike all labelled networks of the same devices.

    Examples:
        >>> novelty_messages({"latency/a": np.array([3.0, 1.0]), "latency/b": np.array([1.5, 1.0])}, "xy")
        ['nothing with a label of latency/a is like x: the predicted interval is wide']

    Args:
        novelties_of: novelties of N networks by objective; NaN where they are not known.
        names: names of the networks.
    """
    networks_of: dict[tuple[str, ...], list[str]] = {}
    for i, name in enumerate(names):
        unlike = tuple([o for o, values in novelties_of.items() if values[i] > MAX_NOVELTY])
        if unlike:
            networks_of.setdefault(unlike, []).append(name)
    return [
        f"nothing with a label of {_listed(objectives)} is like {_listed(networks)}: the predicted"
        f" {'interval is' if len(objectives) == len(networks) == 1 else 'intervals are'} wide"
        for objectives, networks in networks_of.items()
    ]


def _listed(names: Sequence[str]) -> str:
    """Return names as text, the first ones if there are many; the middle of long ones is left out."""
    half = MAX_NAME_LENGTH // 2
    shown = [n if len(n) <= MAX_NAME_LENGTH else f"{n[:half]}…{n[-half:]}" for n in names[:MAX_LISTED]]
    num_others = len(names) - MAX_LISTED
    return ", ".join(shown) + (f" and {num_others:,} more" if num_others > 0 else "")
