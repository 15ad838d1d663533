"""HW-NAS-Bench as published (Li et al. 2021): a pickle of latencies on six devices."""

from __future__ import annotations

import pickle
from pathlib import Path

from nas_rlm.data.tables import Row
from search_spaces import get


def read_rows(path: Path) -> list[Row]:
    """Read the latencies of the NAS-Bench-201 cells on CIFAR-10, in ms.

    Args:
        path: HW-NAS-Bench-v1_0.pickle, a pickle, which can run any code.
    """
    with open(path, "rb") as file:
        content = pickle.load(file)["nasbench201"]["cifar10"]
    latencies = {k.removesuffix("_latency"): v for k, v in content.items() if k.endswith("_latency")}
    space, rows = get("nasbench201"), []
    for i, config in enumerate(content["config"]):
        targets = {f"latency/{device}": float(values[i]) for device, values in latencies.items()}
        architecture = space.parse(config["arch_str"])
        rows.append(Row("nasbench201", str(architecture), targets, identifier=f"NB201_{i}"))
    return rows
