from dataclasses import replace

import numpy as np
import pytest
import torch

from nas_rlm import RLM, speed
from nas_rlm.cli import main
from nas_rlm.model import Network
from nas_rlm.speed import PARTS, Plain, Plan, Timing, measured, objectives_of, operations, timed
from nas_rlm.text.tokenizer import ENDS_STATEMENT
from tests.nas_rlm.cli.commands import refused

PLAN = Plan(count=4, runs=2, most=10, evaluations=16)


@pytest.fixture
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


def test_cases_take_turns_and_the_median_counts(monkeypatch):
    clock = iter(np.cumsum([0.0, 0, 9, 0, 9, 0, 1, 0, 2, 0, 3, 0, 4, 0, 8, 0, 2]).tolist()[1:])
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    order = []
    cases = {name: lambda run, name=name: order.append((name, run)) or 10 for name in "ab"}
    found = dict(timed(cases, 3))
    assert order == [(name, run) for run in range(4) for name in "ab"]
    assert (found["a"].seconds, found["a"].spread, found["a"].units) == (3, 7, 10)
    assert (found["b"].seconds, found["b"].spread) == (2, 2)
    assert found["a"].per_second == pytest.approx(10 / 3)


def test_memory_is_what_the_process_grew_by():
    held = []
    cases = {"much": lambda _: len(held.append(np.ones(2**24)) or held), "nothing": lambda _: 1}
    found = dict(timed(cases, 1, warm=False))
    if not speed._resident():
        pytest.skip("this system does not tell the memory of a process")
    assert 100 < found["much"].memory < 200
    assert found["nothing"].memory < 20


@pytest.mark.parametrize("part", [name for name in PARTS if name not in ("learning", "start")])
def test_each_part_is_measured(rlm, part, monkeypatch):
    monkeypatch.setattr(speed, "SPACES", ("nasbench201", "nasbench101"))
    monkeypatch.setattr(speed, "CROPS", (16, 32))
    monkeypatch.setattr(speed, "SIDE", 64)
    monkeypatch.setattr(speed, "BATCH", 4)
    found = dict(measured(rlm, PLAN, [part], {}))
    assert {name for name, _ in found} == {part}
    assert all(timing.seconds > 0 for timing in found.values())
    counts = {case: timing.units for (_, case), timing in found.items()}
    if part in ("end-to-end", "text", "encoder", "experts"):
        assert counts["nasbench201"] in (3, 4)  # equal ones are encoded once
    if part == "search":
        assert counts == {"NSGA-II": 16, "without model": 16}
    if part == "growth":
        assert counts["10 networks"] == 10
    assert not list(measured(rlm, PLAN, [part], found))


def test_learning_is_measured(rlm, monkeypatch):
    monkeypatch.setattr(speed, "STEPS", 1)
    monkeypatch.setattr(speed, "LABELS", 5)
    monkeypatch.setattr(RLM, "fine_tune", lambda self, rows, names: len(rows) == 5 or pytest.fail("5 labels"))
    found = dict(measured(rlm, Plan(count=4, runs=1), ["learning"], {}))
    assert found["learning", "fine-tuning, 5 labels"].units == 5
    assert found["learning", "pretraining, tokens"].units > 32 * 20


def test_the_plain_way_draws_numbers_that_are_some(rlm):
    network = rlm.network
    torch.manual_seed(0)
    plain = Plain(network.config).eval()
    ids = torch.randint(1, 200, (3, 11))
    asked = network.config.objective_ids(["accuracy"])[0]
    with torch.inference_mode():
        states, padding = network.states(ids)[0], torch.zeros(3, 11, dtype=torch.bool)
        told = [plain.median(states, padding, asked, 9, torch.Generator().manual_seed(1)) for _ in range(2)]
    assert np.isfinite(told[0]).all()
    assert np.array_equal(*told)
    own, theirs = (sum(p.numel() for p in part.parameters()) for part in (network.decoder, plain.decoder))
    assert theirs == pytest.approx(own, rel=0.1)


@pytest.mark.parametrize(("statements", "read"), [(0, 100), (1, 5)])
def test_operations_are_those_of_the_weights(rlm, statements, read):
    config = replace(rlm.network.config, statements=statements)
    network = Network(config, rlm.tokenizer.kinds())
    weights = sum(p.numel() for p in network.encoder.parameters() if p.ndim == 2)
    weights += sum(layer.cross.key_value.weight.numel() for layer in network.decoder)
    pairs = config.size * 4 * read**2 * config.width  # scores, and what they weigh
    ends = int((network.kinds == ENDS_STATEMENT).nonzero()[0, 0])
    plain = int((network.kinds == 0).nonzero()[-1, 0])
    ids = torch.tensor([([plain] * 19 + [ends]) * 5] * 3)
    assert operations(network, ids) == 3 * (2 * read * weights + pairs)


def test_what_a_space_has_is_asked_first(rlm):
    assert objectives_of(rlm, "nasbench201") == ["accuracy", "latency/pixel3", "latency/eyeriss"]


def test_the_command(tiny_checkpoint, tmp_path, capsys):
    out = str(tmp_path / "speed.jsonl")
    command = ["bench", "speed", "--model", str(tiny_checkpoint), "--count", "2", "--runs", "1", "--out", out]
    assert main([*command, "--parts", "text"]) == 0
    first = capsys.readouterr().out
    assert "text        nds_darts" in first
    assert main([*command, "--parts", "text"]) == 0
    assert capsys.readouterr().out == first
    assert "no part 'texts'; did you mean text" in refused(capsys, *command, "--parts", "texts")
    assert "runs is 0, expected at least 1" in refused(capsys, "bench", "speed", "--runs", "0")


def test_a_plan_that_is_none():
    with pytest.raises(ValueError, match="evaluations is 1, expected at least 4"):
        Plan(evaluations=1)
    assert Timing(10, 2, 0, 0).per_second == 5
