import math

import numpy as np
import pytest

from nas_rlm.data import Row, Table
from nas_rlm.data.objective_kinds import Declaration

CHAIN = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"


def test_a_latency_of_zero_counts_as_missing():
    row = Row("nasbench201", CHAIN, {"latency/pixel3": 0.0, "latency/fpga": 5e-5, "accuracy": 0.0})
    measured = [name for name in [*row.targets, "params"] if row.is_measured(name)]
    assert measured == ["latency/fpga", "accuracy"]
    assert len(Table("t", [row]).where_measured("latency/pixel3")) == 0


def test_rows_of_some_spaces():
    table = Table("t", [Row("a", "", {"accuracy": 1.0}, "x"), Row("b", "", {"accuracy": 2.0}, "y")])
    assert table.of_spaces(["b"]).rows == table.rows[1:] and table.of_spaces(["a", "b"]).rows == table.rows
    with pytest.raises(ValueError, match="no row of t is of the space 'c'"):
        table.of_spaces(["a", "c"])


def test_columns_and_samples_of_a_table():
    rows = [Row("a", "", {"loss": float(i)} if i % 2 else {"accuracy": 1.0}, "x") for i in range(20)]
    table = Table("t", rows, {"loss": Declaration(direction="minimize")})
    assert table.objectives == ["accuracy", "loss"] and table.maximised == ()
    column = table.column("loss")
    assert math.isnan(column[0]) and column[1] == 1.0 and np.isnan(column).sum() == 10
    assert table.sample(5).rows == table.sample(5).rows and len(table.sample(5)) == 5
    assert table.sample(99) is table
    assert table.has_only_programs and not Table("t", [Row("a", CHAIN, {})]).has_only_programs
    assert rows[1].select(["accuracy"]).targets == {}
