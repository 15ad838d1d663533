import numpy as np
import pytest

from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from nas_rlm.training import trainer
from nas_rlm.training.distillation import distil, pseudo_labels
from tests.nas_rlm.surrogates.graphs.test_surrogate import rows
from tests.nas_rlm.training_runs import RECIPE, prepare_run


@pytest.mark.long
def test_pseudo_labels_follow_the_rows():
    labelled = pseudo_labels(rows(60), ["accuracy"], num_networks=80)
    assert len({row.arch_str for row in labelled}) == 80
    graph_features = graph_features_of_space("nasbench201")
    surrogate = fit_graph_surrogate(graph_features, rows(500, seed=1), ["accuracy"])
    true = surrogate.predict(graph_features.of_rows(labelled), "accuracy").median
    assert spearman(np.array([row.targets["accuracy"] for row in labelled]), true) > 0.9
    assert labelled == pseudo_labels(rows(60), ["accuracy"], num_networks=80)
    assert labelled != pseudo_labels(rows(60), ["accuracy"], num_networks=80, seed=1)


def test_no_pseudo_labels_without_enough_rows_or_for_programs():
    few = rows(9)
    assert pseudo_labels(few, ["accuracy"], 20) == []
    program = Row("triton", "", {"latency": 2.0}, "def kernel(): pass")
    assert pseudo_labels([program] * 20, ["latency"], 20) == []


def test_a_teacher_labels_random_networks(tiny_checkpoint):
    teacher = RLM.load(tiny_checkpoint)
    teacher.trained_on = {"nasbench201": TrainedOn(9, ("accuracy", "latency/pixel3", "flops"))}
    table = distil(teacher, "nasbench201", 20, seed=3)
    assert len({row.arch_str for row in table.rows}) == 20
    assert table.objectives == ["accuracy", "latency/pixel3"]
    predictions = teacher.predict("nasbench201", [row.arch_str for row in table.rows], table.objectives)
    assert np.array_equal(
        [[row.targets[name] for name in table.objectives] for row in table.rows], predictions
    )
    with pytest.raises(ValueError, match="teacher was not trained on fbnet"):
        distil(teacher, "fbnet", 20)


def test_a_student_is_trained_on_a_table_and_on_its_teacher(tmp_path, monkeypatch):
    path = prepare_run(tmp_path, monkeypatch)
    trainer.run(path, tmp_path / "teacher")
    teacher = RLM.load(tmp_path / "teacher")
    path.write_text(
        f"{RECIPE}tokenizer: {tmp_path / 'teacher' / 'tokenizer.model'}\n"
        f"spaces: [{{space: nasbench201, networks: 30, teacher: {tmp_path / 'teacher'}}}]\n"
    )
    student = trainer.run(path, tmp_path / "student")
    assert student.objectives == teacher.objectives
    assert student.tokenizer.sha256 == teacher.tokenizer.sha256
    assert student.trained_on["nasbench201"].rows > teacher.trained_on["nasbench201"].rows
