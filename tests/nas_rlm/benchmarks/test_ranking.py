import numpy as np
import pytest

from nas_rlm.benchmarks.ranking import TOPS, draw_within, within


def test_what_a_perfect_ranking_and_its_opposite_are_worth():
    groups = [f"p{i % 3}" for i in range(30)] + ["small"] * 7 + ["same"] * 9
    true = np.concatenate([np.random.default_rng(0).permutation(30) + 1.0, np.arange(7.0), np.full(9, 5.0)])
    found = within(groups, true, 10 * true)
    assert found.counts.tolist() == [10, 10, 10] and found.good == 1
    assert found.ranks == pytest.approx([1, 1, 1]) and found.best.tolist() == [1, 1, 1]
    assert found.lucky == pytest.approx([0.1] * 3)
    assert found.tops.tolist() == [1.0] * len(TOPS)
    assert found.lucky_tops == pytest.approx([0.1, *TOPS[1:]])
    worst = within(groups, true, -true)
    assert worst.good == 0 and worst.best.tolist() == [0, 0, 0]
    assert worst.tops.tolist() == [0.0] * (len(TOPS) - 1) + [1.0]


def test_ties_count_for_both():
    true = np.array([1.0, 1, 1, 1, 2, 3, 4, 5])
    found = within(["p"] * 8, true, np.array([9.0, 0, 9, 9, 9, 9, 9, 9]))
    assert found.best.tolist() == [1] and found.lucky.tolist() == [0.5]
    assert found.lucky_tops[0] == 0.5


def test_without_problems_there_is_nothing():
    found = within(["a", "b"], np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert found.good == 0 and len(found.ranks) == 0 and found.tops.tolist() == [0.0] * len(TOPS)


def test_pictures_show_what_was_counted():
    rng = np.random.default_rng(0)
    true = rng.lognormal(size=200)
    found = within([f"p{i % 20}" for i in range(200)], true, true * rng.lognormal(size=200))
    ranks, best, tops = draw_within(found, "memory").axes
    assert f"{found.good:.0%} above" in ranks.get_title(loc="left")
    assert best.patches[0].get_height() == pytest.approx(found.best.mean())
    assert tops.lines[0].get_ydata().tolist() == found.tops.tolist()
