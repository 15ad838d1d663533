"""HW-GPT-Bench as published (Sukthanker et al. 2024): directories of pickles with raw measurements.

`latency_DEVICE`, `latency_DEVICE_m` and `latency_DEVICE_l` have the measurements of each device for the
scales S, M and L, `arch_ppl_bench_SCALE` has accuracies and perplexities. Each file is a list of entries.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from nas_rlm.data.omissions import Omissions, to_number
from nas_rlm.data.tables import Row
from nas_rlm.utils.progress import progress_bar
from search_spaces import SearchSpace, get

PATTERNS = (
    "efficiency_observations_*.pkl",
    "efficiency_energy_observations_tracker_*.pkl",
    "ppl_observations_tracker_*.pkl",
)
DIRECTORY = re.compile(r"latency_(?P<device>.+?)(_(?P<scale>[sml]))?|arch_ppl_bench_(?P<ppl_scale>[sml])")
NOTATION_KEYS = ("embed_dim", "n_layer", "n_head", "mlp_ratio", "bias")  # the files have them after sample_
MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1000.0}
JOULES = 3600.0  # of a watt-hour: the files call it KWh, but compute watts x seconds / 3600
MEGABYTE = 1e6


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read the measurements of each network: medians over the repetitions on each device.

    Args:
        path: the directory, which is searched with its subdirectories for the files; these are pickles, which
            can run any code.
        omissions: counts the entries that are not valid.
    """
    files = sorted(file for pattern in PATTERNS for file in path.rglob(pattern))
    if not files:
        raise ValueError(f"the directory has no {' or '.join(PATTERNS)}")
    targets: dict[tuple[str, str], dict[str, float]] = {}
    for file in progress_bar(files, "hw_gpt_bench", unit="file"):
        file_name = file.relative_to(path).as_posix()
        with omissions.skip(file_name):
            space, device = _space_and_device(file.resolve().parent.name)
            for i, entry in enumerate(_load_entries(file)):
                name = f"{file_name}, entry {i}"
                with omissions.skip(name):
                    architecture = space.parse(_notation(entry["arch"]))
                    of_network = targets.setdefault((space.name, str(architecture)), {})
                    of_network |= omissions.targets(_values(entry, device), name)
    return [
        Row(space_name, notation, values, identifier=f"{space_name}_{i}")
        for i, ((space_name, notation), values) in enumerate(targets.items())
    ]


def _space_and_device(directory: str) -> tuple[SearchSpace[Any], str]:
    """Return the search space and the device of a directory; without a device for perplexities.

    Raises:
        ValueError: the directory has another name.
    """
    match = DIRECTORY.fullmatch(directory)
    if match is None:
        raise ValueError(
            f"its directory is {directory!r}, expected latency_DEVICE, latency_DEVICE_m, latency_DEVICE_l or"
            " arch_ppl_bench_SCALE"
        )
    return get(f"gpt_{match['scale'] or match['ppl_scale'] or 's'}"), match["device"] or ""


def _load_entries(file: Path) -> list[Any]:
    """Return the entries of a file.

    Raises:
        ValueError: it is no list.
    """
    with open(file, "rb") as opened:
        entries = pickle.load(opened)
    if not isinstance(entries, list):
        raise ValueError(f"it is a {type(entries).__name__}, expected a list of entries")
    return entries


def _notation(arch: Mapping[str, Any]) -> str:
    """Return the notation of the network of an entry."""
    return json.dumps({key: arch[f"sample_{key}"] for key in NOTATION_KEYS})


def _values(entry: Mapping[str, Any], device: str) -> dict[str, object]:
    """Return the value of each objective that an entry has; what is not a number is returned as it is.

    Args:
        entry: entry of a file.
        device: device of the directory; empty for accuracies and perplexities.
    """
    if not device:
        return {"accuracy": _scaled(entry.get("accuracy"), 100.0), "perplexity": entry.get("perplexity")}
    processor = "cpu" if "cpu" in device else "gpu"
    latency, energy = f"latency/{device}_{processor}", f"energy/{device}_{processor}"
    values: dict[str, object] = {}
    if (times := f"times_profiler_{processor}") in entry:
        values[latency] = _median_latency(entry[times], entry.get(f"unit_{processor}"))
        values |= {"flops": entry.get("macs"), "params": entry.get("params")}
    if processor == "cpu" and "mean_energy_cpu" in entry:
        values[energy] = _scaled(entry["mean_energy_cpu"], JOULES)
    if processor == "gpu" and "energy_gpu" in entry:
        values[energy] = _scaled(_median(entry["energy_gpu"]), JOULES)
    if "mean_mem" in entry:
        values[f"memory/{device}"] = _scaled(entry["mean_mem"], MEGABYTE)
    return values


def _median_latency(times: Any, units: Any) -> object:
    """Return the median of times in milliseconds; the times themselves if one is not valid."""
    if not isinstance(times, list) or not isinstance(units, list) or len(times) != len(units):
        return times
    scaled = [_scaled(time, MILLISECONDS.get(unit)) for time, unit in zip(times, units, strict=True)]
    return times if (middle := _median(scaled)) is scaled else middle


def _median(values: Any) -> object:
    """Return the median of a list of positive numbers; anything else is returned as it is."""
    numbers = [to_number(value) for value in values] if isinstance(values, list) else []
    valid = [number for number in numbers if number is not None and number > 0]
    return median(valid) if valid and len(valid) == len(numbers) else values


def _scaled(value: object, factor: float | None) -> object:
    """Return a number times a factor; anything else is returned as it is, and None without a factor."""
    number = to_number(value)
    return value if number is None else None if factor is None else number * factor
