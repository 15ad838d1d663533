"""Tables of measured networks: a row for each network, with its measurements on one or several devices."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import onnx

from nas_rlm.data.tables import Row, Table, read, write
from nas_rlm.devices.device import Device
from nas_rlm.devices.profiler import DEFAULT_PLAN, Failure, Measurement, Plan, measure
from nas_rlm.files import check_target, exclusive_lock
from nas_rlm.graph.reader import load
from nas_rlm.text import from_onnx
from nas_rlm.utils.progress import progress_bar
from search_spaces import SearchSpace

MeasureFunction = Callable[
    [Iterable[tuple["Network", bytes]], Device, Plan], Iterator[tuple["Network", Measurement | Failure]]
]


class Network(ABC):
    """A network to measure.

    Args:
        row: its row in the table, without measurements.
    """

    def __init__(self, row: Row) -> None:
        self.row = row

    @property
    def key(self) -> tuple[str, str]:
        """The key of the network in a table, see `network_key`."""
        return network_key(self.row)

    @abstractmethod
    def onnx_bytes(self) -> bytes:
        """Return the ONNX file with its weights."""


class SpaceNetwork(Network):
    """An architecture of a search space, with random weights.

    Args:
        space: the search space.
        architecture: one of its architectures.
    """

    def __init__(self, space: SearchSpace[Any], architecture: Any) -> None:
        costs = {"flops": space.flops(architecture), "params": space.params(architecture)}
        super().__init__(Row(space.name, str(architecture), {k: float(v) for k, v in costs.items()}))
        self.space, self.architecture = space, architecture

    def onnx_bytes(self) -> bytes:
        content: bytes = self.space.to_onnx(self.architecture, weights=True).SerializeToString()
        return content


class OnnxFileNetwork(Network):
    """An ONNX file with weights.

    Args:
        path: the file.
        space: name that the row in the table has as its space; may be empty.
    """

    def __init__(self, path: Path, space: str = "") -> None:
        super().__init__(Row(space, "", {}, from_onnx(path), str(path)))
        self.path = path

    def onnx_bytes(self) -> bytes:
        model = load(self.path)
        onnx.external_data_helper.load_external_data_for_model(model, str(self.path.parent))
        content: bytes = model.SerializeToString()
        return content


def profile(
    networks: Sequence[Network],
    device: Device,
    out: Path,
    plan: Plan = DEFAULT_PLAN,
    progress: bool = False,
    measure_function: MeasureFunction = measure,
) -> Table:
    """Measure networks on a device and write them to a table.

    Networks that the table already has a result for on this device are not measured again.

    Args:
        networks: the networks to measure.
        device: where they run.
        out: the parquet table; its other rows and columns are kept.
        plan: settings of the measurement protocol.
        progress: whether to show a progress bar.
        measure_function: function that measures: `measure`, or that of a cluster, see
            `nas_rlm.search.ray_cluster.RayCluster.measure`.

    Returns:
        The table, with `latency/DEVICE` (ms), `memory/DEVICE` (bytes) and, in `metainformation`, the details
        of the measurement or the error.

    Raises:
        ValueError: the file is not a table, another process is writing to it, or no worker starts.
    """
    check_target(out)
    with exclusive_lock(out):
        return _measure_missing(networks, device, out, plan, progress, measure_function)


def _measure_missing(
    networks: Sequence[Network],
    device: Device,
    out: Path,
    plan: Plan,
    progress: bool,
    measure_function: MeasureFunction,
) -> Table:
    """Measure the networks that have no result in the table, and write the table after each of them."""
    rows = {network_key(row): row for row in (read(out).rows if out.exists() else ())}
    by_key = {network.key: network for network in networks}
    missing = [
        network
        for network in by_key.values()
        if str(device) not in measurement_details(rows.get(network.key, network.row))
    ]

    def onnx_files() -> Iterator[tuple[Network, bytes]]:
        for network in missing:
            yield network, network.onnx_bytes()

    results = measure_function(onnx_files(), device, plan)
    for network, result in progress_bar(results, str(device), len(missing), unit="net", disable=not progress):
        rows[network.key] = _add_result(rows.get(network.key, network.row), device, result)
        write(out, rows.values())
    return Table(out.stem, list(rows.values()))


def network_key(row: Row) -> tuple[str, str]:
    """Return the key of a measured network in a table: its space, and its notation or file."""
    return row.space, row.arch_str or row.identifier


def measurement_details(row: Row) -> dict[str, Any]:
    """Return the details of a row's measurements by device; those of a failed measurement are its error."""
    try:
        details = json.loads(row.metainformation or "{}")
    except ValueError:
        return {}
    return details if isinstance(details, dict) else {}


def _add_result(row: Row, device: Device, result: Measurement | Failure) -> Row:
    """Return a copy of a row with the result of its measurement on a device."""
    details = asdict(result)
    targets = dict(row.targets)
    if isinstance(result, Measurement):
        targets[f"latency/{device}"] = details.pop("median")
        if (memory := details.pop("memory")) is not None:
            targets[f"memory/{device}"] = memory
    metainformation = json.dumps({**measurement_details(row), str(device): details})
    return replace(row, targets=targets, metainformation=metainformation)
