"""Graph features of networks: exact numbers that are computed from the text, without any training.

A surrogate that uses the features of a network's paths needs few trained networks to predict accuracy, and
one that uses the cost of each kind of operator needs few measured networks to predict latency. Section 4.3 of
the paper pretrains on FLOPs alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.data.disk_cache import MIN_CACHED_ITEMS, cached_strings
from nas_rlm.data.tables import Row, Table
from nas_rlm.graph.cache import gc_paused
from nas_rlm.graph.costs import compute_costs
from nas_rlm.graph.executed_layers import executed_layers
from nas_rlm.graph.paths import path_features
from nas_rlm.text import from_architectures
from nas_rlm.text.declarations import input_batch
from nas_rlm.text.parser import parse_network
from nas_rlm.utils.progress import progress_bar
from search_spaces import SearchSpace
from search_spaces.loading import fingerprint
from search_spaces.wording import counted

CACHE_VERSION = 7  # raise it when the graph features change
MIN_CACHED_NETWORKS = 200  # random ones of a built-in space; fewer are quick to compute
MAX_VAIN_DRAWS = 10  # in a row, for each architecture that was drawn before


def graph_features(
    text: str, max_chain_length: int = 0, with_layers: bool = False, batch: int | None = None
) -> dict[str, float]:
    """Return the graph features of a network: the value of each feature by its name.

    Examples:
        >>> import search_spaces
        >>> from nas_rlm.text import from_architecture
        >>> space = search_spaces.get("nasbench101")
        >>> cell = space.parse('{"adjacency": "010001000", "ops": ["input", "conv3x3-bn-relu", "output"]}')
        >>> graph_features(from_architecture(space, cell))["convs/mean"]
        10.0

    Operators that a product with zero cuts off from the input or the output are part of the costs, but not of
    the paths. A network without a path has no path features.

    Args:
        text: text of the network, as `from_onnx` returns it.
        max_chain_length: count chains of up to this many operators, and the costs of each layer type as well;
            0 for neither.
        with_layers: add the sums over executed layers, see `nas_rlm.graph.executed_layers`.
        batch: number of inputs for which the costs are; by default as many as the network reads at once.

    Returns:
        Costs of the network: `flops` (multiply-accumulates), `params`, and `activations`, the number of
        values that are computed for all inputs of the batch.

        For each kind of operator: its sums `KIND/macs`, `KIND/params`, `KIND/activations`, `KIND/sides` (of
        its outputs), `KIND/roots` and `KIND/logs`. The last two are sums of the square roots and binary
        logarithms of each operator's multiply-accumulates, because latency grows more slowly than work.

        For each kind, and for `layers` of any kind: the number of operators `KIND`, and statistics of their
        number over the paths from input to output, `KIND/mean`, `KIND/std`, `KIND/least` (minimum) and
        `KIND/most` (maximum); `paths`, the binary logarithm of the number of paths; and `KIND/KIND`, the
        number of times that one kind follows the other with only pointwise functions between them.

        For each chain: the number of its occurrences. The name lists its operators, joins (concatenations)
        and sums, as in `convs-joins-pools`.

        For each layer type: sums of its costs. The name has the operator, the kernel, and the number of
        times that the image was halved before it, as in `Conv3x3@1:macs`.

    Raises:
        ValueError: the text is not that of a network.
    """
    network = parse_network(text)
    own_batch = input_batch(text) if batch else None
    costs = compute_costs(network, batch / own_batch if batch and own_batch else 1.0)
    features = costs.totals()
    if max_chain_length:
        features |= costs.layer_totals()
    if with_layers:
        features |= executed_layers(network)
    return features | path_features(network, max_chain_length)


def graph_features_of_texts(
    texts: Iterable[str], max_chain_length: int = 0, with_layers: bool = False, batch: int | None = None
) -> list[dict[str, float]]:
    """Return the graph features of each text, with a progress bar if it takes long.

    Args:
        texts: texts of networks, see `nas_rlm.text`.
        max_chain_length: see `graph_features`.
        with_layers: see `graph_features`.
        batch: see `graph_features`.
    """
    with gc_paused():
        bar = progress_bar(texts, "graph features", unit="net", delay=2)
        return [graph_features(text, max_chain_length, with_layers, batch) for text in bar]


def distinct_architectures(space: SearchSpace[Any], count: int, seed: int = 0) -> dict[str, Any]:
    """Draw random architectures of a space that differ in their notation.

    Args:
        space: the search space.
        count: number of architectures.
        seed: seed of the draw.

    Returns:
        The architectures by notation; fewer where many draws in a row give no new one, so that the space
        seems to have no more.
    """
    rng = np.random.default_rng(seed)
    architectures: dict[str, Any] = {}
    num_vain = 0
    while len(architectures) < count and num_vain < MAX_VAIN_DRAWS * (len(architectures) + 1):
        architecture = space.sample(rng)
        num_vain = num_vain + 1 if str(architecture) in architectures else 0
        architectures[str(architecture)] = architecture
    return architectures


def random_graph_features(
    space: SearchSpace[Any],
    count: int,
    seed: int = 0,
    max_chain_length: int = 0,
    with_layers: bool = False,
) -> dict[str, dict[str, float]]:
    """Return the graph features of random networks of a space, by notation.

    Those of many networks are cached on disk.

    Args:
        space: the search space.
        count: number of networks that differ in their notation, or all of a space that has fewer.
        seed: seed of the draw.
        max_chain_length: see `graph_features`.
        with_layers: see `graph_features`.
    """
    architectures = distinct_architectures(space, count, seed)

    def compute() -> list[str]:
        texts = from_architectures(space, architectures.values())
        found = graph_features_of_texts(texts, max_chain_length, with_layers)
        return [json.dumps(features) for features in found]

    source = fingerprint(space)
    own = [*([source] if source else []), *(["layers"] if with_layers else [])]
    cache_key = CACHE_VERSION, max_chain_length, list(architectures), *own
    min_count = MIN_CACHED_ITEMS if source else MIN_CACHED_NETWORKS  # a user's own space may change unseen
    # "count" is the kind of existing caches.
    lines = cached_strings("count", cache_key, len(architectures), compute, min_count)
    return dict(zip(architectures, map(json.loads, lines), strict=True))


def random_table(space_name: str, count: int, seed: int = 0, max_chain_length: int = 0) -> Table:
    """Return random networks of a space with their graph features as targets.

    Features that are equal in all networks are left out. Long tables are cached on disk.

    Args:
        space_name: name of the search space, or the location of a user's own.
        count: number of networks that differ in their notation, at most half of the space; all of a space
            of unknown size that has fewer.
        seed: seed of the draw.
        max_chain_length: see `graph_features`.

    Raises:
        ValueError: the space is known to have too few architectures.
    """
    space = search_spaces.get(space_name)
    if space.size and count > space.size // 2:
        raise ValueError(
            f"{counted(count, 'network')} of {space_name}: expected at most half of {space.size:,}"
        )
    by_notation = random_graph_features(space, count, seed, max_chain_length)
    values: dict[str, set[float]] = {}
    for features in by_notation.values():
        for name, value in features.items():
            values.setdefault(name, set()).add(value)
    rows = [
        Row(space.name, notation, {k: v for k, v in features.items() if len(values[k]) > 1})
        for notation, features in by_notation.items()
    ]
    return Table(space.name, rows)
