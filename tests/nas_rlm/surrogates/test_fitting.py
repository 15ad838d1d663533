from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.data.tables import texts
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.features import usual_counts
from nas_rlm.surrogates.fitting import expert, experts_of
from tests.nas_rlm.stubs import counted_cells as rows

SPACE = search_spaces.get("nasbench201")


def test_an_expert_of_each_space_that_has_enough_rows():
    program = Row("triton", "", {"accuracy": 2.0}, "def kernel(): pass")
    own = [Row("mine", "", row.targets, text) for row, text in zip(rows(12), texts(rows(12)), strict=True)]
    found = experts_of([*rows(20), *own, *[program] * 20], ["accuracy"])
    assert found.keys() == {"nasbench201", "mine"}
    assert experts_of(rows(9), ["accuracy"]) == {}


def test_of_many_rows_a_random_part_is_learnt_from(monkeypatch):
    monkeypatch.setattr("nas_rlm.surrogates.fitting.MOST", 20)
    many = [
        replace(r, targets={**r.targets, "latency/a": 1.0 + i} if i % 3 else r.targets)
        for i, r in enumerate(rows(90))
    ]
    found = expert(usual_counts("nasbench201"), many, ["accuracy", "latency/a"])
    known = np.isfinite(found.values).sum(0)
    assert 20 <= known[0] <= 40 and 20 <= known[1] <= 40
    assert len(found.values) == len(found.features) <= 40
    assert np.nanmax(found.values[:, 1]) > 60


@pytest.fixture(scope="module")
def devices():
    """Who knows two devices; few rows of a third one, which is between these; and others, with its times."""
    found = []
    for row in rows(300):
        macs, convs = SPACE.flops(SPACE.parse(row.arch_str)) / 1e7, row.arch_str.count("conv")
        times = {"latency/a": 1 + macs, "latency/b": 1 + convs, "latency/c": 1 + macs + 2 * convs}
        found.append(replace(row, targets=times))
    known = [
        replace(r, targets={k: v for k, v in r.targets.items() if k != "latency/c"}) for r in found[:200]
    ]
    return experts_of(known, ["latency/a", "latency/b"]), found[200:212], found[212:]


def test_few_latencies_are_told_by_those_of_other_devices(devices):
    others, few, asked = devices
    (found,) = experts_of(few, ["latency/c"], others)["nasbench201"]
    (alone,) = experts_of(few, ["latency/c"])["nasbench201"]
    assert (len(found.counts.advisers), alone.counts.advisers) == (2, ())
    told, beliefs_of = (
        texts(asked),
        [one.believe(one.counts.read(texts(asked)), "latency/c") for one in (found, alone)],
    )
    true = np.array([row.targets["latency/c"] for row in asked])
    ranks = [spearman(belief.median, true) for belief in beliefs_of]
    assert ranks[0] > max(0.97, ranks[1])
    features = found.counts.read(told)
    each = [process.posterior(features)[0].numpy() for process in found.processes("latency/c")]
    assert len(each) == 3
    np.testing.assert_allclose(beliefs_of[0].mean, np.mean(each, 0))
    assert (found.weights["latency/c"][0, : len(found.counts.names)] == 0).all()


def test_many_latencies_need_no_other_device(devices):
    others, few, asked = devices
    (found,) = experts_of([*few, *asked, *asked[:30]], ["latency/c"], others)["nasbench201"]
    assert found.counts.advisers == ()


def test_an_expert_of_several_views_is_saved_with_its_model(devices, tiny_checkpoint, tmp_path):
    others, few, asked = devices
    rlm = RLM.load(tiny_checkpoint).with_objectives(["latency/c"])
    rlm.experts = {"nasbench201": experts_of(few, ["latency/c"], others)["nasbench201"]}
    rlm.save(tmp_path)
    told = [
        one.predict_text(texts(asked), ["latency/c"], (0.1, 0.9), space="nasbench201")
        for one in (rlm, RLM.load(tmp_path))
    ]
    np.testing.assert_allclose(*told, rtol=2e-3)
