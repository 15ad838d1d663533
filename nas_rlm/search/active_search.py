"""Active search: measure networks on a device during the search and learn the device from them.

A diverse initial design is measured first. Then the search runs in rounds with the surrogate fitted so far,
and half of the remaining budget goes to networks that may be on the front. The last measurements confirm the
front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from nas_rlm.data.tables import Row
from nas_rlm.search.acquisition import initial_design, select_candidates
from nas_rlm.search.candidate_pool import CandidatePool
from nas_rlm.search.improvement_search import first_design, select_by_improvement
from nas_rlm.search.loop import EvaluationLog, search
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.surrogates.predictive import MIN_LABELS

MAX_INITIAL_MEASUREMENTS = 20
NUM_ROUNDS = 3
CONFIRMATION_BATCH_SIZE = 5  # measurements at a time that confirm the front in the end

NUM_PARENTS = 10  # most promising candidates whose mutations become candidates

# From a surrogate, settings, candidates, the number to select and pending architectures to the selected ones.
Select = Callable[[OnlineSurrogate, SearchSettings, Sequence[str], int, Sequence[str]], list[str]]
MeasureFunction = Callable[[Sequence[str]], Sequence[Row]]  # from architectures to rows with measured values


def active_search(
    surrogate: OnlineSurrogate,
    settings: SearchSettings,
    measure: MeasureFunction,
    log: EvaluationLog | None = None,
    progress: bool = False,
) -> SearchResult:
    """Search the surrogate's space and measure at most `settings.budget` networks.

    Args:
        surrogate: evaluates architectures and learns from measurements.
        settings: settings of each round; the budget is of all rounds together.
        measure: measures networks on the device.
        log: is replayed first and records all evaluations, at the end once more the final predictions.
        progress: show progress bars.

    Returns:
        All evaluated architectures with their final predictions.

    Raises:
        ValueError: too few networks run on the device.
    """
    evaluated: dict[str, None] = {}
    remaining = _measure_initial_design(surrogate, settings, measure)
    for round_number in range(NUM_ROUNDS):
        round_settings = replace(settings, seed=_round_seed(settings.seed, round_number))
        result = search(surrogate.space, surrogate, round_settings, log, progress, surrogate.status)
        surrogate.store_predictions(result)
        evaluated |= dict.fromkeys([*result.architectures, *surrogate.measurements])
        current = current_result(surrogate, settings, list(evaluated))
        candidates = select_candidates(current, surrogate.objectives, remaining // 2)
        if candidates:
            surrogate.update(measure(candidates))
            remaining -= len(candidates)
    while True:
        current = current_result(surrogate, settings, list(evaluated))
        batch_size = min(remaining, CONFIRMATION_BATCH_SIZE)
        candidates = select_candidates(current, surrogate.objectives, batch_size, front_only=True)
        if not candidates:
            break
        surrogate.update(measure(candidates))
        remaining -= len(candidates)
    if log and log.replay(current.architectures) is None:
        log.append(current.architectures, current.values, current.status)
    return current


def _measure_initial_design(
    surrogate: OnlineSurrogate, settings: SearchSettings, measure: MeasureFunction
) -> int:
    """Measure networks until the surrogate can predict; returns the remaining budget."""
    remaining = settings.budget
    size = min(MAX_INITIAL_MEASUREMENTS, max(MIN_LABELS, remaining // 2))
    while remaining and not surrogate.is_ready:
        design = initial_design(surrogate, settings, size)[:remaining]
        if not design:
            break
        surrogate.update(measure(design))
        remaining -= len(design)
    if not surrogate.is_ready:
        raise ValueError(
            f"{len(surrogate.successful_rows)} of {len(surrogate.measurements)} networks could be measured on"
            f" {settings.device}: expected at least {MIN_LABELS} with {' and '.join(surrogate.objectives)}"
        )
    return remaining


def _round_seed(seed: int, round_number: int) -> int:
    """A different seed for each round; the first round keeps the seed itself."""
    return int(np.random.SeedSequence([seed, round_number]).generate_state(1)[0]) if round_number else seed


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
