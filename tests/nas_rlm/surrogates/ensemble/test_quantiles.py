from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from tests.nas_rlm.surrogates.ensemble.layer_networks import LEVELS, NAME, networks


def test_network_and_surrogate_are_combined(rlm, surrogate, no_warnings):
    rlm.surrogates = {space: [replace(surrogate, network_temperatures={})] for space in rlm.surrogates}
    architectures, texts = networks("ofa_mbv3", 3)
    found = rlm.predict("ofa_mbv3", architectures, [NAME], LEVELS)
    assert found == pytest.approx(rlm.predict_text(texts, [NAME], LEVELS), rel=0.05)
    alone = surrogate.predict(surrogate.transform(texts), NAME).quantiles(LEVELS)
    assert not np.array_equal(found[:, 0], alone)
    assert found[:, 0, 1] == pytest.approx(alone[:, 1], rel=0.3)


def test_objectives_of_surrogates_alone_are_beside_those_of_the_network(rlm, surrogate):
    assert surrogate.network_temperatures == {NAME: WITHOUT_NETWORK}
    texts = networks("nasbench201", 3)[1]
    repeated = [texts[k] for k in (2, 0, 1, 2)]
    values = rlm.predict_with_novelties(repeated, ["accuracy", NAME, "latency/eyeriss"], LEVELS)
    features = surrogate.transform(repeated)
    expected = surrogate.predict(features, NAME)
    assert values[:, 1, :3] == pytest.approx(expected.quantiles(LEVELS))
    assert values[:, 1, 3] == pytest.approx(expected.novelty) and np.isnan(values[:, [0, 2], 3]).all()
    of_network = rlm.predict_text(texts, ["accuracy", "latency/eyeriss"], LEVELS)
    assert values[:3, [0, 2], :3] == pytest.approx(of_network[[2, 0, 1]], rel=1e-3)
