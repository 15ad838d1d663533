"""Graph features of networks as inputs of Gaussian processes: costs, paths, operator chains, costs of layers.

Raw features are the named numbers that `nas_rlm.data.synthetic.graph_features` computes, and the genome where
the architecture is known, see `nas_rlm.data.genome`. `GraphFeatures` selects and standardises them. They are
in groups, in this order: costs; statistics over paths; operator chains, a group for each length; the genome;
sums of the costs of layers; and transfer, the predictions of source surrogates, see
`nas_rlm.surrogates.graphs.transfer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

import search_spaces
from nas_rlm.data import synthetic
from nas_rlm.data.genome import GENE_PREFIX, Genome, genome_features_of_rows
from nas_rlm.data.objective_kinds import is_of_training
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.tables import EXACT_OBJECTIVES, Row, Table
from nas_rlm.graph.costs import COST_NAMES
from nas_rlm.graph.paths import MERGE_OPERATORS
from nas_rlm.text.declarations import has_other_batch
from search_spaces import SearchSpace

NUM_NETWORKS = 1000  # random networks that features are standardised on
NUM_RANDOM_NETWORKS = 200  # of a space without labels, or with few
MAX_CHAIN_LENGTH = 4  # operators
MIN_SHARE = 0.02  # of networks whose value must differ from the median, else a feature is left out
NO_PATH_VALUE = -0.5  # of a path feature of a network without a path; 0 means that a path lacks the operator
MIN_RELATIVE_STD = 1e-9  # below it a feature counts as constant
# Groups of features. Operator chains of 2 to MAX_CHAIN_LENGTH operators are between PATHS and GENOME. SUMS
# are costs of layers, which add up; TRANSFER are predictions of source surrogates.
COSTS, PATHS = 0, 1
GENOME, SUMS, TRANSFER = MAX_CHAIN_LENGTH + 1, MAX_CHAIN_LENGTH + 2, MAX_CHAIN_LENGTH + 3


class FeatureSource(Protocol):
    """A source surrogate, whose predictions are features; see `nas_rlm.surrogates.graphs.transfer`."""

    @property
    def graph_features(self) -> GraphFeatures:
        """The features that the source surrogate uses."""

    def predict(self, features: Tensor) -> Tensor:
        """Return predictions for N networks from their features [N, D], float64 [N]."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""


@dataclass(frozen=True)
class GraphFeatures:
    """A selection of raw features with their standardisation, and predictions of source surrogates.

    Args:
        names: names of D raw features, ordered by group.
        mean: means of the raw features (of their logarithms, except in the group SUMS), float64 [D].
        std: standard deviations likewise, float64 [D].
        sources: S surrogates of other spaces or devices; their predictions are the last S features.
        given: names of further features in the group TRANSFER, which come after those of `transform`, see
            `nas_rlm.surrogates.conditional`.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    std: np.ndarray
    sources: tuple[FeatureSource, ...] = ()
    given: tuple[str, ...] = ()

    @classmethod
    def fit(cls, raw_features: Sequence[Mapping[str, float]]) -> GraphFeatures:
        """Select features that vary, without those that correlate fully, and fit their standardisation.

        Args:
            raw_features: raw features of N networks by name.
        """
        all_names = dict.fromkeys(name for network_features in raw_features for name in network_features)
        names = tuple(sorted(all_names, key=_group))
        values = _to_array(raw_features, names)
        median = np.median(values, 0)
        differs = np.abs(values - median) > MIN_RELATIVE_STD * np.maximum(1, np.abs(median))
        selected = np.flatnonzero(is_varying(values) & (differs.mean(0) >= MIN_SHARE))
        correlations = np.corrcoef(values[:, selected], rowvar=False).reshape(len(selected), len(selected))
        is_equivalent = np.abs(correlations) > 1 - MIN_RELATIVE_STD
        selected = selected[~np.triu(is_equivalent, 1).any(0)]
        values = values[:, selected]
        return cls(tuple(names[k] for k in selected), values.mean(0), values.std(0))

    @classmethod
    def shared_with(cls, raw_features: Sequence[Mapping[str, float]], names: Sequence[str]) -> GraphFeatures:
        """Select and standardise features of another space that this space shares: costs and paths that vary.

        Args:
            raw_features: raw features of N networks of this space by name.
            names: names of the other space's features.
        """
        candidates = [name for name in names if _group(name) <= PATHS]
        if not raw_features or not candidates:
            return cls((), np.empty(0), np.empty(0))
        values = _to_array(raw_features, candidates)
        varies = is_varying(values)
        values = values[:, varies]
        selected = tuple(name for name, is_selected in zip(candidates, varies, strict=True) if is_selected)
        return cls(selected, values.mean(0), values.std(0))

    def with_genome(self, genomes: Sequence[Genome]) -> GraphFeatures:
        """Return these features with those of the genome that vary.

        Args:
            genomes: genome features of N networks, see `nas_rlm.data.genome`.
        """
        genome = GraphFeatures.fit(genomes)
        names = (*self.names, *genome.names)
        order = sorted(range(len(names)), key=lambda k: _group(names[k]))
        mean, std = (
            np.concatenate(pair)[order] for pair in ((self.mean, genome.mean), (self.std, genome.std))
        )
        return replace(self, names=tuple(names[k] for k in order), mean=mean, std=std)

    @cached_property
    def group_sizes(self) -> list[int]:
        """Number of features in each group: costs, paths, chains of each length, genome, sums, transfer."""
        own = [sum(_group(name) == group for name in self.names) for group in range(SUMS + 1)]
        return [*own, len(self.sources) + len(self.given)]

    @property
    def num_linear(self) -> int:
        """Number of features for the linear kernel, the last ones: sums and transfer."""
        return sum(self.group_sizes[SUMS:])

    def transform(self, raw_features: Sequence[Mapping[str, float]]) -> Tensor:
        """Return the standardised features of N networks and the predictions of the sources.

        Args:
            raw_features: raw features of N networks by name.

        Returns:
            float64 [N, D + S]; features of the genome are NaN where the genome is unknown.
        """
        if not raw_features:
            return torch.empty(0, sum(self.group_sizes), dtype=torch.float64)
        own = torch.from_numpy((_to_array(raw_features, self.names) - self.mean) / self.std)
        predictions = source_predictions(self.sources, raw_features)
        return torch.cat([own, *(predicted[:, None] for predicted in predictions)], 1)

    def of_rows(self, rows: Sequence[Row], batch: int | None = None) -> Tensor:
        """Return the features of N rows of networks, see `transform`.

        Args:
            rows: N rows.
            batch: see `nas_rlm.data.synthetic.graph_features`.

        Returns:
            float64 [N, D + S].
        """
        return self.transform(raw_features_of_rows(rows, batch))


def raw_features_of_rows(rows: Sequence[Row], batch: int | None = None) -> list[Mapping[str, float]]:
    """Return the raw features of rows of networks, with the genome where the architecture is known.

    Args:
        rows: the rows.
        batch: see `nas_rlm.data.synthetic.graph_features`.
    """
    graphs = synthetic.graph_features_of_texts(texts_of_rows(rows), MAX_CHAIN_LENGTH, batch=batch)
    return [{**graph, **genome} for graph, genome in zip(graphs, genome_features_of_rows(rows), strict=True)]


def source_predictions(
    sources: Sequence[FeatureSource], raw_features: Sequence[Mapping[str, float]]
) -> Iterator[Tensor]:
    """Yield the predictions of each source for N networks, float64 [N].

    Features are computed once for sources that use the same ones.
    """
    computed: dict[tuple[tuple[str, ...], bytes, bytes], Tensor] = {}
    for source in sources:
        used = source.graph_features
        key = used.names, used.mean.tobytes(), used.std.tobytes()
        if key not in computed:
            computed[key] = used.transform(raw_features)
        yield source.predict(computed[key])


def graph_features_of_space(space: str, with_genome: bool = False) -> GraphFeatures:
    """Return features fitted on random networks of a space.

    Args:
        space: name of a registered search space.
        with_genome: whether the genome is among the features.
    """
    return _graph_features_of_space(space, with_genome)


@cache  # by position: `cache` takes arguments by position and by name for different ones
def _graph_features_of_space(space: str, with_genome: bool) -> GraphFeatures:
    if with_genome:
        rows = random_networks(space, NUM_NETWORKS)
        return graph_features_of_space(space).with_genome(genome_features_of_rows(rows))
    return GraphFeatures.fit(sampled_raw_features(space))


def batch_of_training(space: str) -> int:
    """Return the number of inputs for which features of accuracies and other objectives of training are.

    They do not depend on how many inputs a network reads at once, as latencies do.

    Args:
        space: name of a space. Networks of registered spaces read `batch_size` inputs; for others, features
            are those of one input.
    """
    return search_spaces.get(space).batch_size if space in search_spaces.names() else 1


def batch_of_objectives(space: str, objectives: Sequence[str]) -> int | None:
    """Return the number of inputs for which features are; None for as many as the networks read at once."""
    return batch_of_training(space) if all(map(is_of_training, objectives)) else None


def other_batch(space: str, texts: Sequence[str], objectives: Sequence[str]) -> int | None:
    """Return `batch_of_training` of a space where a network reads another number of inputs, else None.

    Args:
        space: name of the space.
        texts: texts of networks.
        objectives: names of objectives; None is returned where none of them is one of training.
    """
    if not any(map(is_of_training, objectives)):
        return None
    batch = batch_of_training(space)
    return batch if any(has_other_batch(text, batch) for text in texts) else None


def sampled_raw_features(
    space: str, rows: Sequence[Row] = (), batch: int | None = None
) -> list[Mapping[str, float]]:
    """Return the raw features of `NUM_NETWORKS` random networks of a space.

    Args:
        space: name of the space.
        rows: networks that are used instead of random ones where the space is not registered.
        batch: of these networks, see `nas_rlm.data.synthetic.graph_features`.
    """
    if space in search_spaces.names():
        return _sampled_raw_features(space)
    sample = Table("", list(rows)).sample(NUM_NETWORKS)
    return [*synthetic.graph_features_of_texts(texts_of_rows(sample.rows), MAX_CHAIN_LENGTH, batch=batch)]


@lru_cache(maxsize=4)  # each entry takes some megabytes
def _sampled_raw_features(space: str) -> list[Mapping[str, float]]:
    return [row.targets for row in random_networks(space, NUM_NETWORKS)]


def random_networks(space: str, num_networks: int, seed: int = 0) -> list[Row]:
    """Draw distinct networks of a space, with their raw features as targets.

    Args:
        space: name of a registered search space.
        num_networks: number of networks, but at most half of the space.
        seed: seed of the draw.
    """
    size = search_spaces.get(space).size
    count = min(num_networks, size // 2) if size else num_networks
    return synthetic.random_table(space, count, seed, MAX_CHAIN_LENGTH).rows


def random_raw_features(
    space: SearchSpace[Any], count: int = NUM_RANDOM_NETWORKS, with_layers: bool = False
) -> list[dict[str, float]]:
    """Return the raw features of distinct random networks of a space.

    Args:
        space: the space.
        count: number of networks, but at most half of the space.
        with_layers: see `nas_rlm.data.synthetic.graph_features`.
    """
    count = min(count, max(1, space.size // 2)) if space.size else count
    found = synthetic.random_graph_features(space, count, 0, MAX_CHAIN_LENGTH, with_layers)
    return [*found.values()]


def is_varying(values: np.ndarray) -> np.ndarray:
    """Return for each column whether it is not constant, bool [D]."""
    varies: np.ndarray = values.std(0) > MIN_RELATIVE_STD * np.maximum(1, np.abs(values.mean(0)))
    return varies


def _to_array(raw_features: Sequence[Mapping[str, float]], names: Sequence[str]) -> np.ndarray:
    """Return the named raw features, as logarithms except in GENOME and SUMS: [N, D]."""
    groups = [_group(name) for name in names]
    defaults = [0.0 if group > PATHS else NO_PATH_VALUE for group in groups]
    pairs = list(zip(names, defaults, strict=True))
    values = np.array([[features.get(n, default) for n, default in pairs] for features in raw_features])
    is_log = np.array(groups) < GENOME
    values[:, is_log] = np.log1p(values[:, is_log])
    if GENOME in groups:
        is_unknown = [not any(n.startswith(GENE_PREFIX) for n in features) for features in raw_features]
        values[np.ix_(is_unknown, np.array(groups) == GENOME)] = np.nan
    return values


def _group(name: str) -> int:
    """Return the group of a raw feature by its name."""
    if name.startswith(GENE_PREFIX):
        return GENOME
    if ":" in name:
        return SUMS
    if name.split("/")[-1] in (*EXACT_OBJECTIVES, *COST_NAMES):
        return COSTS
    if "-" in name or name in MERGE_OPERATORS.values():
        return max(PATHS, name.count("-")) + 1
    return PATHS
