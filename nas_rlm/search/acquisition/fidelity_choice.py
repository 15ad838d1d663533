"""Choice of the next evaluation with several budgets: a new architecture, or a paused one that is continued.

Source of successive halving: Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning (ASHA).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from nas_rlm.search.acquisition.active_search import propose
from nas_rlm.search.acquisition.candidate_pool import CandidatePool
from nas_rlm.search.acquisition.improvement_search import cost_distributions, reference_point
from nas_rlm.search.fidelity_surrogate import FidelitySurrogate
from nas_rlm.search.settings import SearchSettings


def choose_next(
    surrogate: FidelitySurrogate,
    settings: SearchSettings,
    pending: Sequence[str] = (),
    pool: CandidatePool | None = None,
    among: Collection[str] | None = None,
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
        among: the paused architectures that may be continued; None for all.

    Returns:
        The architecture in the space's notation; None if there is none.
    """
    paused = {
        name: level
        for name, level in surrogate.levels.items()
        if level < len(surrogate.budgets) - 1 and name not in pending and (among is None or name in among)
    }
    if surrogate.predicts_full_budget:
        return _largest_improvement(surrogate, settings, paused, pending, pool)
    if promoted := _promoted(surrogate, settings, paused):
        return promoted
    new = propose(surrogate, settings, 1, pending, pool)
    return new[0] if new else _promoted(surrogate, settings, paused, continues_all=True)


def _promoted(
    surrogate: FidelitySurrogate,
    settings: SearchSettings,
    paused: Mapping[str, int],
    continues_all: bool = False,
) -> str | None:
    """The paused architecture that successive halving continues, of the largest budget that has one.

    Of those that reached a budget, the share that is continued is the ratio of this budget to the next one.

    Args:
        surrogate: the surrogate.
        settings: objectives and constraints.
        paused: by architecture, the level of the budget that it reached.
        continues_all: continue all of them, the best one first, since there are no new architectures.
    """
    budgets = surrogate.budgets
    for level in reversed(range(len(budgets) - 1)):
        at_level = surrogate.with_target(level)
        reached = [row.arch_str for row in at_level.successful_rows]
        count = len(reached) if continues_all else int(len(reached) * budgets[level] / budgets[level + 1])
        if count:
            measured = cost_distributions(at_level, settings, reached)
            best = measured.rank(count, measured.medians[:0])[:count]
            for name in (reached[i] for i in best):
                if paused.get(name) == level:
                    return name
    return None


def _largest_improvement(
    surrogate: FidelitySurrogate,
    settings: SearchSettings,
    paused: Mapping[str, int],
    pending: Sequence[str],
    pool: CandidatePool | None,
) -> str | None:
    """The architecture with the largest expected improvement for the cost that is left of its training.

    Where none is expected to improve anything, a new one is trained with the first budget, which costs least.
    """
    full = surrogate.budgets[-1]
    costs = dict.fromkeys(propose(surrogate, settings, 1, pending, pool), full)
    costs |= {name: full - surrogate.budgets[level] for name, level in paused.items()}
    if not costs:
        return None
    known = [*(row.arch_str for row in surrogate.successful_rows), *pending]
    predicted = cost_distributions(surrogate, settings, [*costs, *known])
    is_known = np.arange(len(predicted.medians)) >= len(costs)
    known_costs = predicted.medians[is_known & (predicted.violation <= 0)]
    candidates, reference = predicted.subset(~is_known), reference_point(predicted.medians)
    gains = candidates.improvement(known_costs, reference) / np.array([*costs.values()])
    names = [*costs]
    if gains.max() > 0:
        return names[int(gains.argmax())]
    order = candidates.rank(0, known_costs)
    return names[min(order, key=lambda i: (candidates.violation[i], names[i] in paused))]
