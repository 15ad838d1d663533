"""Pareto fronts: which objectives grow, which points no other beats, and how much space a front covers.

Everything inside works on minimisation; `minimised` is the only place that knows signs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import moocore
import numpy as np


def is_maximised(objective: str, maximised: Collection[str] = ()) -> bool:
    """Accuracies are maximised, and what a user says; everything else is a cost.

    >>> is_maximised("accuracy/cifar100"), is_maximised("latency/pixel3")
    (True, False)
    """
    return objective.split("/")[0] == "accuracy" or objective in maximised


def minimised(values: np.ndarray, objectives: Sequence[str], maximised: Collection[str] = ()) -> np.ndarray:
    """Values with the sign at which smaller is better; applied twice it gives the values back.

    Args:
        values: [..., K], in the objectives' own units.
        objectives: K names.
        maximised: other objectives than accuracies that are maximised.
    """
    return values * np.array([-1.0 if is_maximised(o, maximised) else 1.0 for o in objectives])


def unbeaten(costs: np.ndarray) -> np.ndarray:
    """Which costs [N, K] no others beat, bool [N]; of equal ones only the first counts."""
    if len(costs) == 0:
        return np.zeros(0, dtype=bool)
    return np.asarray(moocore.is_nondominated(costs, keep_weakly=False), dtype=bool)


def nondominated(values: np.ndarray, objectives: Sequence[str]) -> np.ndarray:
    """Which points no other point beats; of points with equal values only the first counts.

    >>> nondominated(np.array([[90.0, 5.0], [91.0, 5.0], [80.0, 2.0]]), ["accuracy", "latency/pixel3"])
    array([False,  True,  True])

    Args:
        values: [N, K], in the objectives' own units.
        objectives: K names.

    Returns:
        bool [N].
    """
    return unbeaten(minimised(values, objectives))


def hypervolume(
    values: np.ndarray,
    objectives: Sequence[str],
    reference: Sequence[float],
    maximised: Collection[str] = (),
) -> float:
    """The volume between a set of points and the reference point.

    >>> hypervolume(np.array([[90.0, 30.0]]), ["accuracy", "latency/pixel3"], [80.0, 40.0])
    100.0

    Args:
        values: [N, K], in the objectives' own units; points that are worse than the reference add nothing.
        objectives: K names.
        reference: K values in the objectives' own units, see `nas_rlm.search.reference_points`.
        maximised: other objectives than accuracies that are maximised.
    """
    if len(values) == 0:
        return 0.0
    corner = minimised(np.array(reference, dtype=float), objectives, maximised)
    costs = minimised(np.asarray(values, dtype=float), objectives, maximised)
    return float(moocore.hypervolume(costs, ref=corner))
