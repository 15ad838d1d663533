import math

import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.model.numbers import NumberScheme
from nas_rlm.training.label_checks import check_representable, select_rows

VALUES = np.linspace(1.0, 9.0, 20)


def rows(*latencies, **others):
    return [Row("mine", str(i), {"latency/mine": v, **others}) for i, v in enumerate(latencies)]


def losses(values):
    return [Row("mine", f"row{i}", {"loss": value}) for i, value in enumerate(values)]


def test_rows_keep_the_objectives_to_learn():
    selected = select_rows([*rows(1.0, 2.0, loss=3.0), Row("mine", "x", {"loss": 1.0})], ["latency/mine"])
    assert [row.targets for row in selected] == [{"latency/mine": 1.0}, {"latency/mine": 2.0}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.0, r"latency/mine of .1. is -1.0, expected a number from 0 to 1e\+09 ms"),
        (1e12, "is 1000000000000.0, expected a number from 0"),
        (True, "is True, expected a number"),
        (None, "is None, expected a number"),
        ("1.0", "is '1.0', expected a number"),
    ],
)
def test_labels_that_no_table_has_are_refused(value, message):
    with pytest.raises(ValueError, match=message):
        select_rows(rows(1.0, value), ["latency/mine"])
    assert len(select_rows(rows(np.float32(1.5), 2, math.nan), ["latency/mine"])) == 2


def test_accuracies_that_may_be_fractions_have_a_warning():
    fractions = [Row("nasbench201", "a", {"accuracy": value}) for value in (0.5, 0.7)]
    with pytest.warns(UserWarning, match="accuracy is at most 0.7: expected percentages"):
        select_rows(fractions, ["accuracy"])


def test_latencies_of_zero_are_left_out_with_a_warning():
    with pytest.warns(
        UserWarning,
        match="2 of 3 values of .* left out: not finite or 0 ms; write more digits",
    ):
        assert len(select_rows(rows(0.0, math.inf, 1.0), ["latency/mine"])) == 1
    with pytest.raises(ValueError, match="none of 2 rows has a value for latency/mine above 0 ms"):
        select_rows(rows(0.0, math.nan), ["latency/mine"])
    assert len(select_rows(rows(0.004, 0.0003), ["latency/mine"])) == 2


def test_objectives_that_no_row_has_are_refused():
    with pytest.raises(ValueError, match="none of 1 row has a value for loss; did you mean losses"):
        select_rows(rows(1.0, losses=2.0), ["loss"])
    with pytest.raises(ValueError, match="there are no rows to learn from"):
        select_rows([], ["loss"])


@pytest.mark.parametrize(("offset", "factor"), [(1e6, 1.0), (-123456.0, 0.1), (0.0, 1e-9)])
def test_values_that_the_digits_cannot_distinguish_are_refused(offset, factor):
    with pytest.raises(ValueError, match=r"values of loss from .* lose their differences .* another unit"):
        check_representable("loss", losses(offset + factor * VALUES), NumberScheme())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            np.append(VALUES, 2.99088e13),
            "1 value of loss is beyond 9.999e+12, .*, up to 2.99088e+13 of 'row20':",
        ),
        (np.append(VALUES, -5e13), "1 value of loss is beyond .*, up to -5e+13 of 'row20':"),
        (1e14 * VALUES, "20 values of loss are beyond .*, up to 9e+14 of 'row19': expected another unit"),
    ],
)
def test_values_beyond_the_largest_number_are_named(values, message):
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        check_representable("loss", losses(values), NumberScheme())


def test_programs_with_too_large_values_are_named_by_their_source():
    programs = [Row("mine", "", {"memory": 1.0}, "a = 1"), Row("mine", "", {"memory": 1e14}, "b = 2\nc = 3")]
    with pytest.raises(ValueError, match=r"up to 1e\+14 of 'b = 2\\nc = 3': "):
        check_representable("memory", programs, NumberScheme())


def test_other_values_are_accepted():
    for values in (VALUES, -VALUES, np.full(3, 1e6), np.append(VALUES, np.nan)):
        check_representable("loss", losses(values), NumberScheme())
