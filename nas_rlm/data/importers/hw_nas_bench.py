"""HW-NAS-Bench as published (Li et al. 2021): a pickle of latencies on six devices."""

from __future__ import annotations

import pickle
from pathlib import Path

from nas_rlm.data.importers.columns import aligned_columns
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row
from search_spaces import get


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read the latencies of the NAS-Bench-201 cells on CIFAR-10, in ms.

    A latency of -1 stands for a cell that the compiler of the device refused; it is left out.

    Args:
        path: HW-NAS-Bench-v1_0.pickle, a pickle, which can run any code.
        omissions: counts the entries that are not valid.
    """
    with open(path, "rb") as file:
        content = pickle.load(file)["nasbench201"]["cifar10"]
    configs = content["config"]
    columns = {
        f"latency/{key.removesuffix('_latency')}": values
        for key, values in content.items()
        if isinstance(key, str) and key.endswith("_latency")
    }
    columns = aligned_columns(columns, len(configs), omissions)
    space, rows = get("nasbench201"), []
    for i, config in enumerate(configs):
        name = f"NB201_{i}"
        with omissions.skip(name):
            architecture = space.parse(config["arch_str"])
            targets = omissions.targets({key: values[i] for key, values in columns.items()}, name)
            rows.append(Row("nasbench201", str(architecture), targets, identifier=name))
    return rows
