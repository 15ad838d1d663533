from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.evaluation import Figures, evaluate, judge, show, sides
from nas_rlm.data import Row, Table
from nas_rlm.data.row_texts import keys_of_rows, texts_of_rows
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.fitting import fit_surrogates

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
    (quick,) = evaluate(rlm, held, ["latency/pixel3"], samples=0)
    assert quick.ranks == {name: r for name, r in latency.ranks.items() if name != "64 samples"}


def test_programs_beside_what_tells_of_programs(tiny_checkpoint):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    rng = np.random.default_rng(0)
    rows = [
        Row(space, "", {"memory": 1000.0 * k}, f"{start}{'x = [0] * n; ' * k}  # {i}")
        for space, start in (("APPS", "def f(n): "), ("CDSS/C++", "int main() { } // "))
        for i, k in enumerate(rng.integers(1, 9, 40).tolist())
    ]
    known, held = Table("own", rows[::2]), Table("own", rows[1::2])
    rlm = RLM.load(tiny_checkpoint).with_objectives(["memory"])
    rlm.surrogates = fit_surrogates(known.rows, ["memory"])
    (found,) = evaluate(rlm, held, training=known, samples=0)
    assert (found.objective, found.rows) == ("memory", 40)
    assert list(found.ranks) == ["median", "length", "loops", "neighbours"]
    assert found.ranks["median"][0] > 0.8 and found.ranks["neighbours"][0] > 0.6
    texts = texts_of_rows(held.rows)
    expected = np.empty(40)
    for space in ("APPS", "CDSS/C++"):
        part = [i for i, row in enumerate(held.rows) if row.space == space]
        expected[part] = rlm.predict_text([texts[i] for i in part], ["memory"], space=space)[:, 0]
    assert found.ranks["median"][0] == pytest.approx(spearman(expected, held.column("memory")))


def test_the_means_over_latencies():
    found = {"a_1": (0.8, 0.6, 0.7), "b_1": (0.6, 0.2, 0.9), "b_32": (0.1, 0.0, 0.2)}
    figures = [Figures("t", f"latency/{k}", 10, {"median": v[:2]}, v[2]) for k, v in found.items()]
    figures.append(Figures("t", "latency/a_1", 5, {"median": (0.0, 0.0)}, 0.0, uid="first"))
    *_, part, whole, batch = show(figures).splitlines()
    assert "latency/a_1 of first" in part
    assert "mean of 3 latencies" in whole
    assert whole.endswith("0.500 /0.267      0.60")
    assert "mean of 2 latencies, _1 " in batch
    assert batch.endswith("0.700 /0.400      0.80")


def test_rows_that_share_a_uid_have_figures_of_their_own(rlm):
    rows = [replace(row, uid="one" if i < 25 else "two") for i, row in enumerate(table(60, 0).rows)]
    whole, one, two = evaluate(rlm, Table("cells", rows), ["accuracy"])
    assert [(f.uid, f.rows) for f in (whole, one, two)] == [("", 60), ("one", 25), ("two", 35)]
    (alone,) = evaluate(rlm, Table("cells", rows[:25]), ["accuracy"])
    assert (alone.uid, alone.rows, alone.coverage) == ("", 25, one.coverage)
    assert alone.ranks["median"] == pytest.approx(one.ranks["median"])
    unique = [replace(row, uid=str(i)) for i, row in enumerate(rows[:40])]
    assert len(evaluate(rlm, Table("cells", unique), ["accuracy"])) == 1


def test_what_cannot_be_judged(rlm):
    with pytest.raises(ValueError, match="no row has 'latency/pixel4'; did you mean latency/pixel3"):
        evaluate(rlm, table(3, 0), ["latency/pixel4"])
    strange = Table("theirs", [Row("theirs", "", {"accuracy/mine": 1.0}, "x=Relu(y)\n")])
    with pytest.raises(ValueError, match="theirs has no objective that the model knows"):
        evaluate(rlm, strange)
    with pytest.raises(ValueError, match="does not know the objective 'accuracy/mine'"):
        evaluate(rlm, strange, ["accuracy/mine"])


def test_a_model_of_none_of_the_shipped_tables(rlm, shared_data):
    with pytest.raises(ValueError, match="the model has seen nothing, none of"):
        judge(rlm)


def test_validation_rows_are_those_that_neither_teach_nor_judge(tiny_checkpoint, shared_data):
    seen = RLM.load(tiny_checkpoint)
    seen.trained_on = {"nds_darts": []}
    ((training, test),) = sides(seen)
    ((same, told),) = sides(seen, validation=True)
    assert same.rows == training.rows
    keys = [set(keys_of_rows(part.rows)) for part in (training, test, told)]
    assert all(keys)
    assert len(set.union(*keys)) == sum(map(len, keys))
    with pytest.raises(ValueError, match=r"not of 'mine\.parquet'"):
        judge(seen, Path("mine.parquet"), validation=True)


def test_one_row_has_no_rank(rlm):
    one = Table("one", table(5, 0).rows[:1])
    with pytest.raises(ValueError, match="one has 1 rows with accuracy: ranks need 2"):
        evaluate(rlm, one, ["accuracy"])
    with pytest.raises(ValueError, match="no objective that the model knows, with 2 rows"):
        evaluate(rlm, one)
