from itertools import pairwise

import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row, Table
from nas_rlm.search.lookup import Informed, Known, Truth
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")


def test_a_part_of_a_space_stays_within_it():
    drawn = np.random.default_rng(1)
    names = [*{str(SPACE.sample(drawn)): None for _ in range(1020)}][:900]
    known, rng = Known(SPACE, names), np.random.default_rng(0)
    parents = [known.sample(rng) for _ in range(50)]
    children = [known.mutate(a, rng) for a in parents]
    children += [known.crossover(a, b, rng) for a, b in pairwise(parents)]
    assert {str(a) for a in parents + children} <= set(names)
    assert sum(str(a) != str(b) for a, b in zip(parents, children, strict=False)) > 10
    assert known.size == 900


def test_a_table_tells_what_was_measured():
    names = [str(SPACE.sample(np.random.default_rng(i))) for i in range(4)]
    rows = [
        Row("nasbench201", name, {"accuracy": 90.0 + i, "flops": 2.0 + i}) for i, name in enumerate(names)
    ]
    rows.append(Row("nasbench201", "x", {"accuracy": 50.0}))
    truth = Truth(Table("some", rows), ("accuracy", "flops"))
    assert truth.true(names[:2], ("flops", "accuracy")).tolist() == [[2, 90], [3, 91]]
    assert truth.true([], ("flops",)).shape == (0, 1)
    found = truth.predict(SPACE, [SPACE.parse(name) for name in names], ("flops",), (0.1, 0.5, 0.9))
    assert found.tolist() == [[[2.0 + i] * 3] for i in range(4)]
    with pytest.raises(ValueError, match="no row of some has both accuracy and latency/pixel3"):
        Truth(Table("some", rows), ("accuracy", "latency/pixel3"))


def test_what_was_measured_is_told_as_it_was():
    cells = [SPACE.sample(np.random.default_rng(i)) for i in range(3)]
    model, names = StubPredictor(), ["accuracy", "latency/pixel3"]
    informed = Informed(model, [Row("nasbench201", str(cells[1]), {"accuracy": 50.0})])
    found, alone = (m.predict(SPACE, cells, names, (0.1, 0.5, 0.9)) for m in (informed, model))
    assert (found[1, 0] == 50).all()
    assert (found[[0, 2]] == alone[[0, 2]]).all() and (found[1, 1] == alone[1, 1]).all()
    draws, others = (m.sample(SPACE, cells, names, 5, 1) for m in (informed, model))
    assert (draws[1, :, 0] == 50).all() and (draws[:, :, 1] == others[:, :, 1]).all()
    assert (draws[[0, 2]] == others[[0, 2]]).all()
    assert informed.status([str(cell) for cell in cells]) == {str(cells[1]): "measured"}
