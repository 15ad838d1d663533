import json

import pytest

from nas_rlm.cli import main
from nas_rlm.data import read
from nas_rlm.programs.effibench import PREAMBLE, read_effibench
from tests.nas_rlm.cli.commands import refused

ZEROS = {
    "problem_idx": 6,
    "task_name": "Zeros",
    "canonical_solution": "class Solution:\n    def zeros(self, n: int) -> List[int]:\n"
    "        return [0] * n\n",
    "completion": "Here it is:\n```python\nclass Solution:\n    def zeros(self, n):\n"
    "        return [0] * 9 * n\n```\n",
    "test_case": "solution = Solution()\nassert solution.zeros(1000) == [0] * 1000\n"
    "assert solution.zeros(n=1) == [0]\n",
}
TREE = {
    "problem_idx": 7,
    "canonical_solution": "class Solution:\n    def depth(self, root: Optional[TreeNode]):\n"
    "        return 1 + max(self.depth(root.left), self.depth(root.right)) if root else 0\n",
    "completion": "def depth(root): pass",
    "test_case": "assert solution.depth(TreeNode(1, TreeNode(2))) == 2",
}


def test_solutions_are_called_with_the_arguments_of_tests(tmp_path):
    path = tmp_path / "dataset.json"
    path.write_text(json.dumps([ZEROS, TREE]))
    with pytest.warns(UserWarning, match="7/completion"):
        programs = read_effibench(path)
    assert list(programs) == ["6/canonical", "6/completion", "7/canonical"]
    assert {program.entry for program in programs.values()} == {"Solution().zeros", "Solution().depth"}
    assert programs["6/canonical"].cases == [{"call": "candidate(1000)"}, {"call": "candidate(n=1)"}]
    assert programs["6/completion"].source == PREAMBLE + (
        "class Solution:\n    def zeros(self, n):\n        return [0] * 9 * n\n"
    )
    assert programs["7/canonical"].problem == "7"


def test_solutions_are_measured(tmp_path):
    path, out = tmp_path / "dataset.jsonl", tmp_path / "effibench.parquet"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in (ZEROS, TREE | {"completion": ""})))
    command = ["measure", "python", "--effibench", str(path), "--out", str(out)]
    assert main([*command, "--repeats", "0", "--no-counts", "--trust"]) == 0
    rows = {row.identifier: row for row in read(out).rows}
    assert all(row.is_measured("memory") for row in rows.values()) and len(rows) == 3
    assert rows["6/completion"].targets["memory"] > 5 * rows["6/canonical"].targets["memory"]
    assert {row.group for row in rows.values()} == {"6", "7"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no solutions with tests: expected dataset.json"),
        ("{}", "has no solutions with tests (problem 1: 'problem_idx' is missing)"),
        ("[1, 2]", "has no solutions with tests (problem 1: it is '1': expected an object"),
        ("[[1]", "has no solutions with tests (the list: "),
        ("[" * 100_000, "has no solutions with tests (the list: "),
        ("{", "has no solutions with tests (line 1: "),
        (json.dumps(ZEROS | {"test_case": "assert solution.f(1) == solution.g(1)"}), "call f, g of solution"),
        (json.dumps(ZEROS | {"test_case": "assert zeros(1)"}), "its tests call none of solution"),
        (
            json.dumps({k: v for k, v in ZEROS.items() if k != "test_case"}),
            "it has no test_case: expected lines",
        ),
        (json.dumps(ZEROS | {"test_case": "assert ("}), "its tests are not Python"),
        (json.dumps(ZEROS | {"test_case": 3}), "its tests are '3': expected lines of assertions"),
        (json.dumps(TREE | {"canonical_solution": ""}), "7/completion: it is 'def depth(root): pass'"),
    ],
)
def test_other_files_are_refused(tmp_path, capsys, content, message):
    path = tmp_path / "dataset.json"
    path.write_text(content)
    command = ["measure", "python", "--effibench", str(path), "--out", str(tmp_path / "out.parquet")]
    assert message in refused(capsys, *command)
    assert not (tmp_path / "out.parquet").exists()
