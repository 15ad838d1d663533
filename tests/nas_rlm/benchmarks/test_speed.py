from dataclasses import replace

import pytest
import torch

from nas_rlm import RLM
from nas_rlm.benchmarks import device_speed, speed
from nas_rlm.benchmarks.speed import (
    PARTS,
    SpeedSettings,
    count_operations,
    measure_parts,
    measured_objectives,
)
from nas_rlm.benchmarks.timing import Timing
from nas_rlm.cli import main
from nas_rlm.model.network import Network
from nas_rlm.text.tokenizer import ENDS_STATEMENT
from tests.nas_rlm.cli.commands import refused

SETTINGS = SpeedSettings(count=4, runs=2, max_count=10, evaluations=16)


@pytest.fixture
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


@pytest.mark.parametrize("part", [name for name in PARTS if name not in ("learning", "start", "new-device")])
def test_each_part_is_measured(rlm, part, monkeypatch):
    monkeypatch.setattr(speed, "SPACES", ("nasbench201", "nasbench101"))
    monkeypatch.setattr(speed, "TEXT_LENGTHS", (16, 32))
    monkeypatch.setattr(speed, "MATRIX_SIZE", 64)
    monkeypatch.setattr(speed, "BATCH_SIZE", 4)
    rlm.surrogates = dict.fromkeys(speed.SPACES, ())
    found = dict(measure_parts(rlm, SETTINGS, [part], {}))
    assert {name for name, _ in found} == {part}
    assert all(timing.seconds > 0 for timing in found.values())
    counts = {case: timing.units for (_, case), timing in found.items()}
    if part in ("end-to-end", "text", "encoder", "surrogates"):
        assert counts["nasbench201"] in (3, 4)  # equal ones are encoded once
    if part == "search":
        assert counts == dict.fromkeys(("NSGA-II", "without network", "without network and text"), 16)
    if part == "growth":
        assert counts["10 networks"] == 10
    assert not list(measure_parts(rlm, SETTINGS, [part], found))


def test_learning_is_measured(rlm, monkeypatch):
    monkeypatch.setattr(speed, "NUM_STEPS", 1)
    monkeypatch.setattr(speed, "NUM_LABELS", 5)
    monkeypatch.setattr(RLM, "fine_tune", lambda self, rows, names: len(rows) == 5 or pytest.fail("5 labels"))
    found = dict(measure_parts(rlm, SpeedSettings(count=4, runs=1), ["learning"], {}))
    assert found["learning", "fine-tuning, 5 labels"].units == 5
    assert found["learning", "pretraining, tokens"].units > 32 * 20


def test_a_new_device_is_learned_by_the_command(rlm, tiny_checkpoint, monkeypatch):
    monkeypatch.setattr(device_speed, "NUM_MEASURED", (12,))
    monkeypatch.setattr(
        device_speed.subprocess, "run", lambda command, **_: main(command[3:]) and pytest.fail()
    )
    settings = SpeedSettings(runs=1, model=str(tiny_checkpoint))
    found = dict(measure_parts(rlm, settings, ["new-device"], {}))
    assert {case: timing.units for (_, case), timing in found.items()} == {
        "12 labels, nasbench201": 12,
        "12 labels, mixed networks": 12,
    }


@pytest.mark.parametrize(("statements", "read"), [(0, 100), (1, 5)])
def test_operations_are_counted_from_the_weights(rlm, statements, read):
    config = replace(rlm.network.config, statement_layers=statements)
    network = Network(config, rlm.tokenizer.kinds())
    weights = sum(p.numel() for p in network.encoder.parameters() if p.ndim == 2)
    weights += sum(layer.cross.key_value.weight.numel() for layer in network.decoder)
    pairs = config.size * 4 * read**2 * config.width  # scores, and what they weigh
    ends = int((network.kinds == ENDS_STATEMENT).nonzero()[0, 0])
    plain = int((network.kinds == 0).nonzero()[-1, 0])
    ids = torch.tensor([([plain] * 19 + [ends]) * 5] * 3)
    assert count_operations(network, ids) == 3 * (2 * read * weights + pairs)


def test_objectives_of_the_space_come_first(rlm):
    assert measured_objectives(rlm, "nasbench201") == ["accuracy", "latency/pixel3", "latency/eyeriss"]


def test_the_command(tiny_checkpoint, tmp_path, capsys):
    out = str(tmp_path / "speed.jsonl")
    command = ["bench", "speed", "--model", str(tiny_checkpoint), "--count", "2", "--runs", "1", "--out", out]
    assert main([*command, "--parts", "text"]) == 0
    first = capsys.readouterr().out
    assert "text        nds_darts" in first
    assert main([*command, "--parts", "text"]) == 0
    again = capsys.readouterr().out
    assert again == first.replace("1 run\n", f"1 run; 5 of them were in {out} before\n")
    assert "no part 'texts'; did you mean text" in refused(capsys, *command, "--parts", "texts")
    assert "runs is 0, expected 1 to" in refused(capsys, "bench", "speed", "--runs", "0")
    assert main([*command, "--parts", "text", "--seed", "1"]) == 0  # other networks
    assert "were in" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluations": 1}, "evaluations is 1, expected 4 to"),
        ({"evaluations": 10}, "evaluations is 10, expected a square number"),
        ({"count": 10**20}, "count is 1000"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SpeedSettings(**changes)


def test_a_part_that_was_interrupted_is_measured_again(rlm, monkeypatch):
    def interrupted(*_):
        yield "first", Timing(1, 1.0, 0.0, 0.0)
        raise KeyboardInterrupt

    monkeypatch.setitem(speed.PARTS, "text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(measure_parts(rlm, SETTINGS, ["text"], {}))


def test_a_model_without_accuracy_and_latency_is_refused(rlm):
    with pytest.raises(ValueError, match="has no accuracy and no latency: expected a model such as nas"):
        measured_objectives(rlm.copy_for_training(("flops",)), "nasbench201")
