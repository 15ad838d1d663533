import json
import sys

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
        ("{}", "has no solutions with inputs (line 1: 'problem_id' is missing)"),
        ("[1]", "has no solutions with inputs (line 1: "),
        ("{", "has no solutions with inputs (line 1: "),
        (json.dumps(CALLED | {"solutions": "[["}), "has no solutions with inputs (line 1: "),
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


def test_problems_and_solutions_that_are_not_valid_are_left_out(tmp_path):
    solutions = json.dumps(["", 5, "def zeros(n):\n    return n", "x = '\ud800'"])
    path = write_records(
        tmp_path / "train.jsonl",
        *({"problem_id": 1}, CALLED | {"problem_id": 2, "solutions": solutions}, [1], READING),
        READING | {"problem_id": 9, "input_output": json.dumps({"inputs": [5]})},
    )
    with pytest.warns(UserWarning, match=r"^6 entries are not valid .*: line 1: 'solutions' is missing"):
        assert list(read_apps(path)) == ["2/2", "4/0"]


LONG = "7" * 9131


def test_integers_of_any_length_are_inputs(tmp_path):
    called = {
        "problem_id": 1,
        "solutions": json.dumps(["def rest(n, kinds):\n    return n % 97, str(n)"]),
        "input_output": f'{{"fn_name": "rest", "inputs": [[{LONG}, [-{LONG}, {{"a": {LONG}}}]]]}}',
    }
    reading = {
        "problem_id": 2,
        "solutions": json.dumps(["print(int(input()) + 1)"]),
        "input_output": json.dumps({"inputs": [LONG], "outputs": [""]}),
    }
    path, out = write_records(tmp_path / "train.jsonl", called, reading), tmp_path / "apps.parquet"
    # the list itself instead of JSON within JSON
    path.write_text(
        path.read_text()
        + json.dumps(called | {"problem_id": 3, "input_output": 0}).replace(
            '"input_output": 0', f'"input_output": {{"fn_name": "rest", "inputs": [[{LONG}, 5]]}}'
        )
    )
    command = ["measure", "python", "--apps", str(path), "--out", str(out), "--repeats", "0", "--trust"]
    before = sys.get_int_max_str_digits()
    assert main(command) == 0
    assert [row.is_measured("memory") for row in read(out).rows] == [True] * 3
    assert read_apps(path)["3/0"].cases[0]["args"][0] % 10**20 == int("7" * 20)
    assert main(command) == 0  # finds the same digests
    assert sys.get_int_max_str_digits() == before


def test_integers_of_any_length_are_cases_and_programs(tmp_path, capsys):
    (tmp_path / "cases.json").write_text(f'[{{"args": [{LONG}]}}, {{"kwargs": {{"n": -{LONG}}}}}]')
    (tmp_path / "f.py").write_text("def f(n):\n    return str(n)\n")
    command = ["measure", "python", "--out", str(tmp_path / "f.parquet"), "--repeats", "0", "--trust"]
    files = [str(tmp_path / "f.py"), "--entry", "f", "--cases", str(tmp_path / "cases.json")]
    assert main([*command, *files]) == 0
    line = f'{{"name": "one", "source": "def f(n): return n", "entry": "f", "cases": [{{"args": [{LONG}]}}]}}'
    (tmp_path / "programs.jsonl").write_text(line)
    assert main([*command, "--programs", str(tmp_path / "programs.jsonl")]) == 0
    assert all(row.is_measured("memory") for row in read(tmp_path / "f.parquet").rows)
    (tmp_path / "cases.json").write_text(f'[{{"args": {LONG}}}]')
    assert "is not an input: expected for example" in refused(capsys, *command, *files)
