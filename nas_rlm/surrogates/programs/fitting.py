"""Fitting of surrogates of programs in several languages, see `nas_rlm.surrogates.programs.surrogate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from nas_rlm.surrogates.predictive import MIN_LABELS
from nas_rlm.surrogates.programs.blocks import (
    CONSTRUCTS,
    FUNCTIONS,
    NAMES,
    NGRAMS,
    NUM_BUCKETS,
    FeatureScales,
    ProgramFeatures,
    counted_features,
    packed,
    program_features,
    standardised,
    structure_kernel,
    unpacked,
)
from nas_rlm.surrogates.programs.boosted_trees import BoostedTrees
from nas_rlm.surrogates.programs.features import structure_matrix
from nas_rlm.surrogates.programs.kernel_ridge import dual_weights, gram, left_out_predictions
from nas_rlm.surrogates.programs.left_out import (
    MAX_STACKED_PROGRAMS,
    LabelledPrograms,
    ProgramErrors,
    ProgramLabels,
    cross_validated_predictions,
    held_out,
    leave_out,
)
from nas_rlm.surrogates.programs.model import KERNEL, SIZED, ObjectiveModel, SharedPrograms
from nas_rlm.surrogates.programs.ngrams import (
    MAX_QUANTILES,
    N_GRAM_SIZE_WEIGHT,
    SIZE_WEIGHT,
    inverse_document_frequency,
    log_sizes,
)
from nas_rlm.surrogates.programs.prior import ProgramPrior
from nas_rlm.surrogates.programs.sources import ProgramPriors
from nas_rlm.surrogates.programs.surrogate import HeldOutPrograms, ProgramSurrogate

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix  # imported where it is used: networks need no scipy

MAX_PROGRAMS = 7000  # to learn from, for each objective
MAX_RIDGE_PROGRAMS = 2000  # of these that penalty and blocks are chosen on
RIDGE_PENALTIES = (0.1, 0.3, 1.0)
FEW_PROGRAMS = 400  # up to which trees read the programs alone, and nothing that labels determine
MAX_COMMON_CONSTRUCTS = 256  # that trees read
MIN_CONSTRUCT_PROBLEMS = 3  # whose programs have a construct
MIN_STRUCTURE_STD = 0.05
NO_SURROGATES: Mapping[str, Sequence[object]] = MappingProxyType({})


def fit_program_surrogates(
    programs: Sequence[str],
    spaces: Sequence[str],
    values: Mapping[str, np.ndarray],
    groups: Sequence[str] = (),
    by_group: bool = False,
    existing: Mapping[str, Sequence[object]] = NO_SURROGATES,
) -> dict[str, ProgramSurrogate]:
    """Fit surrogates of programs, at most `MAX_PROGRAMS` of which count for each objective.

    Args:
        programs: sources of M programs.
        spaces: space of each program; those of one table in several languages are learnt together.
        values: labels of each objective, float64 [M], NaN where a program is not measured.
        groups: names of the problems that the M programs solve; empty names where they are not known.
        by_group: fit for programs whose problems have no labels, and for these alone.
        existing: surrogates by space; those of other tables predict programs that are unlike the labelled
            ones as well, see `nas_rlm.surrogates.programs.prior`.

    Returns:
        The surrogate of each space with at least `MIN_LABELS` labels of an objective.
    """
    names = list(dict.fromkeys(spaces))
    indices = np.array([names.index(space) for space in spaces])
    own = [f"row {i}" for i in range(len(programs))]
    keys = [group or name for group, name in zip(groups or own, own, strict=True)]
    group_ids = np.unique(keys, return_inverse=True)[1]
    has_groups = len(set(group_ids.tolist())) < len(programs)
    drawn = {name: _drawn(column, indices) for name, column in values.items()}
    drawn = {name: rows for name, rows in drawn.items() if len(rows)}
    used = np.unique(np.concatenate([*drawn.values(), np.empty(0, int)])).astype(int)
    if not len(used):
        return {}
    structure = structure_matrix([programs[i] for i in used])
    scalings = {k: _scaling(structure[indices[used] == k]) for k in np.unique(indices[used]).tolist()}
    for k, scaling in scalings.items():
        rows = indices[used] == k
        structure[rows] = standardised(structure[rows], scaling)
    counted = counted_features([programs[i] for i in used])
    sizes = log_sizes([programs[i] for i in used])
    idf = {block: inverse_document_frequency(counts).astype(np.float16) for block, counts in counted.items()}
    log_size_scaling = float(sizes.mean()), float(sizes.std()) or 1.0
    common = _common_constructs(counted[CONSTRUCTS], group_ids[used])
    scales = FeatureScales(idf, log_size_scaling, common)
    features = program_features(counted, sizes, structure, scales)
    labelled = LabelledPrograms(indices[used], group_ids[used], features)
    fitted, quantiles = {}, {}
    for name, rows in drawn.items():
        part = np.searchsorted(used, rows)
        measured, space_ids = values[name][rows], indices[rows]
        labels = ProgramLabels.of_values(part, measured, space_ids, group_ids[rows], has_groups)
        sources = [programs[i] for i in rows]
        found = ProgramPriors.find(existing, names, name, sources, space_ids, is_for_known=not has_groups)
        fitted[name] = _fit_objective(labelled, labels, found, by_group and has_groups, has_groups)
        levels = np.linspace(0, 1, min(MAX_QUANTILES, len(rows)))
        quantiles[name] = {
            k: np.quantile(measured[space_ids == k], levels) for k in np.unique(space_ids).tolist()
        }
    models = {name: of_name.model for name, of_name in fitted.items()}
    shared = SharedPrograms(scales, features.projections, packed(features.structure), models)
    surrogates = {}
    for k, space in enumerate(names):
        known = {name: of_name for name, of_name in fitted.items() if k in quantiles[name]}
        if known:
            surrogates[space] = ProgramSurrogate(
                tuple(known),
                shared,
                scalings[k],
                {name: quantiles[name][k] for name in known},
                {name: of_name.errors.factors.get(k, 1.0) for name, of_name in known.items()},
                is_for_new_problems=by_group,
                held_out={name: f.held_out[k] for name, f in known.items() if k in f.held_out},
                priors={name: f.priors[k] for name, f in known.items() if k in f.priors},
            )
    return surrogates


def _drawn(values: np.ndarray, spaces: np.ndarray) -> np.ndarray:
    """Return the rows to learn an objective from, drawn at random, of spaces with enough labels."""
    rows = np.random.default_rng(0).permutation(np.flatnonzero(np.isfinite(values)))
    counts = np.bincount(spaces[rows], minlength=spaces.max(initial=0) + 1)
    return rows[counts[spaces[rows]] >= MIN_LABELS][:MAX_PROGRAMS]


def _common_constructs(counts: csr_matrix, groups: np.ndarray) -> np.ndarray:
    """Return the buckets of constructs that programs for many problems have, and those for many have not.

    Args:
        counts: counts of constructs, sparse [M, F].
        groups: index of the problem of each program, int [M].

    Returns:
        At most `MAX_COMMON_CONSTRUCTS` buckets, int32 [K].
    """
    from scipy.sparse import csr_matrix

    numbers = np.unique(groups, return_inverse=True)[1]
    rows = np.arange(len(groups))
    members = csr_matrix((np.ones(len(groups), np.float32), (numbers, rows)))
    num_problems = np.bincount((members @ counts).indices, minlength=counts.shape[1])
    telling = np.minimum(num_problems, members.shape[0] - num_problems)
    order = np.argsort(-telling, kind="stable")[:MAX_COMMON_CONSTRUCTS]
    return order[telling[order] >= MIN_CONSTRUCT_PROBLEMS].astype(np.int32)


def _scaling(structure: np.ndarray) -> np.ndarray:
    """Return mean and standard deviation of the structure of programs, float32 [2, len(STRUCTURE)]."""
    return np.stack([structure.mean(0), np.maximum(structure.std(0), MIN_STRUCTURE_STD)]).astype(np.float32)


@dataclass(frozen=True)
class _FittedObjective:
    """What labels of one objective say of programs.

    Args:
        model: the model that all spaces share.
        errors: its errors.
        held_out: how well the left-out programs of each space are predicted.
        priors: surrogates of other tables, by space.
    """

    model: ObjectiveModel
    errors: ProgramErrors
    held_out: Mapping[int, HeldOutPrograms]
    priors: Mapping[int, ProgramPrior]


def _fit_objective(
    labelled: LabelledPrograms, labels: ProgramLabels, priors: ProgramPriors, by_group: bool, has_groups: bool
) -> _FittedObjective:
    """Fit the model of an objective.

    Args:
        labelled: all labelled programs.
        labels: those with the objective.
        priors: what surrogates of other tables say of them.
        by_group: learn from left-out problems alone.
        has_groups: whether problems are known.
    """
    rows, scores = labels.rows, labels.scores
    has_sizes = labelled.features.sizes[rows].std() > 0
    has_constructs = labelled.features.constructs.shape[1] > 0
    first = (NGRAMS, *((SIZED,) if has_sizes else ()), *((CONSTRUCTS,) if has_constructs else ()))
    added_blocks = [(first, has_groups)] + ([] if by_group else [((NAMES, FUNCTIONS), False)])
    structure = unpacked(packed(labelled.features.structure[rows]))
    products = structure_kernel(structure, structure)
    blocks: tuple[str, ...] = ()
    ridges, left_out_of = [], []
    for added, is_for_new in added_blocks:
        blocks = (*blocks, *added)
        products += gram(_matrix(labelled.features, rows, added))
        penalty = _select_penalty(products, scores, labelled.groups[rows], is_for_new)
        dual = dual_weights(products, scores, penalty)
        weights = _split_weights(np.asarray(_matrix(labelled.features, rows, blocks).T @ dual), blocks)
        order = np.argsort(rows)
        ridges.append({**weights, KERNEL: dual[order].astype(np.float16)})
        part = slice(MAX_STACKED_PROGRAMS)
        groups = labelled.groups[rows[part]]
        left_out_of.append(left_out_predictions(products[part, part], scores[part], penalty, groups))
    with_labels = len(rows) > FEW_PROGRAMS
    left_out = leave_out(labelled, labels, left_out_of, by_group, has_groups, with_labels)
    trees = BoostedTrees.fit(left_out.inputs, left_out.scores - left_out.regression)
    predicted = cross_validated_predictions(left_out, labelled.groups[left_out.rows])
    positions = np.arange(len(left_out.rows)) % min(len(rows), MAX_STACKED_PROGRAMS)
    fitted, combined = priors.fit(positions, left_out.scores, predicted, left_out.new)
    spaces = labelled.spaces[left_out.rows]
    num_problems = len(np.unique(labelled.groups[rows]))
    errors = ProgramErrors.of_left_out(left_out, combined, spaces, num_problems)
    all_scores = np.full(len(labelled.spaces), np.nan, np.float16)
    all_scores[rows] = scores
    model = ObjectiveModel(
        *(ridges, all_scores, trees, errors.knots, errors.stds, errors.new_shares, with_labels)
    )
    return _FittedObjective(model, errors, held_out(left_out, combined, spaces, num_problems), fitted)


def _matrix(features: ProgramFeatures, rows: np.ndarray, blocks: Sequence[str]) -> csr_matrix:
    """Return the features of a ridge regression, sparse [M, F]."""
    from scipy.sparse import csr_matrix, diags_array, hstack

    parts = []
    for block in blocks:
        if block == SIZED:
            sizes = features.sizes[rows]
            parts.append(diags_array(N_GRAM_SIZE_WEIGHT * sizes) @ features.blocks[NGRAMS][rows])
            parts.append(csr_matrix(SIZE_WEIGHT * sizes[:, None]))
        else:
            parts.append(features.blocks[block][rows])
    return csr_matrix(hstack(parts, dtype=np.float32))


def _split_weights(weights: np.ndarray, blocks: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the weights of each block, float16."""
    found, start = {}, 0
    for block in blocks:
        end = start + (NUM_BUCKETS[NGRAMS] + 1 if block == SIZED else NUM_BUCKETS[block])
        found[block], start = weights[start:end].astype(np.float16), end
    return found


def _select_penalty(products: np.ndarray, scores: np.ndarray, groups: np.ndarray, is_for_new: bool) -> float:
    """Return the ridge penalty with the smallest error for left-out programs, or for left-out problems.

    Args:
        products: inner products of programs, float32 [M, M].
        scores: their normal scores, float64 [M].
        groups: index of the problem of each, int [M].
        is_for_new: whether problems are left out.
    """
    part = slice(MAX_RIDGE_PROGRAMS)
    errors = {}
    for penalty in RIDGE_PENALTIES:
        own, grouped = left_out_predictions(products[part, part], scores[part], penalty, groups[part])
        errors[penalty] = float(np.mean(((grouped if is_for_new else own) - scores[part]) ** 2))
    return min(reversed(RIDGE_PENALTIES), key=errors.__getitem__)
