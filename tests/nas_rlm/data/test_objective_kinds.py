import pytest

from nas_rlm.data.objective_kinds import expected_value, is_known_kind, kind_of, unit_warnings


@pytest.mark.parametrize(
    ("objective", "is_maximised"),
    [
        *(("accuracy", True), ("accuracy/mine", True), ("IoU", True), ("mIoU/x", True), ("mAP/50", True)),
        *(("throughput/box", True), ("BLEU", True), ("log_likelihood", True), ("psnr", True)),
        *(("latency/accuracy", False), ("energy/box", False), ("perplexity", False), ("loss/val", False)),
        *(("flops", False), ("params", False), ("memory", False), ("unheard-of", False)),
    ],
)
def test_the_kind_decides_the_direction(objective, is_maximised):
    assert kind_of(objective).is_maximised == is_maximised
    assert is_known_kind(objective) == (objective != "unheard-of")


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        *(("accuracy/x", "a percentage"), ("perplexity", "a number, 0 or more")),
        *(("energy", "a number from 0 to 1e+12 J"), ("loss/x", "a number")),
    ],
)
def test_the_range_is_described(objective, expected):
    assert expected_value(objective) == expected


def test_fractions_instead_of_percentages_are_reported():
    columns = {"accuracy/a": [0.5, 1.0], "accuracy": [0.5, 93.0], "mIoU": [0.5, 0.6]}
    (line,) = unit_warnings(columns)
    assert line.startswith("accuracy/a is at most 1: expected percentages")


def test_latencies_that_may_be_in_seconds_are_reported():
    columns = {"latency/a": [0.003, 0.4], "latency/b": [0.4, 1.2], "energy/a": [0.1, 0.2], "latency/c": [0.1]}
    assert unit_warnings(columns) == [
        "latency/a is at most 0.4: expected milliseconds, and these may be seconds"
    ]


def test_latencies_that_may_be_in_microseconds_are_reported():
    columns = {"latency/a": [2e4, 9e5], "latency/b": [400, 9e5], "energy/a": [2e4, 3e4], "latency/c": [2e4]}
    assert unit_warnings(columns) == [
        "latency/a is at least 20000: expected milliseconds, and these may be microseconds or nanoseconds"
    ]
