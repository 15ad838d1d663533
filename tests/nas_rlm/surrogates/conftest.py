"""Fixtures of surrogates."""

from dataclasses import replace

import pytest

import search_spaces
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from tests.nas_rlm.stubs import counted_cells as rows

SPACE = search_spaces.get("nasbench201")


@pytest.fixture(scope="session")
def devices():
    """Return surrogates of two devices, 12 rows of a third one between them, and other rows of it."""
    found = []
    for row in rows(200):
        macs, convs = SPACE.flops(SPACE.parse(row.arch_str)) / 1e7, row.arch_str.count("conv")
        times = {"latency/a": 1 + macs, "latency/b": 1 + convs, "latency/c": 1 + macs + 2 * convs}
        found.append(replace(row, targets=times))
    known = [
        replace(r, targets={k: v for k, v in r.targets.items() if k != "latency/c"}) for r in found[:120]
    ]
    surrogate = fit_graph_surrogate(graph_features_of_space("nasbench201"), known, ["latency/a", "latency/b"])
    return {"nasbench201": [surrogate]}, found[120:132], found[132:]
