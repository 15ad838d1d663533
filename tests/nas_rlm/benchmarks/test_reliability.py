import numpy as np
import pytest
from scipy.stats import norm

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.reliability import INTERVALS, LEVELS, Reliability, draw, reliability
from nas_rlm.data import Row, Table

SPACE = search_spaces.get("nasbench201")


@pytest.fixture
def held():
    """Cells of distinct texts; a half of the values spreads by 1 around 100, the other by 5."""
    rng = np.random.default_rng(0)
    cells = list({SPACE.key(c): c for c in (SPACE.sample(rng) for _ in range(900))}.values())[:600]
    values = 100 + np.where(np.arange(600) % 2, 1, 5) * rng.normal(size=600)
    rows = [Row("nasbench201", str(c), {"latency/pixel3": v}) for c, v in zip(cells, values, strict=True)]
    return Table("cells", rows)


@pytest.mark.parametrize(("width", "expected"), [(1.0, INTERVALS), (0.0, [0] * len(INTERVALS))])
def test_a_right_model_holds_what_it_says(held, tiny_checkpoint, monkeypatch, width, expected):
    rlm = RLM.load(tiny_checkpoint)

    def decode_texts(texts, decode, shape, batch_size, progress):
        spread = np.where(np.arange(600) % 2, 1, 5)[:, None, None] * width
        return 100 + spread * norm.ppf(LEVELS)[None, None]

    monkeypatch.setattr(rlm, "decode_texts", decode_texts)
    (found,) = reliability(rlm, held, ["latency/pixel3"])
    assert (found.table, found.objective, found.rows) == ("cells", "latency/pixel3", 600)
    assert found.held == pytest.approx(expected, abs=0.06)
    if width:
        assert found.certain == pytest.approx(0.01 * norm.ppf(0.75), rel=0.2)
        assert found.uncertain == pytest.approx(0.05 * norm.ppf(0.75), rel=0.2)


def test_the_real_decoder_is_asked(held, tiny_checkpoint):
    held.rows = held.rows[:20]
    rlm = RLM.load(tiny_checkpoint)
    (found,) = reliability(rlm, held, ["latency/pixel3"])
    cells = [row.arch_str for row in held.rows]
    low, high = rlm.predict(SPACE, cells, ["latency/pixel3"], (0.1, 0.9))[:, 0].T
    true = held.column("latency/pixel3")
    assert found.held[INTERVALS.index(0.8)] == ((low <= true) & (true <= high)).mean()


def test_errors_of_a_latency_are_held_against_those_of_accuracy(held, tiny_checkpoint, monkeypatch):
    rlm = RLM.load(tiny_checkpoint)
    noise = np.random.default_rng(1).normal(size=600)
    for i, row in enumerate(held.rows):
        row.targets["accuracy"] = 90 + noise[i]
        row.targets["latency/pixel3"] = 100 - noise[i] ** 3 if i < 300 else 0.0
    monkeypatch.setattr(
        rlm, "predict_text", lambda _, names, *__, **___: np.full((600, len(names), len(LEVELS)), 95.0)
    )
    accuracy, latency = reliability(rlm, held, ["accuracy", "latency/pixel3"])
    assert accuracy.shared is None
    assert latency.shared == pytest.approx(-1)
    (alone,) = reliability(rlm, held, ["latency/pixel3"])
    assert alone.shared is None


def test_a_line_for_each_objective():
    figure = draw([Reliability("cells", "accuracy", 9, (0.1, 0.2, 0.3, 0.4, 0.5), 0.1, 0.2)])
    diagonal, line = figure.axes[0].lines
    assert line.get_label() == "cells accuracy"
    assert list(line.get_ydata()) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
