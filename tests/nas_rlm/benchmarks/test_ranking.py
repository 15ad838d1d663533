import numpy as np
import pytest

from nas_rlm.benchmarks.ranking import TOP_SHARES, rank_jointly_within_problems, rank_within_problems


def test_a_perfect_ranking_and_its_opposite():
    groups = [f"p{i % 3}" for i in range(30)] + ["small"] * 7 + ["same"] * 9
    true = np.concatenate([np.random.default_rng(0).permutation(30) + 1.0, np.arange(7.0), np.full(9, 5.0)])
    found = rank_within_problems(groups, true, 10 * true)
    assert found.num_programs.tolist() == [10, 10, 10] and found.good_share == 1
    assert found.correlations == pytest.approx([1, 1, 1]) and found.top1.tolist() == [1, 1, 1]
    assert found.random_top1 == pytest.approx([0.1] * 3)
    assert found.top_shares.tolist() == [1.0] * len(TOP_SHARES)
    assert found.random_top_shares == pytest.approx([0.1, *TOP_SHARES[1:]])
    worst = rank_within_problems(groups, true, -true)
    assert worst.good_share == 0 and worst.top1.tolist() == [0, 0, 0]
    assert worst.top_shares.tolist() == [0.0] * (len(TOP_SHARES) - 1) + [1.0]


def test_ties_count_for_both():
    true = np.array([1.0, 1, 1, 1, 2, 3, 4, 5])
    found = rank_within_problems(["p"] * 8, true, np.array([9.0, 0, 9, 9, 9, 9, 9, 9]))
    assert found.top1.tolist() == [1] and found.random_top1.tolist() == [0.5]
    assert found.random_top_shares[0] == 0.5


def test_without_problems_all_is_empty_or_zero():
    found = rank_within_problems(["a", "b"], np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert (
        found.good_share == 0
        and len(found.correlations) == 0
        and found.top_shares.tolist() == [0.0] * len(TOP_SHARES)
    )


def test_joint_rankings_are_those_of_the_fronts_within_problems():
    rng = np.random.default_rng(0)
    groups = [f"p{i % 3}" for i in range(30)] + ["small"] * 2 + ["all on the front"] * 4
    true = np.concatenate([rng.permutation(60).reshape(30, 2) + 1.0, np.ones((2, 2)), np.ones((4, 2))])
    perfect = rank_jointly_within_problems(groups, true, 10 * true)
    assert perfect.spearman == pytest.approx([1] * 3) and perfect.kendall == pytest.approx([1] * 3)
    assert perfect.top1.tolist() == [1] * 3
    assert all(0 < share < 1 for share in perfect.random_top1)
    opposite = rank_jointly_within_problems(groups, true, -true)
    assert (opposite.spearman < perfect.spearman - 0.5).all()
    assert opposite.random_top1.tolist() == perfect.random_top1.tolist()


def test_a_program_on_the_front_counts_though_another_is_first_by_measurements():
    true = np.array([[1.0, 9.0], [9.0, 1.0], [9.0, 9.0]])
    found = rank_jointly_within_problems(["p"] * 3, true, np.array([[5.0, 5.0], [1.0, 1.0], [2.0, 2.0]]))
    assert found.top1.tolist() == [1] and found.random_top1 == pytest.approx([2 / 3])
    equal = np.array([[1.0, 1.0], [1.0, 1.0], [9.0, 9.0]])
    assert rank_jointly_within_problems(["p"] * 3, equal, -equal[[2, 0, 1]]).random_top1 == [
        pytest.approx(2 / 3)
    ]


def test_without_problems_joint_rankings_are_empty():
    found = rank_jointly_within_problems(["a", "b"], np.ones((2, 2)), np.ones((2, 2)))
    assert len(found.spearman) == len(found.top1) == 0
