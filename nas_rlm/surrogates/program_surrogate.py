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
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nas_rlm.data.objective_kinds import kind_of
from nas_rlm.model.checkpoint import check_shapes, tensors_with_prefix
from nas_rlm.surrogates.boosted_trees import BoostedTrees
from nas_rlm.surrogates.ngrams import (
    N_GRAM_SIZE_WEIGHT,
    SIZE_WEIGHT,
    log_sizes,
    numbers_from_saved,
    size_scaling_from_saved,
    tf_idf,
    token_ngrams,
    word_counts,
)
from nas_rlm.surrogates.predictive import (
    DEFAULT_COMBINED_TEMPERATURE,
    NormalScoreTransform,
    PredictiveDistribution,
)
from nas_rlm.surrogates.program_features import (
    CACHED_PROGRAMS,
    STRUCTURE,
    function_names,
    identifier_words,
    structure_matrix,
)
from nas_rlm.surrogates.program_prior import ProgramPrior
from nas_rlm.surrogates.program_similarity import DIMENSION, nearest, project
from nas_rlm.surrogates.python_constructs import constructs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NGRAMS, NAMES, FUNCTIONS, CONSTRUCTS = "ngrams", "names", "functions", "constructs"
SIZED, KERNEL = "sized", "kernel"
COMPARED_BLOCKS = (NGRAMS, NAMES, FUNCTIONS)  # that similarity is computed of
BLOCKS = (*COMPARED_BLOCKS, CONSTRUCTS)  # of features that are counted
NUM_BUCKETS = {NGRAMS: 1 << 16, NAMES: 1 << 15, FUNCTIONS: 1 << 15, CONSTRUCTS: 1 << 13}
OTHER_TREE_FEATURES = 3  # beside structure and predictions: similarity, mean of similar programs, and size
MAX_STANDARDISED = 3.0  # larger structure is cut
STEPS = 127  # of a byte on either side of 0
NUM_KNOTS = 8  # similarities at which errors are known
MIN_STD = 1e-3
NO_SCORES: Mapping[str, np.ndarray] = MappingProxyType({})
TREE_WEIGHT_OF_NEW = 0.5  # factor of what the trees add for new problems, of which they have seen few
NEW_PROGRAM = 0.5  # share of left-out problems among programs of a similarity above which one is new


class ProgramFeatures(NamedTuple):
    """Features of N programs.

    Args:
        blocks: counted features by block, sparse [N, NUM_BUCKETS[block]], rows of unit length.
        sizes: standardised base-2 logarithms of input sizes, float32 [N].
        structure: standardised structure, float32 [N, len(STRUCTURE)].
        constructs: logarithms of the counts of common constructs, float32 [N, K].
        projections: see `nas_rlm.surrogates.program_similarity`, int8 [N, DIMENSION].
        others: what surrogates of other tables say, see `nas_rlm.surrogates.program_prior`, by objective,
            float64 [N].
    """

    blocks: dict[str, csr_matrix]
    sizes: np.ndarray
    structure: np.ndarray
    constructs: np.ndarray
    projections: np.ndarray
    others: Mapping[str, np.ndarray] = NO_SCORES

    def select(self, rows: np.ndarray) -> ProgramFeatures:
        """Return the features of some of the programs."""
        blocks = {name: block[rows] for name, block in self.blocks.items()}
        return ProgramFeatures(
            blocks,
            self.sizes[rows],
            self.structure[rows],
            self.constructs[rows],
            self.projections[rows],
            {name: scores[rows] for name, scores in self.others.items()},
        )


@dataclass(frozen=True)
class ObjectiveModel:
    """What predicts normal scores of one objective, for all languages.

    Args:
        ridges: weights of each ridge regression by block, float16 [NUM_BUCKETS[block]]; `SIZED` has those of
            the n-grams times the size, and last that of the size; `KERNEL` those of a Gaussian kernel of the
            structure, one for each program with a score.
        scores: normal scores of the labelled programs, float16 [M], NaN where there is none.
        trees: what trees on `tree_features` add to the regressions.
        knots: similarities, float64 [NUM_KNOTS], ascending.
        stds: standard deviations of the normal scores at the knots, float64 [NUM_KNOTS].
        new_shares: share of left-out problems among the rows at each knot, float64 [NUM_KNOTS].
    """

    ridges: Sequence[Mapping[str, np.ndarray]]
    scores: np.ndarray
    trees: BoostedTrees
    knots: np.ndarray
    stds: np.ndarray
    new_shares: np.ndarray

    @cached_property
    def labelled(self) -> np.ndarray:
        """Indices of the programs with a score, int."""
        return np.flatnonzero(np.isfinite(self.scores))

    def ridge_predictions(self, features: ProgramFeatures, structure: np.ndarray) -> np.ndarray:
        """Return the predictions of the ridge regressions, float64 [N, len(ridges)].

        Args:
            features: features of N programs.
            structure: standardised structure of all programs, int8 [M, len(STRUCTURE)].
        """
        similar = structure_kernel(features.structure, unpacked(structure[self.labelled]))
        total = np.zeros((len(features.sizes), len(self.ridges)))
        for k, weights_by_block in enumerate(self.ridges):
            for block, weights in weights_by_block.items():
                w = weights.astype(np.float32)
                if block == SIZED:
                    products = features.blocks[NGRAMS] @ w[:-1]
                    total[:, k] += features.sizes * (N_GRAM_SIZE_WEIGHT * products + SIZE_WEIGHT * w[-1])
                else:
                    total[:, k] += (similar if block == KERNEL else features.blocks[block]) @ w
        return total


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
class SharedPrograms:
    """What the surrogates of all languages of a table share.

    Args:
        idf: inverse document frequencies by block, float16 [NUM_BUCKETS[block]].
        log_size_scaling: mean and standard deviation of the base-2 logarithms of input sizes.
        common_constructs: buckets of K constructs that many programs have, int32 [K].
        projections: projections of M labelled programs, int8 [M, DIMENSION].
        structure: their standardised structure, see `packed`, int8 [M, len(STRUCTURE)].
        models: model of each objective.
    """

    idf: Mapping[str, np.ndarray]
    log_size_scaling: tuple[float, float]
    common_constructs: np.ndarray
    projections: np.ndarray
    structure: np.ndarray
    models: Mapping[str, ObjectiveModel]


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
        temperatures: as in `nas_rlm.surrogates.graph_surrogate.GraphSurrogate`.
        network_temperatures: as in `nas_rlm.surrogates.graph_surrogate.GraphSurrogate`.
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
        features = program_features(counted, log_sizes(programs), structure, self.shared)
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
        inputs = tree_features(features, ridge, similarities, means)
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
        arrays = {f"idf.{block}": values for block, values in self.shared.idf.items()}
        arrays |= {"projections": self.shared.projections, "structure": self.shared.structure}
        arrays |= {"structure_scaling": self.structure_scaling}
        arrays |= {"common_constructs": self.shared.common_constructs}
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
            "log_size_scaling": self.shared.log_size_scaling,
            "ridges": {
                name: [list(weights) for weights in self.shared.models[name].ridges]
                for name in self.objectives
            },
            "error_factors": {name: self.error_factors[name] for name in self.objectives},
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
            )
        priors = {
            name: ProgramPrior.from_saved(tensors_with_prefix(tensors, f"prior{k}."), found, cls.from_saved)
            for k, name in enumerate(names)
            if (found := description.get("priors", {}).get(name))
        }
        numbers = numbers_from_saved(description, "error_factors", "an error factor", names)
        scaling = size_scaling_from_saved(description)
        idf = {block: tensors[f"idf.{block}"].numpy() for block in BLOCKS}
        shared = SharedPrograms(
            idf, scaling, common, tensors["projections"].numpy(), tensors["structure"].numpy(), models
        )
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


def regression(ridge: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the prediction of the ridge regressions, which the trees correct, float64 [N].

    Args:
        ridge: predictions of the regression for new problems, which comes first, and of the one for known
            problems, which comes last and may be the same, float64 [N, R].
        new: probability that a program is for a new problem, float64 [N].
    """
    combined: np.ndarray = new * ridge[:, 0] + (1 - new) * ridge[:, -1]
    return combined


def correction(trees: BoostedTrees, inputs: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return what trees add to the ridge regressions, less of it for new problems, float64 [N].

    Args:
        trees: the trees.
        inputs: their features, float [N, F].
        new: probability that a program is for a new problem, float64 [N].
    """
    weighted: np.ndarray = (1 + (TREE_WEIGHT_OF_NEW - 1) * new) * trees.predict(inputs)
    return weighted


def tree_features(
    features: ProgramFeatures, ridge: np.ndarray, similarities: np.ndarray, means: np.ndarray
) -> np.ndarray:
    """Return the features of the trees, float [N, F].

    Args:
        features: features of N programs.
        ridge: predictions of R ridge regressions, float64 [N, R].
        similarities: similarity to the nearest labelled program, float32 [N].
        means: mean label of similar programs, float32 [N].
    """
    others = [ridge, similarities, means, features.sizes]
    return np.column_stack([features.structure, features.constructs, *others])


def counted_features(programs: Sequence[str]) -> dict[str, csr_matrix]:
    """Count the features of each block, sparse [N, NUM_BUCKETS[block]].

    Args:
        programs: sources of N programs.
    """
    from scipy.sparse import vstack

    counted = [_counted_program(program) for program in programs]
    empty = _counted_program("")
    return {
        block: vstack([counts[block] for counts in counted] or [empty[block][:0]], format="csr")
        for block in BLOCKS
    }


@lru_cache(maxsize=CACHED_PROGRAMS)
def _counted_program(program: str) -> dict[str, csr_matrix]:
    """Count the features of a program, each sparse [1, NUM_BUCKETS[block]]."""
    read = {
        **{NGRAMS: token_ngrams, NAMES: identifier_words},
        **{FUNCTIONS: function_names, CONSTRUCTS: constructs},
    }
    return {block: word_counts([read[block](program)], NUM_BUCKETS[block]) for block in BLOCKS}


def program_features(
    counted: Mapping[str, csr_matrix], sizes: np.ndarray, structure: np.ndarray, shared: SharedPrograms
) -> ProgramFeatures:
    """Return the features of N programs.

    Args:
        counted: see `counted_features`.
        sizes: base-2 logarithms of input sizes, float32 [N].
        structure: standardised structure, float32 [N, len(STRUCTURE)].
        shared: has the document frequencies and the scaling of sizes.
    """
    from scipy.sparse import csr_matrix, hstack

    blocks = {name: tf_idf(counts, shared.idf[name].astype(np.float32)) for name, counts in counted.items()}
    mean, std = shared.log_size_scaling
    projections = project(csr_matrix(hstack([blocks[name] for name in COMPARED_BLOCKS])))
    common = np.log1p(counted[CONSTRUCTS][:, shared.common_constructs].toarray())
    return ProgramFeatures(blocks, ((sizes - mean) / std).astype(np.float32), structure, common, projections)


def standardised(structure: np.ndarray, scaling: np.ndarray) -> np.ndarray:
    """Return structure in standard deviations of a language, cut at `MAX_STANDARDISED`.

    Args:
        structure: see `nas_rlm.surrogates.program_features.structure_matrix`, float32 [N, len(STRUCTURE)].
        scaling: mean and standard deviation, float32 [2, len(STRUCTURE)].
    """
    mean, std = scaling
    scaled: np.ndarray = ((structure - mean) / std).clip(-MAX_STANDARDISED, MAX_STANDARDISED)
    return scaled


def packed(structure: np.ndarray) -> np.ndarray:
    """Return standardised structure in steps of a byte, int8 [N, len(STRUCTURE)]."""
    steps: np.ndarray = np.rint(structure * (STEPS / MAX_STANDARDISED)).astype(np.int8)
    return steps


def unpacked(steps: np.ndarray) -> np.ndarray:
    """Return standardised structure from `packed`, float32 [N, len(STRUCTURE)]."""
    structure: np.ndarray = steps.astype(np.float32) * np.float32(MAX_STANDARDISED / STEPS)
    return structure


def structure_kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return a Gaussian kernel of the structures of N and M programs, float32 [N, M].

    Args:
        left: standardised structure, float32 [N, len(STRUCTURE)].
        right: standardised structure, float32 [M, len(STRUCTURE)].
    """
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    kernel: np.ndarray = np.exp(-0.5 / left.shape[1] * squares.clip(0)).astype(np.float32)
    return kernel
