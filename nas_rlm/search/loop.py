"""The search loop: an algorithm proposes architectures, a predictor evaluates them, a log records them.

The log holds the whole state. An interrupted search is replayed from it: the same seed proposes the same
architectures, logged predictions are read instead of computed, and the search continues where the log ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from nas_rlm.search.algorithms.registry import ALGORITHM_CLASSES
from nas_rlm.search.result import FAILED, NO_STATUS, SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.utils.process_pool import reused_workers
from nas_rlm.utils.progress import progress_bar
from search_spaces import SearchSpace


class Predictor(Protocol):
    """What a search needs of a model; `nas_rlm.RLM` implements it."""

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        """Return quantiles of each objective of each architecture: float64 [N, K, Q]."""


class SamplingPredictor(Predictor, Protocol):
    """A predictor that also samples from its joint distribution; `nas_rlm.RLM` implements it."""

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int,
        seed: int,
    ) -> np.ndarray:
        """Return joint samples of the objectives: float64 [N, num_samples, K]."""


class EvaluationLog(Protocol):
    """A record of evaluations; `nas_rlm.search.run_directory.SearchLog` implements it."""

    def replay(self, architectures: Sequence[str]) -> np.ndarray | None:
        """Return the logged predictions [N, K, Q] of the next generation, or None where the log ends."""

    def append(
        self, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str] = NO_STATUS
    ) -> None:
        """Record a generation: its architectures, their predictions [N, K, Q] and their status."""


def search(
    space: SearchSpace[Any],
    predictor: Predictor,
    settings: SearchSettings,
    log: EvaluationLog | None = None,
    progress: bool = False,
    status: Callable[[Sequence[str]], Mapping[str, str]] | None = None,
    reference: Sequence[float] | None = None,
    initial_architectures: Sequence[Any] = (),
) -> SearchResult:
    """Search a space for the architectures with the best predicted objectives.

    Examples:
        >>> import search_spaces
        >>> from nas_rlm import RLM
        >>> settings = SearchSettings("nasbench201", ("accuracy", "latency/pixel3"), generations=5)
        >>> result = search(search_spaces.get("nasbench201"), RLM.load("nas"), settings)
        >>> best = result.architectures[result.front[0]]

    No architecture is evaluated twice. The search ends early when the algorithm finds nothing new.

    Args:
        space: the search space.
        predictor: evaluates architectures.
        settings: objectives, constraints, algorithm and size.
        log: is replayed first and records each generation.
        progress: show a progress bar with the size of the front and, given `reference`, its hypervolume.
        status: returns the status of architectures, see `SearchResult`; failed ones have no offspring.
        reference: reference point, see `nas_rlm.search.reference_points`.
        initial_architectures: evaluated in the first generation besides those that the algorithm proposes.

    Returns:
        All evaluated architectures.

    Raises:
        ValueError: the budget exceeds the space, or the log is of another search.
    """
    settings = settings.for_space(space)
    algorithm = ALGORITHM_CLASSES[settings.algorithm](space, settings, initial_architectures)
    result = SearchResult(settings)
    total = settings.population * settings.generations + len(initial_architectures)
    bar = progress_bar(total=total, desc="search", unit="net", disable=not progress)
    with bar, reused_workers():
        for _ in range(settings.generations):
            candidates = algorithm.ask()
            if not candidates:
                break
            names = [str(a) for a in candidates]
            known_status = status(names) if status else NO_STATUS
            values = log.replay(names) if log else None
            if values is None:
                values = predictor.predict(
                    space, candidates, settings.all_objectives, settings.quantile_levels
                )
                if log:
                    log.append(names, values, known_status)
            costs = settings.costs(settings.medians(values))
            costs[[known_status.get(name) == FAILED for name in names]] = np.nan
            algorithm.tell(costs, settings.violations(values))
            result.add(names, values, known_status)
            bar.update(len(names))
            if progress:
                volume = {"hypervolume": f"{result.hypervolume(reference):.5g}"} if reference else {}
                bar.set_postfix(front=len(result.front), **volume)
    return result
