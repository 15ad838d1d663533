"""Numbers that can be counted in any network: exact, free and without end, for a model to learn reading from.

A model that has learnt to count what lies on the paths of a network needs few trained networks to learn what
makes them accurate, and one that knows the costs of each kind of operator few measured ones to learn a device
(section 4.3 of the paper pretrains on FLOPs alone).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from tqdm import tqdm

import search_spaces
from nas_rlm.data.tables import Row, Table, remembered
from nas_rlm.graph.cache import undisturbed
from nas_rlm.graph.costs import costs_of
from nas_rlm.graph.paths import on_paths
from nas_rlm.text import from_architectures
from nas_rlm.text.parser import operators
from search_spaces import SearchSpace

VERSION = 5  # raised when the metrics change, so that remembered ones are counted again
DRAWS = 100  # at random for each network that a table is to have, at most


def metrics(text: str, chains: int = 0) -> dict[str, float]:
    """What can be counted in a network.

    >>> import search_spaces
    >>> from nas_rlm.text import from_architecture
    >>> space = search_spaces.get("nasbench101")
    >>> cell = space.parse('{"adjacency": "010001000", "ops": ["input", "conv3x3-bn-relu", "output"]}')
    >>> metrics(from_architecture(space, cell))["convs/mean"]
    10.0

    Operators that a product with zero cuts off from the input or the output count for costs alone.

    Args:
        text: of the network, as `from_onnx` gives it.
        chains: count chains of up to so many operators as well, and layers by their kernel and stage.

    Returns:
        `flops` (multiply-accumulates), `params`, `activations` (values that are computed for one image); for
        each kind of operator `KIND/macs`, `KIND/params`, `KIND/activations`, `KIND/sides` (of its outputs),
        and the sums of the square roots and of the binary logarithms of each operator's
        multiply-accumulates, `KIND/roots` and `KIND/logs`, since the time that an operator takes grows more
        slowly than its work; for each kind, and for `layers` of any kind, its number `KIND`, and over the
        paths from input to output `KIND/mean`, `KIND/std`, `KIND/least` and `KIND/most`; `paths`, the
        logarithm to base 2 of their number; and `KIND/KIND`, how often one is followed by the other with only
        pointwise operators between. A network without a path has none of the numbers over paths. A chain's
        name has its operators, joins (concatenations) and sums among them, as in `convs-joins-pools`: each
        operator counts the chains that end in it, as many as it has inputs. A layer's name has its operator,
        its kernel and how often the sides were halved before it, as in `Conv3x3@1:macs`.
    """
    network = operators(text)
    costs = costs_of(network)
    found = costs.totals()
    if chains:
        found |= costs.by_layer()
    return found | on_paths(network, chains)


def different(space: SearchSpace[Any], networks: int, seed: int = 0) -> dict[str, Any]:
    """So many random architectures of a space, by the text of their notation."""
    rng, drawn = np.random.default_rng(seed), {}
    for _ in range(DRAWS * networks):
        architecture = space.sample(rng)
        drawn[str(architecture)] = architecture
        if len(drawn) == networks:
            return drawn
    raise ValueError(f"{space.name} gave {len(drawn):,} different networks, expected {networks:,}")


def table(space_name: str, networks: int, seed: int = 0, chains: int = 0) -> Table:
    """Random networks of a space with their metrics, less those that are the same in all of them.

    Long tables are remembered on disk.

    Args:
        space_name: of the space.
        networks: different ones, by the text of their notation.
        seed: of the draw.
        chains: as for `metrics`.
    """
    space = search_spaces.get(space_name)
    if space.size and networks > space.size // 2:
        raise ValueError(f"{networks:,} networks of {space_name}: expected at most half of {space.size:,}")
    drawn = different(space, networks, seed)
    known = remembered(
        "count",
        (VERSION, chains, list(drawn)),
        networks,
        lambda: [json.dumps(found) for found in counted(from_architectures(space, drawn.values()), chains)],
    )
    all_found: list[dict[str, float]] = [json.loads(line) for line in known]
    values: dict[str, set[float]] = {}
    for found in all_found:
        for name, value in found.items():
            values.setdefault(name, set()).add(value)
    rows = [
        Row(space_name, a, {k: v for k, v in found.items() if len(values[k]) > 1})
        for a, found in zip(drawn, all_found, strict=True)
    ]
    return Table(space_name, rows)


def counted(texts: Iterable[str], chains: int = 0) -> list[dict[str, float]]:
    """The metrics of many texts; a bar is shown where it takes long."""
    with undisturbed():
        return [metrics(text, chains) for text in tqdm(texts, "metrics", unit="net", delay=2)]
