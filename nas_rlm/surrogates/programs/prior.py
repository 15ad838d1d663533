"""What surrogates of other tables of programs say of programs that are unlike the labelled ones of a table.

Programs that need much memory or time for one judge tend to do so for another one: large containers and
nested loops cost everywhere. With few labels this says more of a new program than the labels do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from torch import Tensor

from nas_rlm.model.checkpoint import tensors_with_prefix
from nas_rlm.surrogates.graphs.transfer import tensors_of_sources
from nas_rlm.surrogates.predictive import PredictiveDistribution

EXPECTED_WEIGHTS = 0.5, 0.4  # of a table's own surrogate and of the others, before labels are seen
EXPECTED_ROWS = 200  # labels that count as much as these weights
MIN_STD = 1e-6  # of predictions, below which a source says nothing
MAX_SCORE = 3.0  # of a program among labelled ones, which may differ little where others differ much


class ProgramSource(Protocol):
    """A surrogate of programs, see `nas_rlm.surrogates.programs.surrogate.ProgramSurrogate`."""

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of its objectives."""

    def transform(self, programs: Sequence[str]) -> Any:
        """Return the features of programs."""

    def predict(self, features: Any, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of an objective."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save."""

    def description(self) -> dict[str, Any]:
        """Return what is saved as JSON."""


@dataclass(frozen=True)
class ProgramPrior:
    """Surrogates of other tables, which are averaged with the surrogate of a table.

    Args:
        sources: the surrogates, each with the one objective that is used.
        scaling: mean and standard deviation of the scores that each predicts for labelled programs, float64
            [2, len(sources)].
        is_for_known: whether programs that are like the labelled ones are averaged as well.
        weights: factors of the score that the table's own surrogate predicts, and of `scores`.
    """

    sources: tuple[ProgramSource, ...]
    scaling: np.ndarray
    is_for_known: bool
    weights: tuple[float, float] = EXPECTED_WEIGHTS

    @classmethod
    def of_sources(
        cls, sources: Sequence[ProgramSource], programs: Sequence[str], is_for_known: bool
    ) -> tuple[Self, np.ndarray] | None:
        """Return the prior of sources, and its `scores` of M labelled programs, float64 [M].

        None if no source predicts different scores for them.
        """
        predicted = [_scores(source, programs) for source in sources]
        useful = [k for k, values in enumerate(predicted) if values.std() > MIN_STD]
        if not useful:
            return None
        scaling = np.array([(predicted[k].mean(), predicted[k].std()) for k in useful]).T
        prior = cls(tuple(sources[k] for k in useful), scaling, is_for_known)
        return prior, prior._averaged([predicted[k] for k in useful])

    def with_fitted_weights(
        self, true: np.ndarray, own: np.ndarray, others: np.ndarray, new: np.ndarray
    ) -> Self:
        """Return the prior with weights that fit labelled programs.

        Args:
            true: normal scores of N labels, float64 [N].
            own: what the table's own surrogate predicts without each program, float64 [N].
            others: `scores` of the programs, float64 [N].
            new: probability that a program is unlike the labelled ones, float64 [N].
        """
        share = self._share(new)
        inputs = np.stack([share * own, share * others], 1)
        expected = np.array(EXPECTED_WEIGHTS)
        missing = true - (1 - share) * own - inputs @ expected
        scale = EXPECTED_ROWS * np.diag((inputs**2).mean(0) + MIN_STD)
        found = expected + np.linalg.solve(inputs.T @ inputs + scale, inputs.T @ missing)
        own_weight, weight = np.maximum(found, 0.0).tolist()
        return replace(self, weights=(own_weight, weight))

    def combined(self, own: np.ndarray, others: np.ndarray, new: np.ndarray) -> np.ndarray:
        """Return the average of both predictions, float64 [N]; arguments as in `with_fitted_weights`."""
        (own_weight, weight), share = self.weights, self._share(new)
        average: np.ndarray = (1 - share) * own + share * (own_weight * own + weight * others)
        return average

    def _share(self, new: np.ndarray) -> np.ndarray:
        return np.ones_like(new) if self.is_for_known else new

    def scores(self, programs: Sequence[str]) -> np.ndarray:
        """Return the mean of the scores that the sources predict for N programs, float64 [N].

        Each is standardised by the labelled programs, and within ±`MAX_SCORE`.
        """
        return self._averaged([_scores(source, programs) for source in self.sources])

    def _averaged(self, predicted: Sequence[np.ndarray]) -> np.ndarray:
        mean, std = self.scaling
        standardised = (np.stack(predicted, 1) - mean) / std
        scores: np.ndarray = standardised.clip(-MAX_SCORE, MAX_SCORE).mean(1)
        return scores

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return tensors_of_sources(self.sources)

    def description(self) -> dict[str, Any]:
        """Return the part of the prior that is saved as JSON."""
        return {
            "sources": [source.description() for source in self.sources],
            "scaling": self.scaling.tolist(),
            "is_for_known": self.is_for_known,
            "weights": list(self.weights),
        }

    @classmethod
    def from_saved(
        cls,
        tensors: Mapping[str, Tensor],
        description: Mapping[str, Any],
        source_from_saved: Callable[[Mapping[str, Tensor], Mapping[str, Any]], ProgramSource],
    ) -> Self:
        """Make a prior from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        if any("priors" in of_source for of_source in description["sources"]):
            raise ValueError("a source of a surrogate of programs has sources itself")
        sources = tuple(
            source_from_saved(tensors_with_prefix(tensors, f"source{i}."), of_source)
            for i, of_source in enumerate(description["sources"])
        )
        scaling = np.array(description["scaling"], dtype=np.float64)
        own_weight, weight = map(float, description["weights"])
        numbers = np.array([*scaling.ravel(), own_weight, weight])
        is_scaled = len(sources) > 0 and scaling.shape == (2, len(sources)) and (scaling[1] > 0).all()
        if not (is_scaled and np.isfinite(numbers).all() and min(own_weight, weight) >= 0):
            raise ValueError("the sources of a surrogate of programs have scalings or weights out of range")
        return cls(sources, scaling, description["is_for_known"] is True, (own_weight, weight))


def _scores(source: ProgramSource, programs: Sequence[str]) -> np.ndarray:
    """Return the scores that a source predicts for N programs, float64 [N]."""
    return source.predict(source.transform(programs), source.objectives[0]).mean
