from nas_rlm.benchmarks.schedule import Schedule


def test_a_search_that_lacks_one_of_its_results_remains():
    schedule = Schedule(["a", "b"], [0, 1], (5, 10))
    assert schedule.remaining([]) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    finished = [("x", "a", 0, 5), ("x", "a", 0, 10), ("x", "b", 0, 5), ("y", "b", 0, 10)]
    assert schedule.remaining(finished, ["x"]) == [("b", 0), ("a", 1), ("b", 1)]
    assert len(schedule.remaining(finished)) == 4
