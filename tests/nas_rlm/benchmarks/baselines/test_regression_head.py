import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.baselines import regression_head
from nas_rlm.metrics import spearman
from nas_rlm.text import from_architectures

SPACE = search_spaces.get("nasbench201")


@pytest.mark.long
def test_it_learns_and_does_not_change_the_model(tiny_checkpoint):
    rlm, rng = RLM.load(tiny_checkpoint), np.random.default_rng(0)
    cells = [SPACE.sample(rng) for _ in range(120)]
    true = np.array([str(c).count("conv_3x3") / 10 for c in cells])
    before = {k: v.clone() for k, v in rlm.network.state_dict().items()}
    found = regression_head(rlm, from_architectures(SPACE, cells), np.arange(80), true[:80])
    assert spearman(found[80:], true[80:]) > 0.7
    assert abs(found.mean() - true.mean()) < 0.1
    assert all((v == before[k]).all() for k, v in rlm.network.state_dict().items())
