import os

import pytest

from nas_rlm.devices import processors
from nas_rlm.devices.processors import num_processors


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """A function that writes the quotas of cgroups; the process is in `/pod/box` and may use 8 processors."""
    (tmp_path / "process").write_text("9:cpu:/other\n0::/pod/box\n")
    monkeypatch.setattr(processors, "CGROUP_OF_PROCESS", tmp_path / "process")
    monkeypatch.setattr(processors, "CGROUP_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    (tmp_path / "cgroup" / "pod" / "box").mkdir(parents=True)

    def write(quotas):
        for name, quota in quotas.items():
            (tmp_path / "cgroup" / name / "cpu.max").write_text(f"{quota}\n")

    return write


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({}, 8),
        ({"": "max 100000", "pod/box": "max 100000"}, 8),
        ({"pod/box": "300000 100000"}, 3),
        ({"pod": "400000 100000", "pod/box": "max 100000"}, 4),
        ({"": "250000 100000", "pod/box": "600000 100000"}, 2),
        ({"pod/box": "1600000 100000"}, 8),
        ({"pod/box": "50000 100000"}, 1),
    ],
)
def test_quotas_limit_the_processors(cgroup, quotas, expected):
    cgroup(quotas)
    assert num_processors() == expected


def test_systems_without_affinity_or_cgroups(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(processors, "CGROUP_OF_PROCESS", tmp_path / "none")
    assert num_processors() == 6
