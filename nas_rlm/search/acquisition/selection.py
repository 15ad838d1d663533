"""Acquisition: which architectures an active search measures next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import moocore
import numpy as np

from nas_rlm.devices.sample_selection import select_samples, selection_features
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.algorithms.random_search import RandomSearch
from nas_rlm.search.exact_constraints import ExactConstraints
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import SearchSettings
from nas_rlm.surrogates.predictive import MIN_LABELS

POOL_SIZE = 500  # random architectures that the initial design is selected from
REFERENCE_MARGIN = 0.1  # of the front's extent, from its worst values to the reference point


def initial_design(
    surrogate: OnlineSurrogate, settings: SearchSettings, num_architectures: int, pending: Sequence[str] = ()
) -> list[str]:
    """Select diverse architectures to measure before the surrogate can predict.

    They are cluster centres of random architectures by the predictions for other devices, or by graph
    features where there are none; see `nas_rlm.devices.sample_selection`.

    Args:
        surrogate: the surrogate, with too few measurements to predict.
        settings: settings of the search.
        num_architectures: number to select if nothing was measured yet; otherwise twice as many are selected
            as successful measurements are missing.
        pending: architectures whose measurements are under way, which are not selected.

    Returns:
        Architectures in the space's notation that meet the constraints on `flops` and `params`; none if every
        sampled one was measured or is expected to fail.
    """
    space = surrogate.space
    if surrogate.measurements:
        num_architectures = 2 * (MIN_LABELS - len(surrogate.successful_rows))
    pool_settings = replace(settings, population=POOL_SIZE).for_space(space)
    pool = [str(a) for a in RandomSearch(space, pool_settings).ask()]
    if constraints := ExactConstraints(space, settings):
        pool = CandidatePool(space, settings.seed, constraints=constraints).candidates((), 1)
    status = surrogate.status(pool)
    candidates = [name for name in pool if name not in status and name not in pending]
    if not candidates:
        return []
    raw_features = surrogate.cached_predictor.raw_features(candidates)
    features = selection_features(surrogate.space_surrogates, raw_features)
    num_selected = min(num_architectures, len(np.unique(features, axis=0)))
    return [candidates[i] for i in select_samples(features, num_selected, settings.seed)]


def select_candidates(
    result: SearchResult,
    measured_objectives: Sequence[str],
    max_candidates: int,
) -> list[str]:
    """Select the architectures whose measurement may add most hypervolume to the measured front.

    Each counts with the optimistic quantile of its measured objectives, so that of two with equal medians the
    less certain one is preferred. They are selected greedily by the hypervolume that each adds.

    Args:
        result: current predictions of all evaluated architectures.
        measured_objectives: the objectives that a measurement reveals.
        max_candidates: select at most this many.

    Returns:
        Architectures in the space's notation, the largest gain first.
    """
    costs, violations = _optimistic_costs(result, measured_objectives)
    is_new = np.array([name not in result.status for name in result.architectures], dtype=bool)
    measured_costs = costs[result.is_measured & result.feasible]
    eligible = np.flatnonzero(is_new & (violations <= 0))
    if not len(eligible):
        nearest_feasible = [i for i in np.argsort(violations, kind="stable") if is_new[i]]
        return [result.architectures[i] for i in nearest_feasible[: max(max_candidates, 0)]]
    if max_candidates < 1:
        return []
    # Dominated candidates add no hypervolume.
    eligible = eligible[moocore.is_nondominated(costs[eligible], keep_weakly=True)]
    selected = _greedy_hypervolume(costs, eligible, measured_costs, max_candidates)
    return [result.architectures[i] for i in selected]


def _optimistic_costs(
    result: SearchResult, measured_objectives: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Costs [N, K] and total violations [N] if each measured objective had its best predicted quantile."""
    settings = result.settings
    optimistic = result.values.copy()
    for name in measured_objectives:
        k = settings.all_objectives.index(name)
        optimistic[:, k] = optimistic[:, k, -1:] if settings.is_maximised(name) else optimistic[:, k, :1]
    costs = settings.costs(settings.medians(optimistic))
    return costs, settings.violations(optimistic).clip(min=0).sum(1)


def _greedy_hypervolume(
    costs: np.ndarray, eligible: np.ndarray, measured_costs: np.ndarray, max_candidates: int
) -> list[int]:
    """Rows of `costs` that one after the other add most hypervolume to the measured costs."""
    compared = np.concatenate([measured_costs, costs[eligible]])
    front = compared[moocore.is_nondominated(compared)]
    low, high = front.min(0), front.max(0)
    extent = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    reference = high + REFERENCE_MARGIN * extent
    selected: list[int] = []
    while len(selected) < min(max_candidates, len(eligible)):
        current = np.concatenate([measured_costs, costs[selected]])
        remaining = [i for i in eligible.tolist() if i not in selected]
        volumes = [
            moocore.hypervolume(np.concatenate([current, costs[i : i + 1]]), ref=reference) for i in remaining
        ]
        if len(current) and max(volumes) <= moocore.hypervolume(current, ref=reference):
            break
        selected.append(remaining[int(np.argmax(volumes))])
    return selected
