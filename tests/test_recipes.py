"""The recipe that compares searches by trainings: its logs, and what continues from them."""

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nas_rlm.search.acquisition import candidate_pool

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


@pytest.fixture
def quick(recipes, monkeypatch):
    """The comparison on made-up values, where each trial takes a second."""
    networks, study = recipes
    seconds = itertools.count()
    monkeypatch.setattr(candidate_pool, "FIRST_POOL_SIZE", 40)
    monkeypatch.setattr(study, "processor_seconds", lambda: float(next(seconds)))
    values = {study.ACCURACY: 30.0, study.LATENCY: 0.1}
    monkeypatch.setattr(study.Evaluator, "values", lambda self, architecture, seed: values)
    monkeypatch.setattr(study.Evaluator, "accuracy", lambda self, architecture, seed: 30.0)
    monkeypatch.setattr(study.Evaluator, "test_accuracy", lambda self, architecture, seed, epochs: 60.0)
    return study, networks.Data(images(64), images(20), images(30))


def test_a_network_is_trained_and_tested(recipes):
    networks, study = recipes
    space, data = networks.MobileNets(), networks.Data(images(64), images(20), images(30))
    architecture, evaluator = (
        space.parse("w16e1k3d1 w16e1k3d1 w16e3k5d2"),
        study.Evaluator(space, data, 64, 0),
    )
    accuracy = evaluator.accuracy(architecture, 0)
    assert 0 <= accuracy <= 100 and evaluator.accuracy(architecture, 0) == accuracy
    assert 0 <= evaluator.test_accuracy(architecture, 0, epochs=1) <= 100


def test_a_run_is_logged_continued_and_made_longer(quick, tmp_path, capsys):
    study, data = quick
    plan = study.Plan(minutes=3 / 60, images=64, final_epochs=1, max_front=1)
    log = tmp_path / "snas-random-0.jsonl"

    def run(plan):
        study.run("random", "snas", data, tmp_path, 0, plan)
        return [json.loads(line) for line in log.read_text().splitlines()]

    whole = run(plan)
    assert [(r["kind"], r.get("seconds")) for r in whole] == [
        *(("trial", 1.0), ("trial", 2.0), ("trial", 3.0)),
        ("final", None),
    ]
    assert run(plan) == whole  # there is no time left
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:1]))
    assert run(plan) == whole
    longer = run(replace(plan, minutes=5 / 60))
    assert longer[:4] == whole and [r["kind"] for r in longer[4:]] == ["trial", "trial", "final"]
    assert len({r["architecture"] for r in longer if r["kind"] == "trial"}) == 5
    with pytest.raises(ValueError, match="is of a run with another images"):
        run(replace(plan, images=32))
    study.summary(tmp_path, 3 / 60)
    shown = capsys.readouterr().out
    assert "snas-random-0: 3 trials of 3 networks, " in shown and "1 networks of the front tested" in shown


def test_final_networks_of_all_logs_are_measured_again(quick, tmp_path, capsys, monkeypatch):
    study, data = quick
    for seed in (0, 1):
        study.run("random", "mobilenets", data, tmp_path, seed, study.Plan(3 / 60, 64, 1, 1))
    monkeypatch.setattr(study, "measured_values", lambda *_: ({study.LATENCY: 0.025}, {}))
    study.summary(tmp_path, 3 / 60)
    study.measure_finals(tmp_path)
    found = json.loads((tmp_path / study.FINAL_LATENCIES).read_text())
    assert [*found["mobilenets"].values()] == [0.025, 0.025]
    study.summary(tmp_path, 3 / 60)
    lines = [line for line in capsys.readouterr().out.splitlines() if "mobilenets-" in line]
    # Accuracies of 60 % above 10 %, of 90, and a quarter of the longest latency of the logs, .1 ms.
    assert [f"tested, hypervolume {0.75 * 50 / 90:.4f}" in line for line in lines] == [
        False,
        False,
        True,
        True,
    ]


def test_a_network_with_several_trials_counts_with_its_means(recipes):
    _, study = recipes
    values = [("a", 40.0, 0.2), ("b", 30.0, 0.1), ("a", 36.0, 0.3)]
    trials = [{"architecture": a, study.ACCURACY: y, study.LATENCY: x} for a, y, x in values]
    assert study.averaged(trials) == [(38.0, 0.25), (30.0, 0.1)]
    assert study.averaged([]) == []


@pytest.mark.parametrize("method", ["study", "tpe"])
def test_a_method_knows_the_trials_of_a_log(recipes, quick, method):
    if method == "tpe":
        pytest.importorskip("optuna")
    (networks, _), (study, data) = recipes, quick
    space = networks.MobileNets()
    chosen = study.CLASSES[method](study.Evaluator(space, data, 64, 0), 0)
    architectures = [space.sample(np.random.default_rng(i)) for i in range(12)]
    for i, architecture in enumerate(architectures[:-1]):
        chosen.add(architecture, {study.ACCURACY: 20.0 + i, study.LATENCY: 0.1 + 0.01 * i})
    chosen.add(architectures[-1], {})
    assert sum(bool(trial.values) for trial in chosen.study.trials) == 11
    architecture, values = chosen.next(12)
    assert space.parse(str(architecture)) not in architectures
    assert values[study.ACCURACY] == 30.0 and values[study.LATENCY] > 0
