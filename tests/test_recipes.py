"""The recipe that compares searches by trainings runs, continues and refuses other arguments."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

RECIPES = Path(__file__).parents[1] / "results" / "recipes"


@pytest.fixture
def recipes(monkeypatch):
    """The modules of the space and of the comparison."""
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(str(RECIPES))
    import cifar10_networks
    import cifar10_study

    yield cifar10_networks, cifar10_study
    for name in ("cifar10_networks", "cifar10_study"):
        sys.modules.pop(name, None)


def images(count):
    rng = np.random.default_rng(count)
    return torch.from_numpy(rng.normal(size=(count, 3, 32, 32))).float(), torch.arange(count) % 10


def test_genomes_and_notations_of_the_spaces_are_inverse(recipes):
    networks, _ = recipes
    rng = np.random.default_rng(0)
    for space in (networks.MobileNets(), networks.SmallSNAS()):
        for _ in range(20):
            architecture = space.sample(rng)
            assert space.decode(space.encode(architecture)) == architecture == space.parse(str(architecture))
    with pytest.raises(ValueError, match="'w16' is not like w16e3k3d1"):
        networks.MobileNets().parse("w16")


def test_a_run_is_logged_and_continued(recipes, tmp_path, capsys):
    networks, study = recipes
    data = networks.Data(images(64), images(20), images(30))
    plan = study.Plan(minutes=1 / 60, images=64, final_epochs=1, max_front=1)
    study.run("random", "snas", data, tmp_path, 0, plan)
    log = tmp_path / "snas-random-0.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    trials = [r for r in records if r["kind"] == "trial"]
    assert trials and trials[-1]["seconds"] > 1
    content = log.read_text()
    study.run("random", "snas", data, tmp_path, 0, plan)
    assert log.read_text() == content  # there is no time left
    log.write_text(
        content.splitlines(keepends=True)[0].replace(f'"seconds": {trials[0]["seconds"]}', '"seconds": 0.5')
    )
    study.run("random", "snas", data, tmp_path, 0, plan)
    again = [json.loads(line) for line in log.read_text().splitlines()]
    assert again[0]["architecture"] == trials[0]["architecture"] != again[1]["architecture"]
    assert again[-1]["kind"] == "final" and 0 <= again[-1]["test_accuracy"] <= 100
    with pytest.raises(ValueError, match="is of a run with another images"):
        study.run("random", "snas", data, tmp_path, 0, replace(plan, images=32))
    study.summary(tmp_path)
    assert "snas-random-0: " in capsys.readouterr().out
