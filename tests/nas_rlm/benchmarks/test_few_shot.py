from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks import few_shot
from nas_rlm.benchmarks.few_shot import ZERO_LABEL_METHODS, make_methods, make_tasks, run_few_shot
from nas_rlm.data import Row, Table
from nas_rlm.data.row_texts import keys_of_rows
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.fitting import fit_graph_surrogates
from nas_rlm.training import finetune

SPACE = search_spaces.get("nasbench201")


@pytest.fixture(scope="module")
def table():
    """Cells whose accuracy depends on their parameters, with a little noise."""
    rng = np.random.default_rng(0)
    cells = [SPACE.sample(rng) for _ in range(120)]
    cells += cells[:20]
    accuracy = [70 + 10 * SPACE.params(c) / 1e6 + 0.01 * rng.random() for c in cells]
    return Table(
        "cells", [Row("nasbench201", str(c), {"accuracy": a}) for c, a in zip(cells, accuracy, strict=True)]
    )


def test_no_test_row_computes_the_same_as_a_labelled_one(table):
    keys = np.array(keys_of_rows(table.rows))
    for task in make_tasks(table, 30, range(3)):
        assert len(task.train_indices) == len(task.labels) == len(task.train_rows) == 30
        assert not set(keys[task.train_indices]) & set(keys[task.test_indices])
        assert len(task.test_indices) + np.isin(keys, keys[task.train_indices]).sum() == len(table)
        assert (task.values[task.train_indices] == task.labels).all()


def test_splits_depend_only_on_the_seed(table):
    first, second, again = make_tasks(table, 30, (0, 1, 0))
    assert (first.train_indices == again.train_indices).all()
    assert (first.train_indices != second.train_indices).any()


def test_labelled_rows_have_only_the_objective(table):
    rich = Table("rich", [Row(r.space, r.arch_str, {"flops": 1.0, **r.targets}) for r in table.rows])
    task = next(make_tasks(rich, 30, [0]))
    assert all(row.targets.keys() == {"accuracy"} for row in task.train_rows)


@pytest.mark.long
def test_every_method_ranks_all_rows(table, tiny_checkpoint, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    monkeypatch.setattr(finetune, "MAX_EPOCHS", 2)
    monkeypatch.setattr(few_shot, "FEW_LABELS_RECIPE", replace(few_shot.FEW_LABELS_RECIPE, epochs=2))
    methods = make_methods(table, RLM.load(tiny_checkpoint))
    scores = {name: score for (name, _), score in run_few_shot(table, 60, methods, [0])}
    assert (
        scores.keys()
        == methods.keys()
        > {"flops", "params", "trees", "gcn", "gaussian-process", "head-raw", "rlm"}
    )
    assert all(score.seconds > 0 for score in scores.values())
    assert scores["params"].spearman > 0.99
    assert scores["params"].kendall > 0.9
    assert scores["trees"].spearman > 0.7
    assert scores["gaussian-process"].spearman > 0.97


def test_only_spaces_of_cells_have_a_graph_network(tiny_checkpoint):
    other = search_spaces.get("nats_size")
    rows = [
        Row("nats_size", str(other.sample(np.random.default_rng(i))), {"accuracy": 50.0}) for i in range(3)
    ]
    assert "gcn" not in make_methods(Table("sizes", rows), RLM.load(tiny_checkpoint))


@pytest.mark.parametrize(("labels", "message"), [(1, "1 label of 140 rows"), (139, "139 labels of 140 rows")])
def test_too_few_or_too_many_labels_are_refused(table, labels, message):
    with pytest.raises(ValueError, match=message):
        next(make_tasks(table, labels, [0]))


def test_tables_of_several_spaces_are_refused(table):
    mixed = Table("mixed", [*table.rows, Row("nats_size", "8:8:8:8:8", {"accuracy": 50.0})])
    with pytest.raises(ValueError, match="rows of nasbench201, nats_size; expected one space"):
        next(make_tasks(mixed, 10, [0]))


def test_finished_results_are_skipped(table):
    seeds = []

    def params(task):
        seeds.append(task.seed)
        return np.array([SPACE.params(SPACE.parse(row.arch_str)) for row in task.rows], dtype=float)

    methods = {"params": params, "again": params}
    finished = {("params", 0), ("again", 0), ("again", 2)}
    found = [key for key, _ in run_few_shot(table, 30, methods, range(3), finished=finished)]
    assert found == [("params", 1), ("again", 1), ("params", 2)]
    assert seeds == [1, 1, 2]


def test_surrogates_of_other_spaces_are_transferred(table, tiny_checkpoint):
    rlm = RLM.load(tiny_checkpoint)
    other = search_spaces.get("nats_size")
    rng = np.random.default_rng(0)
    sizes = [other.sample(rng) for _ in range(60)]
    rows = [Row("nats_size", str(s), {"accuracy": 60 + other.params(s) / 1e5}) for s in sizes]
    task = next(make_tasks(table, 12, [0]))
    without = make_methods(table, rlm)["gaussian-process"](task)
    rlm.surrogates = fit_graph_surrogates(rows, ["accuracy"])
    transferred = make_methods(table, rlm)["gaussian-process"](task)
    true = task.values
    assert (transferred != without).any()
    assert spearman(transferred, true) > 0.9
    methods = make_methods(table, rlm)
    unlabelled = {name: methods[name] for name in ZERO_LABEL_METHODS}
    scores = {name: score.spearman for (name, _), score in run_few_shot(table, 0, unlabelled, [0])}
    assert scores["params"] > 0.99
    assert scores["zero-label"] > 0.85  # which weighs width and depth as well
    with pytest.raises(
        ValueError, match=r"without labels the methods are flops, params, zero-label; got .*trees"
    ):
        next(run_few_shot(table, 0, methods, [0]))
    with pytest.raises(ValueError, match="without labels only accuracy can be predicted, not latency/a"):
        next(run_few_shot(table, 0, unlabelled, [0], "latency/a"))
    with pytest.raises(ValueError, match="-1 labels of 140 rows"):
        next(run_few_shot(table, -1, methods, [0]))
