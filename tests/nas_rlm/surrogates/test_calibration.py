from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row, Table
from nas_rlm.data.genome import genome_features_of_rows
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import distinct_architectures
from nas_rlm.surrogates import calibration
from nas_rlm.surrogates.calibration import (
    NETWORK_TEMPERATURES,
    calibrate,
    fit_network_temperatures,
    fit_temperatures,
)
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from nas_rlm.surrogates.predictive import DEFAULT_NETWORK_TEMPERATURE
from nas_rlm.text import from_architectures
from tests.search_spaces.plain_space import PLAIN, DropoutSpace

SPACE = search_spaces.get("nasbench201")


@pytest.fixture
def narrow(monkeypatch):
    """Quantiles of a normal distribution half as wide as that of the true values, times the temperature."""

    def quantile(network, memory, objectives, levels, temperatures, distributions):
        of_levels = 0.5 * np.array(temperatures)[:, None] * norm.ppf(levels)
        return np.tile(of_levels, (memory.batch, 1, 1))

    monkeypatch.setattr("nas_rlm.model.decoding.quantile", quantile)


def cells(n):
    rng = np.random.default_rng(0)
    return [SPACE.sample(rng) for _ in range(n)]


def test_the_temperature_widens_a_narrow_model(narrow, tiny_checkpoint):
    true = np.random.default_rng(1).normal(size=400)
    wide = np.where(np.arange(400) % 2, 2 * true, np.nan)
    texts = from_architectures(SPACE, cells(400))
    found = fit_temperatures(RLM.load(tiny_checkpoint), texts, {"accuracy": true, "latency/pixel3": wide})
    assert found == {"accuracy": pytest.approx(2, rel=0.15), "latency/pixel3": pytest.approx(4, rel=0.2)}


def test_each_space_and_objective_has_its_own_temperature(narrow, tiny_checkpoint):
    rng = np.random.default_rng(1)
    rows = [
        Row("nasbench201", str(c), {"accuracy": 3 * abs(rng.normal()), "latency/pixel3": 1.0, "new": 1.0})
        for c in cells(100)
    ]
    few = Table("few", [Row("nats_size", "8:8:8:8:8", {"accuracy": 1.0})] * 5)
    rlm = RLM.load(tiny_checkpoint)
    rlm.temperatures = {"fbnet": {"accuracy": 1.5}, "nasbench201": {"latency/eyeriss": 2.5}}
    calibrate(rlm, [Table("cells", rows), few])
    assert rlm.temperatures.keys() == {"nasbench201", "fbnet"}
    found = rlm.temperatures["nasbench201"]
    assert found.keys() == {"accuracy", "latency/pixel3", "latency/eyeriss"}
    assert found["accuracy"] > found["latency/pixel3"]
    assert found["latency/eyeriss"] == 2.5


def test_network_and_surrogate_combined_have_a_temperature(tiny_checkpoint, monkeypatch):
    """Intervals of the network are half as wide as the values, and combined half as wide again."""

    def quantile(network, memory, objectives, levels, temperatures, distributions):
        both = [0.5 * b.temperature if b else 1.0 for b in distributions]
        width = 0.5 * np.array(temperatures) * np.array(both)
        return np.tile(width[:, None] * norm.ppf(levels), (memory.batch, 1, 1))

    monkeypatch.setattr("nas_rlm.model.decoding.quantile", quantile)
    rng = np.random.default_rng(1)
    rows = [
        Row("nasbench201", str(c), {"accuracy": 50 + rng.normal(), "latency/pixel3": 50 + rng.normal()})
        for c in cells(150)
    ]
    rlm = RLM.load(tiny_checkpoint)
    rlm.surrogates = {
        "nasbench201": [fit_graph_surrogate(graph_features_of_space("nasbench201"), rows[:30], ["accuracy"])]
    }
    held = Table("cells", rows)
    monkeypatch.setattr(Table, "column", lambda table, name: rng.normal(size=len(table)))
    calibrate(rlm, [held])
    assert rlm.temperatures["nasbench201"] == {
        "accuracy": pytest.approx(2, rel=0.3),
        "latency/pixel3": pytest.approx(2, rel=0.3),
    }
    (surrogate,) = rlm.surrogates["nasbench201"]
    found = surrogate.network_temperatures  # all rank equally well
    assert found == {"accuracy": pytest.approx(DEFAULT_NETWORK_TEMPERATURE)}
    assert surrogate.temperatures == {"accuracy": pytest.approx(4 / DEFAULT_NETWORK_TEMPERATURE, rel=0.4)}


def test_beside_a_surrogate_the_network_has_the_temperature_that_ranks_best(tiny_checkpoint, monkeypatch):
    rng = np.random.default_rng(1)
    rows = [Row("nasbench201", str(c), {"accuracy": 50 + rng.normal()}) for c in cells(150)]
    texts, values = from_architectures(SPACE, cells(150)), np.array([r.targets["accuracy"] for r in rows])
    surrogate = fit_graph_surrogate(graph_features_of_space("nasbench201"), rows, ["accuracy"])
    best = NETWORK_TEMPERATURES[-1]

    def quantile(network, memory, objectives, levels, temperatures, distributions):
        wrong = abs(np.log(temperatures[0] / best))
        return (values + wrong * rng.normal(size=len(values)))[:, None, None]

    def decoded(rlm, texts, decode, shape, batch_size, progress):
        return decode(None, texts)

    monkeypatch.setattr("nas_rlm.model.decoding.quantile", quantile)
    monkeypatch.setattr(RLM, "decode_texts", decoded)
    rlm = RLM.load(tiny_checkpoint)
    assert fit_network_temperatures(rlm, texts, {"accuracy": values}, [surrogate]) == {"accuracy": best}


def test_with_few_rows_network_temperatures_shrink_to_the_default(tiny_checkpoint, monkeypatch):
    rows = [
        Row("nasbench201", str(c), {"accuracy": 50.0 + i})
        for i, c in enumerate(cells(calibration.PRIOR_ROWS))
    ]
    surrogate = fit_graph_surrogate(graph_features_of_space("nasbench201"), rows, ["accuracy"])
    rlm = replace(RLM.load(tiny_checkpoint), surrogates={"nasbench201": [surrogate]})
    monkeypatch.setattr(
        "nas_rlm.surrogates.calibration.fit_network_temperatures", lambda *_: {"accuracy": 1.5}
    )
    calibrate(rlm, [Table("cells", rows)])
    assert rlm.surrogates["nasbench201"][0].network_temperatures["accuracy"] == pytest.approx(
        (1.5 * DEFAULT_NETWORK_TEMPERATURE) ** 0.5
    )


def test_with_few_rows_temperatures_shrink_to_the_default(narrow, tiny_checkpoint):
    rng = np.random.default_rng(1)
    rows = [Row("nasbench201", str(c), {"accuracy": 3 * abs(rng.normal())}) for c in cells(50)]
    found = []
    for prior_rows in (0, 50, 10**9):
        rlm = RLM.load(tiny_checkpoint)
        calibrate(rlm, [Table("cells", rows)], prior_rows)
        found.append(rlm.temperatures["nasbench201"]["accuracy"])
    fitted, between, default = found
    assert default == pytest.approx(calibration.DEFAULT_TEMPERATURE)
    assert between == pytest.approx((fitted * default) ** 0.5)


def test_warmer_intervals_are_wider_and_medians_hardly_move(shipped_rlm, tmp_path):
    warm = RLM(shipped_rlm.network, shipped_rlm.tokenizer, {}, {"nasbench201": {"accuracy": 2.0}})
    warm.save(tmp_path / "warm")
    warm = RLM.load(tmp_path / "warm")
    assert warm.temperatures == {"nasbench201": {"accuracy": 2.0}}
    plain = RLM(shipped_rlm.network, shipped_rlm.tokenizer)
    before, after = (m.predict(SPACE, cells(60), ["accuracy"], (0.1, 0.5, 0.9))[:, 0] for m in (plain, warm))
    assert np.mean(np.ptp(after, axis=1) > 1.2 * np.ptp(before, axis=1)) > 0.95
    assert np.median(np.abs(after[:, 1] - before[:, 1])) < 0.1 * np.median(np.ptp(before, axis=1))
    spread = [np.std(m.sample(SPACE, cells(20), ["accuracy"], 32), axis=1).mean() for m in (plain, warm)]
    assert spread[1] > 1.2 * spread[0]


def test_a_temperature_of_zero_is_refused(tiny_checkpoint, tmp_path):
    loaded = RLM.load(tiny_checkpoint)
    RLM(loaded.network, loaded.tokenizer, {}, {"a": {"accuracy": 0.0}}).save(tmp_path / "cold")
    with pytest.raises(ValueError, match=r"temperatures\.a\.accuracy is 0\.0: expected a number above 0"):
        RLM.load(tmp_path / "cold")


def test_other_spaces_take_the_mean(tiny_checkpoint):
    loaded = RLM.load(tiny_checkpoint)
    known = {"a": {"accuracy": 2.0}, "b": {"accuracy": 8.0, "latency/pixel3": 3.0}}
    rlm = RLM(loaded.network, loaded.tokenizer, {}, known)
    names = ["accuracy", "latency/pixel3", "latency/eyeriss"]
    assert rlm.network_temperatures("a", names) == pytest.approx([2, 3, 1])
    assert rlm.network_temperatures("c", names) == pytest.approx([4, 3, 1])
    assert loaded.network_temperatures("a", names) == [1, 1, 1]


def test_a_text_of_several_genomes_is_calibrated_with_one(tiny_checkpoint, monkeypatch):
    space = search_spaces.register(DropoutSpace())
    names = [f"{word} {plain}" for plain in distinct_architectures(PLAIN, 25) for word in ("keep", "drop")]
    rows = [Row(space.name, name, {"accuracy": 50.0 + i}) for i, name in enumerate(names)]
    seen = []
    monkeypatch.setattr(calibration, "calibrate_space", lambda *arguments: seen.append(arguments))
    calibrate(RLM.load(tiny_checkpoint), [Table("t", rows)])
    ((_, _, texts, values, _, genomes),) = seen
    assert len(texts) == len({*texts}) == 25 == len(genomes)
    for text, value in zip(texts, values["accuracy"], strict=True):
        of_text = [row for row in rows if row.targets["accuracy"] == value]
        assert texts_of_rows(of_text) == [text] and genome_features_of_rows(of_text) == [genomes[text]]
