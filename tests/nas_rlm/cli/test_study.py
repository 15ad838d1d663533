import csv
import json

import pytest

from nas_rlm import Study
from nas_rlm.cli import main
from nas_rlm.data import Row, write
from nas_rlm.study.suggestion import PoolSuggester
from tests.nas_rlm.cli.commands import ARCHS, refused
from tests.nas_rlm.study.conftest import quick_suggestions  # noqa: F401 - a fixture

SUGGEST = PoolSuggester.suggest
pytestmark = pytest.mark.usefixtures("quick_processes")
MINE = """
import torch

def train(trial):
    print("loss of", trial.number)
    if trial.number == 1:
        raise RuntimeError("diverged")
    return {"accuracy": 60.0 + trial.seed % 7}, {"w": torch.ones(1)}
"""


@pytest.fixture
def command(tmp_path, model, quick_suggestions):  # noqa: F811
    (tmp_path / "mine.py").write_text(MINE)
    return [
        *("search", "--space", "nasbench201", "--objectives", "accuracy,flops", *model),
        *("--train", f"{tmp_path / 'mine.py'}:train", "--out", str(tmp_path / "run")),
    ]


def test_search_trains_networks_and_continues(command, tmp_path, capsys):
    run = tmp_path / "run"
    assert main([*command, "--trials", "2", "--workers", "2"]) == 0
    printed = capsys.readouterr().out
    assert "1 trial complete, 1 on the front" in printed
    assert "1 failed, the last one: RuntimeError: diverged" in printed
    assert (run / "trials" / "00000" / "output.txt").read_text() == "loss of 0\n"
    assert main([*command, "--trials", "3"]) == 0
    assert [t.state for t in Study.load(run).trials] == ["complete", "failed", "complete"]
    before = (run / "front.csv").read_text()
    (run / "front.csv").unlink()
    assert main(["report", str(run)]) == 0
    assert (run / "front.csv").read_text() == before
    assert main(["plot", str(run), "--pair", "flops,accuracy", "--out", str(tmp_path / "a.png")]) == 0
    with open(run / "front.csv", newline="") as file:
        row = next(csv.DictReader(file))
    capsys.readouterr()
    assert main(row["command"].split()[1:]) == 0
    value = float(row["accuracy"])
    assert f"accuracy {value:g}, {value:g} before" in capsys.readouterr().out
    name = f"{int(row['number']):05d}"
    assert (run / "retrained" / name / "weights.safetensors").is_file()
    assert "is not empty" in refused(capsys, *row["command"].split()[1:])
    assert "the training failed: RuntimeError: diverged" in refused(capsys, "retrain", run, "--trial", "1")


def test_a_training_function_that_always_fails_ends_the_search(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nas_rlm.study.optimization.MAX_FIRST_FAILURES", 2)
    (tmp_path / "mine.py").write_text("def train(trial):\n    raise RuntimeError('no data')\n")
    message = refused(capsys, *command, "--trials", "12")
    assert "the first 2 trials failed, the last one with RuntimeError: no data" in message
    assert "add --retry-failed" in message
    failed = [t.architecture for t in Study.load(tmp_path / "run").trials]
    assert len(failed) == 2
    (tmp_path / "mine.py").write_text("def train(trial):\n    return 50.0\n")
    assert main([*command, "--trials", "2", "--retry-failed"]) == 0
    trials = Study.load(tmp_path / "run").trials
    assert [(t.architecture, t.state) for t in trials] == [(name, "complete") for name in failed]


def test_trials_that_another_process_evaluates_are_named(command, tmp_path, capsys):
    assert main([*command, "--trials", "1"]) == 0
    assert "another process" not in capsys.readouterr().out
    Study.load(tmp_path / "run").ask()
    assert main([*command, "--trials", "1"]) == 0
    assert "1 trial without a result, which another process evaluates" in capsys.readouterr().out


def test_labels_are_the_first_trials(command, tmp_path):
    rows = [Row("nasbench201", name, {"accuracy": 60.0 + i}) for i, name in enumerate(ARCHS)]
    write(tmp_path / "table.parquet", rows)
    assert main([*command, "--trials", str(len(ARCHS)), "--data", str(tmp_path / "table.parquet")]) == 0
    trials = Study.load(tmp_path / "run").trials
    assert [t.architecture for t in trials] == ARCHS
    assert trials[2].values["accuracy"] == 62 and trials[2].values["flops"] > 0


def test_labels_that_a_killed_process_did_not_add_are_added_when_it_continues(command, tmp_path):
    rows = [Row("nasbench201", name, {"accuracy": 60.0 + i}) for i, name in enumerate(ARCHS)]
    write(tmp_path / "table.parquet", rows)
    arguments = [*command, "--trials", str(len(ARCHS)), "--data", str(tmp_path / "table.parquet")]
    assert main(arguments) == 0
    log = tmp_path / "run" / "trials.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]))  # two of the rows
    assert [t.state for t in Study.load(tmp_path / "run").trials] == ["complete"] * 2
    assert main(arguments) == 0
    assert [t.architecture for t in Study.load(tmp_path / "run").trials] == ARCHS


def test_a_constraint_that_no_trial_meets_is_named(command, tmp_path, capsys):
    assert main([*command, "--trials", "1", "--constraint", "accuracy<=1"]) == 0
    printed = capsys.readouterr()
    assert "warning: no trial meets accuracy<=1: there is no front\n" in printed.err
    assert "1 trial complete, 0 on the front\nreport: " in printed.out
    assert not (tmp_path / "run" / "front").exists() and "networks: " not in printed.out


def test_an_exact_constraint_that_no_network_meets_is_refused(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nas_rlm.search.acquisition.candidate_pool.MAX_CHECKED", 30)
    message = refused(capsys, *command, "--trials", "1", "--constraint", "flops<=1")
    assert "of nasbench201 that were examined meets flops<=1: the smallest flops is " in message
    assert not (tmp_path / "run").exists()


def test_a_search_ends_when_all_candidates_are_evaluated(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(PoolSuggester, "suggest", SUGGEST)
    (tmp_path / "archs.txt").write_text("\n".join(ARCHS[:3]) + "\n")
    arguments = [*command, "--candidates", str(tmp_path / "archs.txt"), "--trials", "20"]
    assert main(arguments) == 0
    assert "each of 3 candidates has a trial: the search ends" in capsys.readouterr().out
    trials = Study.load(tmp_path / "run").trials
    assert sorted(t.architecture for t in trials) == sorted(ARCHS[:3])
    assert main(arguments) == 0
    assert "each of 3 candidates has a trial: the search ends" in capsys.readouterr().out
    (tmp_path / "archs.txt").write_text("none\n")
    assert "archs.txt line 1: " in refused(capsys, *arguments)
    assert "there is no file" in refused(capsys, *command, "--candidates", "none.txt")


def test_options_that_do_not_fit_are_refused(command, tmp_path, capsys):
    assert "--algorithm is of a search by predictions" in refused(capsys, *command, "--algorithm", "random")
    no_train = [*command[:7], "--out", tmp_path / "run", "--trials", "3"]
    assert "need --train" in refused(capsys, *no_train)
    assert "has no function 'trian'" in refused(
        capsys, *command[:-3], f"{tmp_path / 'mine.py'}:trian", *command[-2:]
    )
    for option, value, reason in [
        ("--trials", "-1", "trials is -1, expected a whole number of at least 1"),
        ("--retries", "-1", "retries is -1"),
        ("--cost", "-1", "cost is -1"),
        ("--time-limit", "-1", "time_limit is -1"),
        ("--workers", "-1", "workers is -1"),
        ("--data", "none.parquet", "none.parquet"),
        (
            "--budgets",
            "1,4",
            r"is train(trial), and a study with budgets calls it with trial, budget, resume",
        ),
    ]:
        assert reason in refused(capsys, *command, option, value)
    assert not (tmp_path / "run").exists()
    assert main([*command, "--trials", "1"]) == 0
    assert "seed 0 instead of 1" in refused(capsys, *command, "--seed", "1")
    assert "there is no trial 9" in refused(capsys, "retrain", tmp_path / "run", "--trial", "9")
    assert "--data is for searches by predictions" in refused(
        capsys, "plot", tmp_path / "run", "--data", "x.parquet"
    )
    settings = json.loads((tmp_path / "run" / "study.json").read_text())
    assert settings["objectives"] == ["accuracy", "flops"]


RESUMABLE = """
def train(trial, budget, resume_from):
    (trial.directory / "epochs").write_text(str(budget))
    return 50.0 + trial.number + (int((resume_from / "epochs").read_text()) if resume_from else 0)
"""


def test_trainings_have_budgets_and_a_cost(command, tmp_path, capsys):
    run = tmp_path / "run"
    (tmp_path / "mine.py").write_text(RESUMABLE)
    assert "budgets are [4, 1]" in refused(capsys, *command, "--budgets", "4,1")
    assert "--budgets has 'many'" in refused(capsys, *command, "--budgets", "many")
    assert not run.exists()
    assert main([*command, "--budgets", "1,4", "--cost", "5"]) == 0
    printed = capsys.readouterr().out
    assert "1 trial complete" in printed and "1 trial paused; cost 5" in printed
    study = Study.load(run)
    assert study.settings.budgets == (1, 4) and study.cost == 5
    assert study.best.values["accuracy"] == 51
    assert main([*command, "--budgets", "1,4", "--trials", "2"]) == 0
    assert sum(t.state == "complete" for t in Study.load(run).trials) == 2
    assert "train(trial, budget, resume_from), and a study without budgets calls it with trial" in refused(
        capsys, *command, "--trials", "4"
    )
    (tmp_path / "mine.py").write_text(MINE)
    assert "budgets (1, 4) instead of ()" in refused(capsys, *command, "--trials", "4")
