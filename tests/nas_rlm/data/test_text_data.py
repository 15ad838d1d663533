import math
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.data.text_data import FAILED, expected_cell, read_value, text_data


class Frame:
    """A data frame with the part of its interface that is used."""

    def __init__(self, columns, names=()):
        self.columns, self._columns = list(names or columns), columns

    def __iter__(self):
        return iter(self.columns)

    def __getitem__(self, name):
        return self._columns[name]


@given(st.floats(allow_nan=False))
def test_a_number_written_as_text_is_the_same_number(value):
    assert read_value(repr(value)) == value


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *[(True, 1.0), (np.float32(0.5), 0.5), (Decimal("2.5"), 2.5), (Fraction(1, 4), 0.25), (" 7 ", 7.0)],
        *[("Infinity", math.inf), (10**300, 1e300)],
    ],
    ids=lambda value: str(value)[:12],
)
def test_numbers_of_any_type_are_read(cell, expected):
    assert read_value(cell) == expected


def test_words_are_missing_or_failures_or_refused():
    assert all(math.isnan(read_value(word)) for word in ("", "NA", " none ", "null", math.nan, None))
    assert all(read_value(word) is FAILED for word in ("failed", "OOM", " Timeout"))
    assert read_value("fast") is None


def test_other_signs_than_minus_are_named():
    for sign in ("\N{MINUS SIGN}", "\N{EN DASH}"):
        assert expected_cell(f"{sign}3.5") == "the sign -, as in -3.5"
        assert "NA" in expected_cell(f"{sign}x")


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


def test_columns_whose_names_are_integers_are_targets():
    assert text_data(["a", "b"], Frame({0: [1, 2], np.int64(1): [3, 4]})).objectives == ("0", "1")


def test_targets_may_be_the_rows_of_a_tensor():
    data = text_data(["a", "b"], torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True))
    assert {name: column.tolist() for name, column in data.values.items()} == {"y0": [1, 3], "y1": [2, 4]}


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
        (["a", 5], [1, 2], r"texts\[1\] is 5, of type int: expected a string, such as json.dumps"),
        (["a", math.nan], [1, 2], r"texts\[1\] is nan, of type float: .* such as '' for none"),
        (["a", b"b"], [1, 2], "of type bytes: expected a string, such as its decode"),
        ({"a", "b"}, [1, 2], "texts is a set, which has no order"),
        (Frame({"t": ["a", "b"]}), [1, 2], "texts is a table with the columns 't'"),
        (["a", "b"], Frame({"p": [1, 2]}, ["p", "p"]), "values has two columns 'p'"),
        (["a", "b"], [1, "3,911"], "'3,911': expected a number with a decimal point and without sep"),
        (["a", "b"], [1, "12.5 ms"], "'12.5 ms': expected a number alone, such as 12.5"),
        (["a", "b"], [1, "7%"], "'7%': expected a number alone, such as 7"),
        (["a", "b"], [1, "failed: no memory"], "expected the word failed alone"),
        ("ab", [1, 2], "texts is 'ab': expected a list"),
        ([], [], "texts is empty"),
        (["a", "b"], [1], "2 texts and 1 value of 'y'"),
        (["a", "b"], [1, "1e400"], "'1e400': expected a number of at most 1.8e\\+308, or inf for infinity"),
        (["a", "b"], [1, "9" * 400], "expected a number of at most 1.8e"),
        (["a", "b"], [1, "red"], "value 1 of 'y' is 'red': expected a number"),
        (["a", "b"], ["2%", "3%"], "value 0 of 'y' is '2%': .*, such as 2; value 1 of 'y' is '3%'"),
        (["a", "b"], [None, math.nan], "0 of 2 values of 'y' are numbers, such as None, nan"),
        (["a"], [1], "expected at least 2"),
        (["a", "b"], 5, "values is 5: expected a list of numbers"),
        (["a", "b"], "12", "values is '12'"),
        (["a", "b"], {1, 2}, "values is a set, which has no order"),
        (["a", "b"], Frame({"y": [1, 2]}, [[1, 2]]), r"values has the column \[1, 2\]: expected names"),
        (["a", "b"], {"": [1, 2]}, "of which a name is empty"),
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


@pytest.mark.parametrize("cell", [10**400, -(10**400), "1e400"])
def test_numbers_beyond_the_largest_one_are_refused(cell):
    with pytest.raises(
        ValueError, match=r"value 1 of 'y' is .*: expected a number of at most 1\.8e\+308, or inf"
    ):
        text_data(["a", "b"], [1, cell])


@pytest.mark.parametrize("values", [{}, np.zeros((2, 0)), [[], []], Frame({})])
def test_values_without_targets_are_refused(values):
    with pytest.raises(ValueError, match="values has no targets: expected numbers of at least one"):
        text_data(["a", "b"], values)


@pytest.mark.parametrize("cell", ["2024-01-31", "2024-01-31 10:00", datetime(2024, 1, 31)])
def test_dates_are_refused_with_advice(cell):
    with pytest.raises(ValueError, match=r"2024.*: expected a number, such as the days or seconds since"):
        text_data(["a", "b"], [1, cell])


def test_a_column_of_a_frame_has_its_own_name():
    class Series(list):
        name = "loss"

    assert text_data(["a", "b"], Series([1, 2])).objectives == ("loss",)
    assert text_data(["a", "b"], Series([1, 2]), ["other"]).objectives == ("other",)
    Series.name = None
    assert text_data(["a", "b"], Series([1, 2])).objectives == ("y",)
