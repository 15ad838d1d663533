import numpy as np
import pytest

import search_spaces
from nas_rlm.data import Row, Table
from nas_rlm.search.lookup import LabelledPredictor, TablePredictor
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")


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


def test_a_reference_point_that_no_architecture_reaches_is_refused():
    table = Table("mine", [Row("nasbench201", "cell", {"accuracy": 60.0})])
    predictor = TablePredictor(table, ["accuracy"])
    with pytest.raises(ValueError, match="better than the reference point: accuracy 80"):
        predictor.relative_hypervolume(["cell"], ["accuracy"], [80.0])
