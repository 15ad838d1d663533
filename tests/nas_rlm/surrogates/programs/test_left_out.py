import numpy as np
import pytest

from nas_rlm.surrogates.predictive import normal_scores, student_width
from nas_rlm.surrogates.programs.left_out import (
    COVERED_SHARE,
    COVERED_STDS,
    MAX_UNSEEN_SCORE,
    LeftOutPrograms,
    ProgramErrors,
    ProgramLabels,
)


def labels(values, groups, spaces=None, has_groups=True):
    values = np.array(values, dtype=float)
    spaces = np.zeros(len(values), int) if spaces is None else np.array(spaces)
    return ProgramLabels.of_values(np.arange(len(values)), values, spaces, np.array(groups), has_groups)


def test_a_problem_beyond_all_others_has_the_score_of_a_value_that_no_label_was_near():
    found = labels([1, 2, 3, 4, 5, 6, 7, 8, 20, 21], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    assert found.scores == pytest.approx(normal_scores(np.arange(10)))
    assert found.unseen_scores[8:].min() > 2 * found.scores.max()
    assert found.unseen_scores[2:6] == pytest.approx(found.scores[2:6], abs=0.5)


def test_scores_far_from_all_others_are_cut():
    assert labels([1, 2, 3, 1e9], [0, 1, 2, 3]).unseen_scores[3] == MAX_UNSEEN_SCORE


@pytest.mark.parametrize("groups, has_groups", [(range(6), False), ([0] * 6, True)])
def test_scores_are_those_of_all_labels_where_no_other_problem_is_known(groups, has_groups):
    found = labels([3, 1, 4, 1, 5, 9], [*groups], has_groups=has_groups)
    assert found.unseen_scores == pytest.approx(found.scores)


def test_each_space_has_scores_of_its_own():
    found = labels([1, 2, 3, 100, 200, 300], [0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
    assert found.scores[:3] == pytest.approx(found.scores[3:])
    assert found.unseen_scores[:3] == pytest.approx(found.unseen_scores[3:])


def left_out(unseen):
    count = len(unseen)
    zeros, similarities = np.zeros(count), np.linspace(0, 1, count)
    is_new = np.ones(count, dtype=bool)
    inputs = np.zeros((count, 1))
    return LeftOutPrograms(
        np.arange(count), inputs, zeros, zeros, np.array(unseen), similarities, is_new, zeros
    )


def errors(unseen, num_problems, spaces=None):
    spaces = np.zeros(len(unseen), int) if spaces is None else spaces
    return ProgramErrors.of_left_out(left_out(unseen), np.zeros(len(unseen)), spaces, num_problems)


def test_intervals_hold_their_share_of_the_errors():
    unseen = np.random.default_rng(0).standard_t(3, 2000)
    found = errors(unseen, 1000)
    stds = found.factors[0] * np.interp(np.linspace(0, 1, 2000), found.knots, found.stds)
    assert np.mean(np.abs(unseen) <= COVERED_STDS * stds) == pytest.approx(COVERED_SHARE, abs=0.02)


@pytest.mark.parametrize("num_problems", [3, 5, 20])
def test_intervals_are_wider_where_problems_are_few(num_problems):
    unseen = np.random.default_rng(0).normal(size=100)
    few, many = (errors(unseen, count) for count in (num_problems, 10**6))
    assert few.factors == many.factors
    assert few.stds / many.stds == pytest.approx(student_width(num_problems), rel=1e-3)


def test_a_space_with_larger_errors_has_a_larger_factor():
    spaces = np.arange(400) % 2
    unseen = np.random.default_rng(0).normal(size=400) * (1 + 2 * spaces)
    found = errors(unseen, 1000, spaces)
    assert found.factors[1] > 1.8 * found.factors[0]
