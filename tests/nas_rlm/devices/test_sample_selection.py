import numpy as np
import pytest

from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.devices.sample_selection import select_samples, selection_features
from nas_rlm.surrogates.features import MAX_CHAIN_LENGTH
from nas_rlm.text import from_architectures
from tests.nas_rlm.devices.networks import SPACE, cells


def graph_features_of_cells(count):
    return [*graph_features_of_texts(from_architectures(SPACE, cells(count)), MAX_CHAIN_LENGTH)]


def mean_distance_to_nearest(features, selected):
    """Mean distance of a network to the nearest selected one."""
    return np.sqrt(((features[:, None] - features[None, selected]) ** 2).sum(2)).min(1).mean()


def test_selected_networks_cover_the_features_better_than_random_ones():
    features = selection_features((), "nasbench201", graph_features_of_cells(200))
    assert np.abs(features.mean(0)).max() < 1e-9
    assert features.std(0) == pytest.approx(1)
    selected = select_samples(features, 12)
    assert selected == sorted(set(selected)) == select_samples(features, 12)
    rng = np.random.default_rng(0)
    random_distances = [mean_distance_to_nearest(features, rng.permutation(200)[:12]) for _ in range(20)]
    assert mean_distance_to_nearest(features, selected) < np.mean(random_distances)


def test_networks_with_equal_features_are_not_selected_twice():
    features = np.array([[0.0], [0.0], [1.0], [1.0], [7.0]])
    assert select_samples(features, 3) == [0, 2, 4]
    for count in (0, 4):
        with pytest.raises(ValueError, match=f"cannot select {count} of 3 networks with different features"):
            select_samples(features, count)


def test_predicted_latencies_are_the_features_where_surrogates_predict_them(shipped_rlm):
    features = selection_features(
        shipped_rlm.surrogates["nasbench201"], "nasbench201", graph_features_of_cells(30)
    )
    assert features.shape == (30, 27)
