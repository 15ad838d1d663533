from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from nas_rlm.data.omissions import MAX_MESSAGES, Omissions, to_number
from nas_rlm.utils.faults import MAX_LISTED


@pytest.mark.parametrize(
    "value",
    [
        *(3, 3.0, np.float32(3), np.int64(3), torch.tensor(3.0), np.array([3.0])),
        *(Decimal("3.0"), Fraction(6, 2)),
    ],
)
def test_numbers_of_other_libraries_are_numbers(value):
    assert to_number(value) == 3.0


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, "3", [3.0], 10**400, np.nan, -np.inf, np.zeros(2), torch.zeros(2), 3j),
        *(Decimal("sNaN"), Decimal("Infinity"), Decimal("1e999")),
    ],
)
def test_other_values_are_no_numbers(value):
    assert to_number(value) is None


@pytest.mark.parametrize(
    ("objective", "value", "is_valid"),
    [
        *(("accuracy", 0, True), ("accuracy/cifar100", 100.0, True), ("accuracy", 100.1, False)),
        *(("accuracy", -1, False), ("latency/a", 0, False), ("latency/a", -1, False), ("params", 0.0, False)),
        *(("latency/a", 1e301, False), ("latency/a b", 1.0, False), ("energy/a", 1.0, True)),
        *(("loss/val", -1.2, True), ("loss", 0, True), ("score", -3.5, True), ("perplexity", -1.0, False)),
        *(("throughput/a", 0.0, True), ("energy", -1.0, False), ("mIoU", 0.0, True), ("a b", 1.0, False)),
    ],
)
def test_numbers_out_of_range_are_left_out(objective, value, is_valid):
    omissions = Omissions()
    assert omissions.targets({objective: value}, "one") == ({objective: float(value)} if is_valid else {})
    assert bool(omissions) != is_valid


def test_each_kind_is_a_line_with_its_count_and_reasons():
    omissions = Omissions()
    for name in ("a", "b"):
        omissions.targets({"latency/x": -1}, name)
        with omissions.skip(name):
            raise KeyError("net")
    omissions.add("c\nd", "two\nlines " + "x" * 1000, "latency/y", count=1000)
    first, second, third = omissions.messages()
    assert first == "2 entries of latency/x are not valid and were left out: a: -1; b: -1"
    assert second == "2 entries are not valid and were left out: a: 'net' is missing; b: 'net' is missing"
    assert (
        third.startswith("1,000 entries of latency/y are")
        and ": c d: two lines" in third
        and third.endswith("; and 999 more")
        and "\n" not in third
        and len(third) < 400
    )
    assert omissions.first_reason == "a: -1"


def test_of_many_entries_the_first_reasons_are_listed():
    omissions = Omissions()
    for i in range(MAX_LISTED + 2):
        omissions.add(f"line {i}", "no file")
    (message,) = omissions.messages()
    assert message.startswith("7 entries are not valid and were left out: line 0: no file; line 1: no file;")
    assert message.endswith("line 4: no file; and 2 more")


def test_many_kinds_are_summed_up():
    omissions = Omissions()
    for i in range(MAX_MESSAGES + 5):
        omissions.targets({f"latency/{i}": -1}, "a")
    assert len(omissions.messages()) == MAX_MESSAGES + 1
    assert omissions.messages()[-1] == "left out: 5 entries of 5 other objectives"


def test_errors_that_no_damaged_file_causes_are_not_hidden():
    with pytest.raises(KeyboardInterrupt), Omissions().skip("a"):
        raise KeyboardInterrupt
