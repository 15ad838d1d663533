"""Surrogate of programs: n-gram ridge regression and lexical structure, combined by boosted trees.

A ridge regression on n-grams knows programs that share code or names of functions with labelled ones.
Programs for other problems share little, and their structure says more: sizes of arrays, nested loops,
containers. Trees combine both. They are fitted to what the regression predicts for left-out programs and for
left-out problems, with the similarity to the nearest labelled program, so that they learn when to trust the
regression, and how wide an interval is. All languages of a table share one model; each has its own scale of
values, since runtimes differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.objective_kinds import kind_of
from nas_rlm.model.checkpoint import check_shapes, tensors_with_prefix
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    NormalScoreTransform,
    PredictiveDistribution,
)
from nas_rlm.surrogates.programs.blocks import (
    BLOCKS,
    CONSTRUCTS,
    NGRAMS,
    NUM_BUCKETS,
    FeatureScales,
    ProgramFeatures,
    counted_features,
    program_features,
    standardised,
)
from nas_rlm.surrogates.programs.boosted_trees import BoostedTrees
from nas_rlm.surrogates.programs.features import STRUCTURE, structure_matrix
from nas_rlm.surrogates.programs.model import (
    KERNEL,
    NUM_KNOTS,
    OTHER_TREE_FEATURES,
    SIZED,
    ObjectiveModel,
    SharedPrograms,
    correction,
    regression,
    tree_features,
)
from nas_rlm.surrogates.programs.ngrams import log_sizes, numbers_from_saved, size_scaling_from_saved
from nas_rlm.surrogates.programs.prior import ProgramPrior
from nas_rlm.surrogates.programs.similarity import DIMENSION, nearest

MIN_STD = 1e-3
NEW_PROGRAM = 0.5  # share of left-out problems among programs of a similarity above which one is new


@dataclass(frozen=True)
class HeldOutPrograms:
    """How well labelled programs of one language are predicted from the others.

    Args:
        programs: number of labelled programs that were left out.
        known: Spearman correlation if programs are left out one by one; None if this was not computed.
        new: Spearman correlation if all programs for a problem are left out; None if no problems are known.
    """

    programs: int
    known: float | None
    new: float | None

    def __str__(self) -> str:
        cases = {"a program": self.known, "all programs for its problem": self.new}
        shown = [f"{value:.3f} without {case}" for case, value in cases.items() if value is not None]
        return f"Spearman on {self.programs} labelled programs {' and '.join(shown)}"


@dataclass(frozen=True)
class ProgramSurrogate:
    """Predictive distributions of programs in one language.

    Args:
        objectives: names of the objectives with labels in this language.
        shared: the model that all languages share.
        structure_scaling: mean and standard deviation of the structure of programs in this language, float32
            [2, len(STRUCTURE)].
        label_quantiles: evenly spaced quantiles of the labels of each objective, float64 [Q].
        error_factors: error in this language relative to that in all languages, by objective.
        is_for_new_problems: whether temperatures are those of programs for problems without labels, so that
            the network counts for these as well.
        temperatures: as in `nas_rlm.surrogates.graphs.surrogate.GraphSurrogate`.
        network_temperatures: as in `nas_rlm.surrogates.graphs.surrogate.GraphSurrogate`.
        held_out: how well labelled programs are predicted, by objective; empty in older checkpoints.
        priors: by objective, surrogates of other tables that predict programs unlike the labelled ones too.
    """

    objectives: tuple[str, ...]
    shared: SharedPrograms
    structure_scaling: np.ndarray
    label_quantiles: Mapping[str, np.ndarray]
    error_factors: Mapping[str, float]
    is_for_new_problems: bool = False
    temperatures: Mapping[str, float] = field(default_factory=dict)
    network_temperatures: Mapping[str, float] = field(default_factory=dict)
    held_out: Mapping[str, HeldOutPrograms] = field(default_factory=dict)
    priors: Mapping[str, ProgramPrior] = field(default_factory=dict)

    @cached_property
    def transforms(self) -> dict[str, NormalScoreTransform]:
        """For each objective, the transform between values and normal scores."""
        return {
            name: NormalScoreTransform(values, kind_of(name).maximum, minimum=kind_of(name).minimum)
            for name, values in self.label_quantiles.items()
        }

    def transform(self, programs: Sequence[str]) -> ProgramFeatures:
        """Return the features of N programs."""
        counted = counted_features(programs)
        structure = standardised(structure_matrix(programs), self.structure_scaling)
        features = program_features(counted, log_sizes(programs), structure, self.shared.scales)
        others = {name: self.priors[name].scores(programs) for name in self.objectives if name in self.priors}
        return features._replace(others=others)

    def predict(self, features: ProgramFeatures, objective: str) -> PredictiveDistribution:
        """Return the predictive distribution of an objective for N programs.

        Args:
            features: features of the programs.
            objective: one of this surrogate's objectives.
        """
        model = self.shared.models[objective]
        projections, scores = self.shared.projections[model.labelled], model.scores[model.labelled]
        similarities, means = nearest(features.projections, projections, scores)
        ridge = model.ridge_predictions(features, self.shared.structure)
        inputs = tree_features(features, ridge, similarities, means, model.trees_read_labels)
        std = self.error_factors[objective] * np.interp(similarities, model.knots, model.stds)
        new = np.interp(similarities, model.knots, model.new_shares)
        mean = regression(ridge, new) + correction(model.trees, inputs, new)
        if objective in self.priors:
            mean = self.priors[objective].combined(mean, features.others[objective], new)
        weight = None if self.is_for_new_problems else (new < NEW_PROGRAM).astype(float)
        return PredictiveDistribution(
            self.transforms[objective],
            mean,
            np.maximum(std, MIN_STD),
            self.temperatures.get(objective, DEFAULT_COMBINED_TEMPERATURE),
            network_weight=weight,
        )

    def without(self, objectives: Sequence[str]) -> ProgramSurrogate | None:
        """Return a copy without the given objectives, or None if no objective is left."""
        names = tuple(name for name in self.objectives if name not in objectives)
        return replace(self, objectives=names) if names else None

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        arrays = {f"idf.{block}": values for block, values in self.shared.scales.idf.items()}
        arrays |= {"projections": self.shared.projections, "structure": self.shared.structure}
        arrays |= {"structure_scaling": self.structure_scaling}
        arrays |= {"common_constructs": self.shared.scales.common_constructs}
        tensors: dict[str, Tensor] = {}
        for k, name in enumerate(self.objectives):
            model = self.shared.models[name]
            arrays |= {
                f"weights{k}.{j}.{block}": values
                for j, weights in enumerate(model.ridges)
                for block, values in weights.items()
            }
            arrays |= {f"knots{k}": np.stack([model.knots, model.stds, model.new_shares])}
            arrays |= {f"label_quantiles{k}": self.label_quantiles[name]}
            is_labelled = np.isfinite(model.scores)
            arrays |= {
                f"scores{k}": np.where(is_labelled, model.scores, 0).astype(np.float16),
                f"labelled{k}": is_labelled.astype(np.uint8),
            }
            tensors |= {f"trees{k}.{key}": tensor for key, tensor in model.trees.tensors().items()}
            if name in self.priors:
                of_prior = self.priors[name].tensors().items()
                tensors |= {f"prior{k}.{key}": tensor for key, tensor in of_prior}
        return tensors | {key: torch.from_numpy(values) for key, values in arrays.items()}

    def description(self) -> dict[str, Any]:
        """Return the part of the surrogate that is saved as JSON: kind, names and scalars."""
        priors = {n: prior.description() for n, prior in self.priors.items() if n in self.objectives}
        return {
            "kind": "programs",
            "objectives": self.objectives,
            "log_size_scaling": self.shared.scales.log_size_scaling,
            "ridges": {
                name: [list(weights) for weights in self.shared.models[name].ridges]
                for name in self.objectives
            },
            "error_factors": {name: self.error_factors[name] for name in self.objectives},
            "trees_read_labels": {
                name: self.shared.models[name].trees_read_labels for name in self.objectives
            },
            "is_for_new_problems": self.is_for_new_problems,
            "temperatures": dict(self.temperatures),
            "network_temperatures": dict(self.network_temperatures),
            "held_out": {name: asdict(found) for name, found in self.held_out.items()},
            **({"priors": priors} if priors else {}),
        }

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> ProgramSurrogate:
        """Make a surrogate from its `tensors` and its `description`.

        Raises:
            ValueError: tensors and description do not fit each other, or a value is out of range.
        """
        names = tuple(map(str, description["objectives"]))
        if not names or len(set(names)) < len(names):
            raise ValueError(f"objectives {names} are not distinct names")
        count = len(tensors.get("projections", ()))
        shapes: dict[str, tuple[int, ...]] = {f"idf.{block}": (NUM_BUCKETS[block],) for block in BLOCKS}
        shapes |= {"projections": (count, DIMENSION), "structure": (count, len(STRUCTURE))}
        shapes |= {"structure_scaling": (2, len(STRUCTURE))}
        num_common = len(tensors.get("common_constructs", ()))
        shapes |= {"common_constructs": (num_common,)}
        integers = {"projections": torch.int8, "structure": torch.int8, "common_constructs": torch.int32}
        for k, name in enumerate(names):
            num_labelled = int((tensors[f"labelled{k}"] > 0).sum())
            sizes = {**NUM_BUCKETS, SIZED: NUM_BUCKETS[NGRAMS] + 1, KERNEL: num_labelled}
            shapes |= {
                f"weights{k}.{j}.{block}": (sizes[block],)
                for j, blocks in enumerate(description["ridges"][name])
                for block in blocks
            }
            shapes |= {f"knots{k}": (3, NUM_KNOTS), f"scores{k}": (count,), f"labelled{k}": (count,)}
            shapes |= {f"label_quantiles{k}": (len(tensors.get(f"label_quantiles{k}", ())),)}
            integers[f"labelled{k}"] = torch.uint8
        check_shapes(tensors, shapes, integers)
        common = tensors["common_constructs"].numpy()
        if num_common and not (common.min() >= 0 and common.max() < NUM_BUCKETS[CONSTRUCTS]):
            raise ValueError(f"a common construct is not one of {NUM_BUCKETS[CONSTRUCTS]:,} buckets")
        models, quantiles = {}, {}
        for k, name in enumerate(names):
            knots, stds, new_shares = tensors[f"knots{k}"].double().numpy()
            quantiles[name] = tensors[f"label_quantiles{k}"].double().numpy()
            if not (len(quantiles[name]) and (np.diff(quantiles[name]) >= 0).all()):
                raise ValueError(f"the label quantiles of {name} are empty or not in ascending order")
            if not ((np.diff(knots) >= 0).all() and (stds > 0).all()):
                raise ValueError(f"the errors of {name} are not above 0, at similarities in ascending order")
            is_labelled = tensors[f"labelled{k}"].numpy() > 0
            models[name] = ObjectiveModel(
                [
                    {block: tensors[f"weights{k}.{j}.{block}"].numpy() for block in blocks}
                    for j, blocks in enumerate(description["ridges"][name])
                ],
                np.where(is_labelled, tensors[f"scores{k}"].numpy(), np.nan).astype(np.float16),
                BoostedTrees.from_saved(
                    tensors_with_prefix(tensors, f"trees{k}."),
                    len(STRUCTURE) + num_common + OTHER_TREE_FEATURES + len(description["ridges"][name]),
                ),
                *(knots, stds, new_shares),
                trees_read_labels=description.get("trees_read_labels", {}).get(name, True) is True,
            )
        priors = {
            name: ProgramPrior.from_saved(tensors_with_prefix(tensors, f"prior{k}."), found, cls.from_saved)
            for k, name in enumerate(names)
            if (found := description.get("priors", {}).get(name))
        }
        numbers = numbers_from_saved(description, "error_factors", "an error factor", names)
        idf = {block: tensors[f"idf.{block}"].numpy() for block in BLOCKS}
        scales = FeatureScales(idf, size_scaling_from_saved(description), common)
        shared = SharedPrograms(scales, tensors["projections"].numpy(), tensors["structure"].numpy(), models)
        return cls(
            names,
            shared,
            tensors["structure_scaling"].float().numpy(),
            quantiles,
            is_for_new_problems=description["is_for_new_problems"] is True,
            held_out={
                str(name): HeldOutPrograms(**found) for name, found in description.get("held_out", {}).items()
            },
            priors=priors,
            **numbers,
        )
