"""measure python, measure triton: memory and time of programs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cyclopts import App

from nas_rlm.cli.app import Flag, Integer, app, check_minimum, check_table_target
from nas_rlm.utils.extras import require
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.data import Row, Table
    from nas_rlm.programs.python_runner import Program

MAX_LISTED_FAILURES = 10  # of programs that have a row
STDIN_EXAMPLE = '[{"stdin": "1 2"}]'

Content = TypeVar("Content")

measure = app.command(App(name="measure", help="Measure memory and time of programs."))


@measure.command(name="python")
def measure_python(
    *files: Path,
    out: Path,
    programs: Path | None = None,
    solutions: Path | None = None,
    problems: Path | None = None,
    apps: Path | None = None,
    effibench: Path | None = None,
    cases: Path | None = None,
    entry: str = "",
    warmup: Integer = 3,
    repeats: Integer = 11,
    seconds: float = 10.0,
    memory: Integer = 2 * 2**30,
    no_counts: Flag = False,
    trust: Flag = False,
    jobs: Integer = 1,
) -> None:
    """Measure memory, time and counts of Python programs.

    The output is a table for finetune. Each run is a separate process without network access. It cannot write
    files, start processes or exceed its time and memory; it can read what you can read. The same command
    continues an interrupted run. A program that fails has a row with its error, and a file that is no program
    is listed. If all fail, the exit code is 2.

    Args:
        files: programs with the same inputs.
        out: the parquet table, with memory in bytes and latency in milliseconds.
        programs: instead of files, JSON lines with the fields name, source, cases and entry, and optionally
            problem.
        solutions: instead of files, a table of solutions of --problems to measure again; the correlation with
            its own values is printed.
        problems: compressed JSON lines with the fields problem, preamble, entry_point, test and statement, as
            in LeetCodeDataset.
        apps: instead of files, train.jsonl or test.jsonl of APPS.
        effibench: instead of files, dataset.json or dataset.jsonl of EffiBench, or solutions in that format.
        cases: JSON list of inputs of the files, such as '[{"args": [1, 2]}]' or '[{"stdin": "1 2"}]'; by
            default a single empty input.
        entry: function of the files that is called, such as 'Solution().solve'; by default the file is run.
        warmup: untimed runs for each input.
        repeats: timed runs for each input; 0 measures only memory and counts.
        seconds: limit of a timed run. Runs that record allocations or lines may take six times as long.
        memory: limit of a run in bytes.
        no_counts: do not count lines and calls.
        trust: run programs even if the system has nothing that isolates them.
        jobs: number of programs measured at a time; more than 1 disturbs their times.
    """
    from nas_rlm.data import Table
    from nas_rlm.programs.apps import read_apps
    from nas_rlm.programs.effibench import read_effibench
    from nas_rlm.programs.leetcode import rank_agreement, read_solutions
    from nas_rlm.programs.python_runner import Plan
    from nas_rlm.programs.source import read_python
    from nas_rlm.programs.table import measure_programs, read_cases, read_programs

    sources = [bool(files), *(path is not None for path in (programs, solutions, apps, effibench))]
    if sources.count(True) != 1:
        raise ValueError("give either files, --programs, --apps, --effibench, or --solutions and --problems")
    if (solutions is None) != (problems is None):
        raise ValueError("--solutions and --problems go together: give both or none")
    if not files and (cases or entry):
        raise ValueError(
            "--cases and --entry are for files: other programs have their own inputs and entries"
        )
    check_minimum("--jobs", jobs, 1)
    check_table_target(out)
    plan = Plan(warmup, repeats, seconds, memory, not no_counts, trust)
    earlier_table: Table | None = None
    errors: list[str] = []
    if programs:
        by_name = read_programs(programs)
    elif apps:
        by_name = read_apps(apps)
    elif effibench:
        by_name = read_effibench(effibench)
    elif solutions and problems:
        earlier_table, by_name = read_solutions(solutions, problems)
    else:
        inputs = read_cases(cases, entry) if cases else [{} if entry else {"stdin": ""}]
        texts, errors = _read_files(files, read_python)
        if not entry:
            _warn_of_definitions(texts)
        by_name = {name: _program(name, text, entry, inputs, cases) for name, text in texts.items()}
    table = measure_programs(by_name, out, plan, jobs, progress=True) if by_name else Table(out.stem, [])
    rows = [row for row in table.rows if row.identifier in by_name]
    failed = [row for row in rows if not row.is_measured("memory")]
    print(f"{counted(len(rows) - len(failed), 'program')} with memory: {out}")
    _print_failures(errors, failed)
    if files and not cases and any("EOFError" in row.metainformation for row in failed):
        print(f"programs that read input need --cases with a file such as {STDIN_EXAMPLE}")
    _check_measured(len(rows) - len(failed), len(rows) + len(errors), "program")
    if earlier_table:
        for objective, (count, rho) in rank_agreement(table, earlier_table).items():
            print(
                f"Spearman with {objective} of {earlier_table.name}: {rho:.3f}, {count:,} different solutions"
            )


def _read_files(
    files: Sequence[Path], read: Callable[[Path], Content]
) -> tuple[dict[str, Content], list[str]]:
    """The content of each file that is a program, by its path, and why the others are none.

    Raises:
        FileNotFoundError: there is no such file.
    """
    contents, errors = {}, []
    for path in files:
        try:
            contents[str(path)] = read(path)
        except ValueError as error:
            errors.append(str(error))
    return contents, errors


def _warn_of_definitions(sources: Mapping[str, str]) -> None:
    """Warn of programs that define functions and run none of them.

    Warns:
        UserWarning: there are such programs.
    """
    from nas_rlm.programs.source import only_defines

    names = [name for name, source in sources.items() if only_defines(source)]
    if names:
        others = f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else ""
        warnings.warn(
            f"{names[0]}{others}: functions are defined and not called; give --entry to measure a call",
            stacklevel=3,
        )


def _program(
    path: str, source: str, entry: str, inputs: Sequence[dict[str, Any]], cases: Path | None
) -> Program:
    """A program of a file.

    Raises:
        ValueError: the entry is not valid, with the path of the program; or an input, with the path of the
            inputs.
    """
    from nas_rlm.programs.python_runner import InputError, Program

    try:
        return Program(source, entry, inputs)
    except InputError as error:
        raise ValueError(f"{cases or path}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _print_failures(errors: Sequence[str], failed: Sequence[Row]) -> None:
    """Print how many programs failed, and the errors of the first ones.

    Args:
        errors: why files are no programs, each with the path.
        failed: rows of programs that failed.
    """
    reasons = [f"{row.identifier}: {json.loads(row.metainformation)['error']}" for row in failed]
    listed = [" ".join(reason.split()) for reason in (*errors, *reasons[:MAX_LISTED_FAILURES])]
    if listed:
        print(f"{len(errors) + len(failed):,} cannot be measured:", *listed, sep="\n  ")
    if len(reasons) > MAX_LISTED_FAILURES:
        print(f"  … and {len(reasons) - MAX_LISTED_FAILURES:,} more, with their errors in the table")


def _check_measured(measured: int, count: int, kind: str) -> None:
    """Refuse a run in which all programs failed.

    Raises:
        ValueError: nothing was measured.
    """
    if not measured:
        raise ValueError(f"nothing was measured: {counted(count, kind)} failed")


@measure.command(name="triton")
def measure_triton(
    *files: Path,
    out: Path,
    pairs: Path | None = None,
    entry: str = "",
    windows: Integer = 5,
    seconds: float = 1.0,
    limit: float = 900.0,
    interpret: Flag = False,
    jobs: Integer = 1,
) -> None:
    """Measure latency of Triton kernels on this machine's GPU.

    The output is a table for finetune. A file has kernels, get_inputs(), and what is called with its result:
    call(args), a class ModelNew, or the function of --entry. For a file with a torch module, TorchInductor
    generates the kernels. Kernels run with your permissions, in separate processes. The same command
    continues an interrupted run. A kernel that fails has a row with its error, and a file that is no program
    is listed. If all fail, the exit code is 2.

    Args:
        files: kernels or torch modules.
        out: the parquet table, with latency in milliseconds.
        pairs: instead of files, a parquet or JSON file of KernelBook.
        entry: torch module of the files, or function that is called; by default the last module.
        windows: number of time windows; the median of their mean latencies counts.
        seconds: shortest length of a window.
        limit: seconds that compiling a kernel, or a window of its runs, may take.
        interpret: check kernels in Triton's interpreter, without a GPU: whether they run, and compute the
            same as their module. These times are not comparable with those of a GPU.
        jobs: number of kernels that start and compile at once; they are timed one after another.
    """
    require("triton", "measure triton")
    from nas_rlm.cli.programs import warn_of_contradiction
    from nas_rlm.data import Table
    from nas_rlm.programs.triton_runner import Plan, measure_kernels, read_kernel, read_kernelbook

    if bool(files) == (pairs is not None):
        raise ValueError("give either files, or --pairs with a file of KernelBook")
    check_minimum("--jobs", jobs, 1)
    check_table_target(out)
    plan = Plan(windows, seconds, interpret, limit)
    errors: list[str] = []
    if pairs:
        kernels = read_kernelbook(pairs)
    else:
        kernels, errors = _read_files(files, partial(read_kernel, entry=entry))
        for name, kernel in kernels.items():
            warn_of_contradiction(Path(name), kernel.source, "models learn those of the first line")
    table = measure_kernels(kernels, out, plan, jobs, progress=True) if kernels else Table(out.stem, [])
    rows = [row for row in table.rows if row.identifier in kernels]
    failed = [row for row in rows if not row.targets]
    print(f"{counted(len(rows) - len(failed), 'kernel')} with latency: {out}")
    wrong = [row for row in rows if json.loads(row.metainformation).get("matches") is False]
    if wrong:
        print(
            f"{len(wrong):,} compute other results than their modules, the first one: {wrong[0].identifier}"
        )
    _print_failures(errors, failed)
    _check_measured(len(rows) - len(failed), len(rows) + len(errors), "kernel")
