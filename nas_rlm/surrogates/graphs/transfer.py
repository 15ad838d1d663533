"""Source surrogates: Gaussian processes whose predictions are features for another space or device.

Networks that are expensive and deep within their space are often the more accurate ones, and much of this
relation carries over to other spaces. A Gaussian process on features that are standardised within each space
therefore ranks networks of a space without labels. Latencies of one device likewise predict those of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

import search_spaces
from nas_rlm.data.objective_kinds import is_accuracy
from nas_rlm.model.checkpoint import check_shapes, tensors_with_prefix
from nas_rlm.surrogates.gaussian_process import compute_alpha, fit_hyperparameters, posterior_mean
from nas_rlm.surrogates.graphs.features import MIN_RELATIVE_STD, GraphFeatures

MAX_LABELS = 1000  # of the source that its posterior uses
MAX_FIT_LABELS = 300  # of these that hyperparameters are fitted on


def is_source(other_space: str, space: str, objective: str) -> bool:
    """Return whether an objective transfers between two spaces: an accuracy only within the same task.

    Args:
        other_space: name of the space with labels; of image classification if it is unknown.
        space: name of the space to predict, likewise.
        objective: name of the objective.
    """
    tasks = {
        search_spaces.task_of(name) or search_spaces.IMAGE_CLASSIFICATION for name in (other_space, space)
    }
    return not is_accuracy(objective) or len(tasks) == 1


@dataclass(frozen=True)
class SourceSurrogate:
    """A Gaussian process that is fitted to one objective of a source space and predicts for a target space.

    Source and target may be devices, with the same space.

    Args:
        graph_features: definition of the D features, standardised within the target space.
        features: features of M labelled networks of the source space, float64 [M, D].
        hyperparameters: D inverse length scales and the noise variance, float64 [D + 1].
        alpha: see `nas_rlm.surrogates.gaussian_process.compute_alpha`, float64 [M]; scaled so that
            predictions have unit variance over random networks of the target space.
        offset: mean of the scaled predictions over random networks of the target space, float64 [].
    """

    graph_features: GraphFeatures
    features: Tensor
    hyperparameters: Tensor
    alpha: Tensor
    offset: Tensor

    @classmethod
    def fit(
        cls,
        names: Sequence[str],
        features: Tensor,
        scores: Tensor,
        target_raw_features: Sequence[Mapping[str, float]],
    ) -> SourceSurrogate | None:
        """Fit a source surrogate on the features that both spaces share.

        Args:
            names: names of the D features of the source space.
            features: features of M labelled networks of the source space, float64 [M, D].
            scores: normal scores of their labels, float64 [M].
            target_raw_features: raw features of random networks of the target space.

        Returns:
            The surrogate, or None where no shared feature or no prediction varies in the target space.
        """
        graph_features = GraphFeatures.shared_with(target_raw_features, names)
        if not graph_features.names:
            return None
        columns = [names.index(name) for name in graph_features.names]
        train_features, train_scores = features[:MAX_LABELS, columns], scores[:MAX_LABELS]
        hyperparameters = fit_hyperparameters(
            train_features[:MAX_FIT_LABELS], graph_features.group_sizes, train_scores[:MAX_FIT_LABELS]
        )
        target_features = graph_features.transform(target_raw_features)
        return cls.from_hyperparameters(
            graph_features, train_features, train_scores, hyperparameters, target_features
        )

    @classmethod
    def from_hyperparameters(
        cls,
        graph_features: GraphFeatures,
        features: Tensor,
        scores: Tensor,
        hyperparameters: Tensor,
        target_features: Tensor,
    ) -> SourceSurrogate | None:
        """Make a source surrogate from fitted hyperparameters.

        Args:
            graph_features: definition of the D features, without sources.
            features: features of M labelled networks, float64 [M, D].
            scores: normal scores of their labels, float64 [M].
            hyperparameters: D inverse length scales and the noise variance, float64 [D + 1].
            target_features: features of N random networks of the target space, float64 [N, D].

        Returns:
            The surrogate, or None where its predictions do not vary in the target space.
        """
        train_features, train_scores = features[:MAX_LABELS], scores[:MAX_LABELS]
        num_linear = graph_features.num_linear
        alpha = compute_alpha(train_features, train_scores, hyperparameters, num_linear)
        predictions = posterior_mean(target_features, train_features, hyperparameters, alpha, num_linear)
        std = predictions.std()
        if not std > MIN_RELATIVE_STD:
            return None
        return cls(graph_features, train_features, hyperparameters, alpha / std, predictions.mean() / std)

    def predict(self, features: Tensor) -> Tensor:
        """Return predicted scores, with mean 0 and variance 1 over random networks of the target space.

        Args:
            features: features of N networks, float64 [N, D].

        Returns:
            float64 [N].
        """
        num_linear = self.graph_features.num_linear
        means = posterior_mean(features, self.features, self.hyperparameters, self.alpha, num_linear)
        return means - self.offset

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        return {
            "mean": torch.tensor(self.graph_features.mean),
            "std": torch.tensor(self.graph_features.std),
            "features": self.features.half(),
            "hyperparameters": self.hyperparameters,
            "alpha": self.alpha,
            "offset": self.offset,
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], names: Sequence[str]) -> SourceSurrogate:
        """Make a source surrogate from its `tensors` and the names of its features.

        Raises:
            ValueError: a name is not a string, or a tensor is missing, of another shape or out of range.
        """
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"features {names} are not all names")
        m, d = len(tensors.get("features", ())), len(names)
        shapes = {
            "mean": (d,),
            "std": (d,),
            "features": (m, d),
            "hyperparameters": (d + 1,),
            "alpha": (m,),
            "offset": (),
        }
        check_gaussian_process_tensors(tensors, shapes)
        graph_features = GraphFeatures(tuple(names), tensors["mean"].numpy(), tensors["std"].numpy())
        others = (tensors[name].double() for name in ("hyperparameters", "alpha", "offset"))
        return cls(graph_features, tensors["features"].double(), *others)


class WithTensors(Protocol):
    """Something that is saved as tensors."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name."""


def tensors_of_sources(sources: Iterable[WithTensors]) -> dict[str, Tensor]:
    """Return the tensors of source surrogates to save, by name; `sources_from_saved` reads them."""
    return {
        f"source{i}.{name}": tensor
        for i, source in enumerate(sources)
        for name, tensor in source.tensors().items()
    }


def sources_from_saved(
    tensors: Mapping[str, Tensor], names: Sequence[Sequence[str]]
) -> tuple[SourceSurrogate, ...]:
    """Make source surrogates from `tensors_of_sources` and the names of the features of each.

    Raises:
        ValueError: as for `SourceSurrogate.from_saved`.
    """
    return tuple(
        SourceSurrogate.from_saved(tensors_with_prefix(tensors, f"source{i}."), of_source)
        for i, of_source in enumerate(names)
    )


def tensors_of_labels(labels: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return labels of M networks by name as tensors to save; `labels_from_saved` reads them."""
    return {"others.values": torch.tensor(np.stack([*labels.values()], 1)).float()} if labels else {}


def labels_from_saved(
    tensors: Mapping[str, Tensor], description: Mapping[str, Any], num_networks: int
) -> dict[str, np.ndarray]:
    """Return labels by name from `tensors_of_labels` and the key `others` of a surrogate's description.

    Args:
        tensors: tensors by name.
        description: description of the surrogate; the key is absent from older checkpoints.
        num_networks: number M of labelled networks.

    Raises:
        ValueError: the tensor is missing or of another shape, or a name is not a string.
    """
    names = description.get("others", [])
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"others {names} are not all names")
    if not names:
        return {}
    check_shapes(tensors, {"others.values": (num_networks, len(names))})
    return dict(zip(names, tensors["others.values"].double().numpy().T, strict=True))


def check_gaussian_process_tensors(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Check the saved tensors of a Gaussian process.

    Args:
        tensors: tensors by name, with `std` and `hyperparameters` among them.
        shapes: expected shapes by name.

    Raises:
        ValueError: a tensor is missing or has another shape, a standard deviation or noise is not above 0, or
            an inverse length scale is below 0.
    """
    check_shapes(tensors, shapes)
    hyperparameters = tensors["hyperparameters"]
    has_positive_noise = bool((hyperparameters[..., -1] > 0).all())
    if not (tensors["std"] > 0).all() or not (hyperparameters >= 0).all() or not has_positive_noise:
        raise ValueError(
            "a standard deviation or noise is not above 0, or an inverse length scale is below 0"
        )
