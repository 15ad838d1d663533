import numpy as np
import pytest

from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.graph.executed_layers import MODES
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, random_networks
from nas_rlm.surrogates.latency.features import CRITICAL, TRANSFER, LatencyFeatures, class_of


def raw_features(space, count=60):
    return graph_features_of_texts(texts_of_rows(random_networks(space, count)), MAX_CHAIN_LENGTH, True)


@pytest.fixture(scope="module")
def cells():
    return raw_features("nasbench201")


def test_features_are_standardised_and_in_groups(cells):
    features = LatencyFeatures.fit(cells)
    values = features.transform(cells).numpy()
    values = values[:, : len(features.names)]
    assert np.abs(values.mean(0)).max() < 1e-9 and values.std(0) == pytest.approx(1)
    groups = features.groups
    assert {*MODES, CRITICAL, "all/Conv3x3", "live/AveragePool"} <= groups.keys() and TRANSFER not in groups
    assert sorted(k for name in (*MODES, CRITICAL) for k in groups[name]) == list(range(values.shape[1]))
    assert {features.names[k].split("@")[0] for k in groups["needed/Conv1x1"]} == {"needed/Conv1x1"}


def test_a_mode_with_the_features_of_another_one_is_left_out():
    features = LatencyFeatures.fit(raw_features("fbnet"))
    assert [mode for mode in MODES if mode in features.groups] == ["all", "fused"]
    assert list(features.costs) == ["all", "fused"]


def test_costs_are_sums_over_stages(cells):
    features = LatencyFeatures.fit(cells)
    column = len(features.names) + features.cost_names.index("live/Conv3x3:macs")
    assert column in features.costs["live"]
    names = {n for c in cells for n in c if n.startswith("live/Conv3x3@") and n.endswith(":macs")}
    assert len(names) == 3
    expected = [sum(c.get(n, 0) for n in names) for c in cells]
    assert features.transform(cells)[:, column].numpy() == pytest.approx(np.array(expected))


def test_a_layer_type_without_a_cost_counts_for_its_class(cells):
    features = LatencyFeatures.fit(cells)
    new = {
        "live/Conv9x9d@0:macs": 3.0,
        "live/Conv9x9d@2:macs": 4.0,
        "live/Slice:inputs": 5.0,
        "fused/HardSwish@1:number": 1.0,
        "all/HardSwish@1:number": 1.0,
        "live/layers:macs": 7.0,
    }
    costs = features.transform([new])[0, len(features.names) :]
    found = {name: float(v) for name, v in zip(features.cost_names, costs, strict=True) if v}
    assert found == {
        "live/[depthwise]:macs": 7.0,
        "live/[movement]:inputs": 5.0,
        "fused/[movement]:number": 1.0,
        "all/[function]:number": 1.0,
    }


@pytest.mark.parametrize("mode", MODES)
def test_each_cost_has_a_group_and_a_wider_group(cells, mode):
    features = LatencyFeatures.fit(cells)
    groups = features.cost_groups(mode)
    assert len(groups) == len(features.costs[mode])
    names = [n.removeprefix(f"{mode}/") for n in features.cost_names if n.startswith(f"{mode}/")]
    of = dict(zip(names, groups, strict=True))
    assert (
        of["Conv3x3:macs"]
        == of["Conv1x1:macs"]
        == of["[convolution]:macs"]
        == ("convolution:macs", "compute:macs")
    )
    assert of["[depthwise]:params"] == ("depthwise:params", "compute:params")
    assert of["AveragePool:outputs"] == ("pooling:outputs", "memory:outputs")


@pytest.mark.parametrize(
    ("layer", "mode", "expected"),
    [
        ("Conv3x3", "all", "convolution"),
        ("Conv3x3g", "fused", "convolution"),
        ("Conv7x7d", "live", "depthwise"),
        ("ConvTranspose", "all", "convolution"),
        ("MatMul", "all", "product"),
        ("QLinearMatMul", "fused", "product"),
        ("com.microsoft.FusedMatMul", "all", "product"),
        ("com.microsoft.QGemm", "live", "product"),
        ("com.microsoft.Attention", "all", "product"),
        ("LSTM", "all", "product"),
        ("GlobalAveragePool", "all", "pooling"),
        ("Relu", "all", "function"),
        ("Relu", "fused", "movement"),
        ("FusedFunction", "fused", "function"),
        ("Concat", "all", "movement"),
    ],
)
def test_classes_of_layers(layer, mode, expected):
    assert class_of(layer, mode) == expected
