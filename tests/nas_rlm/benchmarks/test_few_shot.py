from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.few_shot import UNLABELLED, few_shot, methods_of, tasks
from nas_rlm.data import Row, Table
from nas_rlm.data.row_texts import keys_of_rows
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.fitting import fit_graph_surrogates
from nas_rlm.training import finetune

SPACE = search_spaces.get("nasbench201")


@pytest.fixture(scope="module")
def table():
    """Cells whose accuracy is told by their parameters, but for a little."""
    rng = np.random.default_rng(0)
    cells = [SPACE.sample(rng) for _ in range(120)]
    cells += cells[:20]
    accuracy = [70 + 10 * SPACE.params(c) / 1e6 + 0.01 * rng.random() for c in cells]
    return Table(
        "cells", [Row("nasbench201", str(c), {"accuracy": a}) for c, a in zip(cells, accuracy, strict=True)]
    )


def test_no_asked_architecture_computes_what_a_labelled_one_does(table):
    found = np.array(keys_of_rows(table.rows))
    for task in tasks(table, 30, range(3)):
        assert len(task.known) == len(task.labels) == len(task.labelled) == 30
        assert not set(found[task.known]) & set(found[task.asked])
        assert len(task.asked) + np.isin(found, found[task.known]).sum() == len(table)
        assert (task.values[task.known] == task.labels).all()


def test_splits_depend_on_the_seed_alone(table):
    first, second, again = tasks(table, 30, (0, 1, 0))
    assert (first.known == again.known).all()
    assert (first.known != second.known).any()


def test_methods_see_the_labels_of_the_known_and_no_other_number(table):
    rich = Table("rich", [Row(r.space, r.arch_str, {"flops": 1.0, **r.targets}) for r in table.rows])
    task = next(tasks(rich, 30, [0]))
    assert all(row.targets.keys() == {"accuracy"} for row in task.labelled)


def test_every_method_ranks_all_rows(table, tiny_checkpoint, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    monkeypatch.setattr(finetune, "MAX_EPOCHS", 2)
    monkeypatch.setattr(few_shot, "FEW", replace(few_shot.FEW, epochs=2))
    methods = methods_of(table, RLM.load(tiny_checkpoint))
    scores = {name: score for name, _, score in few_shot(table, 60, methods, [0])}
    assert scores.keys() == methods.keys() > {"flops", "params", "trees", "gcn", "process", "head-raw", "rlm"}
    assert all(score.seconds > 0 for score in scores.values())
    assert scores["params"].spearman > 0.99
    assert scores["params"].kendall > 0.9
    assert scores["trees"].spearman > 0.7
    assert scores["process"].spearman > 0.97


def test_graphs_are_known_of_cells_alone(tiny_checkpoint):
    other = search_spaces.get("nats_size")
    rows = [
        Row("nats_size", str(other.sample(np.random.default_rng(i))), {"accuracy": 50.0}) for i in range(3)
    ]
    assert "gcn" not in methods_of(Table("sizes", rows), RLM.load(tiny_checkpoint))


@pytest.mark.parametrize(
    ("labels", "message"), [(1, "1 labels of 140 rows"), (139, "139 labels of 140 rows")]
)
def test_too_few_or_too_many_labels(table, labels, message):
    with pytest.raises(ValueError, match=message):
        next(tasks(table, labels, [0]))


def test_tables_of_several_spaces(table):
    mixed = Table("mixed", [*table.rows, Row("nats_size", "8:8:8:8:8", {"accuracy": 50.0})])
    with pytest.raises(ValueError, match="rows of nasbench201, nats_size; expected one space"):
        next(tasks(mixed, 10, [0]))


def test_what_is_done_is_left_out(table):
    asked = []

    def params(task):
        asked.append(task.seed)
        return np.array([SPACE.params(SPACE.parse(row.arch_str)) for row in task.rows], dtype=float)

    methods = {"params": params, "again": params}
    done = {("params", 0), ("again", 0), ("again", 2)}
    found = [(name, seed) for name, seed, _ in few_shot(table, 30, methods, range(3), done=done)]
    assert found == [("params", 1), ("again", 1), ("params", 2)]
    assert asked == [1, 1, 2]


def test_experts_of_other_spaces_advise(table, tiny_checkpoint):
    rlm = RLM.load(tiny_checkpoint)
    other = search_spaces.get("nats_size")
    rng = np.random.default_rng(0)
    sizes = [other.sample(rng) for _ in range(60)]
    rows = [Row("nats_size", str(s), {"accuracy": 60 + other.params(s) / 1e5}) for s in sizes]
    task = next(tasks(table, 12, [0]))
    alone = methods_of(table, rlm)["process"](task)
    rlm.surrogates = fit_graph_surrogates(rows, ["accuracy"])
    advised = methods_of(table, rlm)["process"](task)
    true = task.values
    assert (advised != alone).any()
    assert spearman(advised, true) > 0.9
    methods = methods_of(table, rlm)
    unlabelled = {name: methods[name] for name in UNLABELLED}
    scores = {name: score.spearman for name, _, score in few_shot(table, 0, unlabelled, [0])}
    assert scores["params"] > 0.99
    assert scores["process"] > 0.9
    assert scores["rlm"] > 0.5
    with pytest.raises(
        ValueError, match=r"without labels there are flops, params, process, rlm; got .*trees"
    ):
        next(few_shot(table, 0, methods, [0]))
    with pytest.raises(ValueError, match="without labels only accuracy can be asked for, not latency/a"):
        next(few_shot(table, 0, unlabelled, [0], "latency/a"))
    with pytest.raises(ValueError, match="-1 labels of 140 rows"):
        next(few_shot(table, -1, methods, [0]))
