"""Gradient boosting of oblivious trees: all nodes of a level have the same split (as in CatBoost).

Few rows fit such trees well, a tree is a few numbers, and prediction needs no library.
Source: Prokhorenkova et al. 2018, CatBoost: unbiased boosting with categorical features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nas_rlm.model.checkpoint import check_shapes

NUM_TREES, DEPTH = 200, 4
LEARNING_RATE, L2 = 0.06, 15.0
NUM_BINS = 32
ROW_SHARE, COLUMN_SHARE = 0.6, 0.5  # that a tree is fitted to


@dataclass(frozen=True)
class BoostedTrees:
    """A sum of T oblivious trees on F features.

    Examples:
        >>> x = np.random.default_rng(0).normal(size=(500, 2))
        >>> trees = BoostedTrees.fit(x, np.sign(x[:, 0]))
        >>> trees.predict(np.array([[2.0, 0.0], [-2.0, 0.0]])).round(1).tolist()
        [1.0, -1.0]

    Args:
        base: the prediction before the first tree.
        features: feature of each level of each tree, int16 [T, DEPTH].
        thresholds: smallest value of the feature that goes to the second child, float32 [T, DEPTH].
        leaves: value of each leaf, float32 [T, 2 ** DEPTH]; the first level is the leaf's highest bit.
    """

    base: float
    features: np.ndarray
    thresholds: np.ndarray
    leaves: np.ndarray

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray, seed: int = 0) -> BoostedTrees:
        """Fit trees by least squares.

        Args:
            x: features, float [N, F].
            y: targets, float [N].
            seed: seed of the rows and columns that each tree is fitted to.
        """
        x = x.astype(np.float32)
        rng = np.random.default_rng(seed)
        levels = np.linspace(0, 1, NUM_BINS + 1)[1:-1]
        edges = [np.unique(np.quantile(column, levels).astype(np.float32)) for column in x.T]
        bins = np.stack(
            [np.searchsorted(e, column, side="right") for e, column in zip(edges, x.T, strict=True)], 1
        )
        base = float(y.mean())
        predicted = np.full(len(y), base)
        features = np.zeros((NUM_TREES, DEPTH), np.int16)
        thresholds = np.zeros((NUM_TREES, DEPTH), np.float32)
        leaves = np.zeros((NUM_TREES, 2**DEPTH), np.float32)
        for t in range(NUM_TREES):
            rows = np.flatnonzero(rng.random(len(y)) < ROW_SHARE)
            columns = np.flatnonzero(rng.random(x.shape[1]) < COLUMN_SHARE)
            rows = rows if len(rows) else np.arange(len(y))
            columns = columns if len(columns) else np.arange(x.shape[1])
            residuals = y[rows] - predicted[rows]
            cells = bins[np.ix_(rows, columns)] + NUM_BINS * np.arange(len(columns))
            leaf, leaf_of_all = np.zeros(len(rows), np.int64), np.zeros(len(y), np.int64)
            for level in range(DEPTH):
                column, edge = _best_split(cells, residuals, leaf, 2**level)
                feature = columns[column]
                leaf = 2 * leaf + (bins[rows, feature] > edge)
                leaf_of_all = 2 * leaf_of_all + (bins[:, feature] > edge)
                features[t, level] = feature
                thresholds[t, level] = (
                    edges[feature][edge] if edge < len(edges[feature]) else np.finfo("f4").max
                )
            sums = np.bincount(leaf, residuals, 2**DEPTH)
            leaves[t] = LEARNING_RATE * sums / (np.bincount(leaf, minlength=2**DEPTH) + L2)
            predicted += leaves[t][leaf_of_all]
        return cls(base, features, thresholds, leaves)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the prediction of each row, float64 [N].

        Args:
            x: features, float [N, F].
        """
        x = x.astype(np.float32)
        predicted = np.full(len(x), self.base)
        for features, thresholds, leaves in zip(self.features, self.thresholds, self.leaves, strict=True):
            leaf = np.zeros(len(x), np.int64)
            for feature, threshold in zip(features, thresholds, strict=True):
                leaf = 2 * leaf + (x[:, feature] >= threshold)
            predicted += leaves[leaf]
        return predicted

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return {
            "base": torch.tensor([self.base], dtype=torch.float64),
            "features": torch.from_numpy(self.features),
            "thresholds": torch.from_numpy(self.thresholds),
            "leaves": torch.from_numpy(self.leaves),
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], num_features: int) -> BoostedTrees:
        """Make trees from their `tensors`.

        Args:
            tensors: what `tensors` returned.
            num_features: number F of features.

        Raises:
            ValueError: the tensors do not fit each other.
        """
        count = len(tensors["features"])
        shapes = {
            "base": (1,),
            "features": (count, DEPTH),
            "thresholds": (count, DEPTH),
            "leaves": (count, 2**DEPTH),
        }
        check_shapes(tensors, shapes, {"features": torch.int16})
        features = tensors["features"].numpy()
        if count and not (features.min() >= 0 and features.max() < num_features):
            raise ValueError(f"a tree has a feature that is not one of {num_features}")
        return cls(
            float(tensors["base"][0]),
            features,
            *(tensors[key].float().numpy() for key in ("thresholds", "leaves")),
        )


def _best_split(
    cells: np.ndarray, residuals: np.ndarray, leaf: np.ndarray, num_leaves: int
) -> tuple[int, int]:
    """Return the column and the last bin of the first child of the split with the smallest squared error.

    Args:
        cells: bin of each feature, plus `NUM_BINS` times the column, int [N, C].
        residuals: targets, float64 [N].
        leaf: leaf of each row before the split, int64 [N].
        num_leaves: number of leaves before the split.
    """
    num_columns = cells.shape[1]
    of_leaves = (leaf[:, None] * (num_columns * NUM_BINS) + cells).ravel()
    shape = num_leaves, num_columns, NUM_BINS
    size = num_leaves * num_columns * NUM_BINS
    sums = np.bincount(of_leaves, np.repeat(residuals, num_columns), size).reshape(shape).cumsum(2)
    counts = np.bincount(of_leaves, minlength=size).reshape(shape).cumsum(2)
    gains = sums**2 / (counts + L2) + (sums[:, :, -1:] - sums) ** 2 / (counts[:, :, -1:] - counts + L2)
    column, edge = np.unravel_index(np.argmax(gains.sum(0)[:, :-1]), (num_columns, NUM_BINS - 1))
    return int(column), int(edge)
