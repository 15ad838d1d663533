"""data import, data describe, snas generate: tables to learn from."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from nas_rlm.cli.app import Flag, Whole, app
from nas_rlm.files import check_target

data = app.command(App(name="data", help="Tables."))
snas = app.command(App(name="snas", help="Networks of the SNAS space, trained for a few steps each."))


@data.command(name="import")
def import_table(kind: str, file: Path, *, out: Path, allow_pickle: Flag = False) -> None:
    """Turn a benchmark's own file into a table.

    Args:
        kind: nasbench201, nats_size, nasbench101, hw_nas_bench, help, nds, snas, codenet or parquet (that of
            GraphArch-Regression and Code-Regression).
        file: as its authors publish it; a folder for help and codenet, of which 10,000 accepted submissions
            are drawn in each of C, C++ and Python.
        out: the parquet table.
        allow_pickle: read a file that can run code while it is read; only for files that you trust.
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
    """Write a table of programs anew, with the statement of its problem above each, as remarks.

    Args:
        table: of solutions, such as leetcode_python.parquet.
        problems: compressed JSON lines with problem and statement each, as for measure python.
        out: the parquet table.
    """
    from nas_rlm.data import write
    from nas_rlm.programs.leetcode import add_problem_statements

    check_target(out)
    rows = add_problem_statements(table, problems)
    write(out, rows)
    print(f"{len(rows):,} programs with their problems: {out}")


@snas.command
def generate(
    *,
    images: Path,
    out: Path,
    count: Whole,
    steps: Whole = 32,
    batch_size: Whole = 128,
    precision: str = "bfloat16",
    device: str = "cpu",
    seed: Whole = 0,
) -> None:
    """Draw networks, train each for a few steps, and append a JSON record each to a file.

    The same command again continues where the file ends. A network that fails is a record with its error.

    Args:
        images: the folder of CIFAR-10 in its Python format, or of Fashion-MNIST.
        out: the file, JSON lines.
        count: records that it shall have in the end.
        steps: of training.
        batch_size: images a step.
        precision: bfloat16 (mixed) or float32.
        device: cpu or cuda.
        seed: of the networks, their weights and the images.
    """
    from nas_rlm.data.images import read_images
    from nas_rlm.data.snas import Budget
    from nas_rlm.data.snas import generate as run

    if count < 1:
        raise ValueError(f"--count is {count}, expected at least 1")
    check_target(out)
    budget = Budget(steps, batch_size, precision=precision, device=device, seed=seed)
    records, failed = run(read_images(images), out, count, budget)
    print(f"{records:,} records, {failed} of them failed: {out}")
