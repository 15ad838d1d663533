import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.data.text_data import FAILED, read_value, text_data


class Frame:
    """A data frame with the part of its interface that is used."""

    def __init__(self, columns):
        self.columns, self._columns = list(columns), columns

    def __getitem__(self, name):
        return self._columns[name]


@given(st.floats(allow_nan=False))
def test_a_number_written_as_text_is_the_same_number(value):
    assert read_value(repr(value)) == value


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *[(True, 1.0), (np.float32(0.5), 0.5), (Decimal("2.5"), 2.5), (Fraction(1, 4), 0.25), (" 7 ", 7.0)],
        *[("Infinity", math.inf), (-(10**400), -math.inf), (10**400, math.inf)],
    ],
    ids=lambda value: str(value)[:12],
)
def test_numbers_of_any_type_are_read(cell, expected):
    assert read_value(cell) == expected


def test_words_are_missing_or_failures_or_refused():
    assert all(math.isnan(read_value(word)) for word in ("", "NA", " none ", "null", math.nan, None))
    assert all(read_value(word) is FAILED for word in ("failed", "OOM", " Timeout"))
    assert read_value("fast") is None


@pytest.mark.parametrize("cell", [1j, np.complex128(1), "1e400", "-1e999", "1_0", "0x10", "1j", "1,5"])
def test_other_numbers_are_refused(cell):
    assert read_value(cell) is None


def test_booleans_are_numbers_in_every_kind_of_file():
    assert [read_value(cell) for cell in (True, np.bool_(True), "True", "false")] == [1, 1, 1, 0]


@pytest.mark.parametrize("values", [[[1, 4], [2, 5], [3, 6]], np.array([[1, 4], [2, 5], [3, 6]])])
def test_targets_may_be_rows_a_mapping_or_a_frame(values):
    texts, columns = ["a", "b", "c"], {"p": [1, 2, 3], "q": [4, 5, 6]}
    expected = text_data(texts, columns).values
    for data in (text_data(texts, values, ["p", "q"]), text_data(texts, Frame(columns))):
        assert data.objectives == ("p", "q")
        assert all((data.values[name] == expected[name]).all() for name in ("p", "q"))


def test_rows_without_a_value_are_left_out_and_infinity_is_a_value():
    data = text_data(["a", "b", "c"], [math.nan, math.inf, 1])
    assert data.texts == ["b", "c"]
    assert data.values["y"].tolist() == [math.inf, 1]


def test_failures_are_an_objective_that_missing_values_do_not_have():
    data = text_data(["a", "b", "c", "d"], {"t": [1, "OOM", None, 2], "u": [1, 2, 3, 4]})
    assert data.targets == ("t", "u")
    np.testing.assert_array_equal(data.values["failed/t"], [0, 1, math.nan, 0])


@pytest.mark.parametrize(
    ("texts", "values", "message"),
    [
        (["a", 5], [1, 2], r"texts\[1\] is '5', a int: expected a string"),
        ("ab", [1, 2], "texts is 'ab': expected a list"),
        ([], [], "texts is empty"),
        (["a", "b"], [1], "2 texts and 1 value of 'y'"),
        (["a", "b"], [1, "red"], "value 1 of 'y' is 'red': expected a number"),
        (["a", "b"], [None, math.nan], "0 of 2 values of 'y' are numbers, such as None, nan"),
        (["a"], [1], "expected at least 2"),
        (["a", "b"], 5, "values is 5: expected a list of numbers"),
        (["a", "b"], "12", "values is '12'"),
        (["a", "b"], [[1, 2], [3]], "row 1 of values is \\[3\\]: expected 2 values"),
        (["a", "b"], {"failed/y": [1, 2]}, "is the name of a failure"),
    ],
)
def test_bad_input_is_shown_with_what_is_expected(texts, values, message):
    with pytest.raises(ValueError, match=message):
        text_data(texts, values)


def test_names_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="values has no 'z': expected one of 'y'"):
        text_data(["a", "b"], {"y": [1, 2]}, ["z"])
    with pytest.raises(ValueError, match="given more than once"):
        text_data(["a", "b"], [[1, 2], [3, 4]], ["y", "y"])
