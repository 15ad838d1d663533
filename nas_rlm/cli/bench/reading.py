"""bench reading: real ONNX files, their costs beside reference counts, tokens and time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.cli.app import Integer, check_minimum, load, show_progress
from nas_rlm.cli.bench.app import bench

if TYPE_CHECKING:
    from nas_rlm.benchmarks.robustness.reading import Summary

MAX_DEVIATION = 0.05  # of counts that are not listed
COLUMNS = (
    ("files", 8),
    ("read", 8),
    ("ms", 7),
    ("tokens", 8),
    ("exact", 8),
    ("2 %", 8),
    ("5 %", 8),
    ("*", 8),
)


@bench.command(name="reading")
def bench_reading(
    *files: Path, model: str = "nas", step: Integer = 1, refused: Integer = 10, out: Path | None = None
) -> None:
    """Read real ONNX files, and compare their multiply-accumulates with reference counts.

    The time is the CPU time from the file's bytes to token ids.

    Args:
        files: parquet tables with the columns identifier and onnx, and macs or gmacs; or indices of JSON
            lines with file, shapes and macs.
        model: model whose tokenizer is used: a checkpoint directory, or the name of a shipped model.
        step: read each step-th row of a table.
        refused: number of refused or wrongly counted files to list.
        out: append a line for each group to this file of JSON lines.
    """
    from nas_rlm.benchmarks.results import Results
    from nas_rlm.benchmarks.robustness.reading import (
        Summary,
        cases_of_index,
        cases_of_table,
        groups_of,
        read_case,
        summarize,
    )

    check_minimum("--step", step, 1)
    check_minimum("--refused", refused, 0)
    if not files:
        raise ValueError("nothing to read: give parquet tables, or indices of JSON lines")
    encode = load(model).tokenizer.encode
    results = Results(out, Summary, {"step": step}, ("table", "group"))
    wrong = []
    for position, path in enumerate(files):
        is_table = path.suffix == ".parquet"
        name = path.stem if is_table else path.absolute().parent.name
        cases = list(cases_of_table(path, step) if is_table else cases_of_index(path))
        if not cases:
            raise ValueError(f"{str(path)!r} lists no ONNX files")
        if position == 0:
            print(f"{'group':<28}" + "".join(f"{title:>{width}}" for title, width in COLUMNS))
        readings = [read_case(case, encode) for case in show_progress(cases, name)]
        for group, found in groups_of(readings).items():
            summary = summarize(found)
            results.add((name, group), summary)
            print(_row(f"{name}: {group}" if group != name else name, summary), flush=True)
        wrong += [r for r in readings if not r.is_read or r.error or abs(r.deviation or 0) > MAX_DEVIATION]
    print("* 5 %, with the rounding and the batch normalizations of the reference")
    for reading in wrong[:refused]:
        expected = f"{reading.macs:,.0f} MACs, expected {reading.expected_macs:,.0f}"
        print(f"{reading.name}: {reading.error or expected}")


def _row(name: str, summary: Summary) -> str:
    """Return the line of a group."""
    shares = summary.exact, summary.within_2_percent, summary.within_5_percent, summary.explained
    cells = f"{summary.files:>8,}{summary.read:>8.1%}{summary.milliseconds:>7.1f}{summary.tokens:>8,.0f}"
    return f"{name[:27]:<28}{cells}" + "".join(f"{share:>8.1%}" for share in shares)
