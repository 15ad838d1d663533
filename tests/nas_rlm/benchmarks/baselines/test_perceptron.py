import numpy as np
import pytest

from nas_rlm.benchmarks.baselines import mlp
from nas_rlm.metrics import spearman


def test_it_learns_on_the_scale_of_the_labels():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 6))
    true = 1000 + features[:, 0] * features[:, 1] + features[:, 2]
    found = mlp(features[:300], true[:300], features[300:])
    assert spearman(found, true[300:]) > 0.85
    assert abs(found.mean() - 1000) < 1
    assert (found == mlp(features[:300], true[:300], features[300:])).all()
