import numpy as np
import pytest

from nas_rlm.data import synthetic
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, GraphFeatures, graph_features_of_space


@pytest.fixture(scope="module")
def graph_features():
    return graph_features_of_space("nasbench201")


def test_features_of_random_networks_are_standardised(graph_features):
    networks = [row.targets for row in synthetic.random_table("nasbench201", 100, 0, MAX_CHAIN_LENGTH).rows]
    features = graph_features.transform(networks)
    assert features.shape == (100, len(graph_features.names)) == (100, sum(graph_features.group_sizes))
    assert features.std(0, correction=0).numpy() == pytest.approx(1)
    assert features.mean(0).numpy() == pytest.approx(0, abs=1e-9)


def test_features_of_a_space_are_fitted_once(graph_features):
    assert graph_features_of_space("nasbench201", with_genome=False) is graph_features
    with_genome = graph_features_of_space("nasbench201", True)
    assert graph_features_of_space("nasbench201", with_genome=True) is with_genome
    assert set(with_genome.names) > set(graph_features.names)


def test_features_that_hardly_vary_and_duplicates_are_left_out():
    networks = [
        {"flops": 1.0, "convs": 2.0, "Gemm:macs": 5.0 * k, "Gemm:number": 3.0 * k} for k in range(100)
    ]
    networks[0] |= {"flops": 3.0, "convs": 7.0}
    networks[1] |= {"flops": 4.0}
    found = GraphFeatures.fit(networks)
    assert found.names == ("flops", "Gemm:macs")
    assert found.group_sizes == [1, 0, 0, 0, 0, 0, 1, 0]
    assert found.transform([]).shape == (0, 2)


def test_feature_groups(graph_features):
    assert sum(graph_features.group_sizes) == len(graph_features.names)
    by_group = np.split(np.array(graph_features.names), np.cumsum(graph_features.group_sizes)[:-1])
    assert "flops" in by_group[0] and "convs/mean" in by_group[1] and "sums" in by_group[2]
    for length, chains in enumerate(by_group[2:-2], 2):
        assert all(name.count("-") == length - 1 for name in chains if name not in ("sums", "joins"))
    assert any(name.startswith("Conv3x3@0:") for name in by_group[-2])
