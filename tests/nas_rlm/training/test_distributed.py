import json
import os
import subprocess
import sys

import pytest
import torch

from nas_rlm import RLM
from nas_rlm.training import distributed, trainer
from tests.nas_rlm.training_runs import RECIPE, interrupt, prepare_run


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    path = prepare_run(tmp_path, monkeypatch)
    path.write_text(RECIPE.replace("batch_size: 8", "batch_size: 7"))  # which two do not share evenly
    return path


def in_two(*arguments):
    """Run nas-rlm in two processes."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*start, "-m", "nas_rlm", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def logged(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_two_processes_train_the_same_model_as_one(recipe, tmp_path, quick_processes):
    alone = trainer.run(recipe, tmp_path / "alone")
    in_two("train", recipe, "--out", tmp_path / "two")
    one, two = logged(tmp_path / "alone"), logged(tmp_path / "two")
    assert [line["step"] for line in one] == [line["step"] for line in two]
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], rel=1e-3)
    together = dict(RLM.load(tmp_path / "two").network.named_parameters())
    for name, weight in alone.network.named_parameters():
        torch.testing.assert_close(together[name], weight, rtol=0.02, atol=2e-3)
    held = json.loads((tmp_path / "two" / "config.json").read_text())
    assert held["trained_on"]["nasbench201"]["rows"] == alone.trained_on["nasbench201"].rows


@pytest.mark.long
def test_two_processes_resume_the_run_of_one(recipe, tmp_path, monkeypatch):
    alone = trainer.run(recipe, tmp_path / "alone")
    with monkeypatch.context() as patched:
        interrupt(patched, 7)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(recipe, tmp_path / "two")
    in_two("train", recipe, "--out", tmp_path / "two", "--resume")
    together = dict(RLM.load(tmp_path / "two").network.named_parameters())
    for name, weight in alone.network.named_parameters():
        torch.testing.assert_close(together[name], weight, rtol=0.02, atol=2e-3)


def test_each_row_of_a_batch_counts_once(monkeypatch):
    assert distributed.local_rows(5)[0].tolist() == [0, 1, 2, 3, 4]
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    taken = []
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        rows, counts = distributed.local_rows(2)
        taken.append((rows.tolist(), counts))
    assert taken == [([0], 1.0), ([1], 1.0), ([0], 0.0)]


def test_a_single_process_is_the_main_one():
    assert (distributed.rank(), distributed.world_size(), distributed.is_main()) == (0, 1, True)
    assert distributed.broadcast(0.1) == 0.1
    given = torch.ones(3)
    distributed.all_reduce([given])
    assert given.tolist() == [1, 1, 1]
