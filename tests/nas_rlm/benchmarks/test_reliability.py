import numpy as np
import pytest
from scipy.stats import norm

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.reliability import INTERVALS, QUANTILE_LEVELS, measure_reliability
from nas_rlm.data import Row, Table

SPACE = search_spaces.get("nasbench201")


@pytest.fixture
def test_table():
    """Cells of distinct texts; a half of the values spreads by 1 around 100, the other by 5."""
    rng = np.random.default_rng(0)
    cells = list({SPACE.key(c): c for c in (SPACE.sample(rng) for _ in range(900))}.values())[:600]
    values = 100 + np.where(np.arange(600) % 2, 1, 5) * rng.normal(size=600)
    rows = [Row("nasbench201", str(c), {"latency/pixel3": v}) for c, v in zip(cells, values, strict=True)]
    return Table("cells", rows)


@pytest.mark.parametrize(("width", "expected"), [(1.0, INTERVALS), (0.0, [0] * len(INTERVALS))])
def test_a_calibrated_model_has_the_right_coverage(test_table, tiny_checkpoint, monkeypatch, width, expected):
    rlm = RLM.load(tiny_checkpoint)

    def decode_texts(texts, decode, shape, batch_size, progress, input_batch):
        spread = np.where(np.arange(600) % 2, 1, 5)[:, None, None] * width
        quantiles = 100 + spread * norm.ppf(QUANTILE_LEVELS)[None, None]
        return np.concatenate([quantiles, np.full((600, 1, 1), np.nan)], 2)  # no novelties

    monkeypatch.setattr(rlm, "decode_texts", decode_texts)
    (found,) = measure_reliability(rlm, test_table, ["latency/pixel3"])
    assert (found.table, found.objective, found.rows) == ("cells", "latency/pixel3", 600)
    assert found.coverage == pytest.approx(expected, abs=0.06)
    if width:
        assert found.narrow_error == pytest.approx(0.01 * norm.ppf(0.75), rel=0.2)
        assert found.wide_error == pytest.approx(0.05 * norm.ppf(0.75), rel=0.2)


def test_the_predictions_of_the_model_are_used(test_table, tiny_checkpoint):
    test_table.rows = test_table.rows[:20]
    rlm = RLM.load(tiny_checkpoint)
    (found,) = measure_reliability(rlm, test_table, ["latency/pixel3"])
    cells = [row.arch_str for row in test_table.rows]
    low, high = rlm.predict(SPACE, cells, ["latency/pixel3"], (0.1, 0.9))[:, 0].T
    true = test_table.column("latency/pixel3")
    assert found.coverage[INTERVALS.index(0.8)] == ((low <= true) & (true <= high)).mean()


def test_errors_of_a_latency_are_correlated_with_those_of_accuracy(test_table, tiny_checkpoint, monkeypatch):
    rlm = RLM.load(tiny_checkpoint)
    noise = np.random.default_rng(1).normal(size=600)
    for i, row in enumerate(test_table.rows):
        row.targets["accuracy"] = 90 + noise[i]
        row.targets["latency/pixel3"] = 100 - noise[i] ** 3 if i < 300 else 0.0
    monkeypatch.setattr(
        rlm,
        "predict_text",
        lambda _, names, *__, **___: np.full((600, len(names), len(QUANTILE_LEVELS)), 95.0),
    )
    accuracy, latency = measure_reliability(rlm, test_table, ["accuracy", "latency/pixel3"])
    assert accuracy.error_correlation is None
    assert latency.error_correlation == pytest.approx(-1)
    (alone,) = measure_reliability(rlm, test_table, ["latency/pixel3"])
    assert alone.error_correlation is None
