from dataclasses import replace

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row, synthetic
from nas_rlm.data.tables import texts
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.features import CHAINS, usual_counts
from nas_rlm.surrogates.fitting import advisers, expert, experts_of, stranger
from nas_rlm.surrogates.graph_surrogate import Expert
from nas_rlm.surrogates.transfer import Adviser


def rows(name, n, seed=0):
    """Networks that are the more accurate the more convolutions follow each other."""
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    drawn = [Row(name, str(space.sample(rng)), {}) for _ in range(n)]
    counted = synthetic.counted(texts(drawn))
    return [
        replace(r, targets={"accuracy": 50 + c.get("convs/mean", 0) + c.get("convs/most", 0) / 2})
        for r, c in zip(drawn, counted, strict=True)
    ]


@pytest.fixture(scope="module")
def others():
    return {"nasbench101": [expert(usual_counts("nasbench101"), rows("nasbench101", 150), ["accuracy"])]}


@pytest.fixture(scope="module")
def asked():
    found = rows("nasbench201", 80, seed=1)
    return found, synthetic.counted(texts(found), CHAINS), [r.targets["accuracy"] for r in found]


def test_what_one_space_tells_ranks_another(others, asked):
    (one,) = advisers("nasbench201", [], others)
    _, counted, true = asked
    assert spearman(one.advice(one.counts.features(counted)).numpy(), np.array(true)) > 0.8
    usual = [row.targets for row in synthetic.table("nasbench201", 100, 0, CHAINS).rows]
    told = one.advice(one.counts.features(usual))
    assert float(told.mean()) == pytest.approx(0, abs=1e-6)
    assert float(told.std()) == pytest.approx(1)


def test_advice_makes_few_labels_go_further(others, asked):
    few = rows("nasbench201", 10)
    asked_rows, _, true = asked
    with_advice = experts_of(few, ["accuracy"], others)["nasbench201"][0]
    alone = experts_of(few, ["accuracy"])["nasbench201"][0]
    assert alone.counts.advisers == ()
    ranked = [
        spearman(one.believe(one.counts.read(texts(asked_rows)), "accuracy").median, np.array(true))
        for one in (with_advice, alone)
    ]
    assert ranked[0] > ranked[1]


def test_who_advises(others):
    few = rows("nasbench201", 12)
    latency = [replace(r, targets={"latency/a": r.targets["accuracy"]}) for r in few]
    assert experts_of(latency, ["latency/a"], others)["nasbench201"][0].counts.advisers == ()
    assert advisers("nasbench101", [], others) == ()
    assert advisers("nasbench201", [], {"nasbench101": []}) == ()
    same = [replace(r, targets={"accuracy": 70.0}) for r in rows("nasbench101", 20)]
    constant = {"nasbench101": [expert(usual_counts("nasbench101"), same, ["accuracy"])]}
    assert advisers("nasbench201", [], constant) == ()
    assert advisers("mine", [], others) == ()
    nothing_varies = [{"flops": 1.0}, {"flops": 1.0}]
    known = others["nasbench101"][0]
    assert known.adviser("accuracy", nothing_varies) is None


def test_a_space_without_a_label_is_ranked_by_advice(others, asked):
    found = stranger("nasbench201", others)
    belief = found.believe(found.counts.read(texts(asked[0])), "accuracy")
    assert spearman(belief.median, np.array(asked[2])) > 0.8
    assert found.objectives == ("accuracy",) and found.counts.names == ()
    again = Expert.restored(found.tensors(), found.described())
    assert again.believe(again.counts.read(texts(asked[0])), "accuracy").median == pytest.approx(
        belief.median, rel=0.01
    )
    with pytest.raises(ValueError, match="no expert on accuracy of another space can tell of nasbench101"):
        stranger("nasbench101", others)


def test_a_model_is_saved_with_its_advisers(others, asked, tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    rlm.experts = {
        **others,
        **experts_of(rows("nasbench201", 12), ["accuracy"], others),
    }
    archs = [row.arch_str for row in asked[0]]
    before = rlm.predict("nasbench201", archs, ["accuracy"])
    rlm.save(tmp_path)
    again = RLM.load(tmp_path)
    assert len(again.experts["nasbench201"][0].counts.advisers) == 1
    assert again.predict("nasbench201", archs, ["accuracy"]) == pytest.approx(before, rel=0.02)


def test_advisers_that_cannot_be_asked(others):
    (one,) = advisers("nasbench201", [], others)
    names = one.counts.names
    with pytest.raises(ValueError, match="middle missing"):
        Adviser.restored({k: v for k, v in one.tensors().items() if k != "middle"}, names)
    with pytest.raises(ValueError, match=r"mean is \(\d+,\), expected"):
        Adviser.restored(one.tensors(), names[1:])
    with pytest.raises(ValueError, match="a deviation or noise is not above 0"):
        Adviser.restored({**one.tensors(), "weights": torch.zeros_like(one.weights)}, names)
    with pytest.raises(ValueError, match="are not all names"):
        Adviser.restored(one.tensors(), [*names[1:], 3])
    with pytest.raises(ValueError, match=r"solved is torch\.int64, expected floating point"):
        Adviser.restored({**one.tensors(), "solved": one.solved.long()}, names)
    advised = experts_of(rows("nasbench201", 12), ["accuracy"], others)["nasbench201"][0]
    with pytest.raises(ValueError, match="features is"):
        Expert.restored(advised.tensors(), advised.described() | {"advisers": []})
