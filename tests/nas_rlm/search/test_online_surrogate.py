import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.search.online_surrogate import CachedPredictor, OnlineSurrogate
from tests.search_spaces.plain_space import PlainSpace

LABEL = "accuracy/mine"


def test_an_accuracy_is_learned_with_the_genome_of_a_users_own_space(monkeypatch):
    space = PlainSpace()
    monkeypatch.setattr(search_spaces, "_registered", {space.name: space})
    rng = np.random.default_rng(0)
    archs = [space.sample(rng) for _ in range(34)]
    values = np.array([60.0 + space.encode(arch) @ [3, 0, 0, 1, 2, 0] for arch in archs])
    rows = [Row(space.name, str(a), {LABEL: v}) for a, v in zip(archs, values, strict=True)]
    surrogate = OnlineSurrogate(CachedPredictor(None, space), [LABEL], {})
    surrogate.update(rows[:14])
    assert {"gene/0", "gene/3=1"} <= {*surrogate.surrogates[LABEL].graph_features.names}
    predicted = surrogate.predict(space, archs, [LABEL], (0.5,))[:, 0, 0]
    assert predicted[:14] == pytest.approx(values[:14])
    assert spearman(predicted[14:], values[14:]) > 0.7
