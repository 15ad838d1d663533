"""Choice of the next evaluation with several budgets: a new architecture, or a paused one that is continued.

Source of successive halving: Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning (ASHA).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nas_rlm.search.active_search import propose
from nas_rlm.search.candidate_pool import CandidatePool
from nas_rlm.search.fidelity_surrogate import FidelitySurrogate
from nas_rlm.search.improvement_search import cost_distributions, reference_point
from nas_rlm.search.settings import SearchSettings


def choose_next(
    surrogate: FidelitySurrogate,
    settings: SearchSettings,
    pending: Sequence[str] = (),
    pool: CandidatePool | None = None,
) -> str | None:
    """Choose the architecture to evaluate next: a new one, or a paused one that is continued.

    While few trainings are complete, a paused architecture is continued if it is among the best at its
    budget, by successive halving. Later that architecture is chosen whose complete training is expected to
    add most hypervolume, for the cost that is left of it.

    Args:
        surrogate: updated with all values so far.
        settings: objectives, constraints and seed.
        pending: architectures whose evaluations are under way.
        pool: new architectures to choose from, see `propose`.

    Returns:
        The architecture in the space's notation; None if there is none.
    """
    if surrogate.predicts_full_budget:
        return _largest_improvement(surrogate, settings, pending, pool)
    if promoted := _promoted(surrogate, settings, pending):
        return promoted
    return next(iter(propose(surrogate, settings, 1, pending, pool)), None)


def _promoted(surrogate: FidelitySurrogate, settings: SearchSettings, pending: Sequence[str]) -> str | None:
    """The paused architecture that successive halving continues, of the largest budget that has one.

    Of those that reached a budget, the share that is continued is the ratio of this budget to the next one.
    """
    budgets, levels = surrogate.budgets, surrogate.levels
    for level in reversed(range(len(budgets) - 1)):
        at_level = surrogate.with_target(level)
        reached = [row.arch_str for row in at_level.successful_rows]
        count = int(len(reached) * budgets[level] / budgets[level + 1])
        if count:
            measured = cost_distributions(at_level, settings, reached)
            best = measured.rank(count, measured.medians[:0])[:count]
            for name in (reached[i] for i in best):
                if levels[name] == level and name not in pending:
                    return name
    return None


def _largest_improvement(
    surrogate: FidelitySurrogate,
    settings: SearchSettings,
    pending: Sequence[str],
    pool: CandidatePool | None,
) -> str | None:
    """The architecture with the largest expected improvement for the cost that is left of its training."""
    full, levels = surrogate.budgets[-1], surrogate.levels
    costs = dict.fromkeys(propose(surrogate, settings, 1, pending, pool), full)
    costs |= {
        name: full - surrogate.budgets[level]
        for name, level in levels.items()
        if level < len(surrogate.budgets) - 1 and name not in pending
    }
    if not costs:
        return None
    known = [*(row.arch_str for row in surrogate.successful_rows), *pending]
    predicted = cost_distributions(surrogate, settings, [*costs, *known])
    is_known = np.arange(len(predicted.medians)) >= len(costs)
    known_costs = predicted.medians[is_known & (predicted.violation <= 0)]
    candidates, reference = predicted.subset(~is_known), reference_point(predicted.medians)
    gains = candidates.improvement(known_costs, reference) / np.array([*costs.values()])
    best = int(gains.argmax()) if gains.max() > 0 else candidates.rank(0, known_costs)[0]
    return [*costs][best]
