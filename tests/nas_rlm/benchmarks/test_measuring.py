import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks.measuring import POLICIES, Judgement, Lookup, draw, judged, means
from nas_rlm.data import Row, Table
from nas_rlm.search import acquisition
from nas_rlm.search.lookup import TableSpace
from nas_rlm.search.online_surrogate import CachedPredictor
from nas_rlm.surrogates.features import graph_features_of_space
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")
TARGET = "latency/pixel3"


@pytest.fixture(scope="module")
def model():
    """The stub model; its expert knows two devices alike, one of them the target."""
    model = StubPredictor()
    rng = np.random.default_rng(0)
    some = [str(SPACE.sample(rng)) for _ in range(40)]
    latencies = model.medians(some, [TARGET])[:, 0]
    rows = [
        Row("nasbench201", name, {TARGET: value, "latency/eyeriss": 2 * value})
        for name, value in zip(some, latencies, strict=True)
    ]
    known = fit_graph_surrogate(graph_features_of_space("nasbench201"), rows, [TARGET, "latency/eyeriss"])
    model.surrogates = {"nasbench201": [known]}
    return model


@pytest.fixture(scope="module")
def table(model):
    """The stub's own numbers of a part of the space, as the truth."""
    rng = np.random.default_rng(1)
    names = sorted({str(SPACE.sample(rng)) for _ in range(1500)})
    values = model.medians(names, ["accuracy", TARGET])
    rows = [
        Row("nasbench201", name, {"accuracy": max(1.0, accuracy), TARGET: latency})
        for name, (accuracy, latency) in zip(names, values, strict=True)
    ]
    return Table("cells", rows)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(acquisition, "POOL_SIZE", 60)


def test_each_policy_spends_what_it_may_on_networks_of_the_table(model, table):
    found = list(judged(model, table, [TARGET], [12, 24], [0], 12, 3))
    assert [(policy, budget) for _, policy, budget, _, _ in found] == [
        (policy, budget) for budget in (12, 24) for policy in POLICIES
    ]
    for _, policy, budget, _, one in found:
        assert one.measured <= budget
        assert one.measured == budget or policy != "random"
        assert 0 < one.confirmed <= one.front
        assert 0 < one.share <= 1
        assert 0 < one.share_measured <= 1
    confirmed = {policy: one.confirmed / one.front for _, policy, budget, _, one in found if budget == 24}
    assert confirmed["where it pays"] > confirmed["random"]


def test_what_is_done_is_left_out(model, table):
    done = [(TARGET, policy, 12, 0) for policy in POLICIES[:2]]
    (found,) = judged(model, table, [TARGET], [12], [0], 12, 2, done)
    assert found[:4] == (TARGET, POLICIES[2], 12, 0)


def test_the_target_is_not_asked(model, table):
    space = TableSpace(SPACE, [row.arch_str for row in table.rows])
    others = [one for e in model.surrogates["nasbench201"] if (one := e.without([TARGET]))]
    lookup = Lookup(CachedPredictor(model, space), table, TARGET, others)
    assert [one.objectives for one in lookup.surrogates["nasbench201"]] == [("latency/eyeriss",)]
    again = lookup.judge("where it pays", 20, 3, 12, 3)
    assert again == lookup.judge("where it pays", 20, 3, 12, 3)


def test_a_table_without_the_target(model, table):
    with pytest.raises(ValueError, match="no two rows with accuracy, latency/none"):
        next(judged(model, table, ["latency/none"], [12], [0]))


def test_a_table_in_which_nothing_counts(model, table):
    poor = [Row(row.space, row.arch_str, {**row.targets, "accuracy": 70.0}) for row in table.rows[:20]]
    with pytest.raises(ValueError, match="no network with an accuracy above 80"):
        next(judged(model, Table("poor", poor), [TARGET], [12], [0]))


def test_means_are_over_devices_and_deviations_over_seeds(tmp_path):
    found = {
        (device, policy, budget, seed): Judgement(10, 4, 2, share + seed / 10, share)
        for policy in POLICIES
        for budget in (10, 20)
        for device, share in (("latency/a", 0.5), ("latency/b", 0.7))
        for seed in (0, 1)
    }
    assert means(found, "share")["random", 20] == pytest.approx((0.65, 0.05))
    assert means(found, "share_measured")["random", 20] == pytest.approx((0.6, 0.0))
    figure = draw(found)
    assert [len(axis.lines) for axis in figure.axes] == [3, 3]
    assert figure.axes[0].lines[0].get_ydata().tolist() == pytest.approx([0.65, 0.65])
