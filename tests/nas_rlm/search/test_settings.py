from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from nas_rlm.search.settings import Constraint, SearchSettings

PAIR = ("accuracy", "latency/pixel3")


@pytest.mark.parametrize(
    ("text", "values", "feasible"),
    [
        ("latency/pixel3<=20", [19, 20, 21], [True, True, False]),
        ("accuracy >= 93.5", [93, 93.5, 94], [False, True, True]),
        ("flops<=0", [-1, 0, 1], [True, True, False]),
        ("latency/pixel3@0.9<=20", [19, 20, 21], [True, True, False]),
    ],
)
def test_a_constraint_is_parsed_and_checked(text, values, feasible):
    assert (Constraint.parse(text).violation(np.array(values, dtype=float)) <= 0).tolist() == feasible


@pytest.mark.parametrize(
    "text",
    [
        "",
        "accuracy",
        "accuracy<90",
        "accuracy=90",
        "<=3",
        "a<=x",
        "a<=nan",
        "a<=inf",
        "a<=1 2",
        "a@<=1",
        "a@1<=1",
        "a@0<=1",
        "a@0.9.1<=1",
        "a@b<=1",
    ],
)
def test_a_bad_constraint_is_shown(text):
    with pytest.raises(ValueError, match="latency/pixel3<=20") as error:
        Constraint.parse(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accuracy>=150", "accuracy is a percentage"),
        ("accuracy/cifar100@0.1<=-1", "accuracy/cifar100 is a percentage"),
        ("latency/pixel3<=-5", "latency/pixel3 is a number from 0 to 1e+09 ms"),
        ("latency/pixel3<=0", "latency/pixel3 is a number from 0 to 1e+09 ms"),
        ("perplexity<=-1", "perplexity is a number, 0 or more"),
    ],
)
def test_a_bound_that_no_value_of_the_kind_meets_is_refused(text, expected):
    with pytest.raises(ValueError, match="cannot be met") as error:
        Constraint.parse(text)
    assert str(error.value) == f"constraint {text!r} cannot be met: {expected}"


def test_bounds_at_the_ends_of_a_range_and_on_unknown_kinds_can_be_met():
    for text in ("accuracy>=100", "accuracy<=0", "params<=0", "loss<=-5", "my_count>=1e300"):
        assert Constraint.parse(text).is_possible


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"objectives": ()}, "at least one objective"),
        ({"objectives": ("accuracy", "accuracy")}, "'accuracy' is given more than once"),
        ({"algorithm": "nsga"}, "did you mean 'nsga"),
        ({"algorithm": "sms-emoa", "objectives": ("accuracy",)}, "expected at least two objectives"),
        ({"maximised": ("energy",)}, "'energy' is to be maximised, but is not in accuracy"),
        ({"population": 1}, "population is 1"),
        ({"generations": 0}, "generations is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"constraints": ("accuracy>90",)}, "'accuracy>90'"),
    ],
)
def test_bad_settings_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        SearchSettings(**{"space": "nasbench201", "objectives": PAIR, **changed})


def test_quantile_levels_include_those_of_constraints():
    settings = SearchSettings("nasbench201", PAIR, ("flops<=3", "latency/pixel3@0.95<=20"))
    assert settings.quantile_levels == (0.1, 0.5, 0.9, 0.95)
    assert settings.all_objectives == (*PAIR, "flops")
    values = np.arange(2 * 3 * 4, dtype=float).reshape(2, 3, 4)
    assert settings.medians(values).tolist() == values[:, :, 1].tolist()
    assert [str(b) for b in settings.parsed_constraints] == ["flops ≤ 3", "latency/pixel3@0.95 ≤ 20"]
    assert (settings.violations(values) > 0).tolist() == [[True, False], [True, False]]


def test_costs_negate_maximised_objectives():
    settings = SearchSettings("nasbench201", ("accuracy", "skips", "flops"), maximised=("skips",))
    assert settings.costs(np.array([[90.0, 2.0, 7.0]])).tolist() == [[-90, -2, 7]]
    assert settings.costs(np.array([[90.0, 2.0, 7.0]]), ("flops", "skips")).tolist() == [[7, -2]]


def test_settings_without_measured_objectives():
    settings = SearchSettings(
        *("nasbench201", ("accuracy", "latency/box"), ("latency/box<=3", "flops<=9")), device="box", budget=20
    )
    assert settings.without_measured == SearchSettings("nasbench201", ("accuracy",), ("flops<=9",))
    assert SearchSettings("nasbench201", ("latency/box",), device="box", budget=20).without_measured is None


@pytest.mark.parametrize(("size", "population"), [(1, 2), (2, 2), (30, 30), (1000, 50), (None, 50)])
def test_a_population_is_at_most_the_space(size, population):
    space = SimpleNamespace(name="mine", size=size)
    settings = SearchSettings("mine", PAIR)
    assert settings.for_space(space) == replace(settings, population=population)


@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8])
def test_numpy_integers_are_whole_numbers(number):
    settings = SearchSettings(
        "nasbench201", PAIR, population=number(5), generations=number(2), seed=number(3)
    )
    assert (settings.population, settings.generations, settings.seed) == (5, 2, 3)
    assert {type(settings.population), type(settings.generations), type(settings.seed)} == {int}
    for invalid in (np.float64(5), np.bool_(True), True, 5.0):
        with pytest.raises(ValueError, match="expected a whole number"):
            SearchSettings("nasbench201", PAIR, population=invalid)


def test_the_bound_of_a_constraint_may_be_a_numpy_scalar():
    for bound, level in ((np.float64(3.5), np.float64(0.5)), (np.float32(3.5), np.float32(0.5))):
        assert Constraint("params", bound, np.bool_(True), level).text == "params<=3.5"


def test_the_kind_of_an_objective_decides_its_direction():
    settings = SearchSettings("nasbench201", ("throughput/box", "loss/val", "score"), maximised=("score",))
    medians = np.array([[10.0, -1.0, 2.0]])
    assert settings.costs(medians).tolist() == [[-10.0, -1.0, -2.0]]
