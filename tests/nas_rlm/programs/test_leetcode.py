import gzip
import json
from dataclasses import replace

import pytest

from nas_rlm.cli import main
from nas_rlm.data import Row, read, write
from nas_rlm.data.tables import Table
from nas_rlm.programs.leetcode import rank_agreement, read_solutions
from tests.nas_rlm.cli.commands import refused

SIZES = (100, 900, 3000, 20_000)
PROBLEM = {
    "problem": "zeros",
    "preamble": "from math import *\nclass Node:\n    def __init__(self, v): self.v = v",
    "entry_point": "Solution().zeros",
    "statement": "Make zeros.\n\n[1, 2] of them.",
    "test": "def check(candidate):\n    assert candidate(node=Node(1)) == 1\n    assert candidate(Node(2))",
}


@pytest.fixture
def files(tmp_path):
    rows = [
        Row(
            "APPS",
            "",
            {"memory": 8.0 * size},
            f"class Solution:\n    def zeros(self, node): return inf and len([0] * ({size} * node.v))",
            f"s{size}",
            group="zeros",
        )
        for size in SIZES
    ]
    write(tmp_path / "t.parquet", rows)
    with gzip.open(tmp_path / "p.jsonl.gz", "wt") as file:
        file.write(json.dumps(PROBLEM) + "\n")
    return tmp_path / "t.parquet", tmp_path / "p.jsonl.gz"


def test_solutions_have_the_inputs_of_their_problems(files):
    table, programs = read_solutions(*files)
    assert list(programs) == [row.identifier for row in table.rows] == [f"s{size}" for size in SIZES]
    program = programs["s100"]
    assert program.entry == "Solution().zeros"
    assert program.cases == [{"call": "candidate(node=Node(1))"}, {"call": "candidate(Node(2))"}]


def test_solutions_are_measured_again(files, tmp_path, capsys):
    table, problems = map(str, files)
    out = str(tmp_path / "again.parquet")
    command = ["measure", "python", "--solutions", table, "--problems", problems, "--out", out]
    command += ["--repeats", "0", "--no-counts", "--trust"]
    assert main(command) == 0
    assert "Spearman with memory of t: 1.000, 4 different solutions" in capsys.readouterr().out
    memory = [row.targets["memory"] for row in read(out).rows]
    assert all(
        16 * size < bytes_used < 16 * size + 1000 for size, bytes_used in zip(SIZES, memory, strict=True)
    )
    assert "go together" in refused(capsys, *command[:4], *command[6:])
    assert "--cases and --entry are for files" in refused(capsys, *command, "--entry", "f")


def test_statements_are_added_as_comments(files, tmp_path, capsys):
    table, problems = map(str, files)
    out = tmp_path / "described.parquet"
    command = ["data", "describe", table, "--problems", problems, "--out", str(out)]
    assert main(command) == 0
    for before, after in zip(read(table).rows, read(out).rows, strict=True):
        assert after.input == "# Problem:\n# Make zeros.\n#\n# [1, 2] of them.\n" + before.input
        assert after == replace(before, input=after.input)
    assert "no problems at" in refused(capsys, *command[:4], tmp_path / "other", *command[5:])


def test_solutions_with_equal_values_are_not_compared():
    published = Table(
        "t", [Row("APPS", "", {"memory": v}, "x", f"s{i}") for i, v in enumerate((1, 1, 2, 3, 4))]
    )
    measured = Table(
        "h", [Row("python", "", {"memory": v}, "x", f"s{i}") for i, v in enumerate((9, 8, 5, 6, 7))]
    )
    assert rank_agreement(measured, published) == {"memory": (3, pytest.approx(1))}


def test_invalid_files_of_problems_are_refused(files, tmp_path):
    table, problems = files
    with pytest.raises(FileNotFoundError, match="no problems at"):
        read_solutions(table, tmp_path / "other")
    (tmp_path / "plain").write_text("{}")
    with pytest.raises(ValueError, match=r"plain has no problems \(BadGzipFile"):
        read_solutions(table, tmp_path / "plain")
    for wrong, message in (
        ({**PROBLEM, "problem": "ones"}, "lacks 1 problem of t"),
        ({}, "'test' is missing"),
    ):
        with gzip.open(problems, "wt") as file:
            file.write(json.dumps(wrong) + "\n")
        with pytest.raises(ValueError, match=message):
            read_solutions(table, problems)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"test": "def check("}, "its test is not Python"),
        ({"test": None}, "line 2"),
        ({"preamble": 5}, "its preamble is 5"),
        ({"statement": None}, "its statement is None"),
        ({"entry_point": "f("}, "not an expression"),
        ({"test": ""}, "no inputs"),
        (None, "line 2"),
    ],
)
def test_solutions_without_a_valid_problem_are_left_out(files, tmp_path, change, reason):
    table, problems = files
    rows = [
        *read(table).rows,
        Row("APPS", "", {"memory": 8.0}, "class Solution: pass", "other", group="ones"),
    ]
    write(table, rows)
    other = change and {**PROBLEM, "problem": "ones", **change}
    with gzip.open(problems, "wt") as file:
        file.write(f"{json.dumps(PROBLEM)}\n{json.dumps(other)}\n")
    with pytest.warns(UserWarning, match=f"(entry is|entries are) not valid .*{reason}"):
        _, programs = read_solutions(table, problems)
    assert list(programs) == [f"s{size}" for size in SIZES]
