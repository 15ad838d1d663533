import pytest

from nas_rlm.utils.faults import Faults


def test_all_faults_are_named_and_of_many_the_first_five():
    faults = Faults()
    faults.check()
    for number in range(1, 6):
        faults.add(f"line {number}")
    with pytest.raises(ValueError, match=r"^a.txt line 1; line 2; line 3; line 4; line 5: expected 1$"):
        faults.check("a.txt ", ": expected 1")
    for number in range(6, 1007):
        faults.add(f"line {number}")
    with pytest.raises(ValueError, match=r"^line 1; .*; line 5; and 1,001 more$"):
        faults.check()


def test_only_errors_of_values_are_collected():
    faults = Faults()
    with faults.collect():
        raise ValueError("line 1")
    with pytest.raises(KeyError), faults.collect():
        raise KeyError("line 2")
    with pytest.raises(ValueError, match=r"^line 1$"):
        faults.check()
