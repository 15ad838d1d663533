import math
import os
import random
import re
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nas_rlm import Study
from nas_rlm.study.trial import COMPLETE, ERROR, FAILED, OUTPUT, PAUSED, RUNNING
from nas_rlm.study.values import WrongValuesError
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import PAIR, accuracy
from tests.nas_rlm.study.test_study import summary

pytestmark = pytest.mark.usefixtures("quick_processes")


def test_trials_are_evaluated_until_there_are_enough(open_study):
    study, seen = open_study(), []
    study.optimize(accuracy, trials=3, callbacks=[lambda s, t: seen.append((s, t.number))])
    assert seen == [(study, 0), (study, 1), (study, 2)]
    study.optimize(accuracy, trials=5)  # those of the first call count
    assert len(study.trials) == 5
    assert all(t.values["accuracy"] == accuracy(t)["accuracy"] for t in study.trials)
    assert 0 < study.trials[0].cost < 5
    assert study.trials[0].environment["torch"]
    study.optimize(accuracy, trials=20, callbacks=[lambda s, t: s.stop() if t.number == 6 else None])
    assert len(study.trials) == 7
    study.optimize(accuracy, timeout=0.3, callbacks=[lambda s, t: time.sleep(0.31)])
    assert len(study.trials) == 8


@pytest.mark.parametrize("callbacks", [[3], print, [print, None]])
def test_callbacks_that_are_no_functions_are_refused_before_a_trial(open_study, callbacks):
    study = open_study()
    with pytest.raises(
        ValueError, match=r"callbacks is .*: expected a list|a callback is (3|None): expected"
    ):
        study.optimize(accuracy, trials=3, callbacks=callbacks)
    assert study.trials == []


def test_failures_are_rows_and_the_study_goes_on(open_study):
    results = [
        lambda: 1 / 0,
        lambda: {"accuracy": math.nan},
        lambda: {"accuracy": math.inf},
        lambda: 130.0,
        lambda: sys.exit("no data"),
        lambda: 72.0,
    ]
    study = open_study()
    with pytest.warns(
        UserWarning, match="trial 0 failed: .*division by zero; its directory is .*00000"
    ) as caught:
        study.optimize(lambda trial: results[trial.number](), trials=len(results))
    named = [str(w.message).split()[3] for w in caught if "failed" in str(w.message)]
    first_of_types = ["ZeroDivisionError:", "NotFiniteError:", "ValueError:", "SystemExit:"]
    assert named == first_of_types
    errors = [t.error for t in study.trials]
    assert [t.state for t in study.trials] == [FAILED] * 5 + [COMPLETE]
    assert errors[0] == "ZeroDivisionError: division by zero"
    assert "accuracy is nan" in errors[1] and "accuracy is inf" in errors[2]
    assert "accuracy is 130.0, expected a percentage" in errors[3]
    assert errors[4] == "SystemExit: no data"
    traceback = (study.trials[0].directory / ERROR).read_text()
    assert "1 / 0" in traceback and "ZeroDivisionError" in traceback
    assert not (study.trials[5].directory / ERROR).exists()


GAVE = "the training function train "


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("{'acc': 7.5}", GAVE + "gave {'acc': 7.5}, expected accuracy: accuracy is missing; rename 'acc' to"),
        ("{'x': 7.5}", GAVE + "gave {'x': 7.5}, expected accuracy: accuracy is missing. Mend the function"),
        ("None", GAVE + "returned None and reported no values, expected accuracy. Mend"),
        ("'high'", GAVE + "gave {'accuracy': 'high'}, and accuracy is 'high', expected a percentage"),
        ("{'accuracy': None}", "gave {'accuracy': None}, and accuracy is None, expected a percentage"),
        ("{'accuracy': [71.0, 72.0]}", "and accuracy is [71.0, 72.0], expected a percentage"),
        ("(71.0, 0.3)", "gave weights of type float, expected a state_dict; several values are given as"),
        (
            "({}, {'accuracy': 71.0})",
            "gave weights of which 'accuracy' is of type float, expected a pair",
        ),
        (
            "(71.0, {'w': torch.ones(3).to_sparse()})",
            "train gave weights that cannot be stored, expected dense tensors: ",
        ),
        ("(71.0, {'w': torch.ones(3, device='meta')})", "weights that cannot be stored, expected dense"),
        ("(71.0, 0.3, 1.0)", "accuracy is (71.0, 0.3, 1.0), expected a percentage"),
        (
            "trial.report(0, 'high')",
            "trial.report gave {'accuracy': 'high'}, and accuracy is 'high', expected",
        ),
        (
            "trial.report(0, {'acc': 3.0})",
            "gave {'acc': 3.0}, expected accuracy: accuracy is missing; rename",
        ),
    ],
)
def test_a_function_that_gives_no_values_of_objectives_ends_the_study(open_study, mine, returned, reason):
    source = "import torch\ndef train(trial):\n    return 70.0 if trial.number == 0 else {}\n"
    mine.write_text(source.format(returned))
    study = open_study()
    with pytest.raises(WrongValuesError, match=r"^trial 1: .*" + re.escape(reason)):
        study.optimize(f"{mine}:train", trials=4, retries=2)
    assert [t.state for t in study.trials] == [COMPLETE, RUNNING]
    assert "WrongValuesError" in (study.trials[1].directory / ERROR).read_text()
    assert 'http-equiv="refresh"' not in (study.directory / "report.html").read_text()  # it ended
    mine.write_text(source.format("72.0"))
    again = open_study()
    again.optimize(f"{mine}:train", trials=3)
    assert [t.values["accuracy"] for t in again.trials] == [70, 72, 72]
    assert not (again.trials[1].directory / ERROR).exists()


def test_values_that_cannot_be_shown_end_the_study_as_well(open_study):
    class Unprintable:
        def __repr__(self):
            raise RuntimeError("no repr")

    with pytest.raises(WrongValuesError, match=r"trial 0: .* object at 0x.*, expected a percentage"):
        open_study().optimize(lambda trial: {"accuracy": Unprintable()}, trials=1)


def test_a_worker_whose_function_gives_no_values_of_objectives_ends_the_study(open_study, mine):
    mine.write_text("def train(trial):\n    return 70.0 if trial.number < 2 else {'acc': 71.25}\n")
    study = open_study()
    with pytest.raises(
        WrongValuesError, match=r"trial [23]: .*; rename 'acc' to 'accuracy'\. Mend the function"
    ):
        study.optimize(f"{mine}:train", trials=9, workers=2)
    assert {t.state for t in study.trials} == {COMPLETE, RUNNING}
    study.optimize(accuracy, trials=5)
    assert [t.state for t in study.trials] == [COMPLETE] * 5


def test_what_a_training_gave_is_kept_where_its_names_are_wrong(open_study):
    study = open_study()
    with pytest.raises(WrongValuesError):
        study.optimize(lambda trial: ({"acc": 71.25}, {"w": torch.ones(2)}), trials=1)
    (trial,) = study.trials
    assert "The function returned {'acc': 71.25}" in (trial.directory / ERROR).read_text()
    assert torch.equal(load_file(trial.weights_file)["w"], torch.ones(2))


@pytest.mark.parametrize("workers", [0, 1])
def test_additional_values_are_kept_and_named_once(open_study, mine, workers):
    mine.write_text(
        "def train(trial):\n"
        "    trial.report(0, {'accuracy': 10.0, 'val_loss': 2.5})\n"
        "    others = {'loss': 0.25, 'epochs': 3, 'flops': 1.0, 'history': [1, 2], 'lr': float('nan')}\n"
        "    return {'accuracy': 60.0 + trial.number} | others\n"
    )
    study = open_study()
    with pytest.warns(UserWarning) as caught:
        study.optimize(f"{mine}:train", trials=2, workers=workers)
    assert [str(warning.message) for warning in caught] == [
        "trial 0 gave more than accuracy: epochs, loss, val_loss: kept as additional values, no objectives;"
        " flops: not used, but counted, measured or predicted; history, lr: not kept, no finite numbers"
    ]
    for trial in open_study().trials:
        assert trial.state == COMPLETE
        assert trial.values == {"accuracy": 60.0 + trial.number, "flops": CELLS.flops(trial.parsed)}
        assert trial.additional == {"loss": 0.25, "epochs": 3}
        assert trial.steps == {0: {"accuracy": 10, "val_loss": 2.5}}
    assert study.to_records()[1]["additional/loss"] == 0.25
    header = (study.directory / "trials.csv").read_text().splitlines()[0]
    assert header.endswith("error,additional/loss,additional/epochs")
    assert all(row.targets.keys() == {"accuracy"} for row in study.rows)


def test_an_evaluation_that_always_fails_ends_the_study(open_study):
    with pytest.raises(RuntimeError, match="the first 10 trials failed, the last one with KeyError: "):
        open_study().optimize(lambda trial: {}["labels"], trials=100)


def test_a_function_may_change_the_working_directory(tiny_rlm, quick_suggestions, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    study = Study(CELLS, PAIR, "relative", model=tiny_rlm)

    def moving(trial):
        os.chdir(tmp_path / "elsewhere")
        (trial.directory / "checkpoint").touch()
        return accuracy(trial)

    study.optimize(moving, trials=2)
    assert [t.state for t in Study.load(tmp_path / "relative").trials] == [COMPLETE] * 2
    assert (tmp_path / "relative" / "trials" / "00001" / "checkpoint").exists()
    assert (tmp_path / "relative" / "front.csv").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_failed_trials_are_evaluated_again(open_study):
    study, calls = open_study(), []

    def flaky(trial):
        calls.append((trial.number, trial.architecture, trial.seed))
        trial.report(len(calls), 10.0)
        if len(calls) % 3:
            raise OSError("the disk is full")
        return 70.0

    study.optimize(flaky, trials=2, retries=2)
    assert [number for number, *_ in calls] == [0, 0, 0, 1, 1, 1]
    assert len(set(calls)) == 2
    first = study.trials[0]
    assert (first.state, first.attempts, first.error) == (COMPLETE, 3, "")
    assert list(first.steps) == [3]  # of the last attempt
    study.optimize(flaky, trials=3, retries=1)
    assert study.trials[2].state == FAILED and study.trials[2].attempts == 2


def test_failed_trials_of_earlier_runs_are_evaluated_again_if_asked_for(open_study):
    def broken(trial):
        raise NameError("acuracy")

    study = open_study()
    with pytest.raises(RuntimeError, match="the first 10 trials failed"):
        study.optimize(broken, trials=12)
    by_hand = study.ask()
    study.tell(by_hand, failure="by hand")
    failed = [t.architecture for t in study.trials]
    again = open_study()
    again.optimize(accuracy, trials=12, retry_failed=True)
    assert [t.architecture for t in again.trials][:11] == failed
    assert [t.state for t in again.trials] == [COMPLETE] * 10 + [FAILED, COMPLETE]
    assert [t.attempts for t in again.trials] == [1] * 10 + [0, 1]
    assert not any(t.error for t in again.trials if t.state == COMPLETE)
    assert summary(open_study()) == summary(again)
    again.optimize(accuracy, trials=12, retry_failed=True)
    assert len(again.trials) == 12


def test_an_end_without_a_trial_that_meets_the_constraints_is_warned_of(open_study):
    study = open_study(constraints=["accuracy>=99.9"])
    with pytest.warns(UserWarning, match="no trial meets accuracy>=99.9: there is no front"):
        study.optimize(accuracy, trials=2)


def test_a_study_of_counted_objectives_needs_no_function(tiny_rlm, tmp_path):
    study = Study("nasbench201", ["flops", "params"], tmp_path / "study", model=tiny_rlm)
    study.optimize(trials=3)
    assert [t.values["params"] for t in study.trials] == [t.space.params(t.parsed) for t in study.trials]
    with pytest.raises(ValueError, match="expected a function that evaluates accuracy"):
        Study("nasbench201", ["accuracy"], tmp_path / "other", model=tiny_rlm).optimize(trials=3)


def test_a_cost_below_the_first_budget_is_refused(tiny_rlm, tmp_path):
    study = Study("nasbench201", ["accuracy"], tmp_path / "study", model=tiny_rlm, budgets=(2, 4))
    with pytest.raises(ValueError, match="cost is 1, less than the first budget, 2"):
        study.optimize(lambda trial, budget, resume_from: 50.0, cost=1)


def test_an_interrupted_study_continues_with_the_same_trial(open_study):
    def interrupted(trial):
        if trial.number == 2:
            raise KeyboardInterrupt
        return accuracy(trial)

    study = open_study()
    with pytest.raises(KeyboardInterrupt):
        study.optimize(interrupted, trials=4)
    assert [t.state for t in study.trials] == [COMPLETE, COMPLETE, RUNNING]
    again = open_study()
    again.optimize(accuracy, trials=4)
    uninterrupted = open_study("other")
    uninterrupted.optimize(accuracy, trials=4)
    assert summary(again) == summary(uninterrupted)
    assert [t.attempts for t in again.trials] == [1, 1, 2, 1]


def test_arguments_that_make_no_sense_are_refused(open_study, mine):
    study = open_study()
    for options, reason in [
        ({"workers": 1}, "worker processes cannot import the function"),
        ({"workers": -1}, "workers is -1"),
        ({"trials": 0}, "trials is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"timeout": 0}, "timeout is 0"),
        ({"time_limit": 5}, "expected workers=1"),
    ]:
        with pytest.raises(ValueError, match=reason):
            study.optimize(lambda trial: 1.0, **options)
    with pytest.raises(ValueError, match=r"mine\.py has no function 'trian'; did you mean train"):
        study.optimize(f"{mine}:trian", trials=1)
    with pytest.raises(ValueError, match=r"is not FILE\.py:FUNCTION"):
        study.optimize("mine", trials=1)
    with pytest.raises(ValueError, match="expected a function of a trial"):
        study.optimize(3, trials=1)
    with pytest.raises(
        ValueError, match=r"is <lambda>\(a, b\), and a study without budgets calls it with trial"
    ):
        study.optimize(lambda a, b: 1.0, trials=1)
    assert not study.trials


def test_the_function_of_a_trial_is_recorded(open_study, mine, monkeypatch):
    study = open_study()
    study.optimize(accuracy, trials=1)
    monkeypatch.chdir(mine.parent)
    study.optimize("mine.py:train", trials=2)
    first, second = Study.load(study.directory).trials
    assert first.evaluation == "tests.nas_rlm.study.conftest:accuracy"
    assert second.evaluation == f"{mine}:train"  # so that it is found from any directory


RESUMABLE = """
def train(trial, budget, resume_from):
    epochs = int((resume_from / "epochs").read_text()) if resume_from else 0
    print("from", epochs, "to", budget)
    if trial.number == 2 and budget == 16:
        raise RuntimeError("CUDA out of memory")
    (trial.directory / "epochs").write_text(str(budget))
    return 50.0 + trial.number + budget
"""


@pytest.mark.parametrize(("workers", "cost"), [(0, 60), (1, 17)])
def test_trainings_resume_from_the_budget_before_until_the_cost_is_spent(open_study, tmp_path, workers, cost):
    (tmp_path / "mine.py").write_text(RESUMABLE)
    study, seen = open_study(budgets=(1, 4, 16)), []
    function = f"{tmp_path / 'mine.py'}:train"
    study.optimize(
        function, cost=cost, workers=workers, callbacks=[lambda s, t: seen.append((t.number, t.state))]
    )
    assert seen[:4] == [(0, PAUSED), (1, PAUSED), (0, PAUSED), (0, COMPLETE)]
    assert cost - 12 < study.cost == sum(t.cost for t in study.trials) <= cost
    if cost == 60:
        failed = [t for t in study.trials if t.state == FAILED]
        assert [t.number for t in failed] == [2] and failed[0].cost == 16
    for trial in study.trials:
        for budget, values in trial.budget_values.items():
            assert values["accuracy"] == 50 + trial.number + budget
            if workers:
                former = {1: 0, 4: 1, 16: 4}[budget]
                output = (trial.directory.parent / f"budget{budget}" / OUTPUT).read_text()
                assert output == f"from {former} to {budget}\n"
    before = len(seen)
    study.optimize(function, cost=study.cost, workers=workers)
    assert len(seen) == before
    trials = cost // 15
    study.optimize(function, trials=trials, workers=workers)
    assert sum(t.state in (COMPLETE, FAILED) for t in study.trials) == trials


def test_a_training_that_goes_on_draws_other_random_numbers(open_study):
    drawn = {}

    def training(trial, budget, resume_from):
        drawn[trial.number, budget] = (torch.initial_seed(), random.random(), float(np.random.rand()))  # noqa: NPY002
        return 50.0 + trial.number

    study = open_study(budgets=(1, 4))
    study.optimize(training, cost=10)
    (number,) = [t.number for t in study.trials if t.state == COMPLETE][:1]
    assert drawn[number, 1][0] == study.trials[number].seed
    assert all(a != b for a, b in zip(drawn[number, 1], drawn[number, 4], strict=True))
    assert len(set(drawn.values())) == len(drawn)


def test_a_continued_training_of_a_killed_process_is_repeated_with_its_budget(open_study, tmp_path):
    (tmp_path / "mine.py").write_text(RESUMABLE)
    study = open_study(budgets=(1, 4, 16))
    for trial in study.ask(2):
        study.tell(trial, 50.0)
        (trial.directory / "epochs").write_text("1")
    (trial,) = study._store.claim(study._suggest, math.inf, "dead")
    assert (trial.number, trial.budget) == (0, 4)
    other = open_study(budgets=(1, 4, 16))
    other.optimize(f"{tmp_path / 'mine.py'}:train", trials=1)
    repeated = other.trials[0]
    assert repeated.state == COMPLETE and repeated.cost == 16
    assert {b: v["accuracy"] for b, v in repeated.budget_values.items()} == {1: 50, 4: 54, 16: 66}


def test_seconds_limit_the_cost_without_budgets(open_study):
    study = open_study()
    study.optimize(lambda trial: time.sleep(0.02) or accuracy(trial), cost=0.05)
    assert study.cost >= 0.05 > study.cost - study.trials[-1].cost
    with pytest.raises(ValueError, match="cost is -1, expected a positive number"):
        study.optimize(accuracy, cost=-1)


@pytest.mark.parametrize("is_left", [True, False], ids=["left by trainings", "set before"])
def test_settings_of_torch_do_not_reach_the_study(open_study, change_torch, is_left):
    """A default device, type and disabled gradients; suggestions by surrogates start with trial 10."""

    def train(trial):
        if is_left:
            assert torch.is_grad_enabled() and torch.ones(1).device.type == "cpu"
            change_torch()
        return accuracy(trial)

    study, expected = open_study(), open_study("expected")
    expected.optimize(accuracy, trials=13)
    if not is_left:
        change_torch()
    study.optimize(train, trials=13)
    assert (torch.ones(1).device.type == "meta") == (not is_left)
    assert summary(study) == summary(expected)
