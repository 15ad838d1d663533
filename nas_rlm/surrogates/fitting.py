"""Panels of experts: who learns from a space's rows, and who advises of other spaces and other devices."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

import search_spaces
from nas_rlm.data import synthetic, tables
from nas_rlm.data.tables import Row, Table
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.features import (
    ADVICE,
    CHAINS,
    COSTS,
    Counts,
    advised,
    usual_counts,
    usual_networks,
)
from nas_rlm.surrogates.graph_surrogate import (
    ADVISED,
    ALL,
    BESIDE,
    FEW,
    LATENCY,
    MOST_ACCURATE,
    Expert,
    Knowing,
    knowing,
    on_networks,
)
from nas_rlm.surrogates.ngrams import Words
from nas_rlm.surrogates.predictive import LEAST, Scale
from nas_rlm.surrogates.transfer import Adviser

MOST = 4000  # values of an objective that a process is made of, at most; at least `LEAST`
RIGHT = 0.8  # correlation of advice with the truth in spaces that are alike
DEVICES = 8  # of those are asked, at most
# Of few latencies: the mean of these views errs less than each.
VIEWS = ((ADVICE,), (COSTS, ADVICE), ALL)


def panel_of(
    rows: Sequence[Row],
    objectives: Sequence[str],
    others: Mapping[str, Sequence[Knowing]] | None = None,
    by_group: bool = False,
) -> dict[str, list[Knowing]]:
    """Experts for each space of which rows tell enough, on networks and on programs.

    Args:
        rows: measured networks and programs, of any spaces.
        objectives: which of their numbers to tell of others.
        others: of each space the experts that there are, see `experts_of`.
        by_group: programs for problems that are not among these will be asked about.

    Raises:
        ValueError: networks and programs have one space.
    """
    found: dict[str, list[Knowing]] = {
        space: [*known] for space, known in experts_of(rows, objectives, on_networks(others or {})).items()
    }
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        table = Table(space, [row for row in group if row.is_program])
        if space and (told := enough(table.rows, objectives)):
            if space in found:
                raise ValueError(
                    f"{space!r} has networks and programs: expected another space for the programs"
                )
            values = {name: table.column(name) for name in told}
            groups = [row.group for row in table.rows] if by_group else ()
            found[space] = [Words.fitted(tables.texts(table.rows), values, groups)]
    return found


def experts_of(
    rows: Sequence[Row], objectives: Sequence[str], others: Mapping[str, Sequence[Expert]] | None = None
) -> dict[str, list[Expert]]:
    """Experts for each space of networks of which rows tell enough.

    Args:
        rows: measured networks, of any spaces.
        objectives: which of their numbers to tell of others.
        others: of each space the experts that there are; they advise of accuracy in other spaces, and, where
            few latencies are known, of the same device in other spaces and of other devices in the same one.
    """
    found: dict[str, list[Expert]] = {}
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        known = [row for row in group if not row.is_program]
        told = enough(known, objectives)
        if space and told:
            has_adapter = space in search_spaces.names()
            counts = usual_counts(space) if has_adapter else Counts.usual(usual_networks(space, known))
            few = {
                name: devices(space, known, name, others) for name in told if others and _is_few(known, name)
            }
            rest = [name for name in told if not few.get(name)]
            if ADVISED in told and others:
                counts = replace(counts, advisers=advisers(space, known, others))
            found[space] = [expert(counts, known, rest)] if rest else []
            found[space] += [
                expert(replace(counts, advisers=advice), known, [name], VIEWS)
                for name, advice in few.items()
                if advice
            ]
    return found


def _is_few(rows: Sequence[Row], objective: str) -> bool:
    """Whether rows have so few values of a latency that other devices are asked."""
    return objective.startswith(LATENCY) and sum(row.measured(objective) for row in rows) <= FEW


def advisers(
    space: str, rows: Sequence[Row], others: Mapping[str, Sequence[Expert]], objective: str = ADVISED
) -> tuple[Adviser, ...]:
    """Who can tell of a space from what is known of other spaces.

    Args:
        space: that is told of.
        rows: of it, where nobody can draw from it.
        others: experts of each space.
        objective: that is told.
    """
    able = _able(space, others, objective)
    if not able:
        return ()
    usual = usual_networks(space, rows)
    found = [one.adviser(objective, usual) for one in able]
    return tuple(one for one in found if one is not None)


def devices(
    space: str, rows: Sequence[Row], objective: str, others: Mapping[str, Sequence[Expert]]
) -> tuple[Adviser, ...]:
    """Who can tell of a latency from those of other devices in its space, and of its device in other spaces.

    Those are asked on whose devices the measured networks are slow and fast as on the new one.

    Args:
        space: that is told of.
        rows: of it, which were measured.
        objective: the latency.
        others: experts of each space.
    """
    found = list(advisers(space, rows, others, objective))
    for one in others.get(space, ()):
        names = [name for name in one.objectives if name.startswith(LATENCY) and name != objective]
        if names and not one.counts.advisers:  # who asks others knows little
            usual = one.counts.features(usual_networks(space, rows))
            found += [a for name in names if (a := one.neighbour(name, usual)) is not None]
    known = Table("", [row for row in rows if row.measured(objective)])
    counted = [*synthetic.counted(tables.texts(known.rows), CHAINS)]
    true = known.column(objective)
    alike = [abs(spearman(told.numpy(), true)) for told in advised(found, counted)]
    best = sorted(range(len(found)), key=lambda k: -alike[k])[:DEVICES]
    return tuple(found[k] for k in sorted(best))


def _able(space: str, others: Mapping[str, Sequence[Expert]], objective: str) -> list[Expert]:
    """Of each other space the expert on a number."""
    found = [knowing(experts).get(objective) for other, experts in others.items() if other != space]
    return [one for one in found if one is not None]


def stranger(space: str, others: Mapping[str, Sequence[Expert]], objective: str = ADVISED) -> Expert:
    """An expert on a number of a space without labels: it holds what others advise, on average.

    Its numbers are those of the other spaces, so that their order alone says something.

    Args:
        space: that one can draw from.
        others: of each space the experts that there are.
        objective: accuracy, or the latency on one device.

    Raises:
        ValueError: none of them can tell of this space.
    """
    advice = advisers(space, [], others, objective)
    if not advice:
        raise ValueError(
            f"no expert on {objective} of another space can tell of {space}: expected one at least"
        )
    usual = usual_networks(space)
    counts = Counts((), np.empty(0), np.empty(0), advice)
    features = counts.features(usual)
    told = (features.mean(1) / features.mean(1).std()).numpy()
    # With doubt, intervals are as wide as they should.
    doubt = np.random.default_rng(0).standard_normal(len(told))
    scores = RIGHT * told + (1 - RIGHT**2) ** 0.5 * doubt
    known = [one.scales[objective].known for one in _able(space, others, objective)]
    values = Scale(np.concatenate(known), MOST_ACCURATE if objective == ADVISED else math.inf).values(scores)
    found = Expert.fitted(counts, features, values[:, None], [objective])
    return replace(found, beside={objective: BESIDE})


def enough(rows: Sequence[Row], objectives: Sequence[str]) -> list[str]:
    """Of which objectives rows have so many values that an expert can tell of others."""
    return [name for name in objectives if sum(row.measured(name) for row in rows) >= LEAST]


def expert(
    counts: Counts,
    rows: Sequence[Row],
    objectives: Sequence[str],
    views: Sequence[Collection[int]] = (ALL,),
) -> Expert:
    """An expert that learns from rows.

    Args:
        counts: what its features are.
        rows: measured networks of one space; of each number, `MOST` of those that have it are learnt from.
        objectives: K names, of numbers to tell of others.
        views: see `Expert.fitted`.
    """
    drawn = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    measured = [[row for row in drawn if row.measured(name)][:MOST] for name in objectives]
    wanted = {id(row) for part in measured for row in part}
    some = Table("", [row for row in drawn if id(row) in wanted])
    values = np.stack([some.column(name) for name in objectives], 1)
    return Expert.fitted(counts, counts.read(tables.texts(some.rows)), values, objectives, views)
