import numpy as np
import pytest

from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.data.tables import texts
from nas_rlm.metrics import spearman
from nas_rlm.model.checkpoint import Seen
from nas_rlm.surrogates.features import usual_counts
from nas_rlm.surrogates.fitting import expert
from nas_rlm.training import trainer
from nas_rlm.training.distillation import lessons, taught
from tests.nas_rlm.surrogates.test_graph_surrogate import rows
from tests.nas_rlm.training_runs import RECIPE, prepared


def test_lessons_tell_of_others_what_the_rows_let_expect():
    told = lessons(rows(60), ["accuracy"], networks=80)
    assert len({row.arch_str for row in told}) == 80
    counts = usual_counts("nasbench201")
    knowing = expert(counts, rows(500, seed=1), ["accuracy"])
    true = knowing.believe(counts.read(texts(told)), "accuracy").median
    assert spearman(np.array([row.targets["accuracy"] for row in told]), true) > 0.9
    assert told == lessons(rows(60), ["accuracy"], networks=80)
    assert told != lessons(rows(60), ["accuracy"], networks=80, seed=1)


def test_no_lessons_where_nothing_can_be_told():
    few = rows(9)
    assert lessons(few, ["accuracy"], 20) == []
    program = Row("triton", "", {"latency": 2.0}, "def kernel(): pass")
    assert lessons([program] * 20, ["latency"], 20) == []


def test_a_teacher_tells_of_random_networks(tiny_checkpoint):
    teacher = RLM.load(tiny_checkpoint)
    teacher.trained_on = {"nasbench201": Seen(9, ("accuracy", "latency/pixel3", "flops"))}
    table = taught(teacher, "nasbench201", 20, seed=3)
    assert len({row.arch_str for row in table.rows}) == 20
    assert table.objectives == ["accuracy", "latency/pixel3"]
    asked = teacher.predict("nasbench201", [row.arch_str for row in table.rows], table.objectives)
    assert np.array_equal([[row.targets[name] for name in table.objectives] for row in table.rows], asked)
    with pytest.raises(ValueError, match="teacher has seen nothing of fbnet"):
        taught(teacher, "fbnet", 20)


def test_a_student_learns_from_a_table_and_from_its_teacher(tmp_path, monkeypatch):
    path = prepared(tmp_path, monkeypatch)
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
