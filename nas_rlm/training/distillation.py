"""Lessons: what measured networks, or a model, let expect of others, for a model to learn from text alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

import numpy as np

import search_spaces
from nas_rlm.data import synthetic
from nas_rlm.data.tables import COUNTED, Row, Table, remembered
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.features import Counts, random_networks
from nas_rlm.surrogates.fitting import enough, expert


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


def taught(teacher: Ensemble, space_name: str, networks: int, seed: int = 0) -> Table:
    """Random networks of a space with what a model tells of them: the medians of all that it has seen there.

    What it tells of many networks is remembered on disk. Source: Hinton et al. 2015, Distilling the Knowledge
    in a Neural Network.

    Args:
        teacher: the model.
        space_name: of the space.
        networks: so many.
        seed: of the networks.

    Raises:
        ValueError: the model has seen nothing of the space.
    """
    seen = teacher.trained_on[space_name].objectives if space_name in teacher.trained_on else ()
    objectives = [name for name in teacher.objectives if name in seen and name not in COUNTED]
    if not objectives:
        raise ValueError(f"the teacher has seen nothing of {space_name}: expected a space that it knows")
    drawn = synthetic.different(search_spaces.get(space_name), networks, seed)
    lines = remembered(
        "tell",
        (teacher.fingerprint, objectives, list(drawn)),
        networks,
        lambda: [
            json.dumps(v)
            for v in teacher.predict(space_name, list(drawn), objectives, progress=True).tolist()
        ],
    )
    pairs = zip(drawn, map(json.loads, lines), strict=True)
    rows = [Row(space_name, name, dict(zip(objectives, values, strict=True))) for name, values in pairs]
    return Table(space_name, rows)
