"""NAS-Bench-201 as published (Dong and Yang 2020), and the same space in NATS-Bench (Dong et al. 2021)."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.data.importers import arch_results
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read test accuracies after 200 epochs and, on CIFAR-10, after 12 epochs, as means over the seeds.

    Args:
        path: NAS-Bench-201-v1_1-096897.pth, NATS-tss-v1_0-3ffb9.pickle.pbz2, or the directory
            NATS-tss-v1_0-3ffb9-simple; these are pickles, which can run any code.
        omissions: counts the entries that are not valid.
    """
    return arch_results.read_rows(path, omissions, "nasbench201", ("200", "full"), ("12", "less"))
