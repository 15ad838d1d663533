"""devices: the devices that a model knows, and the errors to expect."""

from __future__ import annotations

import json as json_format
from typing import TYPE_CHECKING

from nas_rlm.cli.app import Flag, app, check_model, load

if TYPE_CHECKING:
    from nas_rlm.devices.known import KnownDevice, LabelSource

UNKNOWN, NO_SPACE = "–", "any network"


@app.command
def devices(*, model: str = "nas", json: Flag = False) -> None:
    """List the devices that a model knows, with their errors.

    Errors are those of networks that the surrogate did not learn from: families that are left out, or single
    networks. A device without such an error has –.

    Args:
        model: a checkpoint directory, or the name of a shipped model.
        json: write a JSON list with an object for each device, with the keys objective, name, description,
            any_network and sources. Each source has the keys space, networks, labels, families,
            relative_error, within_10_percent and protocol.
    """
    check_model(model)

    from nas_rlm.devices.known import known_devices

    found = known_devices(load(model))
    if json:
        print(json_format.dumps([device.to_dict() for device in found], indent=2, ensure_ascii=False))
    elif found:
        print("\n".join(map(_text, found)))
    else:
        print(f"the model {model} knows no device")


def _text(device: KnownDevice) -> str:
    """Return a device as text."""
    lines = [f"{device.objective}  {device.description}".rstrip()]
    if device.any_network:
        lines.append("  predicted for networks of any family")
    lines += [f"  {_source_text(source)}" for source in device.sources]
    return "\n".join(lines if device.sources else [*lines, f"  learnt from {UNKNOWN}"])


def _source_text(source: LabelSource) -> str:
    """Return what a device was learnt from, and its expected error, as one line."""
    learnt = f"≤ {source.networks:,} networks" if source.labels is None else f"{source.labels:,} labels"
    if source.families is not None:
        learnt += f" of {source.families:,} families"
    error = UNKNOWN
    if source.relative_error is not None and source.within_10_percent is not None:
        error = f"{source.relative_error:.1%}, {source.within_10_percent:.0%} within 10 %, {source.protocol}"
    return f"{source.space or NO_SPACE:<13} {learnt:<28} error {error}"
