"""nn-Meter's benchmark dataset (Zhang et al. 2021): JSON lines with a graph and latencies on each device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nas_rlm.data.importers.nn_meter.operators import to_onnx
from nas_rlm.data.network_files import device_of_column
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row
from nas_rlm.text.canonical import costed_text
from nas_rlm.utils.progress import progress_bar

SPACE = "nnmeter"
FAMILIES = (
    *("alexnet", "densenet", "googlenet", "mnasnet", "mobilenetv1", "mobilenetv2", "mobilenetv3"),
    *("nasbench201", "proxylessnas", "resnet", "shufflenetv2", "squeezenet", "vgg"),
)
OTHER_KEYS = ("id", "graph")  # all others are devices


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read networks with the latencies of devices, such as `latency/cortexA76cpu`.

    Args:
        path: a file of the dataset, such as alexnets.jsonl, or the directory of all.
        omissions: counts the entries that are not valid.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise ValueError("the directory has no *.jsonl")
    rows = []
    for file in files:
        for number, line in enumerate(progress_bar(_lines(file), file.stem, unit="net"), 1):
            with omissions.skip(f"{file.name} line {number}"):
                if line.strip():
                    rows.append(_row(json.loads(line), omissions))
    return rows


def family_of(name: str) -> str:
    """Return the family of a network's name.

    Examples:
        >>> family_of("alexnet_1356"), family_of("resnet18_0"), family_of("mine_3")
        ('alexnet', 'resnet', 'mine')
    """
    return next((family for family in FAMILIES if name.startswith(family)), name.rpartition("_")[0] or name)


def _lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file, one at a time: the files are large."""
    with file.open(encoding="utf-8") as lines:
        yield from lines


def _row(entry: Mapping[str, Any], omissions: Omissions) -> Row:
    """Return the row of an entry."""
    name = entry["id"]
    if not isinstance(name, str):
        raise ValueError(f"the id is {name!r}: expected text")
    try:
        text = costed_text(to_onnx(entry["graph"]))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    latencies = {
        f"latency/{device_of_column(key)}": _number(value)
        for key, value in entry.items()
        if key not in OTHER_KEYS and value is not None
    }
    return Row(SPACE, "", omissions.targets(latencies, name), text, name, group=family_of(name))


def _number(value: object) -> object:
    """Return a number that is written as text as a number, and anything else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
