"""Does the search find what is truly good? Its fronts, looked up in a table of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas_rlm.data import Table
from nas_rlm.pareto import hypervolume
from nas_rlm.search import Predictor, Settings, search
from search_spaces import SearchSpace

PAIRS = (("accuracy", "latency/pixel3"), ("accuracy", "latency/eyeriss"))


@dataclass(frozen=True)
class Judgement:
    """What one way of searching found, in true values.

    Args:
        objectives: what was searched for.
        method: `nsga2`; `random`: the model's front of a random sample; `measured`: that sample itself, as if
            every one of its architectures had been trained and timed.
        evaluations: architectures that were looked at.
        chosen: architectures that the method would hand over.
        known: how many of them the table has; the others count for nothing.
        share: hypervolume of their true values, relative to that of the whole table.
    """

    objectives: tuple[str, ...]
    method: str
    evaluations: int
    chosen: int
    known: int
    share: float


def judge_search(
    space: SearchSpace[Any],
    predictor: Predictor,
    table: Table,
    pairs: Sequence[tuple[str, ...]] = PAIRS,
    population: int = 50,
    generations: int = 20,
    seed: int = 0,
    progress: bool = False,
) -> list[Judgement]:
    """Search for each set of objectives, beside random search with as many evaluations.

    Args:
        space: of the table's architectures.
        predictor: the model; the table's true values are used for the judgement alone.
        table: measurements.
        pairs: sets of objectives, each with a published reference point.
        population: architectures a generation.
        generations: rounds of evaluation.
        seed: of the searches.
        progress: show bars.
    """
    found = []
    for objectives in pairs:
        true = _true_values(table, objectives)
        for method in ("nsga2", "random"):
            settings = Settings(space.name, objectives, (), method, population, generations, seed)
            result = search(space, predictor, settings, progress=progress)
            names = result.architectures
            found.append(_judge(true, objectives, method, len(names), [names[i] for i in result.front]))
        found.append(_judge(true, objectives, "measured", len(names), names))
    return found


def _judge(
    true: dict[str, list[float]],
    objectives: tuple[str, ...],
    method: str,
    evaluations: int,
    chosen: Sequence[str],
) -> Judgement:
    known = np.array([true[name] for name in chosen if name in true]).reshape(-1, len(objectives))
    share = hypervolume(known, objectives) / hypervolume(np.array(list(true.values())), objectives)
    return Judgement(objectives, method, evaluations, len(chosen), len(known), share)


def _true_values(table: Table, objectives: Sequence[str]) -> dict[str, list[float]]:
    rows = [r for r in table.rows if all(o in r.targets for o in objectives)]
    if not rows:
        raise ValueError(f"no row of {table.name} has both {' and '.join(objectives)}")
    return {r.arch_str: [r.targets[o] for o in objectives] for r in rows}
