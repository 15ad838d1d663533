import numpy as np
import pytest

from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.devices.sample_selection import select_samples, selection_features
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH
from nas_rlm.text import from_architectures
from tests.nas_rlm.devices.networks import SPACE, cells


def graph_features_of_cells(count):
    texts = from_architectures(SPACE, cells(count))
    return graph_features_of_texts(texts, MAX_CHAIN_LENGTH, with_layers=True)


def largest_uncertainty(features, selected):
    """Return the largest variance of a prediction of ridge regression on the selected networks."""
    chosen = features[selected]
    precision = np.linalg.inv(chosen.T @ chosen + 0.3 * np.eye(features.shape[1]))
    return max(np.einsum("nd,de,ne->n", features, precision, features))


def test_predictions_are_less_uncertain_than_after_random_samples():
    features = selection_features((), graph_features_of_cells(200))
    assert np.abs(features.mean(0)).max() < 1e-9
    assert (features**2).sum(1).mean() == pytest.approx(1)
    selected = select_samples(features, 12)
    assert len(set(selected)) == 12 and selected == sorted(selected) == select_samples(features, 12)
    assert selected != select_samples(features, 12, seed=1)
    rng = np.random.default_rng(0)
    random = [largest_uncertainty(features, rng.permutation(200)[:12]) for _ in range(20)]
    assert largest_uncertainty(features, selected) < np.mean(random)


def test_networks_with_equal_features_are_not_selected_twice():
    features = np.array([[0.0], [0.0], [1.0], [1.0], [7.0]])
    assert select_samples(features, 3) == [0, 2, 4]
    for count in (0, 4):
        with pytest.raises(ValueError, match=f"cannot select {count} of 3 networks with different features"):
            select_samples(features, count)


def test_predicted_latencies_are_features_where_surrogates_predict_them(shipped_rlm):
    raw_features = graph_features_of_cells(30)
    alone = selection_features((), raw_features)
    features = selection_features(shipped_rlm.surrogates["nasbench201"], raw_features)
    assert features.shape == (30, alone.shape[1] + 27)
    assert (features**2).sum(1).mean() == pytest.approx(2)
