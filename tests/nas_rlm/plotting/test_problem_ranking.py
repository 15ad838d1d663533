import numpy as np
import pytest

from nas_rlm.plotting.problem_ranking import ProblemRankingInfo, bin_top1, draw_problem_ranking


def test_problems_are_binned_by_their_number_of_programs():
    num_programs, top1 = np.array([8, 10, 11, 17, 99]), np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    bins = bin_top1(num_programs, top1, np.full(5, 0.1), 8)
    assert [label for label, *_ in bins] == ["8 to 10", "11 to 13", "14 to 16", "from 17"]
    assert [mean for _, mean, _ in bins] == [0.5, 1.0, None, 0.5]
    assert [mean for _, _, mean in bins] == [pytest.approx(0.1), pytest.approx(0.1), None, pytest.approx(0.1)]


def test_the_picture_shows_correlations_bins_and_shares():
    info = ProblemRankingInfo(
        title="memory",
        correlations=np.array([0.9, 0.2, 0.6, 0.7]),
        good_spearman=0.5,
        bins=[("8 to 10", 0.5, 0.1), ("from 11", None, None)],
        shares=(0.5, 1.0),
        top_shares=np.array([0.8, 1.0]),
        random_top_shares=np.array([0.5, 1.0]),
    )
    histogram, best, tops = draw_problem_ranking(info).axes
    assert histogram.get_title(loc="left") == "75% above 0.5"
    assert [patch.get_height() for patch in best.patches] == [0.5, 0.1]
    assert tops.lines[0].get_ydata().tolist() == [0.8, 1.0]
