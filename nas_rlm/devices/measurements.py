"""Tables of measured networks: a row each, with what was measured on one device or on several."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import onnx
from tqdm import tqdm

from nas_rlm.data.tables import Row, Table, read, write
from nas_rlm.devices.device import Device
from nas_rlm.devices.profiler import USUAL, Failure, Measurement, Plan, measure
from nas_rlm.files import alone, check_target
from nas_rlm.graph.reader import load
from nas_rlm.text import from_onnx
from search_spaces import SearchSpace

Measuring = Callable[
    [Iterable[tuple["Network", bytes]], Device, Plan], Iterator[tuple["Network", Measurement | Failure]]
]


class Network:
    """A network to be measured.

    Args:
        row: as it will be in the table, without what is measured.
    """

    def __init__(self, row: Row) -> None:
        self.row = row

    @property
    def key(self) -> tuple[str, str]:
        """What tells it apart in a table."""
        return key_of(self.row)

    def content(self) -> bytes:
        """The ONNX file with its weights."""
        raise NotImplementedError


class Architecture(Network):
    """A network of a space, with fresh weights."""

    def __init__(self, space: SearchSpace[Any], architecture: Any) -> None:
        costs = {"flops": space.flops(architecture), "params": space.params(architecture)}
        super().__init__(Row(space.name, str(architecture), {k: float(v) for k, v in costs.items()}))
        self.space, self.architecture = space, architecture

    def content(self) -> bytes:
        found: bytes = self.space.to_onnx(self.architecture, weights=True).SerializeToString()
        return found


class File(Network):
    """An ONNX file.

    Args:
        path: of it.
        space: what networks like it are called in the table.
    """

    def __init__(self, path: Path, space: str = "") -> None:
        super().__init__(Row(space, "", {}, from_onnx(path), str(path)))
        self.path = path

    def content(self) -> bytes:
        model = load(self.path)
        onnx.external_data_helper.load_external_data_for_model(model, str(self.path.parent))
        found: bytes = model.SerializeToString()
        return found


def profile(
    networks: Sequence[Network],
    device: Device,
    out: Path,
    plan: Plan = USUAL,
    progress: bool = False,
    measuring: Measuring = measure,
) -> Table:
    """Measure networks and write each to a table, in which those that the device has measured are left alone.

    Args:
        networks: to be measured.
        device: where.
        out: a parquet table; what it holds already stays.
        plan: how.
        progress: show a bar.
        measuring: who measures: this machine, or `nas_rlm.search.ray_cluster.Cluster.measure`.

    Returns:
        The table, with `latency/DEVICE` (ms), `memory/DEVICE` (bytes) and in `metainformation` how they were
        measured, or why not.

    Raises:
        ValueError: the file is no such table, another process writes to it, or no worker starts.
    """
    check_target(out)
    with alone(out):
        return _profile(networks, device, out, plan, progress, measuring)


def _profile(
    networks: Sequence[Network], device: Device, out: Path, plan: Plan, progress: bool, measuring: Measuring
) -> Table:
    rows = {key_of(row): row for row in (read(out).rows if out.exists() else ())}
    wanted = {n.key: n for n in networks}
    left = [n for n in wanted.values() if str(device) not in notes(rows.get(n.key, n.row))]

    def contents() -> Iterator[tuple[Network, bytes]]:
        for network in left:
            yield network, network.content()

    found = measuring(contents(), device, plan)
    for network, result in tqdm(found, str(device), len(left), unit="net", disable=not progress):
        rows[network.key] = _with(rows.get(network.key, network.row), device, result)
        write(out, rows.values())
    return Table(out.stem, list(rows.values()))


def key_of(row: Row) -> tuple[str, str]:
    """What tells a measured network apart in a table."""
    return row.space, row.arch_str or row.identifier


def notes(row: Row) -> dict[str, Any]:
    """How a row's numbers were measured, or why they are missing, by device."""
    try:
        found = json.loads(row.metainformation or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _with(row: Row, device: Device, result: Measurement | Failure) -> Row:
    """A row with what was found on a device."""
    told = asdict(result)
    targets = dict(row.targets)
    if isinstance(result, Measurement):
        targets[f"latency/{device}"] = told.pop("median")
        if (memory := told.pop("memory")) is not None:
            targets[f"memory/{device}"] = memory
    metainformation = json.dumps({**notes(row), str(device): told})
    return replace(row, targets=targets, metainformation=metainformation)
