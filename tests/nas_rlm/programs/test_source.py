import os

import pytest

from nas_rlm.programs import source
from nas_rlm.programs.source import is_program, read_program


@pytest.mark.parametrize(
    ("name", "text", "spaces"),
    [
        ("a.py", "class Solution:\n    def f(self): return 1\n", ("python", "APPS", "LeetCode/Python")),
        ("a.py", "def f():\n    return int(input())\nprint(f())\n", ("python", "CDSS/Python")),
        ("a.py", "import sys\nprint(len(sys.stdin.read()))\n", ("python", "CDSS/Python")),
        ("a.py", "print(1)\n", ("python", "CDSS/Python")),
        ("a.py", "import triton\n\n@triton.jit\ndef k(x):\n    pass\n", ("triton", "KBSS")),
        ("a.cpp", "int main() {}", ("CDSS/C++", "LeetCode/C++")),
        ("a.CC", "int main() {}", ("CDSS/C++", "LeetCode/C++")),
        ("a.c", "int main() {}", ("CDSS/C", "LeetCode/C")),
        ("a.cpp", "class Solution {\npublic:\n  int f() { return 1; }\n};", ("LeetCode/C++", "CDSS/C++")),
        ("A.java", "class Solution { public int f() { return 1; } }", ("LeetCode/Java", "CDSS/Java")),
        (
            "A.java",
            "class A { public static void main(String[] args) {} }",
            ("CDSS/Java", "LeetCode/Java"),
        ),
        ("a.erl", "f(N) -> N.\n", ("LeetCode/Erlang", "CDSS/Erlang")),
        ("solution", "class Solution {\n    fun f(n: Int) = n\n}\n", ("LeetCode/Kotlin", "CDSS/Kotlin")),
    ],
)
def test_similar_spaces_of_programs_are_found(tmp_path, name, text, spaces):
    (tmp_path / name).write_text(text)
    assert is_program(tmp_path / name)
    assert read_program(tmp_path / name) == (text, spaces)


def test_invalid_program_files_are_refused(tmp_path, monkeypatch):
    assert not is_program(tmp_path / "network.onnx") and not is_program(tmp_path / "main")
    path = tmp_path / "a.py"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_program(path)
    path.write_text(" \n")
    with pytest.raises(ValueError, match=r"a.py is empty: expected a program"):
        read_program(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not text in UTF-8"):
        read_program(path)
    monkeypatch.setattr(source, "MAX_SOURCE_BYTES", 2)
    with pytest.raises(ValueError, match="is larger than 2 bytes"):
        read_program(path)


def test_a_pipe_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "a.py"
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"a.py is not a regular file: expected a program"):
        read_program(path)


def test_notebooks_are_refused(tmp_path):
    (tmp_path / "a.ipynb").write_text('{"cells": []}')
    for read in (is_program, read_program):
        with pytest.raises(ValueError, match=r"a\.ipynb is a notebook: expected .* such as a\.py"):
            read(tmp_path / "a.ipynb")
