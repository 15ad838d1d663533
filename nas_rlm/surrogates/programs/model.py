"""Model of one objective of programs, which all languages of a table share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nas_rlm.surrogates.programs.blocks import (
    NGRAMS,
    FeatureScales,
    ProgramFeatures,
    structure_kernel,
    unpacked,
)
from nas_rlm.surrogates.programs.boosted_trees import BoostedTrees
from nas_rlm.surrogates.programs.ngrams import N_GRAM_SIZE_WEIGHT, SIZE_WEIGHT

SIZED, KERNEL = "sized", "kernel"
OTHER_TREE_FEATURES = 3  # beside structure and predictions: similarity, mean of similar programs, and size
NUM_KNOTS = 8  # similarities at which errors are known
TREE_WEIGHT_OF_NEW = 0.5  # factor of what the trees add for new problems, of which they have seen few


@dataclass(frozen=True)
class ObjectiveModel:
    """What predicts normal scores of one objective, for all languages.

    Args:
        ridges: weights of each ridge regression by block, float16 [NUM_BUCKETS[block]]; `SIZED` has those of
            the n-grams times the size, and last that of the size; `KERNEL` those of a Gaussian kernel of the
            structure, one for each program with a score.
        scores: normal scores of the labelled programs, float16 [M], NaN where there is none.
        trees: what trees on `tree_features` add to the regressions.
        knots: similarities, float64 [NUM_KNOTS], ascending.
        stds: standard deviations of the normal scores at the knots, float64 [NUM_KNOTS].
        new_shares: share of left-out problems among the rows at each knot, float64 [NUM_KNOTS].
        trees_read_labels: whether the trees read what the regressions and similar programs predict.
    """

    ridges: Sequence[Mapping[str, np.ndarray]]
    scores: np.ndarray
    trees: BoostedTrees
    knots: np.ndarray
    stds: np.ndarray
    new_shares: np.ndarray
    trees_read_labels: bool

    @cached_property
    def labelled(self) -> np.ndarray:
        """Indices of the programs with a score, int."""
        return np.flatnonzero(np.isfinite(self.scores))

    def ridge_predictions(self, features: ProgramFeatures, structure: np.ndarray) -> np.ndarray:
        """Return the predictions of the ridge regressions, float64 [N, len(ridges)].

        Args:
            features: features of N programs.
            structure: standardised structure of all programs, int8 [M, len(STRUCTURE)].
        """
        similar = structure_kernel(features.structure, unpacked(structure[self.labelled]))
        total = np.zeros((len(features.sizes), len(self.ridges)))
        for k, weights_by_block in enumerate(self.ridges):
            for block, weights in weights_by_block.items():
                w = weights.astype(np.float32)
                if block == SIZED:
                    products = features.blocks[NGRAMS] @ w[:-1]
                    total[:, k] += features.sizes * (N_GRAM_SIZE_WEIGHT * products + SIZE_WEIGHT * w[-1])
                else:
                    total[:, k] += (similar if block == KERNEL else features.blocks[block]) @ w
        return total


@dataclass(frozen=True)
class SharedPrograms:
    """What the surrogates of all languages of a table share.

    Args:
        scales: scales of the features.
        projections: projections of M labelled programs, int8 [M, DIMENSION].
        structure: their standardised structure, see `packed`, int8 [M, len(STRUCTURE)].
        models: model of each objective.
    """

    scales: FeatureScales
    projections: np.ndarray
    structure: np.ndarray
    models: Mapping[str, ObjectiveModel]


def regression(ridge: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the prediction of the ridge regressions, which the trees correct, float64 [N].

    Args:
        ridge: predictions of the regression for new problems, which comes first, and of the one for known
            problems, which comes last and may be the same, float64 [N, R].
        new: probability that a program is for a new problem, float64 [N].
    """
    combined: np.ndarray = new * ridge[:, 0] + (1 - new) * ridge[:, -1]
    return combined


def correction(trees: BoostedTrees, inputs: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return what trees add to the ridge regressions, less of it for new problems, float64 [N].

    Args:
        trees: the trees.
        inputs: their features, float [N, F].
        new: probability that a program is for a new problem, float64 [N].
    """
    weighted: np.ndarray = (1 + (TREE_WEIGHT_OF_NEW - 1) * new) * trees.predict(inputs)
    return weighted


def tree_features(
    features: ProgramFeatures,
    ridge: np.ndarray,
    similarities: np.ndarray,
    means: np.ndarray,
    with_labels: bool,
) -> np.ndarray:
    """Return the features of the trees, float [N, F].

    Args:
        features: features of N programs.
        ridge: predictions of R ridge regressions, float64 [N, R].
        similarities: similarity to the nearest labelled program, float32 [N].
        means: mean label of similar programs, float32 [N].
        with_labels: whether the features have the predictions and the means, which labels determine, or 0 in
            their place. What is predicted for one of few programs from the others is the higher, the lower
            its own label is: trees would learn the labels from it.
    """
    factor = float(with_labels)
    others = [factor * ridge, similarities, factor * means, features.sizes]
    return np.column_stack([features.structure, features.constructs, *others])
