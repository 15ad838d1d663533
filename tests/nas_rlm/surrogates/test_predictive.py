import numpy as np
import pytest
from scipy.stats import norm

from nas_rlm.surrogates.predictive import Belief, Scale


def test_shares_are_those_of_the_normal_distribution():
    """Values 1 to 99 whose scores are known: between two edges lies what lies between their scores."""
    scale = Scale(np.arange(1.0, 100.0))
    belief = Belief(scale, np.array([0.5, -1.0]), np.array([0.8, 0.1]))
    edges = np.array([20.0, 40.0, 50.0, 60.0, 99.0])
    found = belief.shares(np.tile(edges, (2, 3, 1)))
    for row, mean, deviation in zip(found, belief.mean, belief.deviation, strict=True):
        mass = np.diff(norm.cdf((scale.scored(edges) - mean) / deviation))
        assert row == pytest.approx(np.tile(mass / mass.sum(), (3, 1)), abs=2e-3)
    assert found.sum(-1) == pytest.approx(1)
    far = Belief(scale, np.array([30.0]), np.array([0.1])).shares(edges[None, None])[0, 0]
    assert far.argmax() == 3
    nowhere = belief.shares(np.full((2, 1, 5), 7.0))
    assert np.isfinite(nowhere).all()


def test_a_scale_and_back():
    known = np.array([93.0, 10.0, 91.0, 92.0, 93.0, 94.0])
    scale = Scale(known, most=100.0)
    assert scale.values(scale.scores) == pytest.approx(known)
    assert scale.scored(known) == pytest.approx(scale.scores)
    beyond = scale.values(np.array([-9.0, 2.0, 2.5, 99.0]))
    assert beyond[0] == 5.0
    assert 94 < beyond[1] < beyond[2] < 100
    assert beyond[3] == 100.0
    assert scale.scored(beyond[1:3]) == pytest.approx([2.0, 2.5])
    assert Scale(np.array([3.0, 3.0])).values(np.array([-1.0, 1.0])) == pytest.approx([3.0, 3.0])
