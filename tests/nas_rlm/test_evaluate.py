import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row, Table
from nas_rlm.evaluate import Figures, evaluate, show
from nas_rlm.metrics import spearman

SPACE = search_spaces.get("nasbench201")


def table(n, seed):
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        a = SPACE.sample(rng)
        values = {"accuracy": 60 + 3.0 * str(a).count("conv"), "latency/pixel3": 0.001 if i < 2 else 2.0 + i}
        found.append(Row("nasbench201", str(a), values))
    return Table("cells", found)


@pytest.fixture(scope="module")
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


def test_each_method_beside_the_others(rlm):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    held, training = table(12, 0), table(80, 1)
    accuracy, latency = evaluate(rlm, held, training=training)
    assert (accuracy.objective, accuracy.rows) == ("accuracy", 12)
    assert (latency.objective, latency.rows) == ("latency/pixel3", 10)
    assert list(accuracy.ranks) == ["median", "64 samples", "flops", "params", "trees"]
    assert accuracy.ranks["trees"][0] > 0.8
    true = np.array([r.targets["accuracy"] for r in held.rows])
    archs = [r.arch_str for r in held.rows]
    expected = spearman(rlm.predict(SPACE, archs, ["accuracy"])[:, 0], true)
    assert accuracy.ranks["median"][0] == pytest.approx(expected)
    macs = np.array([SPACE.flops(SPACE.parse(a)) for a in archs])
    assert accuracy.ranks["flops"][0] == pytest.approx(spearman(macs, true))


def test_latency_is_asked_after_accuracy(rlm):
    held = table(12, 0)
    (latency,) = evaluate(rlm, held, ["latency/pixel3"])
    rows = held.rows[2:]
    found = rlm.predict(SPACE, [r.arch_str for r in rows], ["accuracy", "latency/pixel3"])[:, 1]
    true = np.array([r.targets["latency/pixel3"] for r in rows])
    assert latency.ranks["median"][0] == pytest.approx(spearman(found, true))
    assert "trees" not in latency.ranks


def test_the_mean_over_latencies():
    ranks = [{"median": (0.8, 0.6)}, {"median": (0.6, 0.2)}]
    figures = [
        Figures("t", f"latency/{k}", 10, r, c) for k, r, c in zip("ab", ranks, (0.7, 0.9), strict=True)
    ]
    last = show(figures).splitlines()[-1]
    assert "mean of 2 latencies" in last
    assert last.split()[-4:] == ["0.700", "/0.400", "0.80"] or "0.700 /0.400      0.80" in last


def test_what_cannot_be_judged(rlm):
    with pytest.raises(ValueError, match="no row has 'latency/pixel4'; did you mean latency/pixel3"):
        evaluate(rlm, table(3, 0), ["latency/pixel4"])
    strange = Table("theirs", [Row("theirs", "", {"accuracy/mine": 1.0}, "x=Relu(y)\n")])
    with pytest.raises(ValueError, match="theirs has no objective that the model knows"):
        evaluate(rlm, strange)
    with pytest.raises(ValueError, match="does not know the objective 'accuracy/mine'"):
        evaluate(rlm, strange, ["accuracy/mine"])


def test_one_row_has_no_rank(rlm):
    one = Table("one", table(5, 0).rows[:1])
    with pytest.raises(ValueError, match="one has 1 rows with accuracy: ranks need 2"):
        evaluate(rlm, one, ["accuracy"])
    with pytest.raises(ValueError, match="no objective that the model knows, with 2 rows"):
        evaluate(rlm, one)
