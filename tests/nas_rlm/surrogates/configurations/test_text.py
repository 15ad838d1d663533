import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.surrogates.configurations.text import (
    MAX_NUMBER,
    configuration_of,
    differ_in_numbers_only,
    grouped,
    numbers_of,
)


@pytest.mark.parametrize(
    ("program", "numbers"),
    [
        ("10**6 + 1e-3 * a[2_0] + .5", [10, 6, 1e-3, 20, 0.5]),
        ("0x40 0B11 0o17 0XfF", [64, 3, 15, 255]),
        ("3_ 1__2 x.7 a.b1", [3, 12, 7, 1]),
        ("run_16_w4 tl.float32 'cfg_8x2'", [16, 4, 32, 8, 2]),
        ("0.25f 16u 10L 1e5", [0.25, 16, 10, 1e5]),
        ("9" * 400, [MAX_NUMBER]),
        ("0x" + "f" * 5000, [MAX_NUMBER]),
        ("1e400 1e-400", [MAX_NUMBER, 0]),
        ("0x_ 0b_", [0, 0]),
        ("", []),
    ],
)
def test_numbers_are_read_as_programs_write_them(program, numbers):
    assert numbers_of(program) == numbers


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        ("f(BLOCK=64)", "f(BLOCK=0x80)", True),
        ("f(x, True)", "f(x, False)", True),
        ("f(x)\n", "\n  f( x )", True),
        ("f(x)\r\ng(y)\r\n", "f(x)\ng(y)", True),
        ("f(tl.float16)", "f(tl.bfloat16)", True),
        ("f(x)", "f(x, y)", False),
        ("a + b", "a * b", False),
        ("f(1)", "f(x)", False),
        ("# @", "# #", False),
        ("ab", "a b", False),
    ],
)
def test_the_form_has_no_numbers_words_and_blanks(a, b, is_same):
    assert (configuration_of(a).form == configuration_of(b).form) == is_same
    assert differ_in_numbers_only([a, b]) == (is_same and configuration_of(a) != configuration_of(b))


@given(st.text())
def test_any_text_has_a_form(program):
    found = configuration_of(program)
    assert grouped([found, configuration_of(program + " \n")]) == {found.form: [0, 1]}
    assert all(0 <= number <= MAX_NUMBER for number in found.numbers)
