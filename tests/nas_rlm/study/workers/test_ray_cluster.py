import subprocess
import sys
import time

import pytest

from nas_rlm import Study
from nas_rlm.study.trial import COMPLETE, ERROR, FAILED, OUTPUT, RUNNING
from nas_rlm.study.values import WrongValuesError
from tests.nas_rlm.study.workers.test_processes import HANGING

pytest.importorskip("ray", reason="needs Ray")

MINE = """
import time
import torch

def train(trial):
    print("training", trial.number)
    trial.report(1, 30.0)
    (trial.directory / "checkpoint").write_text(trial.architecture)
    if trial.number == 1:
        raise RuntimeError("diverged")
    if trial.number == 2:
        time.sleep(600)
    return 60.0 + trial.number, {"w": torch.ones(1)}
"""


@pytest.mark.long
def test_a_cluster_evaluates_trials(open_study, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    study = open_study()
    with pytest.raises(ValueError, match="expected workers=1 or more"):
        study.optimize(f"{tmp_path / 'mine.py'}:train", trials=4, ray="local")
    study.optimize(f"{tmp_path / 'mine.py'}:train", trials=4, workers=1, ray="local", time_limit=60)
    trials = study.trials
    assert [t.state for t in trials] == [COMPLETE, FAILED, FAILED, COMPLETE]
    assert trials[3].values["accuracy"] == 63 and trials[3].steps == {1: {"accuracy": 30}}
    assert trials[3].weights_file is not None
    assert (trials[3].directory / OUTPUT).read_text() == "training 3\n"
    assert (trials[3].directory / "checkpoint").read_text() == trials[3].architecture
    assert trials[1].error == "RuntimeError: diverged"
    assert "diverged" in (trials[1].directory / ERROR).read_text()
    assert trials[2].error == "TimeoutError: the evaluation took longer than 60 s"


LOADING = """
import time
time.sleep(8)

def train(trial):
    return 50.0
"""


@pytest.mark.long
def test_time_before_an_evaluation_does_not_count_as_one(open_study, tmp_path):
    (tmp_path / "loading.py").write_text(LOADING)
    study = open_study()
    study.optimize(f"{tmp_path / 'loading.py'}:train", trials=1, workers=1, ray="local", time_limit=5)
    assert study.trials[0].state == COMPLETE and study.trials[0].cost < 5


@pytest.mark.long
def test_a_function_that_takes_too_long_to_load_is_ended(open_study, tmp_path, monkeypatch):
    monkeypatch.setattr("nas_rlm.study.workers.pool.MAX_START_SECONDS", 0)
    (tmp_path / "loading.py").write_text(HANGING)
    study = open_study()
    study.optimize(f"{tmp_path / 'loading.py'}:train", trials=1, workers=1, ray="local", time_limit=3)
    assert study.trials[0].error.startswith("TimeoutError: the function was not loaded after ")


REPORTING = """
import json, time

def train(trial):
    trial.report(1, 30.0)
    deadline = time.monotonic() + 60
    while "accuracy\\": 30.0" not in open(LOG).read() and time.monotonic() < deadline:
        time.sleep(0.1)
    return 60.0 if time.monotonic() < deadline else 10.0
"""


@pytest.mark.long
def test_values_arrive_while_a_task_runs(open_study, tmp_path):
    log = tmp_path / "study" / "trials.jsonl"
    (tmp_path / "reporting.py").write_text(f"LOG = {str(log)!r}\n{REPORTING}")
    study = open_study()
    study.optimize(f"{tmp_path / 'reporting.py'}:train", trials=1, workers=1, ray="local")
    assert study.trials[0].values["accuracy"] == 60


@pytest.mark.long
def test_a_task_whose_function_gives_no_values_of_objectives_ends_the_study(open_study, tmp_path):
    (tmp_path / "wrong.py").write_text("def train(trial):\n    return {'acc': 3.0}\n")
    study = open_study()
    with pytest.raises(WrongValuesError, match=r"^trial 0: .* gave {'acc': 3.0}, expected accuracy"):
        study.optimize(f"{tmp_path / 'wrong.py'}:train", trials=1, workers=1, ray="local")
    assert study.trials[0].state == RUNNING


WAITING = """
import pathlib, time

def train(trial):
    here = pathlib.Path(__file__).parent
    (here / f"started{trial.number}").touch()
    while trial.number == 2 and not (here / "go").exists():
        time.sleep(0.05)
    return 60.0 + trial.number
"""


PROCESS = """
import sys
from nas_rlm import RLM, Study
from nas_rlm.study.suggestion import PoolSuggester
from tests.nas_rlm.study.conftest import PAIR, suggest_randomly

checkpoint, directory, location = sys.argv[1:]
PoolSuggester.suggest = suggest_randomly
study = Study("nasbench201", PAIR, directory, model=RLM.load(checkpoint))
study.optimize(location, trials=4, workers=1, ray="local")
"""


@pytest.mark.long
def test_a_study_that_was_killed_evaluates_its_running_trial_again(tiny_checkpoint, tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    location, directory = f"{tmp_path / 'waiting.py'}:train", tmp_path / "study"
    command = [sys.executable, "-c", PROCESS, str(tiny_checkpoint), str(directory), location]
    process = subprocess.Popen(command)
    while process.poll() is None and not (tmp_path / "started2").exists():
        time.sleep(0.1)
    process.kill()
    process.wait()
    killed = Study.load(directory).trials
    assert [trial.state for trial in killed] == [COMPLETE, COMPLETE, RUNNING]
    (tmp_path / "go").touch()
    subprocess.run(command, check=True)
    trials = Study.load(directory).trials
    assert [t.architecture for t in trials[:3]] == [t.architecture for t in killed]
    assert [t.state for t in trials] == [COMPLETE] * 4
    assert [t.attempts for t in trials] == [1, 1, 2, 1]
    assert [t.values["accuracy"] for t in trials] == [60, 61, 62, 63]
