import numpy as np

from nas_rlm.benchmarks.baselines.device_samples import (
    bayesian_ridge,
    components,
    live_counts,
    one_hot_genes,
)
from nas_rlm.data import Row
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.graphs.features import random_networks


def test_counts_are_of_operators_that_reach_input_and_output():
    cells = [
        "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
        "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
        "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|",
    ]
    texts = texts_of_rows([Row("nasbench201", cell, {}) for cell in cells])
    counts = live_counts(graph_features_of_texts(texts, 0, with_layers=True))
    assert (counts[0] == counts[1]).all() and (counts[2] > counts[1]).any()


def test_ridge_on_genes_recovers_an_additive_latency():
    rows = random_networks("nasbench201", 150, seed=0)
    genes = one_hot_genes(rows)
    latencies = 1 + genes @ np.random.default_rng(0).random(genes.shape[1])
    found = bayesian_ridge(genes, np.arange(60), latencies[:60])
    assert spearman(found[60:], latencies[60:]) > 0.99
    assert one_hot_genes([Row("", "", {})]).shape == (1, 0)
    assert (bayesian_ridge(np.zeros((4, 2)), np.arange(2), np.array([1.0, 3.0])) == 2).all()


def test_components_hold_what_known_devices_share():
    shared = np.random.default_rng(0).standard_normal(50)
    known = shared[:, None] * np.arange(1, 7) + 0.01 * np.random.default_rng(1).standard_normal((50, 6))
    assert abs(spearman(components(known)[:, 0], shared)) > 0.99
