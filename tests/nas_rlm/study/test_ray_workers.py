import pytest

from nas_rlm.study.trial import COMPLETE, ERROR, FAILED, OUTPUT

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
