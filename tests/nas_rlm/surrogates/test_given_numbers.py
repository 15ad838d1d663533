import numpy as np
import pytest

from nas_rlm.surrogates.given_numbers import check_given, rows_by_given

KNOWN = ["accuracy", "accuracy/cifar10_4ep", "latency/pixel3", "flops"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1.0], "expected numbers by name"),
        ({"accuracy/cifar10_5ep": 60.0}, r"which the model does not know; did you mean accuracy/cifar10_4ep"),
        ({"flops": 1e6}, "computed from the network"),
        ({"accuracy": 60.0}, "given and queried"),
        (
            {"accuracy/cifar10_4ep": [60.0, 61.0]},
            r"shape \[2\]: expected one number, or one for each of 3 rows",
        ),
        ({"accuracy/cifar10_4ep": "high"}, "is 'high': expected a percentage"),
        ({"accuracy/cifar10_4ep": 130.0}, "is 130: expected a percentage"),
        ({"latency/pixel3": [1.0, -2.0, 3.0]}, "is -2: expected a number, 0 or more"),
        ({"latency/pixel3": float("inf")}, "is inf: expected a number, 0 or more"),
    ],
)
def test_numbers_that_cannot_be_used_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        check_given(given, 3, ["accuracy"], KNOWN)


def test_a_number_is_for_all_rows_and_missing_ones_stay_missing():
    found = check_given({"latency/pixel3": 2, "accuracy/cifar10_4ep": [60, np.nan]}, 2, ["accuracy"], KNOWN)
    assert found["latency/pixel3"].tolist() == [2.0, 2.0]
    assert np.isnan(found["accuracy/cifar10_4ep"]).tolist() == [False, True]
    assert check_given(None, 2, ["accuracy"], KNOWN) == {}


def test_rows_with_the_same_numbers_are_grouped_without_repeated_texts():
    given = {"a": np.array([1, 2, np.nan, np.nan, 3]), "b": np.array([1, 1, 1, np.nan, 1])}
    groups = rows_by_given(["x", "y", "x", "x", "x"], given)
    assert groups == [([0, 1], ["a", "b"]), ([2], ["b"]), ([3], []), ([4], ["a", "b"])]
