from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas_rlm.surrogates.programs.python_constructs import constructs


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = [0] * n", ["repeat variable", "assign BinOp@0", "number 0 or 1"]),
        ("x = [[0] * 26 for _ in range(n)]", ["repeat small", "ListComp of BinOp over range(variable)"]),
        (
            "for i in a:\n    for j in range(9):\n        f(j)",
            ["loop variable@0", "loop range(small)@1", "call f@2"],
        ),
        ("while x:\n    s = s[1:]", ["loop condition", "slice@1", "assign Subscript@1"]),
        ("d[k] = 1", ["store Name@0", "store in Name"]),
        (
            "@cache\ndef f(n: int, a: List[int]) -> str:\n    return f(n - 1)",
            ["recursion", "decorator variable"],
        ),
        (
            "def f(a: list[list[int]], t: 'Node') -> int: ...",
            ["argument list[list[int]]", "argument Node", "result int"],
        ),
        ("a.append(sorted(b))", ["call .append", "call .append sorted()", "call sorted variable"]),
        ("for i in range(range(3)[0], len(a)):\n    pass", ["loop range(Subscript, len())"]),
        ("total += 10**9", ["change Add BinOp@0", "number small"]),
    ],
)
def test_constructs_say_what_is_allocated_and_how_deep(source, words):
    assert set(words) <= set(constructs(source))


def test_constructs_do_not_depend_on_names():
    programs = ["def f(n):\n    return [0] * n", "def longer(count):\n    return [0] * count"]
    assert Counter(constructs(programs[0])) == Counter(constructs(programs[1]))
    assert "recursion" not in constructs(programs[0])


@pytest.mark.parametrize("source", ["int main() { return 0; }", "print 'Python 2'", "x = \0", "(" * 5000, ""])
def test_other_sources_have_none(source):
    assert constructs(source) in ([], ["Module", ">Module"])


def test_deep_programs_are_read():
    assert constructs("x = " + "-" * 80 + "1").count("UnaryOp") == 80
    constructs("x = " + "+".join(["1"] * 20_000))


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="abn=[]():*+-/., \n019\"'@\\", max_size=80))
def test_any_text_is_read(source):
    constructs(source)
