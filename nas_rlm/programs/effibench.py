"""The EffiBench dataset (Huang et al. 2024): Python solutions of LeetCode problems, with assertions."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nas_rlm.data.omissions import Omissions
from nas_rlm.programs.leetcode import IMPLICIT_IMPORTS
from nas_rlm.programs.python_runner import Program
from nas_rlm.utils.long_integers import long_integers

MAX_BYTES = 2**28
FIELDS = "problem_idx, canonical_solution and test_case"
SOLUTION_FIELDS = {"canonical_solution": "canonical", "completion": "completion"}  # and names of programs
TEST_FIELDS = ("test_case", "full_test_case", "small_test_cases")  # the first one that is there
MAX_CALLS = 100  # of a problem, as many as its authors measure
# Names that solutions and tests use without importing or defining them.
PREAMBLE = (
    IMPLICIT_IMPORTS
    + """import datetime, functools, random, string
from typing import *
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *

class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next

class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right

"""
)
_BLOCK = re.compile(r"```(?:python)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


@long_integers()
def read_effibench(path: Path) -> dict[str, Program]:
    """Read the solutions of problems that have tests.

    Args:
        path: dataset.json or dataset.jsonl as published, or a file of solutions that a language model wrote:
            a JSON list or JSON lines of problems with problem_idx, canonical_solution, test_case, and
            optionally completion. The tests are lines such as `assert solution.twoSum([2, 7], 9) == [0, 1]`.

    Returns:
        The program of each solution, such as `2006/canonical` and `2006/completion`. A solution is called
        with the arguments of the first `MAX_CALLS` tests. Problems and solutions that are not valid are left
        out, and a warning reports their number.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is larger than `MAX_BYTES`, or no problem has valid solutions and tests.
    """
    programs: dict[str, Program] = {}
    omissions = Omissions()
    for number, record in _read_records(path, omissions):
        with omissions.skip(f"problem {number}"):
            programs.update(_solutions(record, omissions))
    if not programs:
        reason = f" ({omissions.first_reason})" if omissions else ""
        raise ValueError(
            f"{path} has no solutions with tests{reason}: expected dataset.json or dataset.jsonl of"
            f" EffiBench, with {FIELDS}"
        )
    omissions.warn(stacklevel=3)  # beyond this function and its decorator
    return programs


def _read_records(path: Path, omissions: Omissions) -> Iterator[tuple[int, Any]]:
    """Yield the number and the record of each problem, of a JSON list or of JSON lines."""
    if not path.is_file():
        raise FileNotFoundError(f"no problems at {str(path)!r}: expected dataset.json of EffiBench")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES:,} bytes: expected dataset.json of EffiBench")
    content = path.read_bytes().strip()
    if content.startswith(b"["):
        try:
            yield from enumerate(json.loads(content), 1)
        except (ValueError, RecursionError) as error:
            omissions.add("the list", str(error))
        return
    for number, line in enumerate(content.splitlines(), 1):
        with omissions.skip(f"line {number}"):
            yield number, json.loads(line)


def _solutions(record: Any, omissions: Omissions) -> Iterator[tuple[str, Program]]:
    """Yield the name and the program of each solution of a problem."""
    if not isinstance(record, dict):
        raise ValueError(f"it is {str(record)[:60]!r}: expected an object with {FIELDS}")
    problem = str(record["problem_idx"])
    tests = next((record[name] for name in TEST_FIELDS if record.get(name)), None)
    if tests is None:
        raise ValueError(
            "it has no test_case: expected lines such as assert solution.twoSum([2, 7], 9) == [0, 1]"
        )
    entry, cases = _entry_and_cases(tests)
    for field, name in SOLUTION_FIELDS.items():
        if record.get(field):
            with omissions.skip(f"{problem}/{name}"):
                source = _code_of(record[field])
                yield f"{problem}/{name}", Program(PREAMBLE + source, entry, cases, problem)


def _entry_and_cases(tests: Any) -> tuple[str, list[dict[str, str]]]:
    """Return the function that tests call, and its inputs, see `Program`."""
    if not isinstance(tests, str):
        raise ValueError(f"its tests are {str(tests)[:60]!r}: expected lines of assertions")
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"its tests are not Python: {error}") from None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and getattr(node.func.value, "id", "") == "solution"
    ]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    functions = list(dict.fromkeys(node.func.attr for node in calls if isinstance(node.func, ast.Attribute)))
    if len(functions) != 1:
        found = ", ".join(functions[:3]) or "none"
        raise ValueError(f"its tests call {found} of solution: expected one function")
    for node in calls:
        node.func = ast.Name("candidate")
    return f"Solution().{functions[0]}", [{"call": ast.unparse(node)} for node in calls[:MAX_CALLS]]


def _code_of(text: Any) -> str:
    """Return a solution without the Markdown around it."""
    if not isinstance(text, str) or "class Solution" not in text:
        raise ValueError(f"it is {str(text)[:60]!r}: expected Python source with a class Solution")
    block = _BLOCK.search(text)
    return block[1] if block and "class Solution" in block[1] else text
