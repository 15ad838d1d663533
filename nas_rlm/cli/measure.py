"""measure: what programs take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from nas_rlm.cli.app import Flag, Whole, app
from nas_rlm.files import check_target

if TYPE_CHECKING:
    from nas_rlm.programs.python_runner import Program

measure = app.command(App(name="measure", help="Measure what programs take, in processes of their own."))


@measure.command(name="python")
def measure_python(
    *files: Path,
    out: Path,
    programs: Path | None = None,
    solutions: Path | None = None,
    problems: Path | None = None,
    apps: Path | None = None,
    cases: Path | None = None,
    entry: str = "",
    warmup: Whole = 3,
    repeats: Whole = 11,
    seconds: float = 10.0,
    memory: Whole = 2 * 2**30,
    no_counts: Flag = False,
    trust: Flag = False,
    jobs: Whole = 1,
) -> None:
    """Measure peak memory, time and counts of Python programs, as a table that finetune reads.

    Each run is a fresh process without network, which may not write, start processes or take more time and
    memory than it is given; it can read what you can read. The same command again goes on where the table
    ends; a program that fails is a row with its error.

    Args:
        files: programs, which share their inputs.
        out: the parquet table.
        programs: instead of files, JSON lines with name, source, cases and entry each, and perhaps problem.
        solutions: instead of files, a table of solutions of --problems, which are measured again; how far its
            own numbers rank them alike is told.
        problems: compressed JSON lines with problem, preamble, entry_point, test and statement
            each, as LeetCodeDataset.
        apps: instead of files, train.jsonl or test.jsonl of APPS.
        cases: the inputs of files, a JSON list such as '[{"args": [1, 2]}]' or '[{"stdin": "1 2"}]'; by
            default one that is empty.
        entry: the function of files that is called, such as 'Solution().solve'; by default all is run.
        warmup: timed runs on each input that are thrown away.
        repeats: timed runs on each input that count; 0 measures memory and counts alone.
        seconds: that a timed run may take; one in which allocations or lines are noted may take six times as
            many.
        memory: bytes that a run may have.
        no_counts: lines and calls are not counted.
        trust: run programs also where the system has nothing to keep them from doing harm.
        jobs: programs measured at a time; their times disturb each other.
    """
    import json

    from nas_rlm.programs.apps import read_apps
    from nas_rlm.programs.leetcode import rank_agreement, read_solutions
    from nas_rlm.programs.python_runner import Plan
    from nas_rlm.programs.table import measure_programs, read_cases, read_programs

    if [bool(files), *(one is not None for one in (programs, solutions, apps))].count(True) != 1:
        raise ValueError("give either files, --programs, --apps, or --solutions and --problems")
    if (solutions is None) != (problems is None):
        raise ValueError("--solutions and --problems go together: give both or none")
    if not files and (cases or entry):
        raise ValueError(
            "programs that are no files have inputs and entries of their own: --cases is for files"
        )
    if jobs < 1:
        raise ValueError(f"--jobs is {jobs}, expected at least 1")
    check_target(out)
    plan = Plan(warmup, repeats, seconds, memory, not no_counts, trust)
    known = None
    if programs:
        found = read_programs(programs)
    elif apps:
        found = read_apps(apps)
    elif solutions and problems:
        known, found = read_solutions(solutions, problems)
    else:
        inputs = read_cases(cases) if cases else [{} if entry else {"stdin": ""}]
        found = {str(path): _program(path, entry, inputs) for path in files}
    table = measure_programs(found, out, plan, jobs, progress=True)
    rows = [row for row in table.rows if row.identifier in found]
    failed = [row for row in rows if not row.is_measured("memory")]
    print(f"{len(rows) - len(failed):,} programs with memory: {out}")
    if failed:
        reason = json.loads(failed[0].metainformation)["error"]
        print(f"{len(failed):,} cannot be measured, the first one: {failed[0].identifier}: {reason}")
    if known:
        for objective, (count, rho) in rank_agreement(table, known).items():
            print(f"Spearman with {objective} of {known.name}: {rho:.3f}, {count:,} solutions, no two alike")


def _program(path: Path, entry: str, inputs: Sequence[dict[str, Any]]) -> Program:
    from nas_rlm.programs.python_runner import Program
    from nas_rlm.programs.source import read_source

    source = read_source(path)
    try:
        return Program(source, entry, inputs)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@measure.command(name="triton")
def measure_triton(
    *files: Path,
    out: Path,
    pairs: Path | None = None,
    entry: str = "",
    windows: Whole = 5,
    seconds: float = 1.0,
    limit: float = 900.0,
    interpret: Flag = False,
) -> None:
    """Measure how long Triton kernels take on this machine's GPU, as a table that finetune reads.

    A file has kernels, get_inputs() and something to call with what that gives: call(args), a class ModelNew
    or a function that is named. Of a file with a torch module instead TorchInductor makes kernels. They run
    as any program of yours does, in processes of their own. The same command again goes on where the table
    ends; a kernel that fails is a row with its error.

    Args:
        files: kernels, or torch modules.
        out: the parquet table.
        pairs: instead of files, a parquet or JSON file of KernelBook.
        entry: the torch module of the files, or the function that is called; by default the last module.
        windows: of runs; the median of their means counts.
        seconds: that a window takes at least.
        limit: seconds that compiling a kernel, or a window of its runs, may take.
        interpret: check kernels in Triton's interpreter, without a GPU: whether they run, and compute what
            their module does. Its times are its own.
    """
    import json

    from nas_rlm.programs.triton_runner import Plan, measure_kernels, read_kernel, read_kernelbook

    if bool(files) == (pairs is not None):
        raise ValueError("give either files, or --pairs with a file of KernelBook")
    check_target(out)
    plan = Plan(windows, seconds, interpret, limit)
    found = read_kernelbook(pairs) if pairs else {str(path): read_kernel(path, entry) for path in files}
    table = measure_kernels(found, out, plan, progress=True)
    rows = [row for row in table.rows if row.identifier in found]
    failed = [row for row in rows if not row.targets]
    print(f"{len(rows) - len(failed):,} kernels with latency: {out}")
    wrong = [row for row in rows if json.loads(row.metainformation).get("matches") is False]
    if wrong:
        print(
            f"{len(wrong):,} compute something else than their modules, the first one: {wrong[0].identifier}"
        )
    if failed:
        reason = json.loads(failed[0].metainformation)["error"]
        print(f"{len(failed):,} cannot be measured, the first one: {failed[0].identifier}: {reason}")
