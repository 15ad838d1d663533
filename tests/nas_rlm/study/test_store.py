"""Trials that are paused and continued, and logs that are damaged; other events are tested with the study."""

import multiprocessing
import os

import pytest

from nas_rlm import Study
from nas_rlm.study import free_values
from nas_rlm.study.trial import COMPLETE, FAILED, PAUSED, RUNNING
from tests.nas_rlm.stubs import CELLS
from tests.nas_rlm.study.conftest import accuracy, summary

BUDGETS = (1, 4, 16)


@pytest.fixture
def study(open_study):
    return open_study(budgets=BUDGETS)


def test_a_trial_is_paused_and_continued_up_to_the_full_budget(study, tmp_path):
    first, second = study.ask(2)
    assert (first.budget, first.resume_from) == (1, None)
    study.tell(first, 40.0)
    study.tell(second, 45.0, cost=7.5)
    assert first.state == second.state == PAUSED and study.pending == []
    with pytest.raises(ValueError, match="trial 0 is paused: it runs again once `ask` returns it"):
        study.tell(first, 50.0)
    for budget, former, value in ((4, 1, 60.0), (16, 4, 80.0)):
        assert study.front == []
        assert study.ask() is first
        directory = tmp_path / "study" / "trials" / "00000"
        assert first.state == RUNNING and first.budget == budget
        assert first.directory == directory / f"budget{budget}"
        assert first.resume_from == directory / f"budget{former}"
        study.tell(first, value)
    assert first.state == COMPLETE and study.best is first
    assert first.values == {"accuracy": 80, "flops": CELLS.flops(first.parsed)}
    assert {b: v["accuracy"] for b, v in first.budget_values.items()} == {1: 40, 4: 60, 16: 80}
    assert (first.cost, second.cost, study.cost) == (16, 1, 17)
    assert (first.seconds, second.seconds) == (0, 7.5)
    again = Study.load(tmp_path / "study")
    assert again.cost == 17 and again.trials[1].state == PAUSED
    assert [(r["state"], r["budget"], r["cost"], r["seconds"]) for r in again.to_records()] == [
        ("complete", 16, 16, 0),
        ("paused", 1, 1, 7.5),
    ]


def test_a_trial_that_fails_with_a_larger_budget_is_final_and_costs_what_it_used(study):
    for trial in study.ask(2):
        study.tell(trial, 40.0)
    trial = study.ask()
    study.tell(trial, failure="diverged")
    assert trial.state == FAILED and trial.cost == 4 and study.cost == 5
    assert study.ask() is not trial


def test_trials_that_were_added_cost_nothing(study):
    trial = study.add(str(CELLS.parse(study.ask().architecture)), 70.0)
    assert trial.state == COMPLETE and trial.budget == 16 and study.cost == 0
    assert study.best is trial


def test_a_network_is_measured_once(open_study, monkeypatch):
    latency, calls = "latency/onnxruntime-cpu-1t", []

    def measured(space, architecture, settings, python):
        calls.append(str(architecture))
        return {latency: 3.0 + len(calls)}, {"spread": 0.01}

    monkeypatch.setattr(free_values, "measured_values", measured)
    study = open_study(objectives=("accuracy", latency), device="onnxruntime", budgets=BUDGETS)
    first, second = study.ask(2)
    study.tell(first, 40.0)
    study.tell(second, 40.0)
    first.owner = ""
    assert calls == [first.architecture, second.architecture]
    monkeypatch.setattr(study._suggester, "suggest", lambda *args: _suggestions(first))
    assert study.ask() is first
    study.tell(first, 60.0)
    assert len(calls) == 2
    assert first.values == {"accuracy": 60, latency: 4} and first.details == {"spread": 0.01}


def _suggestions(trial):
    from nas_rlm.study.records import Suggestion, Suggestions

    return Suggestions([Suggestion(trial.architecture)])


def ask_and_tell(study, count):
    for _ in range(count):
        trial = study.ask()
        study.tell(trial, accuracy(trial))


def test_processes_share_trials_that_are_continued(open_study):
    """Each evaluation is made once, and none is lost."""
    context = multiprocessing.get_context("fork")
    processes = []
    for _ in range(3):
        process = context.Process(target=ask_and_tell, args=(open_study(budgets=BUDGETS), 10))
        process.start()
        processes.append(process)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    trials = open_study(budgets=BUDGETS).trials
    assert sum(len(t.budget_values) for t in trials) == 30
    assert len({t.architecture for t in trials}) == len(trials) < 30
    assert {t.state for t in trials} == {PAUSED, COMPLETE}


@pytest.mark.parametrize("lose", [os.unlink, lambda path: os.truncate(path, 0)])
def test_a_log_that_is_lost_is_noticed_where_trials_have_directories(open_study, tmp_path, lose):
    open_study().optimize(accuracy, trials=1)
    lose(tmp_path / "study" / "trials.jsonl")
    with pytest.raises(ValueError, match=r"has no trials, but .*00000 is the directory of one"):
        open_study()


def test_blank_lines_in_a_log_are_skipped(open_study, tmp_path):
    open_study().optimize(accuracy, trials=1)
    log = tmp_path / "study" / "trials.jsonl"
    log.write_text(log.read_text().replace("\n", "\n\n", 1) + "\n")
    again = open_study()
    again.optimize(accuracy, trials=2)
    assert summary(open_study()) == summary(again)
    assert len(again.trials) == 2


@pytest.mark.parametrize("damage", [os.unlink, lambda path: os.truncate(path, 50)])
def test_a_log_that_is_deleted_or_shortened_meanwhile_is_noticed(open_study, damage):
    def training(trial):
        if trial.number == 1:
            damage(trial.directory.parents[1] / "trials.jsonl")
        return accuracy(trial)

    study = open_study()
    with pytest.raises(ValueError, match=r"trials\.jsonl was deleted or shortened while the study was open"):
        study.optimize(training, trials=3)
