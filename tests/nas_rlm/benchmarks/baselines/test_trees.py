import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.data import Row
from nas_rlm.metrics import spearman

SPACE = search_spaces.get("nats_size")


def rows(n, seed):
    rng = np.random.default_rng(seed)
    return [Row("nats_size", str(SPACE.sample(rng)), {}) for _ in range(n)]


def test_features_are_genes_one_hot_genes_and_params():
    found = baselines.space_features([Row("nats_size", "8:64:16:8:8", {})])
    assert found.shape == (1, 5 + 5 * 8 + 1)
    assert found[0, :5].tolist() == [0, 7, 1, 0, 0]
    assert found[0, 5:45].reshape(5, 8).argmax(1).tolist() == [0, 7, 1, 0, 0]
    assert found[0, -1] == SPACE.params(SPACE.parse("8:64:16:8:8"))


def test_trees_learn():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    train, test = rows(300, 0), rows(100, 1)
    true = [np.array([sum(map(int, r.arch_str.split(":")[:2])) for r in part]) for part in (train, test)]
    found = baselines.trees(baselines.space_features(train), true[0], baselines.space_features(test))
    assert spearman(found, true[1]) > 0.95
