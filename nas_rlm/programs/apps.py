"""Solutions of APPS, to be measured: Python programs with the inputs of their problems."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nas_rlm.programs.python_runner import Program

MOST = 2**26  # bytes of a problem


def read_apps(path: Path) -> dict[str, Program]:
    """Programs by the numbers of their problem and of the solution, such as `17/0`.

    What calls a function has an entry, all else reads its standard input. Problems without inputs, which
    there are, are left out.

    Args:
        path: train.jsonl or test.jsonl, as APPS is published: a problem a line, with problem_id, solutions
            and input_output, the last two as JSON within JSON.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no problem of APPS, or no problem has solutions and inputs.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no problems at {str(path)!r}: expected train.jsonl or test.jsonl of APPS")
    found: dict[str, Program] = {}
    for number, line in enumerate(_lines(path), 1):
        try:
            found.update(_programs(json.loads(line)))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} line {number} is no problem of APPS ({type(error).__name__}: {error}): expected"
                " problem_id, solutions and input_output"
            ) from None
    if not found:
        raise ValueError(f"{path} has no solutions with inputs: expected train.jsonl or test.jsonl of APPS")
    return found


def _lines(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while line := file.readline(MOST + 1):
            if len(line) > MOST:
                raise ValueError(f"{path} has a line of more than {MOST:,} bytes: expected a problem a line")
            if line.strip():
                yield line


def _programs(record: dict[str, Any]) -> Iterator[tuple[str, Program]]:
    """The solutions of a problem."""
    problem = str(record["problem_id"])
    solutions, tests = (_within(record[name]) for name in ("solutions", "input_output"))
    function = tests.get("fn_name") if tests else ""
    cases = [_case(one, bool(function)) for one in tests["inputs"]] if tests else []
    for k, source in enumerate(solutions if cases else []):
        entry = f"Solution().{function}" if function and "class Solution" in source else function or ""
        yield f"{problem}/{k}", Program(source, entry, cases, problem)


def _within(value: Any) -> Any:
    """What a text holds as JSON; nothing, if it is empty."""
    return (json.loads(value) if value.strip() else []) if isinstance(value, str) else value


def _case(given: Any, is_call: bool) -> dict[str, Any]:
    """An input as `Program` has it: arguments, or a text, which may be there as its lines."""
    if is_call:
        return {"args": given}
    return {"stdin": given if isinstance(given, str) else "\n".join(given)}
