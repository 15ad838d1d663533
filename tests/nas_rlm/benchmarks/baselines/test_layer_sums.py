import numpy as np
import pytest

from nas_rlm.benchmarks.baselines.layer_sums import fit_layer_sums


def network(convolutions, pools):
    return {
        "all/Conv3x3@0:macs": 1e6 * convolutions,
        "all/Conv3x3@1:macs": 2e6 * convolutions,
        "all/MaxPool@1:number": pools,
        "all/layers:macs": 3e6 * convolutions,
        "live/Conv3x3@0:macs": 5.0,
        "flops": 1.0,
    }


def test_latencies_are_sums_over_stages_and_types():
    rng = np.random.default_rng(0)
    drawn = [network(*rng.integers(1, 9, 2)) for _ in range(30)]
    true = np.array([0.5 + 2e-6 * n["all/Conv3x3@0:macs"] + 0.3 * n["all/MaxPool@1:number"] for n in drawn])
    assert fit_layer_sums(drawn[:20], true[:20], drawn[20:]) == pytest.approx(true[20:], rel=1e-6)


def test_types_without_labels_count_nothing():
    train = [network(n, 0) for n in (1, 2, 4)]
    new = network(2, 0) | {"all/Slice:number": 100.0}
    values = np.array([2.0, 4.0, 8.0])
    assert fit_layer_sums(train, values, [new])[0] == pytest.approx(4.0)
