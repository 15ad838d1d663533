"""Screening of given candidates by their genes, since predictions of all of them take long."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from nas_rlm.search.pareto import pareto_order
from nas_rlm.search.table_space import TableSpace
from nas_rlm.surrogates.predictive import normal_scores

RIDGE = 1.0  # penalty of the regression on indicators of genes


def screen(
    space: TableSpace,
    names: Sequence[str],
    costs: np.ndarray,
    violation: np.ndarray,
    count: int,
    excluded: Collection[str] = (),
) -> list[str]:
    """Return further candidates that are promising by a linear regression of predicted costs on genes.

    Examples:
        >>> import search_spaces
        >>> cells = search_spaces.get("nats_size")
        >>> space = TableSpace(cells, [f"{w}:{w}:8:8:8" for w in range(8, 65, 8)])
        >>> known = ["8:8:8:8:8", "16:16:8:8:8", "24:24:8:8:8"]
        >>> screen(space, known, np.array([[3.0], [1.0], [2.0]]), np.zeros(3), 1)[0] in known
        False

    Args:
        space: the candidates.
        names: N of them.
        costs: their predicted costs, float64 [N, K].
        violation: by how much they violate constraints, float64 [N].
        count: number of candidates to return; fewer where there are no others.
        excluded: further ones that are not returned.
    """
    left_out = {*names, *excluded}
    others = np.array([i for i, name in enumerate(space.names) if name not in left_out], dtype=int)
    if not len(others):
        return []
    scores = np.column_stack([_scores(column, violation) for column in costs.T])
    indicators = _indicators(space.genomes)
    known = indicators[[space.positions[name] for name in names]]
    mean = known.mean(0)
    centred = known - mean
    gram = centred.T @ centred + RIDGE * np.eye(len(mean))
    weights = np.linalg.solve(gram, centred.T @ scores)
    return [space.names[others[i]] for i in pareto_order((indicators[others] - mean) @ weights, count)]


def _scores(costs: np.ndarray, violation: np.ndarray) -> np.ndarray:
    """Return normal scores of costs, of which those that violate constraints are the worst."""
    feasible = violation <= 0
    worst = costs[feasible].max(initial=0.0)
    return normal_scores(np.where(feasible, costs, worst + violation))


def _indicators(genomes: np.ndarray) -> np.ndarray:
    """Return an indicator of each value of each gene that some genomes have and others do not, [N, F]."""
    values = [np.unique(column) for column in genomes.T]
    columns = [genomes[:, i] == value for i, found in enumerate(values) if len(found) > 1 for value in found]
    return np.column_stack(columns).astype(float) if columns else np.zeros((len(genomes), 1))
