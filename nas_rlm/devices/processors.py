"""The number of processors that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_OF_PROCESS = Path("/proc/self/cgroup")


def num_processors() -> int:
    """Return the number of processors of this process: by its affinity, and by the quotas of its cgroups."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *_cgroup_quotas()]))


def _cgroup_quotas() -> list[int]:
    """Return the quotas of this process' cgroup and its parents, in whole processors."""
    if not CGROUP_OF_PROCESS.is_file():
        return []
    lines = CGROUP_OF_PROCESS.read_text().splitlines()
    path = next((line.partition("::")[2] for line in lines if line.startswith("0::")), "/")
    directory = CGROUP_ROOT / path.strip("/")
    quotas = []
    for parent in (directory, *directory.parents):
        if not parent.is_relative_to(CGROUP_ROOT):
            break
        file = parent / "cpu.max"
        quota, _, period = (file.read_text() if file.is_file() else "max 1").partition(" ")
        if quota.isdigit() and int(period):
            quotas.append(int(quota) // int(period))
    return quotas
