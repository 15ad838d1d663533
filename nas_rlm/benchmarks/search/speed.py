"""Seconds that a search takes, with and without the parts of the predictor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.benchmarks.timing import Cases, time_cases
from nas_rlm.data.genome import Genome
from nas_rlm.model.batching import DEFAULT_BATCH_SIZE
from nas_rlm.rlm import RLM
from nas_rlm.search.loop import search
from nas_rlm.search.settings import SearchSettings
from nas_rlm.surrogates.given_numbers import Given
from nas_rlm.utils.validation import MEDIAN
from search_spaces import SearchSpace


def time_searches(rlm: RLM, evaluations: int, runs: int, seed: int = 0) -> Cases:
    """Time NSGA-II on NAS-Bench-201: complete, without the network, and without the network and the text.

    Args:
        rlm: the model that predicts the objectives.
        evaluations: number of evaluations of a search, about.
        runs: number of timed runs, each of one search.
        seed: seed of the first search.
    """
    space, side = search_spaces.get("nasbench201"), int(evaluations**0.5)

    def work(predictor: Any, run: int) -> int:
        objectives = ("accuracy", "latency/pixel3")
        settings = SearchSettings(space.name, objectives, population=side, generations=side, seed=seed + run)
        return len(search(space, predictor, settings).architectures)

    cases = {
        "NSGA-II": partial(work, rlm),
        "without network": partial(work, _TextOnlyModel(rlm.network, rlm.tokenizer)),
        "without network and text": partial(work, _ArbitraryPredictor()),
    }
    return time_cases(cases, runs)


class _TextOnlyModel(RLM):
    """A model that makes texts and token ids, and predicts arbitrary numbers without its network."""

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str] | None = None,
        quantiles: Sequence[float] | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
        space: str = "",
        given: Given | None = None,
        genomes: Sequence[Genome] = (),
    ) -> np.ndarray:
        token_ids = [str(self.token_ids(text)) for text in texts]
        return _arbitrary_numbers(token_ids, objectives or self.objectives, len(quantiles or MEDIAN))


class _ArbitraryPredictor:
    """A predictor of arbitrary numbers that takes no time."""

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        return _arbitrary_numbers(list(map(str, architectures)), objectives, len(quantiles))


def _arbitrary_numbers(names: Sequence[str], objectives: Sequence[str], num_levels: int) -> np.ndarray:
    """Numbers [N, K, num_levels] that depend on nothing but the names."""
    numbers = [[hash((name, o)) % 1000 for o in objectives] for name in names]
    return np.repeat(np.array(numbers, dtype=float)[:, :, None], num_levels, 2)
