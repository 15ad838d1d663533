import numpy as np

from nas_rlm.data import Row
from nas_rlm.data.tables import texts
from nas_rlm.features import usual_counts
from nas_rlm.lessons import lessons
from nas_rlm.metrics import spearman
from nas_rlm.panel import expert

from .test_expert import rows


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
