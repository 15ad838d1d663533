import numpy as np
import pytest

from nas_rlm.benchmarks.texts import TASKS, texts_benchmark


@pytest.mark.parametrize("task", TASKS)
def test_tasks_are_drawn_with_a_seed(task):
    first, again, other = (TASKS[task](40, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.texts == again.texts != other.texts
    assert len(first.values) == len(first.columns) == 40
    assert first.columns.shape[1] == len(first.categories)


def test_methods_are_compared_on_rows_that_none_has_seen():
    methods = ("rlm", "surrogate", "ngrams", "median", "trees")
    found = dict(texts_benchmark("identity", 60, [0], methods))
    by_method = {key[2]: result for key, result in found.items()}
    assert by_method.keys() == set(methods)
    assert all(result.rows == 60 for result in by_method.values())
    assert by_method["rlm"].mae < by_method["trees"].mae < by_method["median"].mae
    assert dict(texts_benchmark("identity", 60, [0], methods, finished=found)) == {}
