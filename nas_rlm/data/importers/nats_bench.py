"""The size search space of NATS-Bench as published (Dong et al. 2021)."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.data.importers import arch_results
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read test accuracies after 90 epochs and, on CIFAR-10, after 12 epochs, as means over the seeds.

    Args:
        path: NATS-sss-v1_0-50262.pickle.pbz2, or the directory NATS-sss-v1_0-50262-simple; these are pickles,
            which can run any code.
        omissions: counts the entries that are not valid.
    """
    return arch_results.read_rows(path, omissions, "nats_size", ("90",), ("12",))
