import numpy as np
import pytest

from nas_rlm.utils.validation import MEDIAN, check_names, hint, levels_of, listed


def test_lists_of_things():
    assert listed(np.arange(3), "texts") == [0, 1, 2] and listed((), "texts") == []
    for single in ("cell", 3):
        with pytest.raises(ValueError, match=f"texts is '{single}'.*: expected a list"):
            listed(single, "texts")


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ("accuracy", r"expected a list of names, \['accuracy'\]"),
        ([], "no objectives asked for"),
        ([3], "expected a list of names"),
        (["accuracy", "accuracy"], "'accuracy' is given more than once"),
    ],
)
def test_what_is_no_list_of_names(objectives, message):
    check_names(["accuracy", "latency/pixel3"])
    with pytest.raises(ValueError, match=message):
        check_names(objectives)


def test_levels():
    assert levels_of(None) == MEDIAN == (0.5,)
    assert levels_of([0.001, 0.999]) == (0.001, 0.999)
    with pytest.raises(ValueError, match=r"are not levels between 0\.001 and 0\.999"):
        levels_of([0.5, 1.0])


def test_near_names_are_offered_best_first():
    known = ["accuracy", "latency/pixel2", "latency/pixel3", "latency/eyeriss"]
    assert hint("flop", ["flops", "flops"]) == "did you mean flops?"
    assert hint("latency/pixel3a", known).startswith("did you mean latency/pixel3, latency/pixel2")


def test_without_a_near_name_some_are_listed():
    assert hint("zzz", ["accuracy", "flops"]) == "known: accuracy, flops"
    assert hint("zzz", [f"accuracy/{i}" for i in range(9)]).endswith("accuracy/5, …")
    assert hint("zzz", []) == "known: none"
