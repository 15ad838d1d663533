"""Pareto fronts: directions of objectives, non-dominated points, hypervolume.

Internally everything is minimised; `minimised` is the only place that knows signs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import moocore
import numpy as np

from nas_rlm.data.objective_kinds import kind_of


def is_maximised(objective: str, maximised: Collection[str] = ()) -> bool:
    """Whether an objective is maximised: by its kind, such as accuracy or throughput, or by declaration.

    Kinds are those of `nas_rlm.data.objective_kinds`. All others are minimised.

    Examples:
        >>> is_maximised("accuracy/cifar100"), is_maximised("latency/pixel3"), is_maximised("q", ["q"])
        (True, False, True)

    Args:
        objective: the name.
        maximised: objectives that are maximised although their kind is not.
    """
    return kind_of(objective).is_maximised or objective in maximised


def minimised(values: np.ndarray, objectives: Sequence[str], maximised: Collection[str] = ()) -> np.ndarray:
    """Return values with maximised objectives negated; applied twice it returns the input.

    Args:
        values: [..., K], in the objectives' own units.
        objectives: K names.
        maximised: objectives that are maximised although their kind is not.
    """
    return values * np.array([-1.0 if is_maximised(o, maximised) else 1.0 for o in objectives])


def is_non_dominated(costs: np.ndarray, keep_equal: bool = False) -> np.ndarray:
    """Whether each row of costs [N, K] is non-dominated under minimisation: bool [N].

    Of equal rows only the first is, or all with `keep_equal`.
    """
    if len(costs) == 0:
        return np.zeros(0, dtype=bool)
    return np.asarray(moocore.is_nondominated(costs, keep_weakly=keep_equal), dtype=bool)


def nondominated(
    values: np.ndarray, objectives: Sequence[str], maximised: Collection[str] = ()
) -> np.ndarray:
    """Whether each point is non-dominated, each objective in its direction; of equal points the first is.

    Examples:
        >>> nondominated(np.array([[90.0, 5.0], [91.0, 5.0], [80.0, 2.0]]), ["accuracy", "latency/pixel3"])
        array([False,  True,  True])

    Args:
        values: [N, K], in the objectives' own units.
        objectives: K names.
        maximised: objectives that are maximised although their kind is not.

    Returns:
        bool [N].
    """
    return is_non_dominated(minimised(values, objectives, maximised))


def pareto_order(costs: np.ndarray, count: int | None = None) -> np.ndarray:
    """Return the indices of points by non-dominated sorting, those of the first front first.

    The second front has the points that only those of the first dominate, and so on (Deb et al. 2002). Within
    a front, points come by the mean of their ranks in the objectives.

    Examples:
        >>> pareto_order(np.array([[3.0, 3.0], [1.0, 2.0], [2.0, 1.0], [2.0, 4.0]])).tolist()
        [1, 2, 3, 0]

    Args:
        costs: [N, K], all minimised.
        count: number of the first indices to return; None for all.

    Returns:
        int [N], or fewer.
    """
    ranks = np.array([np.searchsorted(np.sort(column), column) for column in costs.T]).mean(0)
    remaining, order = np.arange(len(costs)), np.empty(0, dtype=int)
    while len(remaining) and (count is None or len(order) < count):
        is_best = is_non_dominated(costs[remaining], keep_equal=True)
        front = remaining[is_best]
        order = np.concatenate([order, front[np.argsort(ranks[front], kind="stable")]])
        remaining = remaining[~is_best]
    return order[:count]


def hypervolume(
    values: np.ndarray,
    objectives: Sequence[str],
    reference: Sequence[float],
    maximised: Collection[str] = (),
) -> float:
    """Return the volume that a set of points dominates, up to a reference point.

    Examples:
        >>> hypervolume(np.array([[90.0, 30.0]]), ["accuracy", "latency/pixel3"], [80.0, 40.0])
        100.0

    Args:
        values: [N, K], in the objectives' own units; points beyond the reference add nothing.
        objectives: K names.
        reference: K values in the objectives' own units, see `nas_rlm.search.reference_points`.
        maximised: objectives that are maximised although their kind is not.
    """
    if len(values) == 0:
        return 0.0
    minimised_reference = minimised(np.array(reference, dtype=float), objectives, maximised)
    costs = minimised(np.asarray(values, dtype=float), objectives, maximised)
    return float(moocore.hypervolume(costs, ref=minimised_reference))
