"""Views: the groups of graph features that the Gaussian processes of an objective use."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from nas_rlm.surrogates.gaussian_process import fit_hyperparameters, fit_to_subsets
from nas_rlm.surrogates.graphs.features import (
    COSTS,
    GENOME,
    MAX_CHAIN_LENGTH,
    PATHS,
    SUMS,
    TRANSFER,
    GraphFeatures,
)

ALL_GROUPS = range(COSTS, TRANSFER + 1)  # of features
GRAPH_GROUPS = tuple([group for group in ALL_GROUPS if group != GENOME])
# Feature groups of the Gaussian processes of an objective with few labels. The last ones do without transfer,
# which may mislead.
FEW_LABELS_VIEWS = (GRAPH_GROUPS, (COSTS, PATHS, TRANSFER), range(COSTS, MAX_CHAIN_LENGTH))
GENOME_VIEWS = ((COSTS, GENOME), (PATHS, GENOME))  # more where the genome of all labelled networks is known


def few_labels_views(graph_features: GraphFeatures) -> tuple[Collection[int], ...]:
    """Return the views of an objective with few labels; more where the genome is among the features.

    Args:
        graph_features: definition of the features.
    """
    return (*FEW_LABELS_VIEWS, *(GENOME_VIEWS if graph_features.group_sizes[GENOME] else ()))


def many_labels_views(graph_features: GraphFeatures) -> tuple[Collection[int], ...]:
    """Return the views of an objective with many labels; one more where the genome is among the features.

    Args:
        graph_features: definition of the features.
    """
    return (GRAPH_GROUPS, *((ALL_GROUPS,) if graph_features.group_sizes[GENOME] else ()))


def fit_view(
    graph_features: GraphFeatures,
    features: Tensor,
    scores: Tensor,
    view: Collection[int],
    folds: Tensor | None,
) -> Tensor:
    """Fit hyperparameters to the features of a view; inverse length scales of the others are 0.

    Args:
        graph_features: definition of the D features.
        features: features of M labelled networks, float64 [M, D].
        scores: normal scores of their labels, float64 [M].
        view: indices of the feature groups.
        folds: F subsets of the labels to which they are fitted as well, bool [F, M].

    Returns:
        Hyperparameters that are fitted to all labels, then to each subset, float64 [1 + F, D + 1].
    """
    sizes = [size if group in view else 0 for group, size in enumerate(graph_features.group_sizes)]
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(graph_features.group_sizes))
    is_used = torch.isin(group, torch.tensor(sorted(view)))
    used, num_linear = features[:, is_used], sum(sizes[SUMS:])
    if folds is None:
        fitted = fit_hyperparameters(used, sizes, scores, num_linear)[None]
    else:
        subsets = torch.cat([torch.ones_like(folds[:1]), folds])
        fitted = fit_to_subsets(used, sizes, scores, subsets, num_linear)
    hyperparameters = torch.zeros(len(fitted), features.shape[1] + 1, dtype=features.dtype)
    hyperparameters[:, torch.cat([is_used, torch.ones(1, dtype=torch.bool)])] = fitted
    return hyperparameters
