from itertools import pairwise

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row, Table
from nas_rlm.search.lookup import LabelledPredictor, TablePredictor, TableSpace
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")


def test_a_table_space_varies_architectures_within_the_table():
    names_rng = np.random.default_rng(1)
    names = [*{str(SPACE.sample(names_rng)): None for _ in range(1020)}][:900]
    table_space, rng = TableSpace(SPACE, names), np.random.default_rng(0)
    parents = [table_space.sample(rng) for _ in range(50)]
    children = [table_space.mutate(a, rng) for a in parents]
    children += [table_space.crossover(a, b, rng) for a, b in pairwise(parents)]
    assert {str(a) for a in parents + children} <= set(names)
    assert sum(str(a) != str(b) for a, b in zip(parents, children, strict=False)) > 10
    assert table_space.size == 900


@pytest.mark.parametrize("name", ["nasbench201", "nasbench101", "fbnet", "ofa_mbv3", "nds_darts", "gpt_s"])
def test_few_candidates_of_a_large_space_vary_to_other_near_ones(name):
    """Hardly any mutation is among the candidates, and none stays where it is."""
    space, rng = search_spaces.get(name), np.random.default_rng(0)
    names = [*{str(space.sample(rng)): None for _ in range(60)}][:50]
    candidates = TableSpace(space, names)
    parents = [candidates.sample(rng) for _ in range(40)]
    children = [candidates.mutate(parent, rng) for parent in parents]
    assert {str(child) for child in children} <= set(names)
    assert all(str(a) != str(b) for a, b in zip(parents, children, strict=True))

    def distance(a, b):
        return (space.encode(a) != space.encode(b)).sum()

    near = [distance(a, b) for a, b in zip(parents, children, strict=True)]
    usual = [distance(a, b) for a, b in zip(parents, children[::-1], strict=True)]
    assert np.mean(near) < np.mean(usual) - 0.5
    assert str(candidates.crossover(*parents[:2], rng)) in names


def test_a_single_candidate_is_its_own_neighbour():
    cell = SPACE.sample(np.random.default_rng(0))
    assert TableSpace(SPACE, [str(cell)]).mutate(cell, np.random.default_rng(1)) == cell


def test_a_table_predictor_returns_measured_values():
    names = [str(SPACE.sample(np.random.default_rng(i))) for i in range(4)]
    rows = [
        Row("nasbench201", name, {"accuracy": 90.0 + i, "flops": 2.0 + i}) for i, name in enumerate(names)
    ]
    rows.append(Row("nasbench201", "x", {"accuracy": 50.0}))
    predictor = TablePredictor(Table("some", rows), ("accuracy", "flops"))
    assert predictor.measured_values(names[:2], ("flops", "accuracy")).tolist() == [[2, 90], [3, 91]]
    assert predictor.measured_values([], ("flops",)).shape == (0, 1)
    found = predictor.predict(SPACE, [SPACE.parse(name) for name in names], ("flops",), (0.1, 0.5, 0.9))
    assert found.tolist() == [[[2.0 + i] * 3] for i in range(4)]
    with pytest.raises(ValueError, match="no row of some has all of accuracy, latency/pixel3"):
        TablePredictor(Table("some", rows), ("accuracy", "latency/pixel3"))


def test_a_labelled_predictor_returns_labels_where_there_are_any():
    cells = [SPACE.sample(np.random.default_rng(i)) for i in range(3)]
    model, names = StubPredictor(), ["accuracy", "latency/pixel3"]
    labelled = LabelledPredictor(model, [Row("nasbench201", str(cells[1]), {"accuracy": 50.0})])
    found, alone = (m.predict(SPACE, cells, names, (0.1, 0.5, 0.9)) for m in (labelled, model))
    assert (found[1, 0] == 50).all()
    assert (found[[0, 2]] == alone[[0, 2]]).all() and (found[1, 1] == alone[1, 1]).all()
    samples, others = (m.sample(SPACE, cells, names, 5, 1) for m in (labelled, model))
    assert (samples[1, :, 0] == 50).all() and (samples[:, :, 1] == others[:, :, 1]).all()
    assert (samples[[0, 2]] == others[[0, 2]]).all()
    assert labelled.status([str(cell) for cell in cells]) == {str(cells[1]): "measured"}
