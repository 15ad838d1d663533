import numpy as np
import pytest

from nas_rlm.utils.validation import (
    MEDIAN,
    as_list,
    check_objective_names,
    quantile_levels,
    shown,
    suggest,
)


def test_lists_are_checked():
    assert as_list(np.arange(3), "texts") == [0, 1, 2] and as_list((), "texts") == []
    for single in ("cell", 3):
        with pytest.raises(ValueError, match=f"texts is {single!r}: expected a list"):
            as_list(single, "texts")


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ("accuracy", r"expected a list of names, \['accuracy'\]"),
        ([], "objectives is empty"),
        ([3], "expected a list of names"),
        (["accuracy", "accuracy"], "'accuracy' is given more than once"),
        (["accuracy", " "], "of which a name is empty"),
    ],
)
def test_invalid_objective_names_are_rejected(objectives, message):
    check_objective_names(["accuracy", "latency/pixel3"])
    with pytest.raises(ValueError, match=message):
        check_objective_names(objectives)


def test_quantile_levels_are_checked():
    assert quantile_levels(None) == MEDIAN == (0.5,)
    assert quantile_levels([0.001, 0.999]) == (0.001, 0.999)
    with pytest.raises(ValueError, match=r"expected levels from 0\.001 to 0\.999"):
        quantile_levels([0.5, 1.0])


def test_similar_names_are_suggested_best_first():
    valid = ["accuracy", "latency/pixel2", "latency/pixel3", "latency/eyeriss"]
    assert suggest("flop", ["flops", "flops"]) == "did you mean flops?"
    assert suggest("latency/pixel3a", valid).startswith("did you mean latency/pixel3, latency/pixel2")


def test_without_a_similar_name_a_few_are_listed():
    assert suggest("zzz", ["accuracy", "flops"]) == "known: accuracy, flops"
    assert suggest("zzz", [f"accuracy/{i}" for i in range(9)]).endswith("accuracy/5, …")
    assert suggest("zzz", []) == "known: none"


def test_empty_names_are_not_suggested():
    assert suggest("x", ["", "first"]) == "known: first" and suggest("x", [""]) == "known: none"


def test_numpy_arrays_of_names_are_lists_of_names():
    check_objective_names(np.array(["accuracy", "latency/a"]))
    for names in (np.array([]), np.array([1, 2]), np.array(["a", "a"]), 3):
        with pytest.raises(ValueError, match="objective"):
            check_objective_names(names)


class Unprintable:
    def __repr__(self):
        raise RuntimeError


def test_a_value_is_shown_in_one_line_of_limited_length():
    assert shown("a\nb") == repr("a\nb") and shown(None) == "None"
    assert shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    assert shown("x" * 100) == "'" + "x" * 59 + "…"
    assert "Unprintable object" in shown(Unprintable())
