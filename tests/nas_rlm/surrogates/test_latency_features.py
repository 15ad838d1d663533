import numpy as np
import pytest

from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.graph.executed_layers import MODES
from nas_rlm.surrogates.features import MAX_CHAIN_LENGTH, random_networks
from nas_rlm.surrogates.latency_features import CRITICAL, TRANSFER, LatencyFeatures


def raw_features(space, count=60):
    return graph_features_of_texts(texts_of_rows(random_networks(space, count)), MAX_CHAIN_LENGTH, True)


@pytest.fixture(scope="module")
def cells():
    return raw_features("nasbench201")


def test_features_are_standardised_and_in_groups(cells):
    features = LatencyFeatures.fit(cells)
    values = features.transform(cells).numpy()
    assert np.abs(values.mean(0)).max() < 1e-9 and values.std(0) == pytest.approx(1)
    groups = features.groups
    assert {*MODES, CRITICAL, "all/Conv3x3", "live/AveragePool"} <= groups.keys() and TRANSFER not in groups
    assert sorted(k for name in (*MODES, CRITICAL) for k in groups[name]) == list(range(values.shape[1]))
    assert {features.names[k].split("@")[0] for k in groups["needed/Conv1x1"]} == {"needed/Conv1x1"}


def test_a_mode_with_the_features_of_another_one_is_left_out():
    features = LatencyFeatures.fit(raw_features("fbnet"))
    assert [mode for mode in MODES if mode in features.groups] == ["all", "fused"]
    assert list(features.costs) == ["all", "fused"]


def test_costs_are_sums_over_stages_after_a_constant(cells):
    features = LatencyFeatures.fit(cells)
    costs = features.cost_values(features.transform(cells), "live")
    assert costs.shape == (len(cells), 1 + len(features.costs["live"])) and (costs[:, 0] == 1).all()
    names = [n for n in features.names if n.startswith("live/Conv3x3@") and n.endswith(":macs")]
    expected = [sum(c.get(n, 0) for n in names) for c in cells]
    assert any(np.allclose(column, expected) for column in costs.T)
