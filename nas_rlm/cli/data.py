"""data import, data describe: tables to learn from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from nas_rlm.cli.app import CommaList, Flag, InputShapes, SpaceList, app
from nas_rlm.files import check_target
from nas_rlm.utils.validation import suggest

if TYPE_CHECKING:
    from nas_rlm.data import Row
    from nas_rlm.data.objective_kinds import Declaration

data = app.command(App(name="data", help="Import benchmarks and files of your own as tables."))


@data.command(name="import")
def import_table(
    kind: str,
    file: Path,
    *,
    out: Path,
    allow_pickle: Flag = False,
    input_shape: InputShapes = (),
    device: str = "",
    models: SpaceList = (),
    space: str = "",
    architecture: str = "",
    objective: SpaceList = (),
    unit: SpaceList = (),
    maximise: CommaList = (),
) -> None:
    """Convert the published file of a benchmark, or a file of your own, to a table.

    Entries of benchmarks that are not valid are left out: a number is missing in its row, and an architecture
    that cannot be read has no row. A warning for each kind says how many there are and why. In a CSV file
    they are errors that name the line and the column.

    Args:
        kind: format of the file: nasbench201 (also NATS-Bench's topology space), nats_size, nasbench101,
            hw_nas_bench, hw_gpt_bench, help, nds, snas, codenet, nn_meter, timm, csv, onnx, or parquet
            (GraphArch-Regression, Code-Regression, and files with a column of ONNX networks).
        file: the file as its authors publish it; a directory for hw_gpt_bench, help, codenet and the 'simple'
            files of NATS-Bench, either for nn_meter. For csv a file with an architecture and numbers in each
            line, and for onnx a CSV file with the column file, which has paths of ONNX files, and a column
            for each objective. From codenet, 10,000 accepted submissions are drawn for each of C, C++ and
            Python.
        out: the parquet table.
        allow_pickle: read a file that can run code when it is read; only for files that you trust.
        input_shape: shape of an input with open sizes in the ONNX files, such as images:1x3x224x224. May be
            repeated. An open first size is a batch of 1.
        device: for timm, the name of the device of a benchmark-infer file, such as rtx4090.
        models: for timm, patterns of the architectures to build, such as 'resnet*' 'vit_*'; by default all.
        space: for csv, the search space of all lines: its name, or FILE.py:CLASS or MODULE:CLASS of your own;
            by default the column space names it.
        architecture: for csv, the column of the architectures; by default architecture, arch or arch_str.
        objective: for csv, objectives and their columns, such as accuracy=top1 latency/mybox=ms, or only
            score where the names are equal. Columns whose names are objectives of known kinds, such as
            accuracy, acc_mydata, latency/mybox or loss/val, need none.
        unit: units of objectives of other kinds, such as score=points, which the table stores.
        maximise: objectives to maximise, which the table stores. Accuracy, throughput, IoU and similar kinds
            are maximised without.
    """
    from nas_rlm.data import write
    from nas_rlm.data.importers import import_benchmark
    from nas_rlm.data.importers.csv_files import is_unnamed_latency, read_csv, value_summary
    from nas_rlm.data.objective_kinds import unit_warnings
    from nas_rlm.data.tables import read_declarations

    check_target(out)
    if file.exists() and out.exists() and file.samefile(out):
        raise ValueError(f"--out {str(out)!r} is the file to read: choose another")
    units = _pairs("--unit", unit, "UNIT")
    columns = _pairs("--objective", [o if "=" in o else f"{o}={o}" for o in objective], "COLUMN")
    if kind == "csv":
        if device or models:
            raise ValueError("--device and --models are for timm: expected the kind timm")
        if input_shape:
            raise ValueError("--input-shape is for ONNX files: expected the kind onnx")
        imported = read_csv(file, space, architecture, columns)
        rows, summary, notes = imported.rows, imported.summary, imported.warnings
    else:
        if space or architecture or columns:
            raise ValueError(f"--space, --architecture and --objective are for csv files, not for {kind}")
        rows = import_benchmark(kind, file, allow_pickle, dict(input_shape), device, models)
        summary, notes = [], []
    names = dict.fromkeys(name for row in rows for name in row.targets)
    if kind == "onnx":
        summary = value_summary(rows, {name: name for name in names})
        notes = [
            f"{name!r} is an objective of no known kind; if these are latencies in milliseconds, name the"
            " column latency/mydevice"
            for name in filter(is_unnamed_latency, names)
        ]
    declared = read_declarations(file) if kind == "parquet" else {}
    write(out, rows, declared | _declarations(rows, units, maximise))
    print(f"{len(rows):,} rows: {out}")
    for line in summary:
        print(line)
    values = {name: [row.targets[name] for row in rows if name in row.targets] for name in names}
    for line in (*notes, *unit_warnings(values)):
        warnings.warn(line, stacklevel=2)


def _pairs(option: str, texts: Sequence[str], value: str) -> dict[str, str]:
    """Return the pairs of an option, such as accuracy=top1, as a dict."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, content = text.partition("=")
        if not (name and equals and content):
            raise ValueError(f"{option} is {text!r}: expected OBJECTIVE={value}")
        if name in pairs:
            raise ValueError(f"{option} names {name!r} twice: expected each objective once")
        pairs[name] = content
    return pairs


def _declarations(
    rows: Sequence[Row], units: Mapping[str, str], maximise: Sequence[str]
) -> dict[str, Declaration]:
    """Return the units and directions of a command line.

    Raises:
        ValueError: no row has an objective.
    """
    from nas_rlm.data.objective_kinds import Declaration

    known = dict.fromkeys(name for row in rows for name in row.targets)
    for name in (*units, *maximise):
        if name not in known:
            raise ValueError(f"no row has {name!r}; {suggest(name, known)}")
    return {
        name: Declaration(units.get(name, ""), "maximize" if name in maximise else "")
        for name in dict.fromkeys([*units, *maximise])
    }


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
