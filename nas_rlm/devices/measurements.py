"""Tables of measured networks: a row for each network, with its measurements on one or several devices."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from nas_rlm.data.tables import Row, Table, read, write
from nas_rlm.devices.device import Device
from nas_rlm.devices.onnx_files import content_digest, load_with_weights
from nas_rlm.devices.profiler import DEFAULT_PLAN, Failure, Measurement, Plan, measure
from nas_rlm.files import check_target, exclusive_lock
from nas_rlm.graph.onnx_graphs.input_shapes import (
    apply_input_shapes,
    check_input_shapes,
    input_shapes,
    inputs_only,
)
from nas_rlm.graph.onnx_graphs.loading import load
from nas_rlm.text import from_onnx
from nas_rlm.utils.progress import progress_bar
from search_spaces import SearchSpace

FILE = "file"  # key of the content of a row's ONNX file in its metainformation, beside those of devices
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
    def check_batch_size(self, batch_size: int) -> None:
        """Check, before anything is measured, that no given shape contradicts a batch size.

        Raises:
            ValueError: a shape has another batch.
        """

    @abstractmethod
    def onnx_bytes(self, batch_size: int = 1) -> bytes:
        """Return the ONNX file with its weights.

        Args:
            batch_size: size of open batch dimensions.
        """


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

    def check_batch_size(self, batch_size: int) -> None:
        """Do nothing: the networks of a space run with any batch size."""

    def onnx_bytes(self, batch_size: int = 1) -> bytes:
        batch = 1 if batch_size > 1 else None  # the runtime replaces a batch of 1 by that of the device
        content: bytes = self.space.to_onnx(self.architecture, weights=True, batch=batch).SerializeToString()
        return content


class OnnxFileNetwork(Network):
    """An ONNX file with weights.

    In a table it is known by its content and the shapes of its inputs: a file that was replaced is measured
    again, a copy is not.

    Args:
        path: the file.
        space: name that the row in the table has as its space; may be empty.
        shapes: shapes of inputs with open dimensions, by name.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a valid model, its external data cannot be read, a shape contradicts the
            model, or an open dimension other than the batch has no size.
    """

    def __init__(
        self, path: Path, space: str = "", shapes: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        model = load(path)
        self.path, self.shapes = path, shapes
        try:
            closed = apply_input_shapes(model, shapes)
            check_input_shapes(closed)
            text = from_onnx(closed)
        except ValueError as error:
            raise ValueError(f"{str(path)!r}: {error}") from None
        self.inputs = inputs_only(model)
        content = {"digest": content_digest(path), "inputs": input_shapes(closed)}
        super().__init__(Row(space, "", {}, text, str(path), metainformation=json.dumps({FILE: content})))

    def check_batch_size(self, batch_size: int) -> None:
        try:
            apply_input_shapes(self.inputs, self.shapes, batch_size)
        except ValueError as error:
            raise ValueError(f"{str(self.path)!r}: {error}") from None

    def onnx_bytes(self, batch_size: int = 1) -> bytes:
        model = apply_input_shapes(load_with_weights(self.path), self.shapes, batch_size)
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

    Networks that the table already has a result for on this device are not measured again, see `network_key`.

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
        ValueError: the file is not a table, another process is writing to it, no worker starts, or a network
            cannot have the device's batch size.
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
    former = read(out) if out.exists() else Table(out.stem)
    rows = {network_key(row): row for row in former.rows}
    by_key: dict[tuple[str, str], Network] = {}
    for network in networks:
        by_key.setdefault(network.key, network)
    missing = [
        network
        for network in by_key.values()
        if str(device) not in measurement_details(rows.get(network.key, network.row))
    ]
    for network in missing:
        network.check_batch_size(device.batch_size)

    def onnx_files() -> Iterator[tuple[Network, bytes]]:
        for network in missing:
            yield network, network.onnx_bytes(device.batch_size)

    results = measure_function(onnx_files(), device, plan)
    for network, result in progress_bar(results, str(device), len(missing), unit="net", disable=not progress):
        rows[network.key] = _add_result(rows.get(network.key, network.row), device, result)
        write(out, rows.values(), former.declarations)
    return replace(former, rows=list(rows.values()))


def network_key(row: Row) -> tuple[str, str]:
    """Return the key of a measured network in a table.

    It is the space and the notation, or for a file its content and the shapes of its inputs. Rows of files
    that older versions wrote do not have the content: their key has the path.
    """
    content = _metainformation(row).get(FILE)
    file_key = json.dumps(content, sort_keys=True) if content else row.identifier
    return row.space, row.arch_str or file_key


def repeated_measurements(first: Table, second: Table, objective: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the networks that two tables measured, each float64 [M].

    Args:
        first: the first measurements.
        second: measurements of some of the same networks.
        objective: name of a latency or memory.
    """
    first_rows = {network_key(row): row for row in first.where_measured(objective).rows}
    pairs = [
        (first_rows[network_key(row)].targets[objective], row.targets[objective])
        for row in second.where_measured(objective).rows
        if network_key(row) in first_rows
    ]
    values = np.array(pairs, dtype=float).reshape(-1, 2)
    return values[:, 0], values[:, 1]


def measurement_details(row: Row) -> dict[str, Any]:
    """Return the details of a row's measurements by device; those of a failed measurement are its error."""
    return {name: details for name, details in _metainformation(row).items() if name != FILE}


def _metainformation(row: Row) -> dict[str, Any]:
    """Return the metainformation of a row; nothing if it is not that of measurements."""
    try:
        metainformation = json.loads(row.metainformation or "{}")
    except ValueError:
        return {}
    return metainformation if isinstance(metainformation, dict) else {}


def _add_result(row: Row, device: Device, result: Measurement | Failure) -> Row:
    """Return a copy of a row with the result of its measurement on a device."""
    details = asdict(result)
    targets = dict(row.targets)
    if isinstance(result, Measurement):
        targets[f"latency/{device}"] = details.pop("median")
        if (memory := details.pop("memory")) is not None:
            targets[f"memory/{device}"] = memory
    metainformation = json.dumps({**_metainformation(row), str(device): details})
    return replace(row, targets=targets, metainformation=metainformation)
