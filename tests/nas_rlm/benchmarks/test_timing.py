import numpy as np
import pytest

from nas_rlm.benchmarks import timing
from nas_rlm.benchmarks.timing import Timing, time_cases


def test_cases_take_turns_and_the_median_counts(monkeypatch):
    clock = iter(np.cumsum([0.0, 0, 9, 0, 9, 0, 1, 0, 2, 0, 3, 0, 4, 0, 8, 0, 2]).tolist()[1:])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    order = []
    cases = {name: lambda run, name=name: order.append((name, run)) or 10 for name in "ab"}
    found = dict(time_cases(cases, 3))
    assert order == [(name, run) for run in range(4) for name in "ab"]
    assert (found["a"].seconds, found["a"].spread, found["a"].units) == (3, 7, 10)
    assert (found["b"].seconds, found["b"].spread) == (2, 2)
    assert found["a"].per_second == pytest.approx(10 / 3)


def test_memory_is_the_growth_of_the_process():
    held = []
    cases = {"much": lambda _: len(held.append(np.ones(2**24)) or held), "nothing": lambda _: 1}
    found = dict(time_cases(cases, 1, warm_up=False))
    if not timing._peak_memory():
        pytest.skip("this system does not report the memory of a process")
    assert 100 < found["much"].memory < 200
    assert found["nothing"].memory < 20


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_not_positive_is_refused(seconds):
    with pytest.raises(ValueError, match=f"seconds is {seconds}, expected a positive number"):
        Timing(1, seconds, 0.0, 0.0)


def test_units_per_second():
    assert Timing(10, 2, 0, 0).per_second == 5
