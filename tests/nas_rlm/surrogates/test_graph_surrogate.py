from dataclasses import replace

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import synthetic
from nas_rlm.data.tables import texts
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.features import usual_counts
from nas_rlm.surrogates.fitting import expert
from nas_rlm.surrogates.graph_surrogate import Expert, beliefs
from nas_rlm.text import from_architectures
from tests.nas_rlm.stubs import counted_cells as rows

SPACE = search_spaces.get("nasbench201")


@pytest.fixture(scope="module")
def counts():
    return usual_counts("nasbench201")


def test_an_expert_on_networks_it_has_not_seen(counts):
    few, others = expert(counts, rows(60), ["accuracy"]), rows(50, seed=2)
    belief = few.believe(counts.read(texts(others)), "accuracy")
    true = np.array([row.targets["accuracy"] for row in others])
    assert spearman(belief.median, true) > 0.95
    drawn = np.stack([belief.draw(np.random.default_rng(i)) for i in range(20)])
    assert spearman(np.median(drawn, 0), true) > 0.95
    assert (drawn.std(0) > 0).all()


def test_an_expert_loses_what_another_knows(counts):
    both = [replace(r, targets={**r.targets, "latency/a": 1.0 + i}) for i, r in enumerate(rows(30))]
    found = expert(counts, both, ["accuracy", "latency/a"])
    found = replace(found, temperatures={"accuracy": 2.0, "latency/a": 3.0})
    assert found.without(["latency/b"]) is found
    assert found.without(["accuracy", "latency/a"]) is None
    left, asked = found.without(["accuracy"]), counts.read(texts(rows(5, seed=2)))
    assert left.objectives == ("latency/a",)
    believed = left.believe(asked, "latency/a")
    assert (believed.mean == found.believe(asked, "latency/a").mean).all()
    assert believed.temperature == 3.0


def test_each_text_is_counted_once(counts, monkeypatch):
    both = [replace(r, targets={**r.targets, "latency/a": 1.0 + i}) for i, r in enumerate(rows(30))]
    experts = [expert(counts, both, ["accuracy", "latency/a"]), expert(counts, rows(30), ["accuracy"])]
    counted, real = [], synthetic.metrics
    asked = texts(rows(5, seed=2))
    monkeypatch.setattr(synthetic, "metrics", lambda text, chains: counted.append(text) or real(text, chains))
    beliefs(experts, asked, ["accuracy", "latency/a", "latency/none"])
    assert counted == asked
    beliefs(experts, asked, ["latency/none"])
    assert counted == asked


def test_of_two_experts_the_later_one_is_asked(counts):
    first, second = (expert(counts, rows(30, seed), ["accuracy"]) for seed in (0, 1))
    asked = texts(rows(5, seed=2))
    found, none = beliefs([first, second], asked, ["accuracy", "latency/mine"])
    assert none is None
    assert (found.mean == second.believe(counts.read(asked), "accuracy").mean).all()


def test_a_model_with_an_expert_follows_it_and_is_saved_with_it(counts, tiny_checkpoint, tmp_path):
    rlm, others = RLM.load(tiny_checkpoint), rows(40, seed=2)
    true = np.array([row.targets["accuracy"] for row in others])
    archs = [row.arch_str for row in others]
    before = rlm.predict(SPACE, archs, ["accuracy"])[:, 0]
    rlm.experts = {
        "nasbench201": [replace(expert(counts, rows(60), ["accuracy"]), temperatures={"accuracy": 1.2})]
    }
    found = rlm.predict(SPACE, archs, ["accuracy"], [0.1, 0.5, 0.9])[:, 0]
    assert spearman(found[:, 1], true) > 0.95 > spearman(before, true)
    assert (found[:, 0] <= found[:, 1]).all() and (found[:, 1] <= found[:, 2]).all()
    drawn = np.median(rlm.sample(SPACE, archs, ["accuracy"], 64)[:, :, 0], 1)
    assert spearman(drawn, true) > 0.9
    rlm.save(tmp_path / "saved")
    again = RLM.load(tmp_path / "saved")
    assert again.experts["nasbench201"][0].objectives == ("accuracy",)
    assert again.experts["nasbench201"][0].temperatures == {"accuracy": 1.2}
    assert again.predict(SPACE, archs, ["accuracy"])[:, 0] == pytest.approx(found[:, 1], rel=0.02)
    again.save(tmp_path / "again")
    same = RLM.load(tmp_path / "again").predict(SPACE, archs, ["accuracy"])
    assert (same == again.predict(SPACE, archs, ["accuracy"])).all()
    assert (
        rlm.predict_text(from_architectures(SPACE, map(SPACE.parse, archs)), ["accuracy"])[:, 0] == before
    ).all()


def test_a_checkpoint_whose_experts_are_missing_or_damaged(counts, tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    rlm.experts = {"nasbench201": [expert(counts, rows(20), ["accuracy"])]}
    rlm.save(tmp_path)
    path = tmp_path / "experts.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"experts\.safetensors is truncated or damaged"):
        RLM.load(tmp_path)
    path.unlink()
    with pytest.raises(
        ValueError, match=r"experts\.safetensors is missing: config\.json names experts of nasbench201"
    ):
        RLM.load(tmp_path)
    path.write_bytes(whole)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"flops",', ""))
    with pytest.raises(ValueError, match=r"mean is \(\d+,\), expected"):
        RLM.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("deviation", 0.0, "a deviation or noise is not above 0"),
        ("weights", -1.0, "a weight is below 0"),
        ("weights", 0.0, "a deviation or noise is not above 0"),
        ("values", np.nan, "an objective has no values"),
    ],
)
def test_experts_that_cannot_be_asked(counts, name, value, message):
    found = expert(counts, rows(20), ["accuracy"])
    told = found.described()
    tensors = {**found.tensors(), name: torch.full_like(found.tensors()[name], value)}
    with pytest.raises(ValueError, match=message):
        Expert.restored(tensors, told)
    with pytest.raises(ValueError, match="mean missing"):
        Expert.restored({k: v for k, v in tensors.items() if k != "mean"}, told)
    with pytest.raises(ValueError, match="are not all names"):
        Expert.restored(tensors, told | {"counts": [1]})
    with pytest.raises(ValueError, match="are not different names"):
        Expert.restored(tensors, told | {"objectives": ["accuracy", "accuracy"]})
    with pytest.raises(ValueError, match="a temperature is not above 0"):
        Expert.restored(found.tensors(), told | {"temperatures": {"accuracy": 0.0}})
