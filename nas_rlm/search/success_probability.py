"""Probability that a network can be evaluated, learned from those that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.special import ndtr
from torch import Tensor

from nas_rlm.surrogates.graphs.features import GENOME, GraphFeatures
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.graphs.views import FEW_LABELS_VIEWS, GENOME_VIEWS

SUCCESS = "is successful"  # name of the labels, which are 1 and 0; no objective has a blank in its name
REFIT_GROWTH = 1.3  # of the number of failures, until hyperparameters are fitted again
MAX_FIT_OUTCOMES = 300  # that hyperparameters are fitted to, the last ones


class SuccessModel:
    """Learns from outcomes which networks succeed, by Gaussian process regression on their normal scores.

    Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, section 6.5.

    Args:
        transform: returns the features of networks, float64 [N, D], from their names.
        graph_features: definition of the D features.
    """

    def __init__(self, transform: Callable[[Sequence[str]], Tensor], graph_features: GraphFeatures) -> None:
        self._transform, self._graph_features = transform, graph_features
        self._fitted: tuple[dict[str, bool], GraphSurrogate] | None = None  # with the outcomes

    def probabilities(self, outcomes: Mapping[str, bool], names: Sequence[str]) -> np.ndarray:
        """Return the probability that networks succeed, float64 [N].

        Args:
            outcomes: by name of a network, whether it succeeded, in order; at least one did, and one not.
            names: N names.
        """
        labels = np.array([*outcomes.values()], dtype=float)
        features = self._transform([*outcomes])
        surrogate = self._fit(outcomes).conditioned(features, labels[:, None])
        predicted = surrogate.predict(self._transform(names), SUCCESS)
        scores = surrogate.transforms[SUCCESS].scores
        threshold = (scores[labels == 0][0] + scores[labels == 1][0]) / 2
        return np.asarray(ndtr((predicted.mean - threshold) / predicted.std))

    def _fit(self, outcomes: Mapping[str, bool]) -> GraphSurrogate:
        """Fit hyperparameters to the outcomes up to a failure, so that they are fitted seldom."""
        count = _num_to_fit([*outcomes.values()])
        used = dict([*outcomes.items()][:count][-MAX_FIT_OUTCOMES:])
        if self._fitted is None or self._fitted[0] != used:
            views = (*FEW_LABELS_VIEWS, *(GENOME_VIEWS if self._graph_features.group_sizes[GENOME] else ()))
            labels = np.array([[label] for label in used.values()], dtype=float)
            features = self._transform([*used])
            self._fitted = used, GraphSurrogate.fit(self._graph_features, features, labels, [SUCCESS], views)
        return self._fitted[1]


def _num_to_fit(outcomes: Sequence[bool]) -> int:
    """Number of outcomes up to the last failure whose number is one at which hyperparameters are fitted."""
    failures, number = np.flatnonzero(~np.array(outcomes)), 1
    while (following := max(number + 1, int(number * REFIT_GROWTH))) <= len(failures):
        number = following
    return int(failures[number - 1]) + 1
