import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row, synthetic
from nas_rlm.data.tables import texts
from nas_rlm.lessons import Counts, Expert, Scale, lessons
from nas_rlm.metrics import spearman
from nas_rlm.text import from_architectures

SPACE = search_spaces.get("nasbench201")
COUNTS = Counts("nasbench201", 80)


def rows(n, seed=0):
    """Cells whose accuracy is told by two counts."""
    rng = np.random.default_rng(seed)
    drawn = [SPACE.sample(rng) for _ in range(n)]
    counted = synthetic.counted(from_architectures(SPACE, drawn))
    return [
        Row(
            "nasbench201",
            str(a),
            {"accuracy": 50 + 10 * np.tanh(c.get("convs/mean", 0) / 10) + c.get("paths", 0) / 10},
        )
        for a, c in zip(drawn, counted, strict=True)
    ]


def expert(known):
    return Expert(COUNTS.of(texts(known)), COUNTS.groups, known, ["accuracy"])


def test_features_of_the_networks_that_tell_what_is_usual():
    assert COUNTS.random.shape == (80, len(COUNTS.names)) == COUNTS.of(texts(COUNTS.rows)).shape
    assert COUNTS.of(texts(COUNTS.rows)).numpy() == pytest.approx(COUNTS.random.numpy())
    assert COUNTS.random.std(0, correction=0).numpy() == pytest.approx(1)
    assert sum(COUNTS.groups) == len(COUNTS.names)


def test_lessons_tell_of_others_what_the_rows_let_expect():
    told = lessons(rows(60), ["accuracy"], networks=80)
    assert len({row.arch_str for row in told}) == 80
    true = expert(rows(500, seed=1)).expect(COUNTS.of(texts(told)))[:, 0]
    assert spearman(np.array([row.targets["accuracy"] for row in told]), true) > 0.9
    assert told == lessons(rows(60), ["accuracy"], networks=80)
    assert told != lessons(rows(60), ["accuracy"], networks=80, seed=1)


def test_no_lessons_where_nothing_can_be_told():
    few = rows(9)
    assert lessons(few, ["accuracy"], 20) == []
    program = Row("triton", "", {"latency": 2.0}, "def kernel(): pass")
    assert lessons([program] * 20, ["latency"], 20) == []


def test_an_expert_on_networks_it_has_not_seen():
    few, others = expert(rows(60)), rows(50, seed=2)
    features = COUNTS.of(texts(others))
    true = np.array([row.targets["accuracy"] for row in others])
    assert spearman(few.expect(features)[:, 0], true) > 0.95
    drawn = np.stack([few.draw(features, np.random.default_rng(i))[:, 0] for i in range(20)])
    assert spearman(np.median(drawn, 0), true) > 0.95
    assert (drawn.std(0) > 0).all()


def test_a_scale_and_back():
    known = np.array([93.0, 10.0, 91.0, 92.0, 93.0, 94.0])
    scale = Scale(known, most=100.0)
    assert scale.values(scale.scores) == pytest.approx(known)
    beyond = scale.values(np.array([-9.0, 2.0, 2.5, 99.0]))
    assert beyond[0] == 5.0
    assert 94 < beyond[1] < beyond[2] < 100
    assert beyond[3] == 100.0
    assert Scale(np.array([3.0, 3.0])).values(np.array([-1.0, 1.0])) == pytest.approx([3.0, 3.0])
