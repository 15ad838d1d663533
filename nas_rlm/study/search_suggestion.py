"""Suggestions of a study without evaluations: networks to measure, among those that searches find.

Where all other objectives are counted or predicted, they are known of any architecture before it is measured.
A search by predictions then finds better candidates than random and mutated ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nas_rlm.data.tables import Row
from nas_rlm.rlm import RLM
from nas_rlm.search.acquisition.active_search import current_result
from nas_rlm.search.acquisition.improvement_search import select_by_improvement
from nas_rlm.search.acquisition.selection import initial_design
from nas_rlm.search.cached_predictor import CachedPredictor
from nas_rlm.search.loop import EvaluationLog, search
from nas_rlm.search.result import SearchResult
from nas_rlm.search.run_directory import SearchLog, to_result
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace
from nas_rlm.study.records import Suggestions
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.suggestion import PoolSuggester, Suggester, checked_predictor
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from nas_rlm.surrogates.registry import graph_surrogates, without_novelty_warnings
from search_spaces import SearchSpace

SEARCHES = "searches"  # directory of a study with the logs of its searches
CONFIRMING = 10  # one in so many trials confirms the front
MAX_CONFIRMING = 5  # trials at a time that do
SHORTLIST_SIZE = 100  # architectures of a search with which the next one starts


class SearchSuggester(Suggester):
    """Suggests the architectures of a search by predictions that may add most hypervolume when measured.

    The first architectures are a diverse design. The last ones are on the front of the last search. Each
    search has a log, so that one that was interrupted continues with the same predictions.

    Args:
        cached_predictor: predicts the objectives that are not measured.
        sources: existing surrogates by space, sources of transfer.
        settings: settings of the study.
        search_settings: settings of each search.
        directory: directory of the study.
        num_trials: number of trials of the study; None if it is not known.
        progress: show a progress bar for each search.
    """

    def __init__(
        self,
        cached_predictor: CachedPredictor,
        sources: Mapping[str, Sequence[GraphSurrogate]],
        settings: StudySettings,
        search_settings: SearchSettings,
        directory: Path,
        num_trials: int | None = None,
        progress: bool = False,
    ) -> None:
        super().__init__(cached_predictor, sources, settings)
        self.search_settings, self.directory, self.progress = search_settings, directory, progress
        # Number of trials before those that confirm the front.
        self._num_exploring = None if num_trials is None else num_trials - max(1, num_trials // CONFIRMING)
        self._found: tuple[list[Row], SearchResult] | None = None  # the last search and its rows

    def suggest(
        self, rows: Sequence[Row], pending: Sequence[str], count: int, candidates: Sequence[str] = ()
    ) -> Suggestions:
        """Return architectures to measure next, see `Suggester`; fewer of those that confirm the front."""
        surrogate = self._surrogate.updated(rows)
        surrogate.forget_predictions()
        if not surrogate.is_ready:
            names = initial_design(surrogate, self.search_settings, count, pending)
            return Suggestions(self._with_predictions(surrogate, names[:count]))
        found, surrogate = self._search(rows), self._surrogate.updated(rows)
        excluded = {*surrogate.measurements, *pending}
        names = [n for n in found.architectures if n not in excluded and self._constraints.is_met(n)]
        if self._num_exploring is not None and len(rows) < self._num_exploring:
            count = min(count, self._num_exploring - len(rows))
        elif self._num_exploring is not None:
            current = current_result(surrogate, self.search_settings, found.architectures)
            on_front = [current.architectures[i] for i in current.front]
            names = [name for name in on_front if name in names] or names
            count = min(count, MAX_CONFIRMING)
        if names:
            names = select_by_improvement(surrogate, self.search_settings, names, count, pending)
        return Suggestions(self._with_predictions(surrogate, names))

    def result(self, rows: Sequence[Row], log: EvaluationLog) -> SearchResult:
        """Return the architectures of the last search and the measured ones, as they are predicted now.

        Args:
            rows: all results, with which the surrogate can predict.
            log: is replayed and records the evaluations.
        """
        found, surrogate, settings = self._search(rows), self._surrogate.updated(rows), self.search_settings
        names = list(dict.fromkeys([*found.architectures, *surrogate.measurements]))
        surrogate.forget_predictions()
        result = current_result(surrogate, settings, names)
        if log.replay(names) is None:
            log.append(names, result.values, result.status)
        return result

    def _search(self, rows: Sequence[Row]) -> SearchResult:
        """The last search, which is made after each result until the front is to be confirmed."""
        rows = list(rows[: self._num_exploring])
        if self._found is None or self._found[0] != rows:
            self._found = rows, self._search_after(rows)
        return self._found[1]

    def _search_after(self, rows: Sequence[Row]) -> SearchResult:
        """Search from measured architectures, the best ones of the search before and random ones."""
        surrogate, path = self._surrogate.updated(rows), self.directory / SEARCHES
        path.mkdir(exist_ok=True)
        log = SearchLog(path / f"{len(rows):05d}.jsonl", self.search_settings)
        earlier = self._earlier_results(len(rows))
        for result in earlier:  # so that no prediction is made in another batch
            surrogate.store_predictions(result)
        seed = int(np.random.SeedSequence([self.search_settings.seed, len(rows)]).generate_state(1)[0])
        settings, names = replace(self.search_settings, seed=seed), [*surrogate.measurements]
        given = self.space.names if isinstance(self.space, TableSpace) else []
        if 0 < len(given) <= settings.population * settings.generations:
            names += given
            settings = replace(settings, algorithm="random", generations=1)
        elif earlier:
            names += [earlier[-1].architectures[i] for i in earlier[-1].shortlist(SHORTLIST_SIZE)]
        initial = [self.space.parse(name) for name in dict.fromkeys(names)]
        surrogate.forget_predictions()
        with without_novelty_warnings():
            found = search(
                self.space, surrogate, settings, log, self.progress, surrogate.status, None, initial
            )
        surrogate.store_predictions(found)
        surrogate.forget_predictions()
        return found

    def _earlier_results(self, num_rows: int) -> list[SearchResult]:
        """The searches after fewer results, from their logs."""
        settings, paths = self.search_settings, sorted((self.directory / SEARCHES).glob("*.jsonl"))
        logs = [SearchLog(path, settings) for path in paths if int(path.stem) < num_rows]
        return [to_result(settings, log.evaluations) for log in logs]


def make_suggester(space: SearchSpace[Any], rlm: RLM, settings: StudySettings, directory: Path) -> Suggester:
    """Return the suggester of a study: a `SearchSuggester` if networks are only measured.

    Args:
        space: the search space.
        rlm: the model.
        settings: settings of the study.
        directory: its directory.

    Raises:
        ValueError: the model does not know an objective that it is to predict.
    """
    if not settings.is_measured_only:
        return PoolSuggester(space, rlm, settings)
    predictor = CachedPredictor(checked_predictor(rlm, settings), settings.among_candidates(space))
    sources = graph_surrogates(rlm.surrogates)
    return SearchSuggester(predictor, sources, settings, settings.search, directory)
