"""Labelled programs as they are predicted without themselves, or without all programs for their problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from nas_rlm.metrics import spearman
from nas_rlm.surrogates.predictive import MIN_LABELS, NormalScoreTransform, normal_scores, student_width
from nas_rlm.surrogates.programs.blocks import ProgramFeatures
from nas_rlm.surrogates.programs.boosted_trees import BoostedTrees
from nas_rlm.surrogates.programs.model import NUM_KNOTS, correction, regression, tree_features
from nas_rlm.surrogates.programs.similarity import nearest
from nas_rlm.surrogates.programs.surrogate import MIN_STD, HeldOutPrograms

MAX_STACKED_PROGRAMS = 3500  # that are left out
MIN_PROBLEMS = 3  # assumed where labelled programs are for fewer: intervals of fewer have hardly an end
MAX_UNSEEN_SCORE = 10.0  # larger ones are cut: intervals that reach so far have hardly an end
PRIOR_ROWS = 50  # weight of the errors of all languages in the error of one
COVERED_SHARE, COVERED_STDS = 0.8, 1.2815515655446004  # of a normal distribution


@dataclass(frozen=True)
class LabelledPrograms:
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
class ProgramLabels:
    """Labels of one objective as normal scores.

    Args:
        rows: indices of the M programs that have a label, int [M].
        scores: the scores, by the labels of the program's space, float64 [M].
        unseen_scores: the scores by the labels for other problems alone, which say where a value is that no
            label was near, float64 [M].
    """

    rows: np.ndarray
    scores: np.ndarray
    unseen_scores: np.ndarray

    @classmethod
    def of_values(
        cls, rows: np.ndarray, values: np.ndarray, spaces: np.ndarray, groups: np.ndarray, has_groups: bool
    ) -> Self:
        """Return the scores of measured values.

        Args:
            rows: indices of the programs, int [M].
            values: the values, float64 [M].
            spaces: index of the space of each, int [M].
            groups: index of its problem, int [M].
            has_groups: whether problems are known.
        """
        scores, unseen = np.empty(len(rows)), np.empty(len(rows))
        for k in np.unique(spaces):
            of_space = spaces == k
            scores[of_space] = unseen[of_space] = normal_scores(values[of_space])
            for group in np.unique(groups[of_space]) if has_groups else ():
                own, others = of_space & (groups == group), of_space & (groups != group)
                if others.any():
                    unseen[own] = NormalScoreTransform(values[others]).forward(values[own])
        return cls(rows, scores, unseen.clip(-MAX_UNSEEN_SCORE, MAX_UNSEEN_SCORE))


@dataclass(frozen=True)
class LeftOutPrograms:
    """What trees learn from: programs, as the regression predicts them without themselves or their group.

    Args:
        rows: indices of the programs, int [N].
        inputs: features of the trees, float [N, F].
        regression: prediction that the trees correct, float64 [N].
        scores: normal scores, float64 [N].
        unseen_scores: scores by the labels of the programs that are not left out, float64 [N].
        similarities: similarity to the nearest program that is not left out, float [N].
        is_new: whether the problem is left out, bool [N].
        new: probability of this for a program of such a similarity, float64 [N].
    """

    rows: np.ndarray
    inputs: np.ndarray
    regression: np.ndarray
    scores: np.ndarray
    unseen_scores: np.ndarray
    similarities: np.ndarray
    is_new: np.ndarray
    new: np.ndarray


def leave_out(
    labelled: LabelledPrograms,
    labels: ProgramLabels,
    predictions: Sequence[tuple[np.ndarray, np.ndarray]],
    by_group: bool,
    has_groups: bool,
    with_labels: bool,
) -> LeftOutPrograms:
    """Return left-out programs, and unless `by_group` also those of which the problem is known.

    Args:
        labelled: all labelled programs.
        labels: their labels.
        predictions: what each ridge regression predicts without a program, and without its problem.
        by_group: learn from left-out problems alone.
        has_groups: whether problems are known.
        with_labels: whether trees read what labels determine, see `tree_features`.
    """
    part, known, unseen = (
        values[:MAX_STACKED_PROGRAMS] for values in (labels.rows, labels.scores, labels.unseen_scores)
    )
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
    return LeftOutPrograms(
        np.tile(part, len(cases)),
        np.concatenate(
            [
                tree_features(features, predicted, *found, with_labels)
                for (predicted, *_), found in zip(cases, compared, strict=True)
            ]
        ),
        regression(ridge, new),
        np.tile(known, len(cases)),
        np.concatenate([unseen if is_new else known for *_, is_new in cases]),
        similarities,
        is_new,
        new,
    )


def cross_validated_predictions(left_out: LeftOutPrograms, groups: np.ndarray) -> np.ndarray:
    """Return predictions with trees that are fitted to the programs of other problems, float64 [N].

    Of a single problem they are fitted to other programs.

    Args:
        left_out: the programs.
        groups: index of the problem of each, int [N].
    """
    parts = left_out.rows if len(np.unique(groups)) == 1 else groups
    distinct, numbers = np.unique(parts, return_inverse=True)
    fold = np.random.default_rng(0).permutation(len(distinct))[numbers] % 2
    residuals = left_out.scores - left_out.regression
    predicted = left_out.regression.copy()
    for k in (0, 1):
        inside, others = fold == k, fold != k
        trees = BoostedTrees.fit(left_out.inputs[others], residuals[others])
        predicted[inside] += correction(trees, left_out.inputs[inside], left_out.new[inside])
    return predicted


def held_out(
    left_out: LeftOutPrograms, predicted: np.ndarray, spaces: np.ndarray, num_problems: int
) -> dict[int, HeldOutPrograms]:
    """Return how well the left-out programs of each space are predicted.

    Args:
        left_out: the left-out programs.
        predicted: prediction of each, float64 [N].
        spaces: index of the space of each, int [N].
        num_problems: problems of all labelled programs; of a single one nothing is left without it.
    """

    def correlation(rows: np.ndarray) -> float | None:
        if rows.sum() < MIN_LABELS:
            return None
        varies = np.ptp(predicted[rows]) > 0 and np.ptp(left_out.scores[rows]) > 0
        return float(spearman(predicted[rows], left_out.scores[rows])) if varies else 0.0

    found = {}
    for k in np.unique(spaces).tolist():
        own = spaces == k
        known, new = (correlation(own & (left_out.is_new == is_new)) for is_new in (False, True))
        new = new if num_problems > 1 else None
        if known is not None or new is not None:
            found[k] = HeldOutPrograms(len(np.unique(left_out.rows[own])), known, new)
    return found


@dataclass(frozen=True)
class ProgramErrors:
    """Errors by the similarity to the nearest labelled program.

    Args:
        knots: similarities in ascending order, float64 [NUM_KNOTS].
        stds: the error at each: a normal distribution of this standard deviation has `COVERED_SHARE` of the
            errors within its interval, float64 [NUM_KNOTS].
        new_shares: share of left-out problems at each, float64 [NUM_KNOTS].
        factors: error in each space of which programs were left out, relative to that in all.
    """

    knots: np.ndarray
    stds: np.ndarray
    new_shares: np.ndarray
    factors: Mapping[int, float]

    @classmethod
    def of_left_out(
        cls, left_out: LeftOutPrograms, predicted: np.ndarray, spaces: np.ndarray, num_problems: int
    ) -> Self:
        """Return the errors of left-out programs.

        Args:
            left_out: the programs.
            predicted: prediction of each, float64 [N].
            spaces: index of the space of each, int [N].
            num_problems: problems of all labelled programs; errors are wider where they are few.
        """
        residuals = np.abs(left_out.unseen_scores - predicted)
        knots, new_shares = _new_shares(left_out.similarities, left_out.is_new)
        stds = np.array(
            [
                max(_covering_std(residuals[part]), MIN_STD)
                for part in _parts_by_similarity(left_out.similarities)
            ]
        )
        relative = residuals / np.interp(left_out.similarities, knots, stds)
        factors = {}
        for k in np.unique(spaces).tolist():
            own = relative[spaces == k]
            factors[k] = (len(own) * _covering_std(own) + PRIOR_ROWS) / (len(own) + PRIOR_ROWS)
        return cls(knots, stds * student_width(max(MIN_PROBLEMS, num_problems)), new_shares, factors)


def _covering_std(residuals: np.ndarray) -> float:
    """Return the standard deviation whose interval has `COVERED_SHARE` of absolute residuals."""
    return float(np.quantile(residuals, COVERED_SHARE)) / COVERED_STDS


def _new_shares(similarities: np.ndarray, is_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return similarities in ascending order, and the share of left-out problems at each, [NUM_KNOTS]."""
    parts = _parts_by_similarity(similarities)
    knots = [float(np.median(similarities[part])) for part in parts]
    return np.maximum.accumulate(knots), np.array([float(is_new[part].mean()) for part in parts])


def _parts_by_similarity(similarities: np.ndarray) -> list[np.ndarray]:
    """Return the indices of programs in `NUM_KNOTS` parts, from the least to the most similar ones."""
    order = np.argsort(similarities, kind="stable")
    return [part if len(part) else order for part in np.array_split(order, NUM_KNOTS)]
