import sys
from types import ModuleType

import torch

from nas_rlm.study.evaluation import load_evaluation, location_of, run_evaluation
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


def test_an_evaluation_starts_when_torch_is_imported_and_seeded(open_study):
    study, order = open_study(), []
    trial = study.ask()
    outcome = run_evaluation(
        lambda trial: order.append("function") or 50.0,
        trial,
        study.settings,
        lambda: order.append(torch.initial_seed()),
    )
    assert order == [trial.seed, "function"] and outcome.values == {"accuracy": 50.0}
