"""Probability that a network can be evaluated, learned from those that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

import numpy as np
from scipy.special import ndtr
from torch import Tensor

from nas_rlm.surrogates.graphs.features import GraphFeatures, graph_features_of_space
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.graphs.views import few_labels_views
from nas_rlm.surrogates.predictive import MIN_LABELS

SUCCESS = "is successful"  # name of the labels, which are 1 and 0; no objective has a blank in its name
NO_OUTCOMES: Mapping[str, bool] = MappingProxyType({})
REFIT_GROWTH = 1.3  # of the number of failures, until hyperparameters are fitted again
MAX_FIT_OUTCOMES = 300  # that hyperparameters are fitted to, the last ones

# From the definition of D features, the name of what they are for, and N networks, to float64 [N, D].
Transform = Callable[[GraphFeatures, str, Sequence[str]], Tensor]


class SuccessModel:
    """Learns from outcomes which networks succeed, by Gaussian process regression on their normal scores.

    Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, section 6.5.

    Args:
        space: name of the networks' space.
        transform: returns the features of networks.
    """

    def __init__(self, space: str, transform: Transform) -> None:
        self._space, self._transform = space, transform
        # Surrogates whose hyperparameters were fitted last, and that learned all outcomes last, with these.
        self._fitted: tuple[dict[str, bool], GraphSurrogate] | None = None
        self._conditioned: tuple[dict[str, bool], GraphSurrogate] | None = None

    def probabilities(
        self, outcomes: Mapping[str, bool], names: Sequence[str], assumed: Mapping[str, bool] = NO_OUTCOMES
    ) -> np.ndarray:
        """Return the probability that networks succeed, float64 [N]; that of an outcome is 1 or 0.

        It is 1 for the others while all outcomes are equal, or fewer than `MIN_LABELS`.

        Args:
            outcomes: by name of a network, whether it succeeded, in order.
            names: N names.
            assumed: outcomes that are learned too, and are not certain.
        """
        learned, found = {**assumed, **outcomes}, np.ones(len(names))
        if len({*learned.values()}) > 1 and len(learned) >= MIN_LABELS:
            surrogate = self._surrogate(learned)
            predicted = surrogate.predict(self._features(names), SUCCESS)
            threshold = surrogate.transforms[SUCCESS].forward(np.array([0.5]))
            found = ndtr((predicted.mean - threshold) / predicted.std)
        return np.array([outcomes.get(name, p) for name, p in zip(names, found, strict=True)], dtype=float)

    def _surrogate(self, outcomes: dict[str, bool]) -> GraphSurrogate:
        """The surrogate that has learned outcomes."""
        if self._conditioned is None or self._conditioned[0] != outcomes:
            surrogate = self._fit(outcomes).conditioned(self._features([*outcomes]), _labels(outcomes))
            self._conditioned = outcomes, surrogate
        return self._conditioned[1]

    def _fit(self, outcomes: dict[str, bool]) -> GraphSurrogate:
        """Fit hyperparameters to the outcomes up to a failure, so that they are fitted seldom."""
        count = _num_to_fit([*outcomes.values()])
        used = dict([*outcomes.items()][:count][-MAX_FIT_OUTCOMES:])
        if self._fitted is None or self._fitted[0] != used:
            views = few_labels_views(self._graph_features)
            features = self._features([*used])
            fitted = GraphSurrogate.fit(self._graph_features, features, _labels(used), [SUCCESS], views)
            self._fitted = used, fitted
        return self._fitted[1]

    @cached_property
    def _graph_features(self) -> GraphFeatures:
        return graph_features_of_space(self._space, with_genome=True)

    def _features(self, names: Sequence[str]) -> Tensor:
        """The features of networks, float64 [N, D]."""
        return self._transform(self._graph_features, SUCCESS, names)


def _labels(outcomes: Mapping[str, bool]) -> np.ndarray:
    """Outcomes as labels, float64 [M, 1]."""
    return np.array([[is_success] for is_success in outcomes.values()], dtype=float)


def _num_to_fit(outcomes: Sequence[bool]) -> int:
    """Number of outcomes up to the last failure whose number is one at which hyperparameters are fitted."""
    failures, number = np.flatnonzero(~np.array(outcomes)), 1
    while (following := max(number + 1, int(number * REFIT_GROWTH))) <= len(failures):
        number = following
    return int(failures[number - 1]) + 1
