import sys
from types import ModuleType

from nas_rlm.study.evaluation import load_evaluation, location_of
from tests.nas_rlm.study.conftest import accuracy


def test_functions_are_found_by_workers_where_they_can_be_imported(mine):
    assert location_of(accuracy) == "tests.nas_rlm.study.conftest:accuracy"
    train = load_evaluation(f"{mine}:train")
    assert location_of(train) == f"{mine}:train"
    assert location_of(lambda trial: 1) == ""


def test_a_function_of_the_standard_input_is_not_found(monkeypatch):
    main = ModuleType("__main__")
    main.__file__ = "<stdin>"
    exec("def train(trial):\n    return 50.0\n", main.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert location_of(main.train) == ""
