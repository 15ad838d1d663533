"""CSV files of measured programs."""

import re

import pytest

from nas_rlm.data.importers.program_files import read_program_csv
from nas_rlm.data.importers.registry import import_benchmark

HEADER = "problem,language,program,memory,time,author\n"
KNOWN_LANGUAGES = ("C", "C#", "C++", "Java", "JavaScript", "Kotlin", "Python")
LINE = '1,Java,"class A {\n    int f() { return 1; }\n}\n",1024,3.5,ann\n'


def written(tmp_path, content):
    path = tmp_path / "solutions.csv"
    path.write_text(content)
    return path


def test_lines_become_rows_with_the_source_as_it_is(tmp_path):
    path = written(tmp_path, HEADER + LINE + '2,go,"  x := 1",,7,\n')
    table = read_program_csv(path, "LeetCode", languages=("Go", "Java"))
    java, go = table.rows
    assert java.input == "class A {\n    int f() { return 1; }\n}\n" and go.input == "  x := 1"
    assert (java.space, java.group, java.source) == ("LeetCode/Java", "1", "ann")
    assert java.targets == {"memory": 1024, "time": 3.5} and go.targets == {"time": 7}
    assert (go.space, go.identifier) == ("LeetCode/Go", "line 6")
    assert any("1 missing" in line for line in table.summary)


def test_only_programs_and_numbers_are_needed(tmp_path):
    (row,) = import_benchmark("programs", written(tmp_path, "code,memory\nx = 1,5\nx = 1,5\n"))
    assert (row.space, row.input, row.group) == ("programs", "x = 1", "")
    (row,) = import_benchmark(
        "programs", written(tmp_path, "space;code;seconds\nA;x;5\n".replace("seconds", "time"))
    )
    assert (row.space, row.targets) == ("A", {"time": 5})


def test_a_latency_is_that_of_kernels(tmp_path):
    path = written(tmp_path, "program,latency\nx = 1,5\n")
    (row,) = read_program_csv(path, "KBSS").rows
    assert row.targets == {"latency": 5}
    with pytest.raises(ValueError, match="are these times in milliseconds"):
        import_benchmark("programs", path)


def test_languages_may_be_abbreviated(tmp_path):
    path = written(tmp_path, "language,code,time\ngolang,x,1\nJS,y,2\n")
    table = read_program_csv(path, "S", languages=["Go", "JavaScript"])
    assert [row.space for row in table.rows] == ["S/Go", "S/JavaScript"]


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        *[
            (cell, "Python")
            for cell in ("Python 3", "python3.11", "PyPy3 (7.3.0)", "PyPy 3-64", "Python v2.7")
        ],
        *[
            (cell, "C++")
            for cell in (
                *("C++17", "GNU C++17 7.3.0", "C++14 (GCC 5.4.1)", "C++ 20 (GCC)", "c++2x"),
                *("Clang++17 Diagnostics", "Microsoft Visual C++ 2017", "C++ gcc 12"),
            )
        ],
        *[(cell, "C") for cell in ("C11", "C (GCC 9.2.1)", "GNU C11", "gcc", "clang 16")],
        *[
            (cell, "Java")
            for cell in ("Java 8 (OpenJDK 1.8.0)", "java17", "Java", "Java 21 64bit", "OpenJDK 17")
        ],
        *[(cell, "C#") for cell in ("C# 8", "C# (Mono 4.6.2.0)", "MS C#", "C# Mono 6.8", "C# .NET 6")],
        *[
            (cell, "JavaScript")
            for cell in ("JavaScript (Node.js)", "Node.js 18", "nodejs", "node", "JavaScript V8 4.8")
        ],
        *[(cell, "Kotlin") for cell in ("Kotlin 1.7", "kt", "Kotlin/JVM")],
    ],
)
def test_names_of_languages_may_have_versions_and_compilers(tmp_path, cell, name):
    path = written(tmp_path, f"language,code,time\n{cell},x,1\n")
    (row,) = read_program_csv(path, "S", languages=KNOWN_LANGUAGES).rows
    assert row.space == f"S/{name}"


@pytest.mark.parametrize(
    "cell", ["C+", "Basic", "3", "Jav", "(GCC)", "Python three", "C**", "Objective-C", "Visual", "C Java"]
)
def test_unknown_languages_are_refused(tmp_path, cell):
    path = written(tmp_path, f"language,code,time\n{cell},x,1\n")
    with pytest.raises(ValueError, match=re.escape(f"there is no language {cell!r}")):
        read_program_csv(path, "S", languages=KNOWN_LANGUAGES)


@pytest.mark.parametrize(
    ("column", "advice"),
    [
        ("runtime_ms", "are these times in milliseconds? Give --objective time=runtime_ms"),
        (
            "seconds",
            "are these times in seconds? Convert them to milliseconds, in a column with the name time",
        ),
    ],
)
def test_other_columns_of_times_are_those_of_programs(tmp_path, column, advice):
    table = read_program_csv(written(tmp_path, f"code,memory,{column}\nx = 1,5000,2\n"), "S")
    assert table.warnings == [f"column {column!r} is not used; {advice}"]
    with pytest.raises(ValueError, match=r"such as memory or time: .* in milliseconds"):
        read_program_csv(written(tmp_path, "code,runtime_ms\nx = 1,5\n"), "S")


@pytest.mark.parametrize(
    ("largest", "has_warning"), [("41.5", True), ("1023", True), ("1024", False), ("17400000", False)]
)
def test_memory_that_is_hardly_in_bytes_gets_a_warning(tmp_path, largest, has_warning):
    table = read_program_csv(written(tmp_path, f"code,memory,time\nx = 1,3,5\ny = 1,{largest},6\n"), "S")
    warning = (
        f"column 'memory' has no memory above {largest} bytes; is it in another unit, such as megabytes?"
    )
    assert [warning in line for line in table.warnings] == [True] * has_warning


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "code,memory\nsolutions/a.py,1\nb.Java,2\n",
            "line 2, column code: 'solutions/a.py' is the name of a f",
        ),
        ("problem,memory\n1,2\n", "expected one of program, code"),
        ("code,memory,time\nx = 1,,NA\n", "has no number in the columns memory, time"),
        (
            HEADER + LINE.replace("Java", "Jawa"),
            "line 5, column language: there is no language 'Jawa': expected one of ",
        ),
        (HEADER + LINE.replace("1024", "much"), "line 5, column memory: 'much' is not valid for memory"),
        (HEADER + "1,Java,,2,3,\n", "line 2, column program: the cell is empty"),
        ("program,score\nx,1\n", "no column of numbers whose name is an objective"),
        ("program,latency/gpu\nx,\n", "column 'latency/gpu' is not used: it has no number"),
    ],
)
def test_bad_files_get_one_error(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_program_csv(written(tmp_path, content), languages=("Go", "Java"))


def test_an_unknown_language_is_named_once_with_the_known_ones(tmp_path):
    lines = "".join(LINE.replace("Java", name) for name in ("Brainfuck", "Java", "Brainfuck", "Jawa"))
    path = tmp_path / "programs.csv"
    path.write_text(HEADER + lines)
    with pytest.raises(
        ValueError, match=r"no language 'Brainfuck'; line .*'Jawa': expected one of Java, Go$"
    ) as error:
        read_program_csv(path, languages=["Java", "Go"])
    assert " and 1 other, column language" in str(error.value)
    assert str(error.value).count("expected") == str(error.value).count("Brainfuck") == 1
