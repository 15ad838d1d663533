"""Devices that a model knows: what they are, and how well it predicts their latency, energy and memory."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nas_rlm.data.device_names import describe_device, device_class, quantity_of
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.latency.device_transfer import FewLabelLatency
from nas_rlm.surrogates.latency.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.programs.ngrams import NgramSurrogate
from nas_rlm.surrogates.programs.surrogate import ProgramSurrogate
from nas_rlm.surrogates.registry import Surrogate, surrogate_by_objective

DEVICE_KINDS = ("latency", "throughput", "energy", "memory")  # of objectives that depend on a device
FAMILIES_LEFT_OUT, LEAVE_ONE_OUT = "families left out", "leave-one-out"


@dataclass(frozen=True)
class LabelSource:
    """The networks of a space that a device was learnt from, and the error that is expected.

    Args:
        space: name of the space; empty for networks of several spaces, or of none.
        networks: networks of the space that the encoder-decoder was trained on, not all of which need a label
            of this device; None if it was not trained on the device there.
        labels: labels that the surrogate was fitted to; None without a surrogate.
        families: number of the networks' families; None if the surrogate does not distinguish any.
        relative_error: expected mean absolute error, relative to the measured value (MAPE); None if it is not
            known.
        within_10_percent: expected share of the predictions within 10 % of the measured value; None if it is
            not known.
        protocol: how both were measured: `families left out` or `leave-one-out`; empty if they are not known.
    """

    space: str
    networks: int | None
    labels: int | None = None
    families: int | None = None
    relative_error: float | None = None
    within_10_percent: float | None = None
    protocol: str = ""


@dataclass(frozen=True)
class KnownDevice:
    """A device that a model predicts an objective of.

    Args:
        objective: the objective, such as `latency/pixel3`.
        name: name of the device.
        description: what it is; empty for devices that nas-rlm has no description of.
        device_class: its class, such as `desktop GPU`; empty without a description.
        quantity: the unit, and what a latency is the time of, see `nas_rlm.data.device_names.quantity_of`.
        any_network: whether networks of no space are predicted, by a layer surrogate or by a surrogate that
            learnt from such networks.
        sources: the networks that it was learnt from, by space.
    """

    objective: str
    name: str
    description: str
    device_class: str
    quantity: str
    any_network: bool
    sources: tuple[LabelSource, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the device as values that JSON can represent."""
        return asdict(self)


def known_devices(rlm: RLM | str | os.PathLike[str] = "nas") -> list[KnownDevice]:
    """Return the devices that a model knows, by objective.

    Examples:
        >>> from nas_rlm import known_devices
        >>> pixel = next(d for d in known_devices("nas") if d.objective == "latency/pixel3")
        >>> pixel.description, [source.space for source in pixel.sources]
        ('phone (Google Pixel 3), TensorFlow Lite', ['fbnet', 'nasbench201'])

    Args:
        rlm: the model; also the name of a shipped model, or a checkpoint directory.

    Raises:
        FileNotFoundError: there is no such directory or shipped model.
        ValueError: rlm is no model.
    """
    if isinstance(rlm, str | os.PathLike):
        rlm = RLM.load(rlm)
    if not isinstance(rlm, RLM):
        raise ValueError(f"rlm is {rlm!r}: expected an RLM, a checkpoint directory or the name of a model")
    of_programs = {
        name
        for surrogates in rlm.surrogates.values()
        for surrogate in surrogates
        if isinstance(surrogate, NgramSurrogate | ProgramSurrogate)
        for name in surrogate.objectives
    }
    spaces = sorted({*rlm.trained_on, *rlm.surrogates})
    devices = []
    for objective in sorted(rlm.objectives):
        kind, _, name = objective.partition("/")
        if kind not in DEVICE_KINDS or not name or objective in of_programs:
            continue
        by_space = {
            space: surrogate_by_objective(rlm.surrogates.get(space, ())).get(objective) for space in spaces
        }
        sources = [_source(rlm, space, objective, surrogate) for space, surrogate in by_space.items()]
        any_network = any(isinstance(surrogate, LayerSurrogate) for surrogate in by_space.values())
        any_network |= isinstance(by_space.get(""), FewLabelLatency)
        known = tuple([source for source in sources if source])
        described = describe_device(name), device_class(name), quantity_of(objective)
        devices.append(KnownDevice(objective, name, *described, any_network, known))
    return devices


def _source(rlm: RLM, space: str, objective: str, surrogate: Surrogate | None) -> LabelSource | None:
    """Return what the model learnt of an objective in a space, or None if nothing."""
    trained = rlm.trained_on.get(space)
    networks = trained.rows if trained and objective in trained.objectives else None
    if isinstance(surrogate, LayerSurrogate):
        found = surrogate.evidence[objective]
        if found.relative_error is None:
            return LabelSource(space, networks, found.networks, found.families)
        errors = found.relative_error, found.within_10_percent
        return LabelSource(space, networks, found.networks, found.families, *errors, FAMILIES_LEFT_OUT)
    if isinstance(surrogate, FewLabelLatency):
        own = surrogate.evidence
        return LabelSource(
            space, networks, own.labels, None, own.relative_error, own.within_10_percent, LEAVE_ONE_OUT
        )
    if isinstance(surrogate, GraphSurrogate):
        labels = int(np.isfinite(surrogate.values[:, surrogate.objectives.index(objective)]).sum())
        return LabelSource(space, networks, labels)
    return LabelSource(space, networks) if networks is not None else None
