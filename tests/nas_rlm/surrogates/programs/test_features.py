import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas_rlm.surrogates.programs.features import (
    STRUCTURE,
    function_names,
    identifier_words,
    structure_matrix,
)


def structure(program):
    return dict(zip(STRUCTURE, structure_matrix([program])[0].tolist(), strict=True))


@pytest.mark.parametrize(
    ("program", "megabytes"),
    [
        ("int a[1000][1000];", 4),
        ("const int N = 1e6 + 5;\nlong long dp[N];", 8),
        ("#define MAX 1000000\nbool seen[MAX];", 1),
        ("vector<int> v(1 << 20);", 8.4),
        ("seen = [0] * 1000000\n", 8),
        ("N = 10 ** 6\nseen = [0] * N\nprint(seen)", 8),
        ("var a = IntArray(500000)", 4),
        ("int a = b[3];", 0),
    ],
)
def test_sizes_of_arrays_with_constant_bounds_are_found(program, megabytes):
    assert np.expm1(structure(program)["array_bytes"]) / 1e6 == pytest.approx(megabytes, rel=0.02, abs=1e-4)


def test_loops_are_nested_by_indentation_and_by_braces():
    nested = "for i in a:\n    for j in b:\n        pass\nfor k in c:\n    pass\n"
    assert structure(nested)["loop_depth"] == 2
    assert structure("for (;;) { while (x) { for (;;) f(); } } for (;;) {}")["loop_depth"] == 3
    assert structure("for (;;) {\n}\nfor (;;) {\n}\n")["loop_depth"] == 1


def test_comments_and_strings_do_not_count():
    assert structure('// for int a[1000000]\n"for while"')["loops"] == 0
    assert structure("# for while\n/* for */ x")["loops"] == 0


def test_recursion_and_containers_are_found():
    found = structure("def f(n):\n    return f(n - 1) + f(n - 2)\nd = dict()\ns = set()\n")
    assert found["recursion"] > 0 and found["maps"] > 0 and found["sets"] > 0
    assert structure("def f(n):\n    return n\n")["recursion"] == 0


def test_languages_share_the_words_of_identifiers():
    names = ["def two_sum(self, nums):", "public int[] twoSum(int[] nums) {", "fn two_sum(nums: Vec<i32>)"]
    assert {tuple(function_names(name)) for name in names} == {("two_sum", ".two", ".sum", "two+sum")}
    assert identifier_words("HTTPServer x2") == ["http_server", ".http", ".server", "x_2", ".x", ".2"]
    assert function_names("int main() { }") == []


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="ab[](){}<>*+-/=;:,'\"#\n 019eE._xdefinct", max_size=200))
def test_any_text_has_a_finite_structure(text):
    assert np.isfinite(structure_matrix([text])).all()
    function_names(text), identifier_words(text)
