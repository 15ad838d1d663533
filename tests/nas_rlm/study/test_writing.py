"""A full disk: files that cannot be written end the study, and nothing else changes."""

import errno
import os
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nas_rlm import Study
from nas_rlm.files import check_new_directory
from nas_rlm.study import store
from nas_rlm.study.trial import COMPLETE, FAILED, RUNNING, WEIGHTS
from nas_rlm.study.writing import StorageError, writing
from tests.nas_rlm.study.conftest import accuracy

pytestmark = pytest.mark.usefixtures("quick_processes")


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def with_weights(trial):
    return accuracy(trial), {"w": torch.ones(2)}


def visible_files(directory):
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if not p.name.startswith(".lock")}


def test_errors_name_the_file_and_what_to_do(tmp_path):
    with (
        pytest.raises(
            StorageError, match=r"'a' cannot be written \(No space left .* free disk space or change"
        ),
        writing("a"),
    ):
        full_disk()
    with pytest.raises(StorageError, match=r"'b' cannot be written"), writing("a"), writing("b"):
        full_disk()
    with pytest.raises(ValueError, match="not empty"), writing("a"):
        check_new_directory(tmp_path.parent)


@pytest.mark.parametrize("file", ["weights", "log", "error.txt", "report.html"])
def test_a_full_disk_ends_the_study_and_the_trial_is_evaluated_again(open_study, monkeypatch, file):
    study = open_study()
    study.optimize(accuracy, trials=2)
    before = visible_files(study.directory)
    is_full = []

    def training(trial):
        is_full.append(True)
        if file == "error.txt":
            raise RuntimeError("the training failed")
        return with_weights(trial)

    def unless_full(function, name):
        def called(*arguments):
            if is_full and (not name or Path(arguments[0]).name == name):
                full_disk()
            return function(*arguments)

        return called

    patches = {
        "weights": (safetensors.torch, "save_file", ""),
        "log": (store, "append_records", ""),
        "error.txt": (sys.modules["nas_rlm.study.evaluation"], "write_text", file),
        "report.html": (sys.modules["nas_rlm.study.report.files"], "write_text", file),
    }
    module, function, name = patches[file]
    monkeypatch.setattr(module, function, unless_full(getattr(module, function), name))
    monkeypatch.setattr("nas_rlm.study.report.files.RELOAD_SECONDS", -1)
    path = {
        "weights": f"trials/00002/{WEIGHTS}",
        "log": "trials.jsonl",
        "error.txt": "trials/00002/error.txt",
    }
    named = path.get(file, file)
    with pytest.raises(StorageError, match=rf"{named}' cannot be written \(No space left on device\)"):
        study.optimize(training, trials=3, retries=1)
    state = COMPLETE if file == "report.html" else RUNNING
    assert [t.state for t in study.trials] == [COMPLETE] * 2 + [state]
    if file in ("weights", "error.txt"):
        assert visible_files(study.directory) - before == {"trials/00002"}
    monkeypatch.undo()
    again = Study.load(study.directory)
    again._loaded_suggester = study._suggester
    again.optimize(with_weights, trials=3)
    assert [t.state for t in again.trials] == [COMPLETE] * 3
    assert again.trials[2].attempts == (1 if file == "report.html" else 2)


def test_lines_that_were_written_in_part_are_removed(open_study, monkeypatch):
    study = open_study()
    study.optimize(accuracy, trials=1)
    log = study.directory / "trials.jsonl"
    before = log.read_bytes()

    def write_in_part(path, records):
        with open(path, "ab") as file:
            file.write(b'{"event": "ask", ')
        full_disk()

    monkeypatch.setattr(store, "append_records", write_in_part)
    for change in (study.ask, lambda: study.add(study.trials[0].architecture, 50.0)):
        with pytest.raises(StorageError, match=r"trials\.jsonl' cannot be written"):
            change()
        assert log.read_bytes() == before


def test_a_training_that_fills_the_disk_is_no_failure(open_study, tmp_path):
    def training(trial):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoint.pt")

    study = open_study()
    with pytest.raises(StorageError, match=r"'checkpoint\.pt' cannot be written \(No space left on device\)"):
        study.optimize(training, trials=1)
    assert [t.state for t in study.trials] == [RUNNING]

    def missing(trial):
        raise FileNotFoundError(errno.ENOENT, "No such file", "data.npz")

    study.optimize(missing, trials=1)
    assert [t.state for t in study.trials] == [FAILED]


LIMITED = """
import resource
import torch

def train(trial):
    if trial.number == 1:
        {limit}
    return 60.0 + trial.number, {{"w": torch.ones({size})}}
"""


@pytest.mark.parametrize(("size", "name"), [(100_000, WEIGHTS), (1, WEIGHTS)])
def test_a_worker_that_cannot_write_ends_the_study(open_study, tmp_path, size, name):
    """The size of files is limited, which the operating system reports like a full disk."""
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    path = tmp_path / "mine.py"
    path.write_text(LIMITED.format(limit=limit, size=size))
    study = open_study()
    with pytest.raises(StorageError, match=rf"00001/{name}' cannot be written \(File too large"):
        study.optimize(f"{path}:train", trials=3, workers=1)
    assert [t.state for t in study.trials] == [COMPLETE, RUNNING]
    assert [p.name for p in study.trials[1].directory.iterdir()] == ["output.txt"]
    path.write_text(LIMITED.format(limit="pass", size=size))
    study.optimize(f"{path}:train", trials=3, workers=1)
    assert [t.values["accuracy"] for t in study.trials] == [60, 61, 62]


def test_a_study_that_cannot_be_created_leaves_no_settings(tmp_path, monkeypatch, open_study):
    monkeypatch.setattr("nas_rlm.study.settings.write_text", full_disk)
    with pytest.raises(StorageError, match=r"study/study\.json' cannot be written"):
        open_study()
    assert visible_files(tmp_path / "study") == set()
