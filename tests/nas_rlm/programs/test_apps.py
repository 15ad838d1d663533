import json

import pytest

from nas_rlm.cli import main
from nas_rlm.data import read
from nas_rlm.programs.apps import read_apps
from tests.nas_rlm.cli.commands import refused

CALLED = {
    "problem_id": 3,
    "solutions": json.dumps(
        [
            "def zeros(n):\n    return [0] * n",
            "class Solution:\n    def zeros(self, n):\n        return [0] * n * 9",
        ]
    ),
    "input_output": json.dumps({"fn_name": "zeros", "inputs": [[1000], [10]], "outputs": [[0], [0]]}),
}
READING = {
    "problem_id": 4,
    "solutions": json.dumps(["n = int(input())\nprint(n + int(input()))"]),
    "input_output": json.dumps({"inputs": ["1\n2\n", ["3", "4"]], "outputs": ["3", "7"]}),
}
UNTESTED = {"problem_id": 5, "solutions": "", "input_output": ""}


def write_records(path, *records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_solutions_have_the_inputs_of_their_problems(tmp_path):
    programs = read_apps(write_records(tmp_path / "train.jsonl", CALLED, UNTESTED, READING))
    assert list(programs) == ["3/0", "3/1", "4/0"]
    assert [program.entry for program in programs.values()] == ["zeros", "Solution().zeros", ""]
    assert programs["3/0"].cases == [{"args": [1000]}, {"args": [10]}]
    assert programs["4/0"].cases == [{"stdin": "1\n2\n"}, {"stdin": "3\n4"}]
    assert [program.problem for program in programs.values()] == ["3", "3", "4"]


def test_solutions_are_measured(tmp_path):
    path, out = write_records(tmp_path / "train.jsonl", CALLED, READING), tmp_path / "apps.parquet"
    command = ["measure", "python", "--apps", str(path), "--out", str(out)]
    assert main([*command, "--repeats", "0", "--no-counts", "--trust"]) == 0
    rows = {row.identifier: row for row in read(out).rows}
    assert all(row.is_measured("memory") for row in rows.values())
    assert rows["3/1"].targets["memory"] > 8 * rows["3/0"].targets["memory"]
    assert {row.group for row in rows.values()} == {"3", "4"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "line 1 is not a problem of APPS (KeyError: 'problem_id')"),
        ("[1]", "line 1 is not a problem of APPS"),
        ("{", "line 1 is not a problem of APPS"),
        (json.dumps(CALLED | {"solutions": "[["}), "is not a problem of APPS"),
        (json.dumps(CALLED | {"input_output": '{"fn_name": "f(", "inputs": [[1]]}'}), "not an expression"),
        (json.dumps(UNTESTED), "has no solutions with inputs"),
        ("", "has no solutions with inputs"),
    ],
)
def test_files_of_another_format_are_refused(tmp_path, capsys, content, message):
    (tmp_path / "train.jsonl").write_text(content)
    out = tmp_path / "no.parquet"
    assert message in refused(capsys, "measure", "python", "--apps", tmp_path / "train.jsonl", "--out", out)
    assert "no problems at" in refused(capsys, "measure", "python", "--apps", tmp_path / "none", "--out", out)
    assert not out.exists()
