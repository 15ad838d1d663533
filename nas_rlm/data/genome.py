"""Genome features: the one-hot genome of an architecture as named numbers, beside its graph features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import search_spaces
from nas_rlm.data.tables import Row
from search_spaces import SearchSpace

GENE_PREFIX = "gene/"  # of the names of genome features


def genome_features(space: SearchSpace[Any], architecture: Any) -> dict[str, float]:
    """Return the one-hot genome of an architecture: 1 for the value of each gene that has several values.

    Examples:
        >>> import search_spaces
        >>> space = search_spaces.get("nats_size")
        >>> list(genome_features(space, space.parse("8:8:64:8:16")))
        ['gene/0=0', 'gene/1=0', 'gene/2=7', 'gene/3=0', 'gene/4=1']

    Args:
        space: the search space.
        architecture: an architecture of the space.

    Returns:
        1.0 for each `gene/I=V` where gene I has the value V; values that a gene does not have are left out.
    """
    genome = space.encode(architecture)
    pairs = zip(genome, space.genes, strict=True)
    return {f"{GENE_PREFIX}{i}={int(value)}": 1.0 for i, (value, count) in enumerate(pairs) if count > 1}


def genome_features_of_rows(rows: Sequence[Row]) -> list[dict[str, float]]:
    """Return the genome features of each row, which are empty where its space is not registered.

    Args:
        rows: rows of any spaces.
    """
    known = {name: search_spaces.get(name) for name in {row.space for row in rows} & {*search_spaces.names()}}
    found = []
    for row in rows:
        space = known.get(row.space)
        found.append(genome_features(space, space.parse(row.arch_str)) if space and row.arch_str else {})
    return found
