import numpy as np
import pytest

from nas_rlm.surrogates.graphs.label_transforms import MAX_TRANSFER_LABELS, transform_of_labels

SKEWED = np.array([1.0, 2.0, 3.0, 4.0, 90.0])


def last_gap(objective, labels, weight):
    """The distance between the scores of the two largest labels."""
    scores = np.sort(transform_of_labels(objective, labels, weight).scores)
    return scores[-1] - scores[-2]


def test_the_weight_decides_how_far_scores_keep_distances():
    ranks, both, distances = (last_gap("perplexity", SKEWED, weight) for weight in (0.0, 0.5, 1.0))
    assert ranks < both < distances


def test_few_labels_of_a_latency_keep_the_distances_of_logarithms():
    few, many = np.geomspace(1, 1000, 20), np.geomspace(1, 1000, MAX_TRANSFER_LABELS + 1)
    for labels, has_logarithms in ((few, True), (many, False)):
        as_latency, as_cost = (
            transform_of_labels(name, labels, 0.0).scores for name in ("latency/a", "perplexity")
        )
        assert (as_latency != as_cost).any() == has_logarithms


@pytest.mark.parametrize(
    ("objective", "labels", "maximum"),
    [
        ("accuracy", [50.0, 70.0, 99.0], 100.0),
        ("accuracy/a", [0.5, 0.7, 0.99], 1.0),
        ("mAP", [0.5, 0.7, 0.99], None),
    ],
)
def test_accuracies_end_at_their_largest_possible_value(objective, labels, maximum):
    best = transform_of_labels(objective, np.array(labels), 0.0).inverse(np.array([50.0]))[0]
    assert best == maximum if maximum else best > 1
