"""Predictive distributions of surrogates for the texts of a query, also under given numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nas_rlm.surrogates.conditional import Conditional, conditional_surrogate
from nas_rlm.surrogates.ensemble.query import TextQuery
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.latency.device_transfer import without_known_devices
from nas_rlm.surrogates.latency.surrogate import LatencySurrogate
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK, PredictiveDistribution
from nas_rlm.surrogates.registry import (
    AnySurrogate,
    novelties,
    predictive_distributions,
    surrogate_by_objective,
)

Distributions = Sequence[PredictiveDistribution | None]  # None where no surrogate predicts an objective


class TextDistributions:
    """What the surrogates of a space predict for texts of a query.

    Args:
        query: the query; the same numbers are given for all its texts.
        surrogates: surrogates of the space of the query.
        conditional: surrogates by objective that are used where numbers are given.
    """

    def __init__(
        self, query: TextQuery, surrogates: Sequence[AnySurrogate], conditional: Mapping[str, Conditional]
    ) -> None:
        self.query, self.surrogates, self.conditional = query, surrogates, conditional
        self._training_batch = query.training_batch  # before processes are forked
        self._genome_by_text = query.genome_by_text()
        self._index = {text: i for i, text in enumerate(query.texts)} if query.given else {}

    def given(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the given numbers of some texts of the query by name, float64 [B].

        Args:
            texts: B texts.
        """
        return {
            name: values[[self._index[text] for text in texts]] for name, values in self.query.given.items()
        }

    def predict(self, texts: Sequence[str], objectives: Sequence[str]) -> Distributions:
        """Return the predictive distribution of each objective for some texts of the query.

        Args:
            texts: B texts.
            objectives: K of the query's objectives.
        """
        return predictive_distributions(
            self.surrogates,
            texts,
            objectives,
            self.conditional,
            self.given(texts),
            self._genome_by_text,
            self._training_batch,
        )


def marked_as_alone(distributions: Distributions, temperatures: Sequence[float]) -> Distributions:
    """Return distributions of which those of surrogates that predict alone are marked.

    Args:
        distributions: predictive distributions of the surrogates of K objectives.
        temperatures: K divisors of the network's logits.
    """
    return [
        replace(found, is_alone=True) if found is not None and temperature >= WITHOUT_NETWORK else found
        for found, temperature in zip(distributions, temperatures, strict=True)
    ]


class ConditionalSurrogates:
    """Surrogates conditioned on given numbers; each is fitted once."""

    def __init__(self) -> None:
        # With each one the surrogate that it was made of, whose id then stays its own.
        self._fitted: dict[Hashable, tuple[AnySurrogate, Conditional]] = {}

    def of_query(self, query: TextQuery, surrogates: Sequence[AnySurrogate]) -> dict[str, Conditional]:
        """Return the conditional surrogates of the objectives of a query that have a surrogate.

        Args:
            query: the query; the same numbers are given for all its texts.
            surrogates: surrogates of the space of the query.

        Raises:
            ValueError: a surrogate cannot be conditioned on the given numbers.
        """
        given = tuple(query.given)
        by_objective = surrogate_by_objective(surrogates) if given else {}
        found: dict[str, Conditional] = {}
        for name in query.objectives:
            surrogate = by_objective.get(name)
            if surrogate is None:
                continue
            surrogate = without_known_devices(surrogate)
            if not isinstance(surrogate, GraphSurrogate | LatencySurrogate):
                raise ValueError(
                    f"{name} of {query.space or 'networks without a space'} cannot be predicted from"
                    f" {', '.join(given)}: fine-tune the model on a table of the space that has both"
                )
            key = id(surrogate), name, given
            if key not in self._fitted:
                self._fitted[key] = surrogate, conditional_surrogate(surrogate, name, given)
            found[name] = self._fitted[key][1]
        return found


def with_novelties(quantiles: np.ndarray, distributions: Distributions) -> np.ndarray:
    """Return quantiles with novelties as the last column, [N, K, Q + 1].

    Args:
        quantiles: [N, K, Q].
        distributions: predictive distributions of the surrogates of K objectives.
    """
    return np.concatenate([quantiles, novelties(distributions, len(quantiles))[:, :, None]], 2)
