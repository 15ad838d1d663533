"""devices: the devices that a model knows, and the errors to expect."""

from __future__ import annotations

import json as json_format
import re
from collections import Counter
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.cli.app import Flag, app, check_model, load
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.devices.known import KnownDevice, LabelSource

UNKNOWN, OTHER_CLASS = "–", "other devices"
REPEATED = re.compile(r", (batch size|ms an image|1,024-token).*$")  # what the quantity says as well


@app.command
def devices(
    pattern: str = "*",
    /,
    *,
    model: str = "nas",
    space: str = "",
    kind: str = "",
    every: Flag = False,
    json: Flag = False,
) -> None:
    """List the devices that a model knows, with their errors.

    A line for each device: the mean relative error to expect, the networks that it was learnt from, which
    quantity the numbers are, and what the device is. Errors are those of networks that the surrogate did not
    learn from: families that are left out, or single networks; – where none is stored. Without options, the
    list has the devices whose latencies are predicted for networks of any family.

    Args:
        pattern: a name, a pattern such as '*pixel*', or words that name and description have, such as
            'phone adreno'.
        model: a checkpoint directory, or the name of a shipped model.
        space: list the devices that were learnt from networks of this space.
        kind: list devices of this kind, such as GPU, phone or CPU.
        every: list all devices.
        json: write a JSON list with an object for each device, with the keys objective, name, description,
            device_class, quantity, any_network and sources. Each source has the keys space, networks, labels,
            families, relative_error, within_10_percent and protocol.
    """
    check_model(model)

    from nas_rlm.devices.known import known_devices

    known = known_devices(load(model))
    known_spaces = sorted({source.space for device in known for source in device.sources})
    if known and space and space not in known_spaces:
        raise ValueError(f"{model} knows no device of the space {space!r}; {suggest(space, known_spaces)}")
    classes = sorted({device.device_class or OTHER_CLASS for device in known})
    if known and not any(kind.lower() in name.lower() for name in classes):
        raise ValueError(
            f"{model} knows no device of the kind {kind!r}: expected a part of {', '.join(classes)}"
        )
    found = [device for device in known if _is_selected(device, pattern, space, kind)]
    exact = [device for device in found if pattern.lower() in (device.name.lower(), device.objective.lower())]
    found = exact or found
    if known and not found:
        others = [device for device in known if _is_selected(device, "*", space, kind)]
        options = " ".join([pattern, f"--space {space}" * bool(space), f"--kind {kind}" * bool(kind)]).strip()
        raise ValueError(f"no device of {model} is one of {options}{_suggestion(pattern, others, model)}")
    if json:
        print(json_format.dumps([device.to_dict() for device in found], indent=2, ensure_ascii=False))
        return
    if not known:
        print(f"the model {model} knows no device")
        return
    is_short = pattern == "*" and not (space or kind or every) and any(d.any_network for d in found)
    listed = [device for device in found if device.any_network] if is_short else found
    print(_table(listed))
    if is_short:
        spaces = Counter(s.space for d in found if not d.any_network for s in d.sources)
        counts = ", ".join(f"{name} {count}" for name, count in sorted(spaces.items()))
        print(f"Devices of networks of one space alone: {counts}. --space NAME or --every lists them.")


def _is_selected(device: KnownDevice, pattern: str, space: str, kind: str) -> bool:
    """Return whether a device has the name or description, the space and the kind of the options."""
    is_of_space = not space or any(source.space == space for source in device.sources)
    is_of_kind = kind.lower() in (device.device_class or OTHER_CLASS).lower()
    return _is_named(device, pattern.lower()) and is_of_space and is_of_kind


def _suggestion(pattern: str, devices: list[KnownDevice], model: str) -> str:
    """Return the end of the error for a name or pattern that no device has: similar names, and where to look.

    Args:
        pattern: the name or pattern.
        devices: the devices with the space and kind of the options.
        model: name of the model.
    """
    names = [device.name for device in devices]
    similar = f"; {suggest(pattern.lower().split('/')[-1], names)}" if "*" not in pattern and names else ""
    elsewhere = "" if Path(model).is_dir() else ", --model DIR those of your own model"
    return f"{similar} (nas-rlm devices --every lists all{elsewhere})"


def _is_named(device: KnownDevice, pattern: str) -> bool:
    """Return whether a device has the name, fits the pattern, or has all words of it."""
    texts = [text.lower() for text in (device.name, device.objective, device.description)]
    if "*" in pattern:
        return any(fnmatchcase(text, pattern) for text in texts)
    return all(any(word in text for text in texts) for word in pattern.split())


def _table(devices: list[KnownDevice]) -> str:
    """Return the devices as text, by class, with a line for each."""
    by_class: dict[str, list[list[str]]] = {}
    for device in sorted(devices, key=lambda d: (d.device_class or "~", d.quantity, d.objective)):
        by_class.setdefault(device.device_class or OTHER_CLASS, []).append(_cells(device))
    header = ["device", "error", "learnt from", "quantity", "description"]
    widths = [max(map(len, column)) for column in zip(header, *chain(*by_class.values()), strict=True)]
    lines = [_line(header, widths)]
    for name, rows in by_class.items():
        lines += ["", name, *(_line(row, widths) for row in rows)]
    return "\n".join(lines)


def _line(cells: list[str], widths: list[int]) -> str:
    """Return cells as a line of columns."""
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cells(device: KnownDevice) -> list[str]:
    """Return the cells of a device."""
    errors = [source.relative_error for source in device.sources if source.relative_error is not None]
    error = f"{max(errors):.1%}" if errors else UNKNOWN
    learnt = ", ".join(map(_learnt_from, device.sources))
    description = device.description.removeprefix(device.device_class).strip().removeprefix("(")
    description = REPEATED.sub("", description.replace(")", "", 1))
    return [device.objective, error, learnt or UNKNOWN, device.quantity, description]


def _learnt_from(source: LabelSource) -> str:
    """Return how many networks of which families or space a source has."""
    networks = f"≤ {source.networks:,}" if source.labels is None else f"{source.labels:,}"
    if source.families is not None:
        return f"{networks} networks of {counted(source.families, 'family', 'families')}"
    return f"{networks} {source.space or 'networks'}"
