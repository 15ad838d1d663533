import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.evaluation import (
    Evaluation,
    evaluate_model,
    evaluate_table,
    format_evaluations,
    train_test_tables,
)
from nas_rlm.data import Row, Table, write
from nas_rlm.data.row_texts import keys_of_rows, texts_of_rows
from nas_rlm.metrics import spearman
from nas_rlm.model.batching import TruncationWarning
from nas_rlm.surrogates.fitting import fit_surrogates
from nas_rlm.training.finetune import fine_tune
from nas_rlm.training.recipe import read_recipe

SPACE = search_spaces.get("nasbench201")


def table(n, seed):
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        a = SPACE.sample(rng)
        values = {"accuracy": 60 + 3.0 * str(a).count("conv"), "latency/pixel3": 0.0 if i < 2 else 2.0 + i}
        found.append(Row("nasbench201", str(a), values))
    return Table("cells", found)


@pytest.fixture(scope="module")
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


def test_each_method_is_evaluated(rlm):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    held, train = table(12, 0), table(80, 1)
    accuracy, latency = evaluate_table(rlm, held, train=train)
    assert (accuracy.objective, accuracy.rows) == ("accuracy", 12)
    assert (latency.objective, latency.rows) == ("latency/pixel3", 10)
    assert list(accuracy.correlations) == ["median", "64 samples", "flops", "params", "trees"]
    assert accuracy.correlations["trees"][0] > 0.8
    true = np.array([r.targets["accuracy"] for r in held.rows])
    archs = [r.arch_str for r in held.rows]
    expected = spearman(rlm.predict(SPACE, archs, ["accuracy"])[:, 0], true)
    assert accuracy.correlations["median"][0] == pytest.approx(expected)
    macs = np.array([SPACE.flops(SPACE.parse(a)) for a in archs])
    assert accuracy.correlations["flops"][0] == pytest.approx(spearman(macs, true))


def test_latency_is_predicted_after_accuracy(rlm):
    held = table(12, 0)
    (latency,) = evaluate_table(rlm, held, ["latency/pixel3"])
    rows = held.rows[2:]
    found = rlm.predict(SPACE, [r.arch_str for r in rows], ["accuracy", "latency/pixel3"])[:, 1]
    true = np.array([r.targets["latency/pixel3"] for r in rows])
    assert latency.correlations["median"][0] == pytest.approx(spearman(found, true))
    assert "trees" not in latency.correlations
    (quick,) = evaluate_table(rlm, held, ["latency/pixel3"], num_samples=0)
    assert quick.correlations == {name: r for name, r in latency.correlations.items() if name != "64 samples"}


def test_programs_are_compared_with_baselines_of_programs(tiny_checkpoint):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    rng = np.random.default_rng(0)
    rows = [
        Row(space, "", {"memory": 1000.0 * k}, f"{start}{'x = [0] * n; ' * k}  # {i}")
        for space, start in (("APPS", "def f(n): "), ("CDSS/C++", "int main() { } // "))
        for i, k in enumerate(rng.integers(1, 9, 40).tolist())
    ]
    train, held = Table("own", rows[::2]), Table("own", rows[1::2])
    rlm = RLM.load(tiny_checkpoint).with_objectives(["memory"])
    rlm.surrogates = fit_surrogates(train.rows, ["memory"])
    found, *of_languages = evaluate_table(rlm, held, train=train, num_samples=0)
    assert (found.objective, found.rows) == ("memory", 40)
    assert [part.uid for part in of_languages] == ["APPS", "CDSS/C++"]
    assert list(found.correlations) == ["median", "length", "loops", "neighbours"]
    assert found.correlations["median"][0] > 0.8 and found.correlations["neighbours"][0] > 0.6
    texts = texts_of_rows(held.rows)
    expected = np.empty(40)
    for space in ("APPS", "CDSS/C++"):
        part = [i for i, row in enumerate(held.rows) if row.space == space]
        expected[part] = rlm.predict_text([texts[i] for i in part], ["memory"], space=space)[:, 0]
    assert found.correlations["median"][0] == pytest.approx(spearman(expected, held.column("memory")))


def test_objectives_that_were_learnt_for_other_spaces_are_left_out(tiny_checkpoint):
    rows = [
        Row(space, "", {"memory": 1e3 * k, "time": 2.0 * k}, f"def f(n): {'x = [0] * n; ' * k}# {space}")
        for space in ("Mine/Python", "Mine/Go")
        for k in range(1, 16)
    ]
    rlm = RLM.load(tiny_checkpoint).with_objectives(["memory", "time"])
    of_python = [replace(row, targets={"time": row.targets["time"]}) for row in rows[:15]]
    rlm = fine_tune(rlm, of_python, ["time"], learn="none")
    with pytest.warns(UserWarning, match="own that the model cannot predict are left out: time for Mine/Go$"):
        found = evaluate_table(rlm, Table("own", rows), num_samples=0)
    assert {e.objective for e in found} == {"memory"}
    assert [e.objective for e in evaluate_table(rlm, Table("own", rows[:15]), num_samples=0)] == [
        "memory",
        "time",
    ]
    with pytest.raises(
        ValueError, match="time cannot be predicted for Mine/Go: the model learnt it for Mine"
    ):
        evaluate_table(rlm, Table("own", rows), ["memory", "time"], num_samples=0)
    with pytest.raises(ValueError, match="time cannot be predicted for Mine/Go"):
        evaluate_table(rlm, Table("own", [replace(r, targets={"time": 1.0}) for r in rows]), num_samples=0)


def test_means_over_latencies_and_batch_sizes_are_shown():
    found = {"a_1": (0.8, 0.6, 0.7), "b_1": (0.6, 0.2, 0.9), "b_32": (0.1, 0.0, 0.2)}
    figures = [Evaluation("t", f"latency/{k}", 10, {"median": v[:2]}, v[2]) for k, v in found.items()]
    figures.append(Evaluation("t", "latency/a_1", 5, {"median": (0.0, 0.0)}, 0.0, uid="first"))
    *_, part, mean, batch = format_evaluations(figures).splitlines()
    assert "latency/a_1 of first" in part
    assert "mean of 3 latencies" in mean
    assert mean.endswith("0.500 /0.267      0.60")
    assert "mean of 2 latencies, _1 " in batch
    assert batch.endswith("0.700 /0.400      0.80")


def test_rows_with_one_uid_are_evaluated_separately(rlm):
    rows = [replace(row, uid="one" if i < 25 else "two") for i, row in enumerate(table(60, 0).rows)]
    full, one, two = evaluate_table(rlm, Table("cells", rows), ["accuracy"])
    assert [(f.uid, f.rows) for f in (full, one, two)] == [("", 60), ("one", 25), ("two", 35)]
    (alone,) = evaluate_table(rlm, Table("cells", rows[:25]), ["accuracy"])
    assert (alone.uid, alone.rows, alone.coverage) == ("", 25, one.coverage)
    assert alone.correlations["median"] == pytest.approx(one.correlations["median"])
    unique = [replace(row, uid=str(i)) for i, row in enumerate(rows[:40])]
    assert len(evaluate_table(rlm, Table("cells", unique), ["accuracy"])) == 1


def test_objectives_that_cannot_be_evaluated_are_refused(rlm):
    with pytest.raises(ValueError, match="no row has 'latency/pixel4'; did you mean latency/pixel3"):
        evaluate_table(rlm, table(3, 0), ["latency/pixel4"])
    strange = Table("theirs", [Row("theirs", "", {"accuracy/mine": 1.0}, "x=Relu(y)\n")])
    with pytest.raises(ValueError, match="theirs has no objective that the model knows"):
        evaluate_table(rlm, strange)
    with pytest.raises(ValueError, match="does not know the objective 'accuracy/mine'"):
        evaluate_table(rlm, strange, ["accuracy/mine"])


@pytest.fixture
def shipped_tables(tmp_path, monkeypatch):
    """Put a few rows in place of each table of networks that the shipped models were trained on."""
    monkeypatch.setenv("NAS_RLM_DATA", str(tmp_path))
    for use in read_recipe("nas").tables:
        name = Path(use.path).stem
        space, rng = search_spaces.get({"darts": "nds_darts"}.get(name, name)), np.random.default_rng(0)
        rows = [Row(space.name, str(space.sample(rng)), {"accuracy": 60.0 + i / 10}) for i in range(200)]
        write(tmp_path / use.path, rows)


def test_a_model_of_none_of_the_shipped_tables(rlm, shipped_tables):
    with pytest.raises(ValueError, match="the model was trained on no space, and not on the shipped"):
        evaluate_model(rlm)


def test_validation_rows_are_neither_training_nor_test_rows(tiny_checkpoint, shipped_tables):
    rlm = RLM.load(tiny_checkpoint)
    rlm.trained_on = {"nds_darts": []}
    ((train, test),) = train_test_tables(rlm)
    ((same, validation),) = train_test_tables(rlm, validation=True)
    assert same.rows == train.rows
    keys = [set(keys_of_rows(part.rows)) for part in (train, test, validation)]
    assert all(keys)
    assert len(set.union(*keys)) == sum(map(len, keys))
    with pytest.raises(ValueError, match=r"not of 'mine\.parquet'"):
        evaluate_model(rlm, Path("mine.parquet"), validation=True)


def test_one_row_has_no_rank_correlation(rlm):
    one = Table("one", table(5, 0).rows[:1])
    with pytest.raises(ValueError, match="one has 1 row with accuracy: ranks need 2"):
        evaluate_table(rlm, one, ["accuracy"])
    with pytest.raises(ValueError, match="no objective that the model knows, with 2 rows"):
        evaluate_table(rlm, one)


def test_rows_whose_texts_are_truncated_are_named_once(tiny_checkpoint):
    rlm, held = RLM.load(tiny_checkpoint), table(20, 0)
    rlm.network.config = replace(rlm.network.config, max_length=20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate_table(rlm, held, ["accuracy"], num_samples=2)
    (message,) = [str(warning.message) for warning in caught if warning.category is TruncationWarning]
    assert message.startswith("the model reads only the first 20 tokens of ")
    assert all(f"{row.arch_str} (" in message for row in held.rows)


@pytest.mark.parametrize("space", ["", "mine"])
def test_costs_of_onnx_texts_are_compared(rlm, space):
    cells = table(12, 0)
    texts = texts_of_rows(cells.rows)
    own = Table("own", [Row(space, "", r.targets, t) for r, t in zip(cells.rows, texts, strict=True)])
    (expected,) = evaluate_table(rlm, cells, ["accuracy"], num_samples=0)
    (found,) = evaluate_table(rlm, own, ["accuracy"], num_samples=0)
    for name in ("flops", "params"):
        assert found.correlations[name] == pytest.approx(expected.correlations[name])


def test_objectives_that_end_like_epochs_are_evaluated(rlm):
    names = ["accuracy/cifar10_12ep", "latency/jeep", "accuracy/deep"]
    model = rlm.with_objectives(names)
    rows = [replace(r, targets=dict.fromkeys(names, 1.0 + i)) for i, r in enumerate(table(5, 0).rows)]
    found = evaluate_table(model, Table("t", rows), num_samples=0)
    assert [e.objective for e in found] == ["accuracy/deep", "latency/jeep"]
