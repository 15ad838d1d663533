"""NAS-Bench-201 as published (Dong and Yang 2020): the .pth file of the nas-bench-201 package."""

from __future__ import annotations

from pathlib import Path

import torch

from nas_rlm.data.importers.arch_results import rows_from_arch_results
from nas_rlm.data.tables import Row


def read_rows(path: Path) -> list[Row]:
    """Read test accuracies after 200 epochs and, on CIFAR-10, after 12 epochs, as means over the seeds.

    Args:
        path: NAS-Bench-201-v1_1-096897.pth, a pickle, which can run any code.
    """
    content = torch.load(path, map_location="cpu", weights_only=False)
    return rows_from_arch_results(content, "nasbench201", final_key="full", early_key="less")
