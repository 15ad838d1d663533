"""How well predictions rank the programs of one problem, such as by memory.

`nas_rlm.plotting.problem_ranking` draws it. Source: figures 5 and 11 of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nas_rlm.metrics import kendall, spearman
from nas_rlm.search.pareto import is_non_dominated, pareto_order

MIN_PROGRAMS = 8  # programs of a problem that is ranked
MIN_JOINT_PROGRAMS = 3  # programs of a problem that is ranked by several objectives
GOOD_SPEARMAN = 0.5
TOP_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of a problem's programs


@dataclass(frozen=True)
class ProblemRankings:
    """Rankings within P problems; the selected program is the one with the smallest prediction.

    Args:
        correlations: Spearman correlation within each problem [P].
        num_programs: programs of each problem [P].
        top1: 1 where the selected program has the smallest measured value, else 0 [P].
        random_top1: probability that a random program has the smallest measured value [P].
        top_shares: for each of `TOP_SHARES`, how often the selected program is in that share of the best
            programs [11].
        random_top_shares: the same of a random program [11].
    """

    correlations: np.ndarray
    num_programs: np.ndarray
    top1: np.ndarray
    random_top1: np.ndarray
    top_shares: np.ndarray
    random_top_shares: np.ndarray

    @property
    def good_share(self) -> float:
        """The share of problems with a Spearman correlation above `GOOD_SPEARMAN`."""
        return float(np.mean(self.correlations > GOOD_SPEARMAN)) if len(self.correlations) else 0.0


def rank_within_problems(
    problems: Sequence[str], true: np.ndarray, predicted: np.ndarray, min_programs: int = MIN_PROGRAMS
) -> ProblemRankings:
    """Evaluate rankings within each problem that has enough programs with different values.

    Examples:
        >>> rank_within_problems(["p"] * 8, np.arange(8.0), np.arange(8.0)).correlations
        array([1.])

    Args:
        problems: the problem of each of N programs.
        true: measured values [N].
        predicted: predicted values [N].
        min_programs: smallest number of programs of a problem.
    """
    groups = _groups(problems, min_programs)
    ranked = [group for group in groups if np.ptp(true[group])]
    hits = [_top_hits(true[group], predicted[group]) for group in ranked]
    top1 = np.array([hit[0] for hit in hits]).reshape(len(ranked), 2)
    shares = np.array([hit[1:] for hit in hits]).reshape(len(ranked), len(TOP_SHARES), 2)
    mean_shares = shares.mean(0) if ranked else np.zeros((len(TOP_SHARES), 2))
    return ProblemRankings(
        correlations=np.array([spearman(predicted[group], true[group]) for group in ranked]),
        num_programs=np.array([len(group) for group in ranked]),
        top1=top1[:, 0],
        random_top1=top1[:, 1],
        top_shares=mean_shares[:, 0],
        random_top_shares=mean_shares[:, 1],
    )


@dataclass(frozen=True)
class JointRankings:
    """Rankings within P problems by several objectives, in the order of `nas_rlm.search.pareto.pareto_order`.

    Args:
        spearman: Spearman correlation of the predicted and the measured positions within each problem [P].
        kendall: Kendall's tau of them [P].
        top1: 1 where the first program is on the front of the measured values, else 0 [P].
        random_top1: probability that a random program is [P].
    """

    spearman: np.ndarray
    kendall: np.ndarray
    top1: np.ndarray
    random_top1: np.ndarray


def rank_jointly_within_problems(
    problems: Sequence[str],
    true: np.ndarray,
    predicted: np.ndarray,
    min_programs: int = MIN_JOINT_PROGRAMS,
) -> JointRankings:
    """Evaluate rankings by several objectives within each problem that has enough programs.

    Problems of which all programs are on the front of the measured values do not count.

    Examples:
        >>> values = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
        >>> rank_jointly_within_problems(["p"] * 3, values, 10 * values).spearman.round(6)
        array([1.])

    Args:
        problems: the problem of each of N programs.
        true: measured values [N, K], all minimised.
        predicted: predicted values [N, K].
        min_programs: smallest number of programs of a problem.
    """
    results = []
    for group in _groups(problems, min_programs):
        is_on_front = is_non_dominated(true[group], keep_equal=True)
        if is_on_front.all():
            continue
        order = pareto_order(predicted[group])
        positions = np.argsort(order), np.argsort(pareto_order(true[group]))
        first = is_on_front[order[0]]
        results.append((spearman(*positions), kendall(*positions), float(first), is_on_front.mean()))
    return JointRankings(*np.array(results).reshape(-1, 4).T)


def _groups(problems: Sequence[str], min_programs: int) -> list[list[int]]:
    """Return the indices of the programs of each problem that has enough."""
    groups: dict[str, list[int]] = {}
    for i, problem in enumerate(problems):
        groups.setdefault(problem, []).append(i)
    return [group for group in groups.values() if len(group) >= min_programs]


def _top_hits(true: np.ndarray, predicted: np.ndarray) -> list[tuple[float, float]]:
    """Whether the selected and a random program are the best, and in each of `TOP_SHARES`."""
    selected, ordered = true[np.argmin(predicted)], np.sort(true)
    hits = []
    for share in (0.0, *TOP_SHARES):
        worst = ordered[max(1, int(np.ceil(share * len(true)))) - 1]
        hits.append((float(selected <= worst), float(np.mean(true <= worst))))
    return hits
