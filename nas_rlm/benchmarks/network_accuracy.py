"""How well an accuracy of networks of many families is predicted for families without labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import coverage, kendall, spearman
from nas_rlm.surrogates.fitting import fit_features
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH, GraphFeatures
from nas_rlm.utils.progress import progress_bar
from search_spaces.wording import counted

NUM_FOLDS = 5  # of the families
INTERVAL = (0.1, 0.9)
COSTS = {"MACs": "flops", "parameters": "params", "activations": "activations"}  # raw features
SURROGATE = "surrogate"
KEY_NAMES = ("method", "seed")
Key = tuple[str, int]


@dataclass(frozen=True)
class AccuracyResult:
    """How well a method predicts networks of families without labels.

    Args:
        networks: number of networks.
        families: number of their families.
        spearman: Spearman correlation of predictions and labels.
        kendall: Kendall's tau of them.
        error: mean absolute error in percentage points; 0 for a cost.
        coverage: share of the labels within 80 % intervals; 0 for a cost.
    """

    networks: int
    families: int
    spearman: float
    kendall: float
    error: float = 0.0
    coverage: float = 0.0


def run_accuracy(
    rows: Sequence[Row], objective: str, seeds: int, finished: Collection[Key] = ()
) -> Iterator[tuple[Key, AccuracyResult]]:
    """Yield the results of costs, and of the graph surrogate for each division of the families into folds.

    Args:
        rows: networks with families.
        objective: the accuracy; rows without it are left out.
        seeds: number of divisions into `NUM_FOLDS` folds.
        finished: keys to skip.

    Raises:
        ValueError: there are fewer families than folds.
    """
    measured = Table("", [*rows]).where_measured(objective)
    true, families = measured.column(objective), np.array([row.group for row in measured.rows])
    names, own = np.unique(families, return_inverse=True)
    if len(names) < NUM_FOLDS:
        raise ValueError(
            f"the networks with {objective} are of {counted(len(names), 'family', 'families')}: expected"
            f" {NUM_FOLDS} or more"
        )
    raw = graph_features_of_texts(texts_of_rows(measured.rows), MAX_CHAIN_LENGTH)
    size = len(true), len(names)
    for method, feature in COSTS.items():
        costs = np.array([features[feature] for features in raw])
        if (method, 0) not in finished:
            yield (method, 0), AccuracyResult(*size, spearman(costs, true), kendall(costs, true))
    for seed in range(seeds):
        if (SURROGATE, seed) in finished:
            continue
        folds = (np.random.default_rng(seed).permutation(len(names)) % NUM_FOLDS)[own]
        low, median, high = _predict_left_out(raw, true, folds, objective)
        error = float(np.abs(median - true).mean())
        measures = spearman(median, true), kendall(median, true), error, coverage(low, high, true)
        yield (SURROGATE, seed), AccuracyResult(*size, *measures)


def _predict_left_out(
    raw: Sequence[Mapping[str, float]], true: np.ndarray, folds: np.ndarray, objective: str
) -> np.ndarray:
    """Return quantiles at 0.1, 0.5 and 0.9 of each network by a surrogate without its fold, [3, N]."""
    quantiles = np.empty((3, len(true)))
    for fold in progress_bar(range(NUM_FOLDS), "leave families out", unit="fold"):
        train, test = (np.flatnonzero(part).tolist() for part in (folds != fold, folds == fold))
        raw_train = [raw[i] for i in train]
        graph_features = GraphFeatures.fit(raw_train)
        features = graph_features.transform(raw_train)
        surrogate = fit_features(graph_features, features, true[train, None], [objective])
        predicted = surrogate.predict(graph_features.transform([raw[i] for i in test]), objective)
        quantiles[:, test] = predicted.quantiles((INTERVAL[0], 0.5, INTERVAL[1])).T
    return quantiles
