"""Multi-objective search: a space proposes architectures, a predictor judges them, a log remembers.

The log is the whole state. A search that was killed is replayed from it: the same seed proposes the same
architectures, their predictions are read instead of computed, and from where the log ends the search goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from nas_rlm.search.algorithms import KINDS
from nas_rlm.search.result import FAILED, NOTHING, Result
from nas_rlm.search.settings import Settings
from nas_rlm.utils.process_pool import staying
from search_spaces import SearchSpace


class Predictor(Protocol):
    """What a search asks of a model; `nas_rlm.RLM` is one."""

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        """Quantiles of each objective of each architecture: float64 [N, K, Q]."""


class Sampler(Predictor, Protocol):
    """A predictor that can also draw from its joint distribution; `nas_rlm.RLM` is one."""

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int,
        seed: int,
    ) -> np.ndarray:
        """Joint draws: float64 [N, num_samples, K]."""


class Log(Protocol):
    """Where a search keeps its evaluations; `nas_rlm.search.run_directory.SearchLog` is one."""

    def replay(self, architectures: Sequence[str]) -> np.ndarray | None:
        """What was predicted of these when they were evaluated before: [N, K, Q], or None."""

    def append(
        self, architectures: Sequence[str], values: np.ndarray, status: Mapping[str, str] = NOTHING
    ) -> None:
        """Remember a generation, and of some of it whether it was measured."""


def search(
    space: SearchSpace[Any],
    predictor: Predictor,
    settings: Settings,
    log: Log | None = None,
    progress: bool = False,
    status: Callable[[Sequence[str]], Mapping[str, str]] | None = None,
    reference: Sequence[float] | None = None,
    known: Sequence[Any] = (),
) -> Result:
    """Search a space for the architectures that a predictor finds best.

    >>> import search_spaces
    >>> from nas_rlm import RLM
    >>> settings = Settings("nasbench201", ("accuracy", "latency/pixel3"), generations=5)
    >>> result = search(search_spaces.get("nasbench201"), RLM.load("nas"), settings)
    >>> best = result.architectures[result.front[0]]

    No architecture is evaluated twice. The search ends early when the algorithm finds nothing new.

    Args:
        space: where architectures come from.
        predictor: what judges them.
        settings: objectives, constraints, algorithm and its size.
        log: receives each generation, and is replayed first.
        progress: show a bar, with the size of the front and, if there is a reference point, its hypervolume.
        status: of architectures, see `Result`; what fails is not bred from.
        reference: point, see `nas_rlm.search.reference_points`.
        known: architectures with which the search begins, besides those of its first generation.
    """
    if space.size and settings.population > space.size:
        raise ValueError(
            f"population is {settings.population:,}, more than the {space.size:,} of {space.name}"
        )
    algorithm = KINDS[settings.algorithm](space, settings, known)
    result = Result(settings)
    total = settings.population * settings.generations + len(known)
    bar = tqdm(total=total, desc="search", unit="net", disable=not progress)
    with bar, staying():
        for _ in range(settings.generations):
            proposed = algorithm.ask()
            if not proposed:
                break
            names = [str(a) for a in proposed]
            measured = status(names) if status else NOTHING
            values = log.replay(names) if log else None
            if values is None:
                values = predictor.predict(space, proposed, settings.predicted, settings.quantiles)
                if log:
                    log.append(names, values, measured)
            costs = settings.costs(settings.medians(values))
            costs[[measured.get(name) == FAILED for name in names]] = np.nan
            algorithm.tell(costs, settings.violations(values))
            result.add(names, values, measured)
            bar.update(len(names))
            if progress:
                volume = {"hypervolume": f"{result.hypervolume(reference):.5g}"} if reference else {}
                bar.set_postfix(front=len(result.front), **volume)
    return result
