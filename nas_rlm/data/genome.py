"""Genome features: the genome of an architecture as named numbers, beside its graph features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import search_spaces
from nas_rlm.data.tables import Row
from search_spaces import SearchSpace

Genome = dict[str, float]  # genome features of an architecture, empty where it is not known
GENE_PREFIX = "gene/"  # of the names of genome features


def genome_features(space: SearchSpace[Any], architecture: Any) -> dict[str, float]:
    """Return the genome of an architecture as named numbers: one-hot, and as the numbers of the values.

    Examples:
        >>> import search_spaces
        >>> space = search_spaces.get("nats_size")
        >>> features = genome_features(space, space.parse("8:64:8:8:8"))
        >>> features["gene/0=0"], features["gene/1=7"], features["gene/1"]
        (1.0, 1.0, 7.0)

    Args:
        space: the search space.
        architecture: an architecture of the space.

    Returns:
        1.0 as `gene/I=V` where gene I of several choices has the value V, without those that it does not
        have; and V as `gene/I` where it has more than two choices, since these are often in an order.
    """
    features = {}
    for i, (value, count) in enumerate(zip(space.encode(architecture), space.genes, strict=True)):
        if count > 1:
            features[f"{GENE_PREFIX}{i}={int(value)}"] = 1.0
        if count > 2:
            features[f"{GENE_PREFIX}{i}"] = float(value)
    return features


def genome_features_of_rows(rows: Sequence[Row]) -> list[Genome]:
    """Return the genome features of each row, which are empty where the architecture is not known.

    It is known if the space is registered, and reads the row's architecture.

    Args:
        rows: rows of any spaces.
    """
    known = {name: search_spaces.get(name) for name in {row.space for row in rows} & {*search_spaces.names()}}

    def features(row: Row) -> Genome:
        try:
            return genome_features(known[row.space], known[row.space].parse(row.arch_str))
        except (KeyError, ValueError):
            return {}

    return [features(row) for row in rows]
