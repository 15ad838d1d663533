import warnings

import numpy as np
import pytest

from nas_rlm.data import Row
from nas_rlm.metrics import spearman
from nas_rlm.surrogates.graphs.features import random_networks
from nas_rlm.surrogates.latency.samples import (
    LeaveOneOutEvidence,
    Outlier,
    RepeatedMeasurements,
    check_plausible,
    fit_without_outliers,
    warn_of_outliers,
)
from nas_rlm.surrogates.latency_fitting import fit_latency_surrogate
from nas_rlm.surrogates.registry import predictive_distributions

NAME, COUNT = "latency/mine", 20


@pytest.fixture(scope="module")
def networks():
    """Cells whose latency is a sum over operators."""
    rows = random_networks("nasbench201", 80, seed=1)
    rng = np.random.default_rng(0)
    return [
        Row(
            "nasbench201",
            row.arch_str,
            {NAME: (1 + row.targets["flops"] / 3e7) * np.exp(0.02 * rng.standard_normal())},
        )
        for row in rows
    ]


def predicted(surrogate, rows):
    from nas_rlm.data.row_texts import texts_of_rows

    (distribution,) = predictive_distributions([surrogate], texts_of_rows(rows), [NAME])
    true = np.array([row.targets[NAME] for row in rows])
    low, high = distribution.quantiles((0.1, 0.9)).T
    return spearman(distribution.median, true), float(np.median(high / low)), distribution.median


def with_latency(row, value):
    return Row(row.space, row.arch_str, {NAME: value})


@pytest.mark.parametrize("factor", [10, 6, 0.001, 0.02])
def test_an_outlier_is_named_and_left_out(networks, factor):
    samples, test = networks[:COUNT], networks[COUNT:]
    measured = samples[4].targets[NAME] * factor
    spoiled = [*samples[:4], with_latency(samples[4], measured), *samples[5:]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean = fit_latency_surrogate("nasbench201", samples, NAME)
    with pytest.warns(UserWarning, match="contradict 1 of the measurements of latency/mine") as caught:
        found = fit_latency_surrogate("nasbench201", spoiled, NAME)
    message = str(caught[0].message)
    assert samples[4].arch_str in message and f"{measured:.4g} ms, expected" in message
    expected = float(message.rsplit("expected ", 1)[1].split()[0])
    assert expected == pytest.approx(samples[4].targets[NAME], rel=0.2)
    (rank, width, _), (clean_rank, clean_width, _) = predicted(found, test), predicted(clean, test)
    assert rank > clean_rank - 0.03
    assert width - 1 < 1.5 * (clean_width - 1)


def test_measurements_of_one_network_count_as_one(networks):
    samples = networks[:COUNT]
    first = samples[0].targets[NAME]
    contradicting = [with_latency(samples[0], first * factor) for factor in (1, 3)]
    with pytest.warns(UserWarning, match="of the same network differ by more than 10%") as caught:
        found = fit_latency_surrogate("nasbench201", [*samples, *contradicting], NAME)
    used = f"({first:.4g}, {first:.4g}, {3 * first:.4g} ms, {first:.4g} ms is used)"
    assert f"{samples[0].arch_str} {used}" in str(caught[0].message)
    assert len(found.values) == COUNT
    assert found.values[0] == pytest.approx(first)
    with pytest.raises(ValueError, match=r"12 rows .* of 9 different networks: expected at least 10"):
        fit_latency_surrogate("nasbench201", [*samples[:9], *samples[:3]], NAME)


@pytest.mark.parametrize("factor", [10, 0.1])
def test_of_two_contradicting_measurements_the_likely_one_is_used(networks, factor):
    samples = networks[:COUNT]
    right = [row.targets[NAME] for row in samples]
    wrong = [with_latency(row, row.targets[NAME] * factor) for row in samples[:4]]
    with pytest.warns(
        UserWarning, match="differ by more than 10% in latency/mine; measure again: "
    ) as caught:
        found = fit_latency_surrogate("nasbench201", [*wrong[:2], *samples, *wrong[2:]], NAME)
    assert len(caught) == 1  # none of them is an outlier
    assert str(caught[0].message).count(" ms is used)") == 3 and "; and 1 more" in str(caught[0].message)
    assert sorted(found.values) == pytest.approx(sorted(right))


def test_the_other_networks_decide_only_where_latencies_differ_much():
    latencies = np.array([1.0, 2.0, 1.5, 9.0, 4.0, 1.0, 1.0, 9.0])
    found = RepeatedMeasurements.of_networks(list("abacbccc"), latencies)
    assert found.first_samples == [0, 1, 3]
    assert found.medians == pytest.approx([1.25, 3.0, 5.0])
    assert found.undecided.tolist() == [2]
    assert found.nearest(np.array([2]), np.log([8.0])) == pytest.approx([1.25, 3.0, 9.0])
    assert found.nearest(np.array([2]), np.log([2.0])) == pytest.approx([1.25, 3.0, 1.0])
    assert RepeatedMeasurements.of_networks(["a"], np.ones(1)).undecided.tolist() == []


def test_small_differences_between_measurements_are_no_contradiction():
    found = RepeatedMeasurements.of_networks(["a", "b", "a"], np.array([1.0, 5.0, 1.04]))
    assert found.first_samples == [0, 1]
    assert found.medians == pytest.approx([1.02, 5.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.warn_of_contradictions(found.medians, ["A", "B"], NAME)


def test_many_measurements_of_one_network_are_reported_as_a_range():
    found = RepeatedMeasurements.of_networks(["a"] * 5, np.array([1.0, 3.0, 1.0, 7.0, 1.0]))
    with pytest.warns(UserWarning, match=r"A \(1 to 7 ms, 1 ms is used\)"):
        found.warn_of_contradictions(found.medians, ["A"], NAME)


def test_no_network_is_predicted_to_take_no_time(networks):
    samples = [with_latency(row, max(0.03, row.targets[NAME] - 1)) for row in networks[:COUNT]]
    found = fit_latency_surrogate("nasbench201", samples, NAME)
    _, _, median = predicted(found, networks)
    assert median.min() >= 0.01


def test_equal_latencies_and_seconds_have_one_message(networks):
    same = [with_latency(row, 3.0) for row in networks[:COUNT]]
    with pytest.warns(UserWarning, match="all 20 networks have the same latency/mine, 3 ms") as caught:
        found = fit_latency_surrogate("nasbench201", same, NAME)
    assert len(caught) == 1
    assert predicted(found, networks)[2] == pytest.approx(np.full(len(networks), 3.0), rel=0.01)
    with pytest.warns(UserWarning, match="which is short: expected milliseconds, no seconds"):
        check_plausible(np.array([0.05, 0.08]), np.array([4e9, 8e9]), NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_plausible(np.array([0.05, 0.08]), np.array([4e6, 8e6]), NAME)


def test_equal_latencies_are_not_called_badly_explained_as_well():
    assert not LeaveOneOutEvidence.of(np.array([1.99, 2.01, 2.0]), np.full(3, 2.0)).is_weak


def test_latencies_that_are_shorter_than_any_call_look_wrong_for_small_networks_too():
    with pytest.warns(UserWarning, match="which is short: expected milliseconds"):
        check_plausible(np.array([7e-5, 8e-5]), np.array([2e5, 3e5]), NAME)


def test_latencies_that_look_like_microseconds_have_a_message():
    milliseconds, macs = np.array([2.0, 30.0]), np.array([4e7, 6e8])
    with pytest.warns(
        UserWarning, match="between 2e\\+03 and 3e\\+04 .* which is long: expected milliseconds, no micro"
    ):
        check_plausible(1000 * milliseconds, macs, NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_plausible(milliseconds, macs, NAME)
        check_plausible(50 * milliseconds, macs, NAME)  # of a slow processor
        check_plausible(np.array([20.0, 40.0]), np.array([1e5, 2e5]), NAME)  # of small networks


def test_a_measurement_that_is_much_too_short_is_named_and_stays(networks):
    longest = max(networks[:COUNT], key=lambda row: row.targets[NAME])
    short = with_latency(longest, longest.targets[NAME] / 8)
    rows = [short if row is longest else row for row in networks[:COUNT]]
    with pytest.warns(UserWarning, match=r"much shorter than the other networks.* expected") as caught:
        surrogate = fit_latency_surrogate("nasbench201", rows, NAME)
    (message,) = [str(w.message) for w in caught if "much shorter" in str(w.message)]
    assert message.count(" ms, expected ") == 1 and longest.arch_str in message
    assert len(surrogate.values) == COUNT


def test_samples_whose_errors_are_all_large_are_no_outliers():
    values = np.exp(np.random.default_rng(0).normal(0, 1.0, 40))

    def mean_of_others(logs):
        return (logs.sum() - logs) / (len(logs) - 1)

    fits = (
        lambda indices: np.log(values[indices]),
        mean_of_others,
        lambda logs, i: float(logs.mean()),
    )
    assert fit_without_outliers(*fits, values)[1] == []
    values[7] = 1e5
    model, outliers = fit_without_outliers(*fits, values)
    assert [o.sample for o in outliers] == [7] and len(model) == 39


def test_a_warning_lists_some_of_many_outliers():
    outliers = [Outlier(i, 10.0, 1.0) for i in range(5)]
    with pytest.warns(UserWarning, match="n2: 10 ms, expected 1 ms; and 2 more"):
        warn_of_outliers(outliers, [f"n{i}" for i in range(5)], NAME)
