"""Times of a judge over the years: ranks within half-years, values of the whole language."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.data.judge_times import comparable_times, make_times_comparable
from nas_rlm.data.rows import Row
from nas_rlm.metrics import spearman


def test_programs_of_different_half_years_are_ranked_by_their_speed():
    rng = np.random.default_rng(0)
    speed = rng.lognormal(3, 1, 600)
    periods = rng.choice(["2020H2", "2022H1", "2025H1"], 600)
    machine = np.array([{"2020H2": 1.0, "2022H1": 0.3, "2025H1": 0.02}[p] for p in periods])
    measured = np.floor(speed * machine)  # many are 0 on the last machine
    assert spearman(measured, speed) < 0.5
    assert spearman(comparable_times(measured, periods), speed) > 0.85


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from("ab")), min_size=1, max_size=60))
def test_order_within_a_half_year_and_the_range_are_kept(programs):
    times = np.array([float(time) for time, _ in programs])
    periods = [period for _, period in programs]
    changed = comparable_times(times, periods)
    assert times.min() <= changed.min() <= changed.max() <= times.max()
    for period in set(periods):
        part = [i for i, p in enumerate(periods) if p == period]
        order = sorted(part, key=lambda i: times[i])
        assert (np.diff(changed[order]) >= -1e-9).all()
    if len(set(periods)) == 1:
        assert (changed == times).all()


def test_few_programs_of_a_half_year_change_little():
    times = np.arange(200.0)
    changed = comparable_times(times, ["new"] + ["old"] * 199)
    assert changed[0] == pytest.approx(0, abs=15)
    assert changed[1:] == pytest.approx(times[1:], abs=1)


def test_only_dated_times_of_the_same_language_are_compared():
    rows = [Row(f"LeetCode/{name}", "", {"time": t}, "x") for name, t in zip("AABBB", range(5), strict=True)]
    rows.append(Row("LeetCode/A", "", {"memory": 7.0}, "x"))
    make_times_comparable(rows, {0: "1", 1: "2", 2: "1", 3: "1", 5: "1"}, "time")
    assert [row.targets.get("time") for row in rows[2:]] == [2.0, 3.0, 4.0, None]
    assert rows[5].targets == {"memory": 7.0}
