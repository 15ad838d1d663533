import warnings

import numpy as np
import pytest

from nas_rlm.surrogates.given_numbers import check_given, check_range, rows_by_given

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
        ({"latency/pixel3": [1.0, -2.0, 3.0]}, "is -2: expected a number from 0 to 1e"),
        ({"latency/pixel3": float("inf")}, "is inf: expected a number from 0 to 1e"),
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


LABELS = {"accuracy/cifar10_4ep": np.array([30.0, np.nan, 80.0]), "latency/pixel3": np.array([2.0, 10.0])}


@pytest.mark.parametrize("value", [0.93, 0.0, 1.0])
def test_accuracies_as_fractions_are_refused_where_labels_are_percentages(value):
    given = {"accuracy/cifar10_4ep": np.array([61.0, value])}
    with pytest.raises(
        ValueError, match=rf"cifar10_4ep is {value:g}, its labels are 30 to 80: expected a perc"
    ):
        check_range(given, LABELS)
    check_range(given, {"accuracy/cifar10_4ep": np.array([0.2, 0.9])})  # labels that are fractions
    check_range(given, {})


@pytest.mark.parametrize(
    ("name", "value"), [("latency/pixel3", 0.004), ("latency/pixel3", 6000.0), ("accuracy/cifar10_4ep", 3.0)]
)
def test_numbers_far_from_all_labels_are_named(name, value):
    with pytest.warns(
        UserWarning, match=rf"given {name} is {value:.4g}, its labels are .*: predictions rest"
    ):
        check_range({name: np.array([np.nan, value])}, LABELS)


def test_numbers_near_the_labels_have_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_range(
            {"accuracy/cifar10_4ep": np.array([20.0, 95.0]), "latency/pixel3": np.array([0.5])}, LABELS
        )
