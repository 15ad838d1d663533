import numpy as np
import pytest

from nas_rlm.data import synthetic
from nas_rlm.surrogates.features import CHAINS, Counts, usual_counts


@pytest.fixture(scope="module")
def counts():
    return usual_counts("nasbench201")


def test_features_vary_alike_in_the_networks_that_are_usual(counts):
    networks = [row.targets for row in synthetic.table("nasbench201", 100, 0, CHAINS).rows]
    features = counts.features(networks)
    assert features.shape == (100, len(counts.names)) == (100, sum(counts.groups))
    assert features.std(0, correction=0).numpy() == pytest.approx(1)
    assert features.mean(0).numpy() == pytest.approx(0, abs=1e-9)


def test_counts_that_hardly_vary_and_repeated_ones_are_left_out():
    networks = [
        {"flops": 1.0, "convs": 2.0, "Gemm:macs": 5.0 * k, "Gemm:number": 3.0 * k} for k in range(100)
    ]
    networks[0] |= {"flops": 3.0, "convs": 7.0}
    networks[1] |= {"flops": 4.0}
    found = Counts.usual(networks)
    assert found.names == ("flops", "Gemm:macs")
    assert found.groups == [1, 0, 0, 0, 0, 1, 0]
    assert found.features([]).shape == (0, 2)


def test_groups_of_counts(counts):
    assert sum(counts.groups) == len(counts.names)
    by_group = np.split(np.array(counts.names), np.cumsum(counts.groups)[:-1])
    assert "flops" in by_group[0] and "convs/mean" in by_group[1] and "sums" in by_group[2]
    for length, chains in enumerate(by_group[2:-2], 2):
        assert all(name.count("-") == length - 1 for name in chains if name not in ("sums", "joins"))
    assert any(name.startswith("Conv3x3@0:") for name in by_group[-2])
