import numpy as np
import pytest
import torch

from nas_rlm.surrogates.programs.boosted_trees import BoostedTrees


@pytest.fixture(scope="module")
def data():
    x = np.random.default_rng(0).normal(size=(800, 5))
    return x, np.where(x[:, 0] > 0, x[:, 1], -x[:, 1])


def test_interactions_are_learnt(data):
    x, y = data
    trees = BoostedTrees.fit(x[:600], y[:600])
    residuals = y[600:] - trees.predict(x[600:])
    assert np.mean(residuals**2) < 0.25 * np.var(y[600:])


def test_saved_trees_predict_the_same(data):
    x, y = data
    trees = BoostedTrees.fit(x, y)
    again = BoostedTrees.from_saved(trees.tensors(), x.shape[1])
    assert np.array_equal(again.predict(x), trees.predict(x))
    with pytest.raises(ValueError, match="not one of 2"):
        BoostedTrees.from_saved(trees.tensors(), 2)
    with pytest.raises(ValueError, match=r"features is torch\.float32, expected torch\.int16"):
        BoostedTrees.from_saved({**trees.tensors(), "features": torch.zeros(200, 4)}, 5)


def test_constant_features_and_few_rows_are_fitted():
    trees = BoostedTrees.fit(np.ones((3, 2)), np.array([1.0, 2.0, 3.0]))
    assert trees.predict(np.ones((1, 2))) == pytest.approx(2.0, abs=0.1)
