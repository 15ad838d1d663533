"""The APPS dataset (Hendrycks et al. 2021): Python solutions with the inputs of their problems."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nas_rlm.data.omissions import Omissions
from nas_rlm.programs.python_runner import Program
from nas_rlm.utils.long_integers import long_integers

MAX_LINE_BYTES = 2**26


@long_integers()
def read_apps(path: Path) -> dict[str, Program]:
    """Read the solutions of problems that have inputs.

    Args:
        path: train.jsonl or test.jsonl as published: a problem in each line, with problem_id, solutions and
            input_output, where the last two are JSON within JSON.

    Returns:
        The program of each solution, by the identifiers of its problem and solution, such as `17/0`. A
        solution is a function to call, with an entry, or a script that reads standard input. Problems and
        solutions that are not valid are left out, and a warning reports their number.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no problem has valid solutions and inputs.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no problems at {str(path)!r}: expected train.jsonl or test.jsonl of APPS")
    programs: dict[str, Program] = {}
    omissions = Omissions()
    for number, line in enumerate(_read_lines(path), 1):
        with omissions.skip(f"line {number}"):
            programs.update(_solutions(json.loads(line), omissions))
    if not programs:
        reason = f" ({omissions.first_reason})" if omissions else ""
        raise ValueError(
            f"{path} has no solutions with inputs{reason}: expected train.jsonl or test.jsonl of APPS, with"
            " problem_id, solutions and input_output"
        )
    omissions.warn(stacklevel=3)  # beyond this function and its decorator
    return programs


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    with open(path, "rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(
                    f"{path} has a line of more than {MAX_LINE_BYTES:,} bytes: expected a problem per line"
                )
            if line.strip():
                yield line


def _solutions(record: dict[str, Any], omissions: Omissions) -> Iterator[tuple[str, Program]]:
    """Yield the identifier and the program of each solution of a problem."""
    problem = str(record["problem_id"])
    solutions, tests = (_parse_nested(record[name]) for name in ("solutions", "input_output"))
    function = tests.get("fn_name") if tests else ""
    cases = [_to_case(value, bool(function)) for value in tests["inputs"]] if tests else []
    for k, source in enumerate(solutions if cases else []):
        with omissions.skip(f"{problem}/{k}"):
            entry = f"Solution().{function}" if function and "class Solution" in source else function or ""
            yield f"{problem}/{k}", Program(source, entry, cases, problem)


def _parse_nested(value: Any) -> Any:
    """Parse JSON that is stored as text; an empty text is an empty list."""
    return (json.loads(value) if value.strip() else []) if isinstance(value, str) else value


def _to_case(value: Any, is_call: bool) -> dict[str, Any]:
    """Convert an input to a case of `Program`: arguments, or a text, which may be a list of lines."""
    if is_call:
        return {"args": value}
    return {"stdin": value if isinstance(value, str) else "\n".join(value)}
