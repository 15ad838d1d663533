import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nas_rlm.study.trial import COMPLETE, ERROR, FAILED, OUTPUT, WEIGHTS
from nas_rlm.study.workers.processes import worker_environments
from tests.nas_rlm.study.conftest import accuracy

pytestmark = pytest.mark.usefixtures("quick_processes")


def test_workers_evaluate_in_processes(open_study, mine):
    study = open_study()
    study.optimize(f"{mine}:train", trials=4, workers=2)
    trials = study.trials
    assert [t.state for t in trials] == [COMPLETE, FAILED, FAILED, COMPLETE]
    assert trials[3].values["accuracy"] == 53 and trials[3].steps[0] == {"accuracy": 40}
    weights = load_file(trials[3].weights_file)
    assert torch.equal(weights["weight"], torch.full((2,), 3.0))
    assert trials[1].weights_file is None and not (trials[1].directory / WEIGHTS).exists()
    assert trials[1].error == "RuntimeError: CUDA out of memory"
    assert "mine.py" in (trials[1].directory / ERROR).read_text()
    assert "ended with SIGKILL" in trials[2].error
    output = (trials[0].directory / OUTPUT).read_text()
    assert f"training {trials[0].architecture}" in output and "threads 1" in output
    assert (trials[0].directory / "checkpoint").read_text() == "here"
    assert trials[0].evaluation == f"{mine}:train"


def test_an_evaluation_that_takes_too_long_is_ended(open_study, mine):
    study = open_study()
    study.optimize(f"{mine}:slow", trials=2, workers=2, time_limit=1)
    assert [t.error for t in study.trials] == ["TimeoutError: the evaluation took longer than 1 s"] * 2
    assert "longer than 1 s" in (study.trials[1].directory / ERROR).read_text()
    assert study.trials[0].cost >= 1


LOADING = """
import os, time
time.sleep(2)

def train(trial):
    if trial.number:
        os._exit(3)
    return 50.0
"""


def test_loading_the_function_does_not_count_as_evaluation(open_study, tmp_path):
    path = tmp_path / "loading.py"
    path.write_text(LOADING)
    study = open_study()
    study.optimize(f"{path}:train", trials=2, workers=1, time_limit=1)
    assert [trial.state for trial in study.trials] == [COMPLETE, FAILED]
    assert max(trial.cost for trial in study.trials) < 2


HANGING = """
import pathlib, time

marker = pathlib.Path(__file__).with_suffix(".loaded")
if marker.exists():  # the worker loads it after the process of the study
    time.sleep(600)
marker.touch()

def train(trial):
    return 50.0
"""


def test_a_function_that_takes_too_long_to_load_is_ended(open_study, tmp_path, monkeypatch):
    monkeypatch.setattr("nas_rlm.study.workers.pool.MAX_START_SECONDS", 0)
    path = tmp_path / "loading.py"
    path.write_text(HANGING)
    study = open_study()
    study.optimize(f"{path}:train", trials=1, workers=1, time_limit=1)
    assert re.fullmatch(r"TimeoutError: the function was not loaded after \d s", study.trials[0].error)


def test_the_error_of_a_process_that_ended_has_the_end_of_what_it_printed(open_study, mine):
    study = open_study()
    study.optimize(f"{mine}:chatty", trials=1, workers=1, time_limit=60)
    error = study.trials[0].error
    assert error.startswith("the worker process ended with exit code 3: xxx") and error.endswith("xthe end")
    assert len(error) < 600
    assert (study.trials[0].directory / OUTPUT).stat().st_size > 100_000


def test_a_worker_retries_after_exit(open_study, mine):
    study = open_study()
    study.optimize(f"{mine}:once", trials=1, workers=1, retries=1)
    assert (study.trials[0].state, study.trials[0].attempts) == (COMPLETE, 2)


def test_workers_end_with_the_process_that_started_them(open_study, mine, tmp_path):
    """After SIGKILL of that process nothing runs on, and the trial is evaluated again."""
    study = open_study()
    mine.write_text(
        "import os, time\ndef train(trial):\n    (trial.directory / 'pid').write_text(str(os.getpid()))\n"
        "    time.sleep(300)\n"
    )
    code = (
        "from nas_rlm import Study\nfrom nas_rlm.study.suggestion import PoolSuggester\n"
        f"study = Study.load({str(study.directory)!r})\n"
        f"PoolSuggester.suggest = lambda *_: None\n"
        f"study.optimize({f'{mine}:train'!r}, trials=1, workers=1)\n"
    )
    with study._store.owner() as owner:  # this process asks, and leaves the trial behind
        study._store.claim(study._suggest, 1, owner)
    parent = subprocess.Popen([sys.executable, "-c", code])
    pid_file = study.trials[0].directory / "pid"
    deadline = time.monotonic() + 120
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.05)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    pid = int(pid_file.read_text())
    status = Path(f"/proc/{pid}/status")
    while status.exists() and "State:\tZ" not in status.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    study.optimize(accuracy, trials=1)
    assert study.trials[0].state == COMPLETE and study.trials[0].attempts == 3


def test_workers_share_processors_and_gpus(monkeypatch):
    monkeypatch.setattr("nas_rlm.study.workers.processes.num_processors", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "4")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")
    environments = worker_environments(3)
    assert [e["OMP_NUM_THREADS"] for e in environments] == ["1"] * 3
    assert [e["MKL_NUM_THREADS"] for e in environments] == ["2"] * 3
    assert [e["OPENBLAS_NUM_THREADS"] for e in environments] == ["2"] * 3
    assert [e["NAS_RLM_CORES"] for e in environments] == ["0,1", "2,3", "4,5"]
    assert [e["CUDA_VISIBLE_DEVICES"] for e in environments] == ["2", "5", "2"]
