"""Active search: the architectures to measure next, by surrogates that learn from those before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.improvement_search import (
    cost_distributions,
    first_design,
    select_by_improvement,
)
from nas_rlm.search.acquisition.screening import screen
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.search.table_space import TableSpace

NUM_PARENTS = 10  # most promising candidates whose mutations become candidates
SCREENED_FOR_EACH = 10  # given candidates, of which the first that meets the constraints is added

# From a surrogate, settings, candidates, the number to select and pending architectures to the selected ones.
Select = Callable[[OnlineSurrogate, SearchSettings, Sequence[str], int, Sequence[str]], list[str]]


def propose(
    surrogate: OnlineSurrogate,
    settings: SearchSettings,
    max_candidates: int,
    pending: Sequence[str] = (),
    pool: CandidatePool | None = None,
    select: Select = select_by_improvement,
) -> list[str]:
    """Select the architectures to measure next, by expected hypervolume improvement.

    Args:
        surrogate: updated with all measurements so far; while they are too few to predict, architectures that
            the model ranks high and random ones are returned.
        settings: objectives, constraints and seed.
        max_candidates: select as many; fewer only where no others are left.
        pending: architectures whose measurements are under way. They are not selected, and their predicted
            values count as if they were measured.
        pool: the candidates, to which others are added; those of earlier calls are best kept. By default new
            ones of the space.
        select: selects them once the surrogate can predict.

    Returns:
        Architectures in the space's notation.
    """
    pool = pool or CandidatePool(surrogate.space, settings.seed)
    excluded = {*pending, *surrogate.measurements}
    surrogate.forget_predictions()
    pool.grow()
    if not surrogate.is_ready:
        candidates = pool.candidates(excluded, max_candidates)
        rng = np.random.default_rng([settings.seed, len(excluded)])
        return first_design(
            surrogate, settings, rng.permutation(candidates).tolist(), max_candidates, pending
        )
    pool.add_children(_measured_front(surrogate, settings), max_candidates)
    candidates = pool.candidates(excluded, max_candidates)
    if candidates and isinstance(pool.space, TableSpace) and pool.space.is_sparse:
        predicted = cost_distributions(surrogate, settings, candidates)
        costs, count = predicted.medians, SCREENED_FOR_EACH * max_candidates
        screened = screen(pool.space, candidates, costs, predicted.violation, count, excluded)
        pool.add_allowed(screened, max_candidates)
        candidates = pool.candidates(excluded, max_candidates)
    best = select(surrogate, settings, candidates, NUM_PARENTS, pending)
    pool.add_children(best, max_candidates)
    candidates = pool.candidates(excluded, max_candidates)
    return select(surrogate, settings, candidates, max_candidates, pending)


def _measured_front(surrogate: OnlineSurrogate, settings: SearchSettings) -> list[str]:
    """The best measured architectures."""
    result = current_result(surrogate, settings, [row.arch_str for row in surrogate.successful_rows])
    return [result.architectures[i] for i in result.front]


def current_result(
    surrogate: OnlineSurrogate, settings: SearchSettings, names: Sequence[str]
) -> SearchResult:
    """Return architectures with the surrogate's current predictions and status.

    Args:
        surrogate: the predictor.
        settings: settings of the result.
        names: architectures in the space's notation.
    """
    values = surrogate.predict_names(names, settings.all_objectives, settings.quantile_levels)
    return SearchResult(settings, list(names), values, surrogate.status(names))
