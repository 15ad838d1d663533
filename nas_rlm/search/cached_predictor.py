"""Predictions of a model for a space, and graph features of its architectures, each computed once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nas_rlm.data import synthetic
from nas_rlm.data.genome import genome_features
from nas_rlm.search.loop import SamplingPredictor
from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH
from nas_rlm.text import from_architectures
from search_spaces import SearchSpace


class CachedPredictor:
    """Predictions of a model and raw graph features of a space's architectures, each computed once.

    Args:
        model: the predictor.
        space: the search space.
        with_layers: compute features of executed layers, which only latencies need.
        computed: raw features by architecture that several predictors share; new ones are added to it.
    """

    def __init__(
        self,
        model: SamplingPredictor,
        space: SearchSpace[Any],
        with_layers: bool = True,
        computed: dict[str, Mapping[str, float]] | None = None,
    ) -> None:
        self.model, self.space, self._with_layers = model, space, with_layers
        self._predictions: dict[tuple[str, str], np.ndarray] = {}
        self._raw_features = {} if computed is None else computed
        self._graph_features: dict[bytes, Mapping[str, float]] = {}  # by hash of a text

    def predict(
        self, names: Sequence[str], objectives: Sequence[str], quantiles: Sequence[float]
    ) -> np.ndarray:
        """Return quantiles of objectives: float64 [N, K, Q].

        Args:
            names: N architectures in the space's notation.
            objectives: K names.
            quantiles: Q quantile levels.
        """
        key = _cache_key(objectives, quantiles)
        new = [name for name in dict.fromkeys(names) if (key, name) not in self._predictions]
        if new:
            values = self.model.predict(self.space, new, objectives, quantiles)
            self._predictions.update(
                ((key, name), of_architecture) for name, of_architecture in zip(new, values, strict=True)
            )
        return np.stack([self._predictions[key, name] for name in names])

    def store(
        self,
        names: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float],
        values: np.ndarray,
    ) -> None:
        """Store predictions that were read from a log, so that `predict` returns the same ones.

        Args:
            names: N architectures in the space's notation.
            objectives: K names.
            quantiles: Q quantile levels.
            values: [N, K, Q].
        """
        key = _cache_key(objectives, quantiles)
        for name, of_architecture in zip(names, values, strict=True):
            self._predictions.setdefault((key, name), of_architecture)

    def raw_features(self, names: Sequence[str]) -> list[Mapping[str, float]]:
        """Return the raw features of N architectures: their graph features and genomes.

        See `nas_rlm.data.synthetic.graph_features` and `nas_rlm.data.genome`.
        """
        new = [name for name in dict.fromkeys(names) if name not in self._raw_features]
        architectures = [self.space.parse(name) for name in new]
        texts = from_architectures(self.space, architectures)
        keys = [hashlib.sha256(text.encode()).digest() for text in texts]
        distinct = {k: t for k, t in zip(keys, texts, strict=True) if k not in self._graph_features}
        computed = synthetic.graph_features_of_texts(distinct.values(), MAX_CHAIN_LENGTH, self._with_layers)
        self._graph_features.update(zip(distinct, computed, strict=True))
        for name, architecture, key in zip(new, architectures, keys, strict=True):
            self._raw_features[name] = {
                **self._graph_features[key],
                **genome_features(self.space, architecture),
            }
        return [self._raw_features[name] for name in names]


def _cache_key(objectives: Sequence[str], quantiles: Sequence[float]) -> str:
    return ",".join((*objectives, *map(str, quantiles)))
