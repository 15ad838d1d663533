import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import nas_rlm
from nas_rlm.study import free_values
from nas_rlm.study.records import Suggestion, Suggestions
from nas_rlm.study.suggestion import PoolSuggester
from nas_rlm.study.trial import COMPLETE, FAILED, RUNNING
from nas_rlm.study.values import WrongValuesError
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import summary


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


def test_failures_are_told(open_study):
    study = open_study()
    first, second = study.ask(2)
    study.tell(first, failure=MemoryError("no memory"), cost=3)
    study.tell(second, failure="diverged")
    study.tell(study.ask(), failure="x" * 10_000)
    study.tell(study.ask(), failure="a\x00\x1b[31m\u202eb")
    assert study.trials.pop().error == "a  [31m b"
    assert len(study.trials[2].error) == 500
    assert (first.state, first.error, first.cost) == (FAILED, "MemoryError: no memory", 3)
    assert second.error == "diverged"
    assert [t.error for t in open_study().trials][:2] == ["MemoryError: no memory", "diverged"]


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("has no text")


def test_an_error_without_a_text_is_named(open_study):
    study = open_study()
    study.tell(study.ask(), failure=Silent())
    assert study.trials[0].error == "Silent"


def test_weights_are_told(open_study):
    study = open_study()
    trial = study.ask()
    module = trial.network()
    with pytest.raises(ValueError, match="trial 0 has weights: expected them with its final values"):
        study.tell(trial, 30.0, step=1, weights=module)
    with pytest.raises(ValueError, match="trial 0 has weights: expected them with its final values"):
        study.tell(trial, failure="out of memory", weights=module)
    with pytest.raises(ValueError, match="trial 0 gave weights of type float, expected a state_dict"):
        study.tell(trial, 80.0, weights=0.3)
    assert trial.state == RUNNING and trial.weights_file is None
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    study.tell(trial, 80.0, weights=module)
    study.report()
    stored = load_file(open_study().trials[0].weights_file)
    assert all(torch.equal(stored[name], value) for name, value in module.state_dict().items())
    assert (study.directory / "front" / "00000.safetensors").is_file()


def test_values_and_a_failure_are_refused(open_study):
    study = open_study()
    trial = study.ask()
    with pytest.raises(ValueError, match="trial 0 has a failure and values: expected one of them"):
        study.tell(trial, 80.0, failure="out of memory")
    study.tell(trial, 80.0)
    assert study.trials[0].values["accuracy"] == 80
    with pytest.raises(ValueError, match="there are no architectures to predict"):
        study.predict([])


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


@pytest.mark.parametrize("cost", [math.nan, math.inf, -1, "long", None])
def test_costs_that_are_no_seconds_are_refused(open_study, cost):
    study = open_study()
    trial = study.ask()
    with pytest.raises(ValueError, match=r"cost is .*: expected seconds, a finite number from 0"):
        study.tell(trial, 70.0, cost=cost)
    study.tell(trial, 70.0, cost=np.float32(2))
    assert study.cost == 2


def test_latencies_of_zero_are_refused(open_study):
    study = open_study(objectives=("accuracy", "latency/mine"))
    trial = study.ask()
    with pytest.raises(ValueError, match=r"latency/mine is 0 ms, which counts as not measured"):
        study.tell(trial, {"accuracy": 70.0, "latency/mine": 0.0})
    study.tell(trial, {"accuracy": 70.0, "latency/mine": 0.0004})


def test_earlier_trials_are_added(open_study, recwarn):
    study = open_study()
    cell = CELLS.sample(np.random.default_rng(0))
    trial = study.add(cell, {"accuracy": 71.0})
    assert trial.state == COMPLETE and trial.values == {"accuracy": 71, "flops": CELLS.flops(cell)}
    with pytest.raises(ValueError, match="accuracy is missing"):
        study.add(cell, {})
    with pytest.raises(ValueError):
        study.add("no cell", {"accuracy": 71.0})
    assert len(study.trials) == 1 and not recwarn
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


def test_additional_values_with_names_that_cannot_be_stored_are_named(open_study):
    study = open_study()
    first, second = study.ask(2)
    with pytest.warns(UserWarning, match="'<b>loss', 'my loss': not kept, names need characters other than"):
        study.tell(first, {"accuracy": 90.0, "<b>loss": 0.5, "my loss": 0.5, 3: 0.5})
    with pytest.warns(UserWarning, match="trial 1 gave more than accuracy: 'loss=': not kept, names need"):
        study.tell(second, {"accuracy": 90.0, "<b>loss": 0.5, "loss=": 0.5, 3: 0.5})
    assert [trial.additional for trial in study.trials] == [{"3": 0.5}] * 2


def test_levels_are_checked_where_the_values_are_known(open_study):
    study = open_study()
    rng = np.random.default_rng(0)
    names = list(dict.fromkeys(str(CELLS.sample(rng)) for _ in range(12)))
    for number, name in enumerate(names):
        study.add(name, {"accuracy": 60.0 + number})
    assert study.predict(names[:1], quantiles=(0.1, 0.9))[0, 0].tolist() == [60, 60]
    with pytest.raises(ValueError, match=r"quantiles is \(0.1, 9\): expected levels"):
        study.predict(names[:1], quantiles=(0.1, 9))


def test_a_trial_has_its_directory(open_study):
    study = open_study()
    for trial in (study.ask(), *study.ask(2)):
        assert trial.directory.is_dir() and not any(trial.directory.iterdir())


def test_a_trial_of_another_study_is_refused(open_study):
    study, other = open_study(seed=1), open_study("other", seed=2)
    trial, of_other = study.ask(), other.ask()
    with pytest.raises(ValueError, match=r"trial 0 with .* is of another study"):
        other.tell(trial, 90.0)
    assert of_other.state == RUNNING
    other.tell(of_other, 90.0)


@pytest.mark.parametrize("name", ["cost", "number", "additional/loss"])
def test_objectives_with_names_of_columns_are_refused(open_study, name):
    with pytest.raises(ValueError, match=f"'{name}' is a column of the tables of trials"):
        open_study(objectives=("accuracy", name))
