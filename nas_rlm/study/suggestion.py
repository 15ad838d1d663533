"""Suggestions of a study: the architectures to evaluate next, and predictions for all others."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from nas_rlm.data.objective_kinds import LATENCY_PREFIX
from nas_rlm.data.tables import Row
from nas_rlm.rlm import RLM
from nas_rlm.search.acquisition.active_search import propose
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.fidelity_choice import choose_next
from nas_rlm.search.acquisition.improvement_search import (
    select_by_improvement,
    select_by_improvement_and_cost,
)
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.exact_constraints import ExactConstraints
from nas_rlm.search.fidelity_surrogate import FidelitySurrogate
from nas_rlm.search.objectives import ObjectivePredictor
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.settings import QUANTILE_LEVELS
from nas_rlm.search.table_space import TableSpace
from nas_rlm.study.records import Suggestion, Suggestions
from nas_rlm.study.settings import StudySettings
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.registry import graph_surrogates
from nas_rlm.utils import torch_settings
from search_spaces import SearchSpace
from search_spaces.wording import counted


class Suggester(ABC):
    """Suggests architectures, and predicts them, from the rows of finished trials.

    What is suggested depends on these and on the candidates of earlier suggestions alone. Both are in the log
    of a study, so that one that is opened again continues as it would have.

    Args:
        cached_predictor: predicts the objectives that are not learned.
        sources: existing surrogates by space, sources of transfer.
        settings: settings of the study.
    """

    def __init__(
        self,
        cached_predictor: CachedPredictor,
        sources: Mapping[str, Sequence[GraphSurrogate]],
        settings: StudySettings,
    ) -> None:
        self.settings, self.space, self.predictor = settings, cached_predictor.space, cached_predictor.model
        self._surrogate = GrowingSurrogate(cached_predictor, sources, settings)

        self._constraints = ExactConstraints(self.space, settings.search)

    @abstractmethod
    def suggest(
        self, rows: Sequence[Row], pending: Sequence[str], count: int, candidates: Sequence[str] = ()
    ) -> Suggestions:
        """Return architectures to evaluate next; in a study with budgets one, which may be a paused one.

        Args:
            rows: results in order, with the learned objectives, see
                `nas_rlm.study.report.results.result_rows`; one without them is a failure.
            pending: architectures of running trials.
            count: number of architectures.
            candidates: the candidates of the earlier suggestions of the study, in order.

        Returns:
            As many, or fewer where the space has no others; and the candidates that are new.
        """

    @torch_settings.standard_on_one_thread()  # with one thread: trainings use the processors meanwhile
    def suggest_among(
        self, rows: Sequence[Row], pending: Sequence[str], count: int, names: Sequence[str]
    ) -> Suggestions:
        """Return architectures to evaluate next among given ones, see `suggest`.

        Args:
            rows: results in order.
            pending: architectures of running trials.
            count: number of architectures.
            names: the given ones, in the space's notation.
        """
        surrogate, space = self._surrogate.updated(rows), TableSpace(self.space, names)
        pool = CandidatePool(space, self.settings.seed, constraints=self._constraints)
        return Suggestions(
            self._with_predictions(surrogate, self._propose(surrogate, count, pending, pool, names))
        )

    def _propose(
        self,
        surrogate: OnlineSurrogate,
        count: int,
        pending: Sequence[str],
        pool: CandidatePool,
        among: Collection[str] | None = None,
    ) -> list[str]:
        """Select candidates, without the warnings of predictions for spaces that have no labels yet."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if isinstance(surrogate, FidelitySurrogate):
                chosen = choose_next(surrogate, self.settings.search, pending, pool, among)
                return [chosen] if chosen else []
            # To measure a network takes about as long as to measure another one; to train it does not.
            select = select_by_improvement_and_cost if self.settings.evaluated else select_by_improvement
            return propose(surrogate, self.settings.search, count, pending, pool, select)

    @torch_settings.standard_on_one_thread()
    def surrogate(self, rows: Sequence[Row]) -> OnlineSurrogate:
        """Return the surrogate of rows, see `suggest`."""
        return self._surrogate.updated(rows)

    @torch_settings.standard_on_one_thread()
    def predict(
        self,
        rows: Sequence[Row],
        architectures: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] = QUANTILE_LEVELS,
    ) -> np.ndarray:
        """Return quantiles of objectives: float64 [N, K, Q]; values of trials are as recorded.

        Args:
            rows: see `suggest`.
            architectures: N architectures in the space's notation.
            objectives: K names.
            quantiles: Q levels.

        Raises:
            ValueError: there are too few trials, and the model does not know the objectives.
        """
        surrogate = self._surrogate.updated(rows)
        if _can_predict(surrogate):
            return surrogate.predict_names(architectures, objectives, quantiles)
        parsed = [self.space.parse(name) for name in architectures]
        try:
            return self.predictor.predict(self.space, parsed, objectives, quantiles)
        except ValueError as error:
            num_labels = sum(bool(row.targets) for row in rows)
            raise ValueError(
                f"{counted(num_labels, 'trial is', 'trials are')} complete, and predictions need"
                f" {MIN_LABELS}; without them the"
                f" model predicts, but: {error}"
            ) from None

    def _with_predictions(self, surrogate: OnlineSurrogate, names: Sequence[str]) -> list[Suggestion]:
        """Architectures as suggestions, with predictions if the surrogate can predict."""
        if not _can_predict(surrogate) or not names:
            return [Suggestion(name) for name in names]
        objectives = self.settings.search.all_objectives
        values = surrogate.predict_names(names, objectives)
        return [
            Suggestion(name, dict(zip(objectives, quantiles.tolist(), strict=True)))
            for name, quantiles in zip(names, values, strict=True)
        ]


class PoolSuggester(Suggester):
    """Suggests architectures of a pool that grows by random and mutated ones, see `propose`.

    Args:
        space: the search space.
        rlm: the model, whose surrogates are sources of transfer.
        settings: settings of the study.

    Raises:
        ValueError: the model does not know an objective that it is to predict.
    """

    def __init__(self, space: SearchSpace[Any], rlm: RLM, settings: StudySettings) -> None:
        predictor = checked_predictor(rlm, settings)
        with_layers = any(name.startswith(LATENCY_PREFIX) for name in settings.learned or settings.objectives)
        cached_predictor = CachedPredictor(predictor, space, with_layers)
        super().__init__(cached_predictor, graph_surrogates(rlm.surrogates), settings)
        self._pool: CandidatePool | None = None

    @torch_settings.standard_on_one_thread()
    def suggest(
        self, rows: Sequence[Row], pending: Sequence[str], count: int, candidates: Sequence[str] = ()
    ) -> Suggestions:
        """Return architectures to evaluate next, see `Suggester`."""
        surrogate = self._surrogate.updated(rows)
        pool = self._pool_with(candidates)
        names = self._propose(surrogate, count, pending, pool)
        return Suggestions(self._with_predictions(surrogate, names), pool.added[len(candidates) :])

    def check_constraints(self) -> None:
        """Refuse constraints on `flops` and `params` that no architecture is found to meet.

        Raises:
            ValueError: none is.
        """
        if self._constraints and not self._pool_with(()).candidates((), 1):
            raise ValueError(self._constraints.refusal())

    def is_exhausted(self, known: Collection[str], candidates: Sequence[str] = ()) -> bool:
        """Whether no architecture is found that is not among known ones.

        Args:
            known: architectures in the space's notation.
            candidates: see `suggest`.
        """
        return not self._pool_with(candidates).candidates(known, 1)

    def _pool_with(self, candidates: Sequence[str]) -> CandidatePool:
        """The pool, to which these candidates were added."""
        if self._pool is None or self._pool.added != list(candidates):  # of another process
            space = self.settings.among_candidates(self.space)
            self._pool = CandidatePool(space, self.settings.seed, candidates, self._constraints)
        return self._pool


def checked_predictor(rlm: RLM, settings: StudySettings) -> ObjectivePredictor:
    """Return the predictor of the objectives that a study neither measures nor evaluates.

    Raises:
        ValueError: the model does not know an objective that it is to predict.
    """
    predictor = ObjectivePredictor(rlm)
    if settings.predicted:
        predictor.check(settings.predicted)
    return predictor


def _can_predict(surrogate: OnlineSurrogate) -> bool:
    """Whether a surrogate can predict the values of complete trials."""
    if isinstance(surrogate, FidelitySurrogate):
        return surrogate.predicts_full_budget
    return surrogate.is_ready


class GrowingSurrogate:
    """A surrogate of rows of which there are more each time.

    Args:
        cached_predictor: predicts objectives that are not learned.
        sources: existing surrogates by space, sources of transfer.
        settings: settings of the study.
    """

    def __init__(
        self,
        cached_predictor: CachedPredictor,
        sources: Mapping[str, Sequence[GraphSurrogate]],
        settings: StudySettings,
    ) -> None:
        self.cached_predictor, self.sources, self.settings = cached_predictor, sources, settings
        self._rows: list[Row] = []
        self._surrogate = self._without_rows()

    def _without_rows(self) -> OnlineSurrogate:
        settings = self.settings
        arguments = self.cached_predictor, settings.learned or settings.objectives, self.sources
        if settings.budgets:
            return FidelitySurrogate(*arguments, settings.evaluated, settings.budgets)
        return OnlineSurrogate(*arguments)

    def updated(self, rows: Sequence[Row]) -> OnlineSurrogate:
        """Return the surrogate of rows.

        They are added one by one, so that the surrogate does not depend on how many arrived at a time.
        """
        if list(rows[: len(self._rows)]) != self._rows:
            self._rows = []
            self._surrogate = self._without_rows()
        for row in rows[len(self._rows) :]:
            self._surrogate.update([row])
            self._rows.append(row)
        return self._surrogate
