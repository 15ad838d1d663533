"""HELP as published (Lee et al. 2021): a directory with architectures and the latencies on each device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from nas_rlm.data.tables import Row
from search_spaces import SearchSpace, get


def read_rows(path: Path) -> list[Row]:
    """Read latencies of architectures of NAS-Bench-201, FBNet or Once-for-All.

    Args:
        path: directory with latency/DEVICE.pt, and one of str_arch2idx.pt, metainfo.pt and ofa_archs.pt.
    """
    space, notations = _read_architectures(path)
    latencies = {p.stem: _load_tensors(p) for p in sorted((path / "latency").glob("*.pt"))}
    if not latencies:
        raise ValueError("it has no latency/DEVICE.pt")
    for device, values in latencies.items():
        if len(values) != len(notations):
            raise ValueError(
                f"latency/{device}.pt has {len(values)} values for {len(notations)} architectures"
            )
    return [
        Row(
            space.name,
            str(space.parse(notation)),
            {f"latency/{device}": float(values[i]) for device, values in latencies.items()},
            identifier=f"{space.name}_{i}",
        )
        for i, notation in enumerate(notations)
    ]


def _read_architectures(path: Path) -> tuple[SearchSpace[Any], list[str]]:
    """Return the search space of a directory and the notation of each of its architectures."""
    if (path / "str_arch2idx.pt").is_file():
        index = _load_tensors(path / "str_arch2idx.pt")
        return get("nasbench201"), sorted(index, key=index.__getitem__)
    if (path / "metainfo.pt").is_file():
        architectures = _load_tensors(path / "metainfo.pt")["arch"]
        return get("fbnet"), ["_".join(map(str, a["op_idx_list"])) for a in architectures]
    if (path / "ofa_archs.pt").is_file():
        architectures = _load_tensors(path / "ofa_archs.pt")["arch"]
        return get("ofa_mbv3"), [_once_for_all_notation(a) for a in architectures]
    raise ValueError("it has neither str_arch2idx.pt nor metainfo.pt nor ofa_archs.pt")


def _load_tensors(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _once_for_all_notation(config: dict[str, Any]) -> str:
    """Return the notation of a Once-for-All configuration: kernel sizes, expansions, depths, resolution."""
    resolution = config["r"][0] if isinstance(config["r"], list | tuple) else config["r"]
    return json.dumps({**{k: list(map(int, config[k])) for k in ("ks", "e", "d")}, "r": int(resolution)})
