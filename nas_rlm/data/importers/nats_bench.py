"""The size search space of NATS-Bench as published (Dong et al. 2021): a compressed pickle."""

from __future__ import annotations

import bz2
import pickle
from pathlib import Path

from nas_rlm.data.importers.arch_results import rows_from_arch_results
from nas_rlm.data.tables import Row


def read_rows(path: Path) -> list[Row]:
    """Read test accuracies after 90 epochs and, on CIFAR-10, after 12 epochs, as means over the seeds.

    Args:
        path: NATS-sss-v1_0-50262.pickle.pbz2, a pickle, which can run any code.
    """
    with bz2.open(path) as file:
        content = pickle.load(file)
        file.read()  # up to the end, which raises an error if the file is truncated
    return rows_from_arch_results(content, "nats_size", final_key="90", early_key="12")
