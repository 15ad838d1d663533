"""Lessons: what measured networks of a space let expect of others, for a model to learn from text alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

import search_spaces
from nas_rlm.data.tables import Row
from nas_rlm.features import Counts, random_networks
from nas_rlm.panel import enough, expert


def lessons(rows: Sequence[Row], objectives: Sequence[str], networks: int, seed: int = 0) -> list[Row]:
    """Random networks with numbers that are likely, given what was measured of others of their space.

    Args:
        rows: measured architectures.
        objectives: which of their numbers to tell of others; not those with too few values.
        networks: so many of each space that has an adapter, but no more than half of it.
        seed: of the networks and the numbers.

    Returns:
        Rows that nobody measured; each number is drawn from what an expert holds possible.
    """
    rng = np.random.default_rng(seed)
    found = []
    for space, group in groupby(sorted(rows, key=lambda row: row.space), lambda row: row.space):
        if space not in search_spaces.names():
            continue
        known = list(group)
        told = enough(known, objectives)
        if not told:
            continue
        drawn = random_networks(space, networks, seed)
        counts = Counts.usual([row.targets for row in drawn])
        teacher = expert(counts, known, told)
        features = counts.features([row.targets for row in drawn])
        values = np.stack([teacher.believe(features, n).draw(rng) for n in teacher.objectives], 1)
        found += [
            Row(space, row.arch_str, dict(zip(teacher.objectives, of_row, strict=True)))
            for row, of_row in zip(drawn, values.tolist(), strict=True)
        ]
    return found
