"""data import, data describe: tables to learn from."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from nas_rlm.cli.app import Flag, InputShapes, app
from nas_rlm.files import check_target

data = app.command(App(name="data", help="Import published benchmarks as tables."))


@data.command(name="import")
def import_table(
    kind: str, file: Path, *, out: Path, allow_pickle: Flag = False, input_shape: InputShapes = ()
) -> None:
    """Convert the published file of a benchmark to a table.

    Entries that are not valid are left out: a number is missing in its row, and an architecture that cannot
    be read has no row. A warning for each kind says how many there are and why.

    Args:
        kind: format of the file: nasbench201 (also NATS-Bench's topology space), nats_size, nasbench101,
            hw_nas_bench, help, nds, snas, codenet, onnx, or parquet (GraphArch-Regression and
            Code-Regression).
        file: the file as its authors publish it; a directory for help, codenet and the 'simple' files of
            NATS-Bench. For onnx a CSV file with the column file, which has paths of ONNX files, and a column
            for each objective. From codenet, 10,000 accepted submissions are drawn for each of C, C++
            and Python.
        out: the parquet table.
        allow_pickle: read a file that can run code when it is read; only for files that you trust.
        input_shape: shape of an input with open sizes in the ONNX files, such as images:1x3x224x224. May be
            repeated. An open first size is a batch of 1.
    """
    from nas_rlm.data import write
    from nas_rlm.data.importers import import_benchmark

    check_target(out)
    if file.exists() and out.exists() and file.samefile(out):
        raise ValueError(f"--out {str(out)!r} is the file to read: choose another")
    rows = import_benchmark(kind, file, allow_pickle, dict(input_shape))
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
