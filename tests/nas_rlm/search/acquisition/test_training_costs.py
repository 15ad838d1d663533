import numpy as np
import pytest

import search_spaces
from nas_rlm.data import synthetic
from nas_rlm.search.acquisition.training_costs import CONSTANT_SHARE, relative_training_costs
from nas_rlm.text import from_architectures


def raw_features(space_name, architectures):
    space = search_spaces.get(space_name)
    texts = from_architectures(space, [space.parse(text) for text in architectures])
    return synthetic.graph_features_of_texts(texts, 2, with_layers=False)


def test_wider_networks_cost_more():
    costs = relative_training_costs(
        raw_features("nats_size", ["8:8:8:8:8", "24:24:24:24:24", "64:64:64:64:64"])
    )
    assert costs[0] < costs[1] < costs[2]
    assert costs.mean() == pytest.approx(1)
    assert costs.min() > CONSTANT_SHARE


def test_networks_without_operations_have_a_cost():
    costs = relative_training_costs([{"flops": 0.0, "activations": 0.0}] * 2)
    assert np.array_equal(costs, [1, 1])
    assert relative_training_costs([]).shape == (0,)
