"""Other ways to select architectures to measure, beside `improvement_search.select_by_improvement`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nas_rlm.search.acquisition.active_search import current_result
from nas_rlm.search.acquisition.improvement_search import cost_distributions
from nas_rlm.search.acquisition.selection import select_candidates
from nas_rlm.search.online_surrogate import OnlineSurrogate
from nas_rlm.search.pareto import is_non_dominated
from nas_rlm.search.settings import SearchSettings

OPTIMISTIC_LEVEL = 0.16  # of the costs of a scalarisation, one standard deviation below the median
MIN_EXTENT = 1e-12  # avoids division by zero


def select_optimistic(
    surrogate: OnlineSurrogate,
    settings: SearchSettings,
    names: Sequence[str],
    count: int,
    pending: Sequence[str] = (),
) -> list[str]:
    """Select the architectures that add most hypervolume if each has its best predicted quantiles.

    Where fewer than asked for add any, the others are those with the best mean rank of medians.

    Arguments are those of `select_by_improvement`; pending architectures are ignored.
    """
    known = [row.arch_str for row in surrogate.successful_rows]
    result = current_result(surrogate, settings, [*known, *names])
    selected = select_candidates(result, surrogate.objectives, count)
    medians = settings.costs(settings.medians(result.values))[len(known) :]
    mean_ranks = np.mean([column.argsort().argsort() for column in medians.T], axis=0)
    others = [names[i] for i in mean_ranks.argsort(kind="stable") if names[i] not in set(selected)]
    return [*selected, *others][:count]


def select_by_scalarisation(
    surrogate: OnlineSurrogate,
    settings: SearchSettings,
    names: Sequence[str],
    count: int,
    pending: Sequence[str] = (),
) -> list[str]:
    """Select each architecture by the largest weighted cost of optimistic predictions, with random weights.

    Costs are relative to the extent of the measured front. Source: Paria et al. 2020, A Flexible Framework
    for Multi-Objective Bayesian Optimization using Random Scalarizations.

    Arguments are those of `select_by_improvement`; pending architectures are ignored.
    """
    known = [row.arch_str for row in surrogate.successful_rows]
    predicted = cost_distributions(surrogate, settings, [*known, *names])
    measured = predicted.medians[: len(known)]
    front = measured[is_non_dominated(measured)]
    low, high = front.min(0), front.max(0)
    optimistic = np.quantile(predicted.samples[len(known) :], OPTIMISTIC_LEVEL, axis=-1, method="lower")
    costs = (optimistic - low) / np.maximum(high - low, MIN_EXTENT)
    penalty = 1 - predicted.feasibility[len(known) :]
    rng = np.random.default_rng([settings.seed, len(known), len(names)])
    selected: dict[str, None] = {}
    while len(selected) < min(count, len(names)):
        weights = rng.dirichlet(np.ones(costs.shape[1]))
        order = np.lexsort([(weights * costs).max(1), penalty.round(6)])
        best = next(i for i in order if names[i] not in selected)
        selected[names[best]] = None
    return list(selected)
