"""HELP as published (Lee et al. 2021): a directory with architectures and the latencies on each device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mode
from typing import Any

import torch

from nas_rlm.data.importers.columns import aligned_columns
from nas_rlm.data.omissions import Omissions, to_number
from nas_rlm.data.tables import Row
from search_spaces import SearchSpace, get
from search_spaces.notation import is_int_between
from search_spaces.wording import counted


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read latencies of architectures of NAS-Bench-201, FBNet or Once-for-All.

    Args:
        path: directory with latency/DEVICE.pt, and one of str_arch2idx.pt, metainfo.pt and ofa_archs.pt.
        omissions: counts the entries that are not valid.
    """
    space, architectures = _read_architectures(path)
    files = sorted((path / "latency").glob("*.pt"))
    if not files:
        raise ValueError("it has no latency/DEVICE.pt")
    columns = {}
    for file in files:
        objective = f"latency/{file.stem}"
        with omissions.skip(f"latency/{file.name}", objective):
            columns[objective] = _load_tensors(file)
    length = _column_length(columns) if space.name == "nasbench201" else len(architectures)
    columns = aligned_columns(columns, length, omissions)
    rows = {}
    for position, description in architectures:
        name = f"{space.name}_{position}"
        with omissions.skip(name):
            if not is_int_between(position, 0, length - 1):
                raise ValueError(f"the position is not one of {counted(length, 'latency', 'latencies')}")
            architecture = space.parse(_notation(space, description))
            targets = omissions.targets({key: values[position] for key, values in columns.items()}, name)
            rows[position] = Row(space.name, str(architecture), targets, identifier=name)
    return [rows[position] for position in sorted(rows)]


def _read_architectures(path: Path) -> tuple[SearchSpace[Any], list[tuple[Any, Any]]]:
    """Return the search space of a directory, and the position and description of each architecture."""
    if (path / "str_arch2idx.pt").is_file():
        positions = _load_tensors(path / "str_arch2idx.pt")
        return get("nasbench201"), [(position, notation) for notation, position in positions.items()]
    if (path / "metainfo.pt").is_file():
        return get("fbnet"), list(enumerate(_load_tensors(path / "metainfo.pt")["arch"]))
    if (path / "ofa_archs.pt").is_file():
        return get("ofa_mbv3"), list(enumerate(_load_tensors(path / "ofa_archs.pt")["arch"]))
    raise ValueError("it has neither str_arch2idx.pt nor metainfo.pt nor ofa_archs.pt")


def _column_length(columns: Mapping[str, Any]) -> int:
    """Return the most frequent number of values of a device."""
    lengths = [len(values) for values in columns.values() if hasattr(values, "__len__")]
    return mode(lengths) if lengths else 0


def _load_tensors(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _notation(space: SearchSpace[Any], description: Any) -> str:
    """Return the notation of an architecture that a file describes."""
    if space.name == "fbnet":
        return "_".join(map(str, description["op_idx_list"]))
    if space.name == "ofa_mbv3":
        return _once_for_all_notation(description)
    return str(description)


def _once_for_all_notation(config: dict[str, Any]) -> str:
    """Return the notation of a Once-for-All configuration: kernel sizes, expansions, depths, resolution."""
    resolution = config["r"][0] if isinstance(config["r"], list | tuple) else config["r"]
    return json.dumps(
        {**{k: list(map(_integer, config[k])) for k in ("ks", "e", "d")}, "r": _integer(resolution)}
    )


def _integer(value: object) -> int:
    """Return a number without a fraction as an integer."""
    number = to_number(value)
    if number is None or not number.is_integer():
        raise ValueError(f"{value!r} is not a whole number")
    return int(number)
