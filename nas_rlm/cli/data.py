"""data import, data describe: tables to learn from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from nas_rlm.cli.app import CommaList, Flag, InputShapes, SpaceList, app, check_table_target
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

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
    that cannot be read has no row. A warning for each kind says how many there are and why. In a CSV file of
    your own (csv, onnx, programs) they are errors that name the line and the column; ONNX files that cannot
    be read are left out.

    Args:
        kind: format of the file: nasbench201 (also NATS-Bench's topology space), nats_size, nasbench101,
            hw_nas_bench, hw_gpt_bench, help, nds, snas, codenet, nn_meter, timm, csv, onnx, programs, or
            parquet (GraphArch-Regression, Code-Regression, and files with a column of ONNX networks).
        file: the file as its authors publish it; a directory for hw_gpt_bench, help, codenet and the 'simple'
            files of NATS-Bench, either for nn_meter. For csv a file with an architecture and numbers in each
            line, and for onnx a CSV file with the column file, which has paths of ONNX files, and numbers.
            For programs a CSV file with the columns program (the source), language, problem and source (who
            wrote it), of which only the first is needed, and numbers.
            From codenet, 10,000 accepted submissions are drawn for each of C, C++ and Python.
        out: the parquet table.
        allow_pickle: read a file that can run code when it is read; only for files that you trust.
        input_shape: shape of an input with open sizes in the ONNX files, such as images:1x3x224x224. May be
            repeated. An open first size is a batch of 1.
        device: for timm, the name of the device of a benchmark-infer file, such as rtx4090.
        models: for timm, patterns of the architectures to build, such as 'resnet*' 'vit_*'; by default all.
        space: for csv, onnx and programs, the space of all lines: its name, or FILE.py:CLASS or MODULE:CLASS
            of your own; by default the column space names it. ONNX files need none. A program's language
            becomes a part of it: LeetCode is LeetCode/Java for a line in Java.
        architecture: for csv, the column of the architectures; by default architecture, arch or arch_str.
        objective: for csv, onnx and programs, objectives and their columns, such as accuracy=top1
            latency/mybox=ms, or only score where the names are equal. Columns whose names are objectives of
            known kinds, such as accuracy, acc_mydata, latency/mybox or loss/val, need none.
        unit: units of objectives of other kinds, such as score=points, which the table stores.
        maximise: objectives to maximise, which the table stores. Accuracy, throughput, IoU and similar kinds
            are maximised without.
    """
    from nas_rlm.data import write
    from nas_rlm.data.importers.csv_columns import CsvTable, repeated_rows
    from nas_rlm.data.importers.csv_files import read_csv
    from nas_rlm.data.importers.onnx_files import read_onnx_csv
    from nas_rlm.data.importers.program_files import read_program_csv
    from nas_rlm.data.objective_kinds import unit_warnings
    from nas_rlm.data.tables import read_declarations
    from nas_rlm.programs.languages import LANGUAGES

    check_table_target(out)
    if file.exists() and out.exists() and file.samefile(out):
        raise ValueError(f"--out {str(out)!r} is the file to read: choose another")
    units = _pairs("--unit", unit, "UNIT")
    columns = _pairs("--objective", [o if "=" in o else f"{o}={o}" for o in objective], "COLUMN")
    _check_kind(kind, "--device and --models", device or models, ("timm",))
    _check_kind(kind, "--input-shape", input_shape, ("onnx",))
    _check_kind(kind, "--space and --objective", space or columns, ("csv", "onnx", "programs"))
    _check_kind(kind, "--architecture", architecture, ("csv",))
    if kind == "csv":
        imported = read_csv(file, space, architecture, columns)
    elif kind == "onnx":
        imported = read_onnx_csv(file, space, columns, dict(input_shape))
    elif kind == "programs":
        from nas_rlm.cli.programs import warn_of_contradicted_languages  # it imports torch

        imported = read_program_csv(file, space, columns, sorted(set(LANGUAGES.values())))
        warn_of_contradicted_languages(imported.rows)
    else:
        from nas_rlm.data.importers.registry import import_benchmark

        rows = import_benchmark(kind, file, allow_pickle, device=device, models=models)
        imported = CsvTable(rows, {}, repeated_rows(rows), [])
    rows = imported.rows
    names = dict.fromkeys(name for row in rows for name in row.targets)
    declared = read_declarations(file) if kind == "parquet" else {}
    write(out, rows, declared | _declarations(rows, units, maximise))
    print(f"{counted(len(rows), 'row')}: {out}")
    for line in imported.summary:
        print(line)
    values = {name: [row.targets[name] for row in rows if name in row.targets] for name in names}
    for line in (*imported.warnings, *unit_warnings(values)):
        warnings.warn(line, stacklevel=2)


def _check_kind(kind: str, options: str, value: object, kinds: Sequence[str]) -> None:
    """Refuse options that are for other formats.

    Args:
        kind: format of the file.
        options: names of the options, for the message.
        value: their value; nothing is refused if it is empty.
        kinds: formats that have the options.
    """
    if value and kind not in kinds:
        verb = "are" if " and " in options else "is"
        listed = " and ".join(filter(None, [", ".join(kinds[:-1]), kinds[-1]]))
        raise ValueError(f"{options} {verb} for {listed}, not for {kind}")


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

    check_table_target(out)
    rows = add_problem_statements(table, problems)
    write(out, rows)
    print(f"{counted(len(rows), 'program')} with problems: {out}")
