import sys

import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.baselines import CELL_SPACES, gcn
from nas_rlm.data import Row
from nas_rlm.metrics import spearman


def rows(space, n):
    rng = np.random.default_rng(0)
    return [Row(space, str(search_spaces.get(space).sample(rng)), {}) for _ in range(n)]


@pytest.mark.parametrize("space", CELL_SPACES)
def test_it_learns_on_the_scale_of_the_labels(space, monkeypatch):
    monkeypatch.setattr(sys.modules[gcn.__module__], "EPOCHS", 80)
    some = rows(space, 160)
    true = np.array([50.0 + 10 * r.arch_str.count("3x3") for r in some])
    found = gcn(some[:80], true[:80], some[80:])
    assert spearman(found, true[80:]) > 0.7
    assert abs(found.mean() - true.mean()) < 5


def test_spaces_without_cells_are_refused():
    some = rows("nats_size", 4)
    with pytest.raises(
        ValueError, match="nats_size has no cell graph; expected one of nasbench101, nasbench201"
    ):
        gcn(some, np.ones(4), some)
