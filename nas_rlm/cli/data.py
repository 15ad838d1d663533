"""data import, data describe: tables to learn from."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from nas_rlm.cli.app import Flag, app
from nas_rlm.files import check_target

data = app.command(App(name="data", help="Import published benchmarks as tables."))


@data.command(name="import")
def import_table(kind: str, file: Path, *, out: Path, allow_pickle: Flag = False) -> None:
    """Convert the published file of a benchmark to a table.

    Args:
        kind: format of the file: nasbench201, nats_size, nasbench101, hw_nas_bench, help, nds, snas, codenet,
            or parquet (GraphArch-Regression and Code-Regression).
        file: the file as its authors publish it; a directory for help and codenet. From codenet, 10,000
            accepted submissions are drawn for each of C, C++ and Python.
        out: the parquet table.
        allow_pickle: read a file that can run code when it is read; only for files that you trust.
    """
    from nas_rlm.data import write
    from nas_rlm.data.importers import import_benchmark

    check_target(out)
    if file.exists() and out.exists() and file.samefile(out):
        raise ValueError(f"--out {str(out)!r} is the file to read: choose another")
    rows = import_benchmark(kind, file, allow_pickle)
    write(out, rows)
    print(f"{len(rows):,} rows: {out}")


@data.command
def describe(table: Path, *, problems: Path, out: Path) -> None:
    """Add problem statements as comments to programs.

    Args:
        table: a parquet table of solutions, such as leetcode_python.parquet.
        problems: compressed JSON lines with the fields problem and statement, as for measure python.
        out: the parquet table with comments.
    """
    from nas_rlm.data import write
    from nas_rlm.programs.leetcode import add_problem_statements

    check_target(out)
    rows = add_problem_statements(table, problems)
    write(out, rows)
    print(f"{len(rows):,} programs with their problems: {out}")
