"""Fitting of surrogates of programs in several languages, see `nas_rlm.surrogates.program_surrogate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from nas_rlm.metrics import spearman
from nas_rlm.surrogates.boosted_trees import BoostedTrees
from nas_rlm.surrogates.kernel_ridge import dual_weights, gram, left_out_predictions
from nas_rlm.surrogates.ngrams import (
    MAX_QUANTILES,
    N_GRAM_SIZE_WEIGHT,
    SIZE_WEIGHT,
    inverse_document_frequency,
    log_sizes,
)
from nas_rlm.surrogates.predictive import MIN_LABELS, normal_scores, student_width
from nas_rlm.surrogates.program_features import structure_matrix
from nas_rlm.surrogates.program_prior import ProgramPrior
from nas_rlm.surrogates.program_similarity import nearest
from nas_rlm.surrogates.program_sources import ProgramPriors
from nas_rlm.surrogates.program_surrogate import (
    CONSTRUCTS,
    FUNCTIONS,
    KERNEL,
    MIN_STD,
    NAMES,
    NGRAMS,
    NUM_BUCKETS,
    NUM_KNOTS,
    SIZED,
    HeldOutPrograms,
    ObjectiveModel,
    ProgramFeatures,
    ProgramSurrogate,
    SharedPrograms,
    correction,
    counted_features,
    packed,
    program_features,
    regression,
    standardised,
    structure_kernel,
    tree_features,
    unpacked,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix  # imported where it is used: networks need no scipy

MAX_PROGRAMS = 7000  # to learn from, for each objective
MAX_STACKED_PROGRAMS = 3500  # of these that are left out for the trees
MAX_RIDGE_PROGRAMS = 2000  # of these that penalty and blocks are chosen on
RIDGE_PENALTIES = (0.1, 0.3, 1.0)
MAX_COMMON_CONSTRUCTS = 256  # that trees read
MIN_CONSTRUCT_PROBLEMS = 3  # whose programs have a construct
MIN_STRUCTURE_STD = 0.05
MIN_PROBLEMS = 3  # assumed where labelled programs are for fewer: intervals of fewer have hardly an end
PRIOR_ROWS = 50  # weight of the errors of all languages in the error of one
NO_SURROGATES: Mapping[str, Sequence[object]] = MappingProxyType({})
COVERED_SHARE, COVERED_STDS = 0.8, 1.2815515655446004  # of a normal distribution


@dataclass(frozen=True)
class _Rows:
    """M labelled programs of several spaces.

    Args:
        spaces: index of the space of each program, int [M].
        groups: index of its problem, int [M].
        features: their features.
    """

    spaces: np.ndarray
    groups: np.ndarray
    features: ProgramFeatures


@dataclass(frozen=True)
class _LeftOut:
    """What trees learn from: programs, as the regression predicts them without themselves or their group.

    Args:
        rows: indices of the programs, int [N].
        inputs: features of the trees, float [N, F].
        regression: prediction that the trees correct, float64 [N].
        scores: normal scores, float64 [N].
        similarities: similarity to the nearest program that is not left out, float [N].
        is_new: whether the problem is left out, bool [N].
        new: probability of this for a program of such a similarity, float64 [N].
    """

    rows: np.ndarray
    inputs: np.ndarray
    regression: np.ndarray
    scores: np.ndarray
    similarities: np.ndarray
    is_new: np.ndarray
    new: np.ndarray


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
            ones as well, see `nas_rlm.surrogates.program_prior`.

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
    none = np.empty((0, 0), np.int8)
    unfitted = SharedPrograms(idf, log_size_scaling, common, none, none, {})
    features = program_features(counted, sizes, structure, unfitted)
    labelled = _Rows(indices[used], group_ids[used], features)
    models, factors, held_out, priors, quantiles = {}, {}, {}, {}, {}
    for name, rows in drawn.items():
        part = np.searchsorted(used, rows)
        measured, space_ids = values[name][rows], indices[rows]
        scores = np.empty(len(rows))
        for k in np.unique(space_ids):
            scores[space_ids == k] = normal_scores(measured[space_ids == k])
        sources = [programs[i] for i in rows]
        found = ProgramPriors.find(existing, names, name, sources, space_ids, is_for_known=not has_groups)
        models[name], factors[name], held_out[name], priors[name] = _fit_objective(
            labelled, part, scores, found, by_group and has_groups, has_groups
        )
        levels = np.linspace(0, 1, min(MAX_QUANTILES, len(rows)))
        quantiles[name] = {
            k: np.quantile(measured[space_ids == k], levels) for k in np.unique(space_ids).tolist()
        }
    shared = replace(
        unfitted, projections=features.projections, structure=packed(features.structure), models=models
    )
    surrogates = {}
    for k, space in enumerate(names):
        known = tuple(name for name in models if k in quantiles[name])
        if known:
            surrogates[space] = ProgramSurrogate(
                known,
                shared,
                scalings[k],
                {name: quantiles[name][k] for name in known},
                {name: factors[name][k] for name in known},
                is_for_new_problems=by_group,
                held_out={name: held_out[name][k] for name in known if k in held_out[name]},
                priors={name: priors[name][k] for name in known if k in priors[name]},
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


def _fit_objective(
    labelled: _Rows,
    rows: np.ndarray,
    scores: np.ndarray,
    priors: ProgramPriors,
    by_group: bool,
    has_groups: bool,
) -> tuple[ObjectiveModel, dict[int, float], dict[int, HeldOutPrograms], dict[int, ProgramPrior]]:
    """Return the model of an objective; and for each space error factor, correlations and prior.

    Args:
        labelled: all labelled programs.
        rows: those with the objective, int [M].
        scores: their normal scores, float64 [M].
        priors: what surrogates of other tables say of them.
        by_group: learn from left-out problems alone.
        has_groups: whether problems are known.
    """
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
    left_out = _leave_out(labelled, rows, scores, left_out_of, by_group, has_groups)
    trees = BoostedTrees.fit(left_out.inputs, left_out.scores - left_out.regression)
    residuals = _cross_validated_residuals(left_out, labelled.groups[left_out.rows])
    positions = np.arange(len(left_out.rows)) % min(len(rows), MAX_STACKED_PROGRAMS)
    fitted, combined = priors.fit(positions, left_out.scores, left_out.scores - residuals, left_out.new)
    residuals = left_out.scores - combined
    knots, stds, new_shares = _errors_by_similarity(left_out, residuals)
    stds = stds * student_width(max(MIN_PROBLEMS, len(np.unique(labelled.groups[rows]))))
    all_scores = np.full(len(labelled.spaces), np.nan, np.float16)
    all_scores[rows] = scores
    relative = np.abs(residuals) / np.interp(left_out.similarities, knots, stds)
    factors = {}
    for k in np.unique(labelled.spaces[rows]).tolist():
        own = relative[labelled.spaces[left_out.rows] == k]
        found = np.quantile(own, COVERED_SHARE) / COVERED_STDS if len(own) else 1.0
        factors[k] = float((len(own) * found + PRIOR_ROWS) / (len(own) + PRIOR_ROWS))
    model = ObjectiveModel(ridges, all_scores, trees, knots, stds, new_shares)
    held_out = _held_out(left_out, residuals, labelled.spaces[left_out.rows])
    return model, factors, held_out, fitted


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


def _leave_out(
    labelled: _Rows,
    rows: np.ndarray,
    scores: np.ndarray,
    predictions: Sequence[tuple[np.ndarray, np.ndarray]],
    by_group: bool,
    has_groups: bool,
) -> _LeftOut:
    """Return left-out programs, and unless `by_group` also those of which the problem is known.

    Args:
        labelled: all labelled programs.
        rows: those with the objective, int [M].
        scores: their normal scores, float64 [M].
        predictions: what each ridge regression predicts without a program, and without its problem.
        by_group: see `_fit_objective`.
        has_groups: see `_fit_objective`.
    """
    part, known = rows[:MAX_STACKED_PROGRAMS], scores[:MAX_STACKED_PROGRAMS]
    own, grouped = (np.stack(columns, 1) for columns in zip(*predictions, strict=True))
    features = labelled.features.select(part)
    numbers = np.arange(len(part))
    cases = [] if by_group else [(own, numbers, False)]
    cases += [(grouped, labelled.groups[part], True)] if has_groups else []
    compared = [
        nearest(features.projections, features.projections, known, (identities, identities))
        for _, identities, _ in cases
    ]
    similarities = np.concatenate([similarity for similarity, _ in compared])
    is_new = np.repeat([is_new for *_, is_new in cases], len(part))
    new = np.interp(similarities, *_new_shares(similarities, is_new))
    ridge = np.concatenate([predicted for predicted, *_ in cases])
    return _LeftOut(
        np.tile(part, len(cases)),
        np.concatenate(
            [
                tree_features(features, predicted, *found)
                for (predicted, *_), found in zip(cases, compared, strict=True)
            ]
        ),
        regression(ridge, new),
        np.tile(known, len(cases)),
        similarities,
        is_new,
        new,
    )


def _cross_validated_residuals(left_out: _LeftOut, groups: np.ndarray) -> np.ndarray:
    """Return the error with trees that are fitted to the programs of other problems, float64 [N]."""
    fold = np.random.default_rng(0).integers(0, 2, groups.max() + 1)[groups]
    residuals = left_out.scores - left_out.regression
    corrections = np.empty(len(groups))
    for k in (0, 1):
        inside, others = fold == k, fold != k
        others = others if others.any() else inside
        trees = BoostedTrees.fit(left_out.inputs[others], residuals[others])
        corrections[inside] = correction(trees, left_out.inputs[inside], left_out.new[inside])
    return residuals - corrections


def _held_out(left_out: _LeftOut, residuals: np.ndarray, spaces: np.ndarray) -> dict[int, HeldOutPrograms]:
    """Return how well the left-out programs of each space are predicted.

    Args:
        left_out: the left-out programs.
        residuals: their errors, float64 [N].
        spaces: index of the space of each, int [N].
    """
    predicted = left_out.scores - residuals

    def correlation(rows: np.ndarray) -> float | None:
        if rows.sum() < MIN_LABELS:
            return None
        varies = np.ptp(predicted[rows]) > 0 and np.ptp(left_out.scores[rows]) > 0
        return float(spearman(predicted[rows], left_out.scores[rows])) if varies else 0.0

    found = {}
    for k in np.unique(spaces).tolist():
        own = spaces == k
        known, new = (correlation(own & (left_out.is_new == is_new)) for is_new in (False, True))
        if known is not None or new is not None:
            found[k] = HeldOutPrograms(len(np.unique(left_out.rows[own])), known, new)
    return found


def _new_shares(similarities: np.ndarray, is_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return similarities in ascending order, and the share of left-out problems at each, [NUM_KNOTS]."""
    parts = _parts_by_similarity(similarities)
    knots = [float(np.median(similarities[part])) for part in parts]
    return np.maximum.accumulate(knots), np.array([float(is_new[part].mean()) for part in parts])


def _parts_by_similarity(similarities: np.ndarray) -> list[np.ndarray]:
    """Return the indices of programs in `NUM_KNOTS` parts, from the least to the most similar ones."""
    order = np.argsort(similarities, kind="stable")
    return [part if len(part) else order for part in np.array_split(order, NUM_KNOTS)]


def _errors_by_similarity(
    left_out: _LeftOut, residuals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return similarities, the errors at each, and the share of left-out problems at each, [NUM_KNOTS].

    The error is such that a normal distribution of this standard deviation has `COVERED_SHARE` of the
    residuals within its interval.
    """
    knots, shares = _new_shares(left_out.similarities, left_out.is_new)
    stds = [
        max(float(np.quantile(np.abs(residuals[part]), COVERED_SHARE)) / COVERED_STDS, MIN_STD)
        for part in _parts_by_similarity(left_out.similarities)
    ]
    return knots, np.array(stds), shares
