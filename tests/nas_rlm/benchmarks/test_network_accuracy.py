import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.network_accuracy import COSTS, SURROGATE, run_accuracy
from nas_rlm.data import Row
from nas_rlm.text import from_architectures

NAME = "accuracy/data"


@pytest.fixture(scope="module")
def rows():
    space, rng = search_spaces.get("nasbench201"), np.random.default_rng(0)
    drawn = [space.sample(rng) for _ in range(48)]
    texts = from_architectures(space, drawn)
    return [
        Row(
            "files", "", {NAME: 90 - 5 * str(a).count("avg_pool") - str(a).count("none")}, t, group=str(i % 8)
        )
        for i, (a, t) in enumerate(zip(drawn, texts, strict=True))
    ]


def test_families_without_labels_are_predicted_better_than_by_costs(rows):
    found = dict(run_accuracy(rows, NAME, 1))
    assert list(found) == [*((name, 0) for name in COSTS), (SURROGATE, 0)]
    surrogate = found[SURROGATE, 0]
    assert (surrogate.networks, surrogate.families) == (48, 8)
    assert surrogate.kendall > max(found[name, 0].kendall for name in COSTS)
    assert 0 < surrogate.error < 4 and surrogate.coverage > 0.5
    assert not list(run_accuracy(rows, NAME, 1, [*found]))


def test_few_families_are_refused(rows):
    with pytest.raises(ValueError, match="are of 2 families: expected 5 or more"):
        next(run_accuracy([row for row in rows if row.group in "01"], NAME, 1))
