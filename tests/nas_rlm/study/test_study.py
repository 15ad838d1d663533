import json
import multiprocessing
import os
import shutil
import signal
import time

import numpy as np
import pytest
import torch

import nas_rlm
from nas_rlm import Study
from nas_rlm.search.pareto import nondominated
from nas_rlm.study import free_values
from nas_rlm.study.store import Suggestion, Suggestions
from nas_rlm.study.suggestion import PoolSuggester
from nas_rlm.study.trial import COMPLETE, FAILED, RUNNING
from nas_rlm.study.values import WrongValuesError
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import PAIR, accuracy


def summary(study):
    """What must not depend on interruptions."""
    return [
        (t.number, t.architecture, t.seed, t.state, t.values, t.steps, t.error, t.budget_values)
        for t in study.trials
    ]


def test_ask_and_tell(open_study):
    study = open_study()
    trial, others = study.ask(), study.ask(3)
    assert [t.number for t in (trial, *others)] == [0, 1, 2, 3]
    assert len({t.architecture for t in study.trials}) == 4
    assert [t.state for t in study.pending] == [RUNNING] * 4
    study.tell(trial, {"accuracy": 91.5}, cost=12.0)
    study.tell(2, 80)
    assert trial.state == COMPLETE and trial.cost == 12
    assert trial.values == {"accuracy": 91.5, "flops": CELLS.flops(trial.parsed)}
    assert study.trials[2].values["accuracy"] == 80
    assert [t.number for t in study.pending] == [1, 3]
    with pytest.raises(ValueError, match="trial 0 is complete already"):
        study.tell(trial, {"accuracy": 90.0})
    with pytest.raises(ValueError, match="there is no trial 4: the study has 4"):
        study.tell(4, {"accuracy": 90.0})
    with pytest.raises(ValueError, match="number of trials is 0"):
        study.ask(0)


def test_the_front_has_the_best_trials_that_meet_the_constraints(open_study):
    study = open_study(constraints=["accuracy<=75"])
    with pytest.raises(ValueError, match="none of 0 trials is complete that meets accuracy<=75"):
        study.best  # noqa: B018
    for trial in study.ask(12):
        study.tell(trial, accuracy(trial))
    values = np.array([[t.values[name] for name in PAIR] for t in study.trials])
    feasible = [t for t in study.trials if t.values["accuracy"] <= 75]
    assert len(feasible) < 12
    points = np.array([[t.values[name] for name in PAIR] for t in feasible])
    expected = {t.number for t, is_on in zip(feasible, nondominated(points, PAIR), strict=True) if is_on}
    assert {t.number for t in study.front} == expected
    assert study.best is study.front[0]
    assert study.best.values["accuracy"] == max(points[:, 0]) < max(values[:, 0])
    records = study.to_records()
    assert {r["number"] for r in records if r["is_on_front"]} == expected
    assert records[3]["accuracy"] == study.trials[3].values["accuracy"]
    assert "12 trials" in repr(study)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"acuracy": 90.0}, "accuracy and loss are missing; rename 'acuracy' to 'accuracy'"),
        (
            {"accuracy": 90.0, "los": 1.0},
            "expected accuracy and loss: loss is missing; rename 'los' to 'loss'",
        ),
        ({"accuracy": 120.0, "loss": 0.1}, r"accuracy is 120\.0, expected a percentage"),
        ({"accuracy": "high", "loss": 0.1}, "accuracy is 'high'"),
        (90.0, "gave 90.0, expected a mapping with accuracy and loss"),
        (None, "no values of any step"),
    ],
)
def test_values_that_make_no_sense_are_refused_and_nothing_is_recorded(open_study, values, reason):
    study = open_study(objectives=("accuracy", "loss", "flops"))
    trial = study.ask()
    with pytest.raises(ValueError, match=reason):
        study.tell(trial, values)
    assert trial.state == RUNNING
    study.tell(trial, {"accuracy": np.float32(90), "loss": torch.tensor(-0.5)})
    assert trial.values["accuracy"] == 90 and trial.values["loss"] == -0.5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("nan"), torch.tensor(float("nan"))])
def test_values_that_are_not_finite_are_failures(open_study, value):
    study = open_study()
    trial = study.ask()
    study.tell(trial, {"accuracy": value})
    assert trial.state == FAILED and trial.error.startswith("accuracy is ")
    assert study.front == []


def test_values_that_may_be_fractions_are_warned_of_once(open_study):
    study = open_study()
    first, second, third, *others = study.ask(5)
    study.tell(first, 0.7)
    study.tell(second, 0.8)
    with pytest.warns(UserWarning, match=r"accuracy is at most 0\.9: expected percentages.*fractions"):
        study.tell(third, 0.9)
    for trial in others:
        study.tell(trial, 0.5)
    percentages = open_study("percentages")
    for trial in percentages.ask(3):
        percentages.tell(trial, 70.0)


@pytest.mark.parametrize("name", ["val_acc", "my_score", "top1_val"])
def test_a_score_that_is_minimised_is_warned_of(open_study, name):
    with pytest.warns(UserWarning, match=f"{name} is minimised: if larger values are better, give it as max"):
        open_study(objectives=[name, "flops"])
    open_study("other", objectives=[name, "val_loss"], maximise=[name])


def test_failures_are_told(open_study):
    study = open_study()
    first, second = study.ask(2)
    study.tell(first, failure=MemoryError("no memory"), cost=3)
    study.tell(second, failure="diverged")
    study.tell(study.ask(), failure="x" * 10_000)
    assert len(study.trials.pop().error) == 500
    assert (first.state, first.error, first.cost) == (FAILED, "MemoryError: no memory", 3)
    assert second.error == "diverged"
    assert [t.error for t in open_study().trials][:2] == ["MemoryError: no memory", "diverged"]


def test_values_of_steps_are_a_learning_curve(open_study):
    study = open_study()
    trial = study.ask()
    study.tell(trial, {"accuracy": 40.0}, step=0)
    trial.report(2, 60.0)
    trial.report(1, {"accuracy": 50.0})
    with pytest.raises(ValueError, match="accuracy is nan"):
        trial.report(3, {"accuracy": float("nan")})
    assert study.pending == [trial]
    assert open_study().trials[0].steps == {0: {"accuracy": 40}, 2: {"accuracy": 60}, 1: {"accuracy": 50}}
    study.tell(trial)  # the last step counts
    assert trial.values["accuracy"] == 60
    with pytest.raises(ValueError, match="trial 0 is complete"):
        trial.report(4, 70.0)


def test_a_study_is_opened_again_with_the_same_settings_only(open_study, tmp_path):
    study = open_study(constraints=["accuracy>=60"])
    study.tell(study.ask(), 70.0)
    assert summary(open_study(constraints=["accuracy>=60"])) == summary(study)
    loaded = Study.load(tmp_path / "study")
    assert summary(loaded) == summary(study) and loaded.settings == study.settings
    with pytest.raises(ValueError, match=r"seed 0 instead of 1.* open it with its own settings"):
        open_study(constraints=["accuracy>=60"], seed=1)
    with pytest.raises(
        ValueError, match=r"objectives \('accuracy', 'flops'\) instead of \('accuracy',\), const"
    ):
        open_study(objectives=["accuracy"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(ValueError, match="not empty and holds no study"):
        open_study("other")
    with pytest.raises(FileNotFoundError, match=r"holds no study: expected the directory"):
        Study.load(tmp_path / "other")


def test_damaged_files_are_refused(open_study, tmp_path):
    study = open_study()
    study.ask()
    log = tmp_path / "study" / "trials.jsonl"
    asked = log.read_text()
    study.tell(0, 71.0)
    intact = log.read_text()
    damaged = [asked + '{"event": "tell"}\n']
    damaged += [intact.replace(": 71.0", f": {value}") for value in ('"high"', "NaN", "null")]
    damaged += [intact.replace('"values"', '"additional": {"loss": "low"}, "values"')]
    damaged += [intact.replace('"trial": 0', f'"trial": {number}') for number in (-1, 9)]
    for content in damaged:
        log.write_text(content)
        with pytest.raises(ValueError, match=r"trials\.jsonl line 2 is not an event"):
            open_study()
    (tmp_path / "study" / "study.json").write_text("{}")
    with pytest.raises(ValueError, match=r"study\.json is not what a study writes: space is missing"):
        Study.load(tmp_path / "study")


@pytest.mark.parametrize("damage", [os.unlink, lambda path: os.truncate(path, 50)])
def test_a_log_that_is_deleted_or_shortened_meanwhile_is_noticed(open_study, damage):
    def training(trial):
        if trial.number == 1:
            damage(trial.directory.parents[1] / "trials.jsonl")
        return accuracy(trial)

    study = open_study()
    with pytest.raises(ValueError, match=r"trials\.jsonl was deleted or shortened while the study was open"):
        study.optimize(training, trials=3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"device": "onnxruntime"}, "no objective of onnxruntime-cpu-1t is among"),
        ({"predicted": ["latency/pixel3"]}, "to be predicted, but is no objective"),
        ({"predicted": ["flops"]}, "is exact or measured"),
        (
            {"objectives": ["accuracy", "latency/x"], "predicted": ["latency/x"]},
            "unknown objective 'latency/x'",
        ),
        ({"objectives": []}, "at least one objective"),
        ({"objectives": ["acuracy"]}, "did you mean accuracy"),
        ({"constraints": ["flop<=3"]}, "did you mean flops"),
        ({"maximise": ["score"]}, "'score' is to be maximised"),
        ({"constraints": ["accuracy=3"]}, "constraint 'accuracy=3'"),
        ({"budgets": [4, 1]}, r"budgets are \[4, 1\], expected two or more ascending numbers such as 1, 4"),
        ({"budgets": [4]}, r"budgets are \[4\], expected two or more"),
        ({"budgets": [16]}, r"budgets are \[16\]"),
        ({"budgets": [0, 16]}, r"budgets are \[0, 16\]"),
        (
            {"budgets": [1, 4], "objectives": ["flops"]},
            "budgets without an objective that an evaluation gives",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(open_study, tmp_path, options, reason):
    with pytest.raises(ValueError, match=reason):
        open_study(**options)
    assert not (tmp_path / "study").exists()


def test_predicted_objectives_need_not_be_told(open_study, tiny_rlm):
    study = open_study(objectives=("accuracy", "latency/pixel3"), predicted=["latency/pixel3"])
    trial = study.ask()
    study.tell(trial, {"accuracy": 70.0})
    predicted = tiny_rlm.predict(CELLS, [trial.parsed], ["latency/pixel3"])[0, 0]
    assert trial.values == {"accuracy": 70, "latency/pixel3": pytest.approx(predicted)}


def test_latency_is_measured_when_a_trial_is_told(open_study, monkeypatch):
    def measured(space, architecture, settings, python):
        if "none" in str(architecture):
            raise ValueError("onnxruntime-cpu-1t cannot run it: no kernel")
        return {"latency/onnxruntime-cpu-1t": 3.25}, {"spread": 0.01}

    monkeypatch.setattr(free_values, "measured_values", measured)
    study = open_study(objectives=("accuracy", "latency/onnxruntime-cpu-1t"), device="onnxruntime")
    for trial in study.ask(8):
        study.tell(trial, 70.0)
    for trial in study.trials:
        if "none" in trial.architecture:
            assert trial.state == FAILED and "no kernel" in trial.error
            assert trial.values == {"accuracy": 70}  # the training is not lost
        else:
            assert trial.values == {"accuracy": 70, "latency/onnxruntime-cpu-1t": 3.25}
            assert trial.details == {"spread": 0.01}
    assert len({t.state for t in study.trials}) == 2


def test_a_network_is_measured_on_a_device(open_study):
    pytest.importorskip("onnxruntime")
    name = "latency/onnxruntime-cpu-1t"
    study = open_study(objectives=("accuracy", name), device="onnxruntime-cpu-1t")
    study.tell(study.ask(), 70.0)
    assert study.trials[0].values[name] > 0
    assert study.trials[0].details["processor"]


def test_latencies_near_zero_are_refused(open_study):
    study = open_study(objectives=("accuracy", "latency/mine"))
    trial = study.ask()
    with pytest.raises(ValueError, match=r"latency/mine is 0\.004 ms, and less than 0\.02 ms counts as not"):
        study.tell(trial, {"accuracy": 70.0, "latency/mine": 0.004})
    study.tell(trial, {"accuracy": 70.0, "latency/mine": 0.04})


def test_earlier_trials_are_added(open_study):
    study = open_study()
    cell = CELLS.sample(np.random.default_rng(0))
    trial = study.add(cell, {"accuracy": 71.0})
    assert trial.state == COMPLETE and trial.values == {"accuracy": 71, "flops": CELLS.flops(cell)}
    with pytest.raises(ValueError, match="accuracy is missing"):
        study.add(cell, {})
    with pytest.raises(ValueError):
        study.add("no cell", {"accuracy": 71.0})
    assert len(study.trials) == 1
    latency = "latency/torch-cpu-1t"
    measured = open_study("measured", objectives=("accuracy", latency), device="torch-cpu-1t")
    assert measured.add(cell, {"accuracy": 71.0, latency: np.float32(2)}).values[latency] == 2
    for value in ("fast", float("nan"), -1.0, None):
        with pytest.raises(ValueError, match=f"{latency} is {value!r}, expected a number from 0 to"):
            measured.add(cell, {"accuracy": 71.0, latency: value})
    assert len(measured.trials) == 1


def test_a_table_is_added_again_when_it_has_grown(open_study):
    study, rng = open_study(), np.random.default_rng(0)
    rows = [nas_rlm.Row(CELLS.name, str(CELLS.sample(rng)), {"accuracy": 70.0 + i}) for i in range(3)]
    assert [t.number for t in study.add_table(rows[:2])] == [0, 1]
    assert [t.values["accuracy"] for t in study.add_table(rows)] == [72]
    assert summary(open_study()) == summary(study)


def test_each_trial_has_a_network_with_weights_of_its_seed(open_study):
    study = open_study()
    first, second = study.ask(2)
    network = first.network()
    assert network.training and network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    weights = dict(network.named_parameters())
    for name, weight in open_study().trials[0].network().named_parameters():
        assert torch.equal(weight, weights[name])
    assert first.seed != second.seed
    assert first.onnx().graph.initializer


def continue_to(study, count):
    """Ask, report and tell until `count` trials are finished, as a user's loop does."""
    while sum(t.state in (COMPLETE, FAILED) for t in study.trials) < count:
        trial = (study.pending or study.ask(1 if study.settings.budgets else 2))[0]
        trial.report(0, accuracy(trial)["accuracy"] - 10)
        if trial.number % 4 == 2:
            study.tell(trial, failure="out of memory")
        else:
            study.tell(trial, accuracy(trial))


@pytest.mark.parametrize(("budgets", "count"), [((), 7), ((1, 4, 16), 4)])
def test_a_log_that_ends_at_any_byte_is_continued_identically(open_study, tmp_path, budgets, count):
    study = open_study(budgets=budgets)
    continue_to(study, count)
    expected, log = summary(study), (tmp_path / "study" / "trials.jsonl").read_bytes()
    for size in sorted({*range(0, len(log), 61), len(log) - 1}):
        cut = tmp_path / f"cut{size}"
        cut.mkdir()
        shutil.copy(tmp_path / "study" / "study.json", cut)
        (cut / "trials.jsonl").write_bytes(log[:size])
        again = open_study(cut.name, budgets=budgets)
        continue_to(again, count)
        assert summary(again) == expected
        for line in (cut / "trials.jsonl").read_bytes().splitlines():
            json.loads(line)


def ask_and_tell(study, count):
    for _ in range(count):
        trial = study.ask()
        time.sleep(0.002)
        study.tell(trial, accuracy(trial))


def test_processes_share_a_directory(open_study):
    """None gets an architecture of another one, and no value is lost."""
    context = multiprocessing.get_context("fork")
    processes = []
    for _ in range(3):
        process = context.Process(target=ask_and_tell, args=(open_study(), 8))
        process.start()
        processes.append(process)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    trials = open_study().trials
    assert len({t.architecture for t in trials}) == len(trials) == 24
    assert all(t.values["accuracy"] == accuracy(t)["accuracy"] for t in trials)


def open_add_and_optimize(directory, rlm, rows):
    """What `nas-rlm search --train --data` does."""
    study = Study(CELLS, PAIR, directory, model=rlm)
    study.add_table(rows)
    study.optimize(lambda trial: time.sleep(0.005) or accuracy(trial), trials=30)


def test_processes_create_fill_and_end_one_study(tiny_rlm, quick_suggestions, tmp_path):
    """No row is added twice, no architecture is evaluated twice, and each writes the results."""
    rng = np.random.default_rng(0)
    names = list(dict.fromkeys(str(CELLS.sample(rng)) for _ in range(12)))
    rows = [nas_rlm.Row(CELLS.name, name, accuracy(name)) for name in names]
    context = multiprocessing.get_context("fork")
    arguments = tmp_path / "study", tiny_rlm, rows
    processes = [context.Process(target=open_add_and_optimize, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    study = Study.load(tmp_path / "study")
    assert len({t.architecture for t in study.trials}) == len(study.trials) == 30
    assert {t.state for t in study.trials} == {COMPLETE} and {t.attempts for t in study.trials} <= {0, 1}
    front = {int(path.stem) for path in (tmp_path / "study" / "front").glob("*.onnx")}
    assert front == {t.number for t in study.front}
    assert len((tmp_path / "study" / "trials.csv").read_text().splitlines()) == 31
    assert not list((tmp_path / "study").glob(".front*"))


def test_a_killed_process_leaves_a_study_that_goes_on(open_study):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=ask_and_tell, args=(open_study(), 10_000))
    process.start()
    study = open_study()
    while len(study.trials) < 5:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    number = len(study.trials)
    trial = study.ask()
    assert trial.number >= number
    study.tell(trial, 70.0)
    assert open_study().trials[trial.number].values["accuracy"] == 70


def test_public_names():
    assert nas_rlm.Study is Study
    assert nas_rlm.SearchRun.__name__ == "SearchRun"


def test_asking_for_more_trials_than_there_are_warns_and_then_fails(open_study, monkeypatch):
    study = open_study()
    rest = [Suggestion(str(cell)) for cell in (CELLS.sample(np.random.default_rng(i)) for i in range(3))]

    def suggest(self, rows, pending, count, candidates=()):
        return Suggestions([s for s in rest if s.architecture not in pending][:count])

    monkeypatch.setattr(PoolSuggester, "suggest", suggest)
    with pytest.warns(
        UserWarning, match="5 trials were asked for, and there are only 3: each architecture of"
    ):
        trials = study.ask(5)
    assert [str(trial.architecture) for trial in trials] == [s.architecture for s in rest]
    with pytest.raises(ValueError, match="each architecture of nasbench201 has a trial"):
        study.ask(2)


@pytest.mark.parametrize("returned", [{"acc": 1.0}, {}, ({"accuracy": 90.0}, "weights")])
def test_errors_of_values_name_the_training_function(open_study, returned):
    def train_cell(trial):
        return returned

    study = open_study()
    with pytest.raises(WrongValuesError, match="the training function train_cell "):
        study.optimize(train_cell, trials=1)


def test_additional_values_are_told(open_study):
    study = open_study()
    first, second = study.ask(2)
    with pytest.warns(
        UserWarning, match=r"gave more than accuracy: loss: kept as .*; flops: not used, but counted"
    ):
        study.tell(first, {"accuracy": 90.0, "loss": np.float32(0.5), "flops": 1.0})
    study.tell(second, {"accuracy": 90.0, "loss": 0.25})
    assert first.values == {"accuracy": 90.0, "flops": CELLS.flops(first.parsed)}
    study.add(CELLS.sample(np.random.default_rng(0)), {"accuracy": 71.0, "loss": 2.0})
    assert [t.additional for t in open_study().trials] == [{"loss": 0.5}, {"loss": 0.25}, {"loss": 2.0}]
