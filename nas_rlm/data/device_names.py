"""Names of devices: what the devices are, and which quantity their latencies are."""

from __future__ import annotations

import json
import re
from functools import cache

from nas_rlm.data.objective_kinds import kind_of
from nas_rlm.files import ASSETS

DESCRIPTIONS = ASSETS / "devices.json"
AT_LARGEST_BATCH = "ms an image at the largest batch size"  # the inverse of a throughput
SEQUENCES = "1,024-token sequences"
BATCH = re.compile(r", batch size (\d+)$")  # in a description
BATCH_OF_NAME = re.compile(r"-b(\d+)$")  # of a device that was measured with nas-rlm


def describe_device(name: str) -> str:
    """Return what a device is; empty for one that nas-rlm has no description of.

    Args:
        name: name of the device, such as `pixel3`.
    """
    return _descriptions().get(name, "")


def device_class(name: str) -> str:
    """Return the class of a device, such as `desktop GPU`; empty without a description.

    Args:
        name: name of the device.
    """
    return re.split(r" \(| of ", describe_device(name))[0]


def quantity_of(objective: str) -> str:
    """Return the unit of an objective, and what a latency is the time of.

    Examples:
        >>> quantity_of("latency/pixel3"), quantity_of("latency/1080ti_32"), quantity_of("latency/mybox")
        ('ms, one input', 'ms, a batch of 32', 'ms')
        >>> quantity_of("latency/4090_amp_nchw_pt240"), quantity_of("energy/mybox")
        ('ms an image at the largest batch size', 'J')

    Args:
        objective: name of the objective.
    """
    unit = kind_of(objective).unit
    kind, _, name = objective.partition("/")
    description = describe_device(name)
    if kind != "latency":
        return unit
    if AT_LARGEST_BATCH in description:
        return AT_LARGEST_BATCH
    if SEQUENCES in description:
        return f"{unit}, a batch of {SEQUENCES}"
    batch = BATCH.search(description) or BATCH_OF_NAME.search(name)
    if batch and int(batch[1]) > 1:
        return f"{unit}, a batch of {batch[1]}"
    return f"{unit}, one input" if description else unit


@cache
def _descriptions() -> dict[str, str]:
    """Return descriptions of devices by name."""
    descriptions: dict[str, str] = json.loads(DESCRIPTIONS.read_text(encoding="utf-8"))
    return descriptions
