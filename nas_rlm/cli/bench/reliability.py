"""bench reliability: coverage of predictive intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.cli.app import CommaList, Flag, load
from nas_rlm.cli.bench.app import bench
from nas_rlm.utils.progress import progress_bar

if TYPE_CHECKING:
    from nas_rlm.data import Table
    from nas_rlm.rlm import RLM

DEFAULT_LATENCIES = 3  # of each table


@bench.command(name="reliability")
def bench_reliability(
    *,
    out: Path,
    model: str = "nas",
    data: Path | None = None,
    objectives: CommaList = (),
    validation: Flag = False,
) -> None:
    """Measure the coverage of predictive intervals.

    Prints for each objective the share of true values in intervals of 20 to 90 %, the median relative error
    of the half with the narrower intervals and of the other half, and the Spearman correlation of its errors
    with those of accuracy.

    Args:
        out: picture of the coverage: .png, .svg, .pdf or .jpg.
        model: a checkpoint directory, or the name of a shipped model.
        data: a table of one space; by default the test rows of the shipped models' tables.
        objectives: objectives to evaluate; by default accuracies and three latencies of each table.
        validation: without --data, use the validation rows, which decided the temperatures, instead of the
            test rows.
    """
    from nas_rlm.benchmarks.evaluation import read_test_table, train_test_tables
    from nas_rlm.benchmarks.reliability import INTERVALS, Reliability, measure_reliability
    from nas_rlm.plotting.reliability import draw_reliability
    from nas_rlm.plotting.style import check_picture_path, save_figure

    check_picture_path(out)
    rlm = load(model)
    rlm.check(objectives or rlm.objectives)
    if data:
        tables = [read_test_table(data, validation)]
    else:
        tables = [test for _, test in train_test_tables(rlm, validation)]
    results: list[Reliability] = []
    for table in progress_bar(tables, "reliability", unit="table", disable=len(tables) == 1):
        spaces = sorted({row.space for row in table.rows})
        if len(spaces) > 1:
            named = ", ".join(space or "no space" for space in spaces)
            raise ValueError(f"{table.name} has rows of {named}; expected one space")
        names = _select_objectives(rlm, table, objectives)
        results += measure_reliability(rlm, table, names) if names else []
    if not results:
        names = list(objectives) or ["an objective of the model"]
        raise ValueError(f"no table has two rows with {', '.join(names)}")
    intervals = "".join(f"{i:>7.0%}" for i in INTERVALS)
    errors = f"{'narrow':>10}{'wide':>11}{'errors':>8}"
    print(f"{'table':<13}{'objective':<34}{'rows':>6}{intervals}{errors}")
    for r in results:
        shares = "".join(f"{share:>7.2f}" for share in r.coverage)
        correlation = f"{r.error_correlation:>8.2f}" if r.error_correlation is not None else ""
        errors = f"{r.narrow_error:>10.2%}{r.wide_error:>11.2%}{correlation}"
        print(f"{r.table:<13}{r.objective:<34}{r.rows:>6}{shares}{errors}")
    save_figure(draw_reliability(INTERVALS, {f"{r.table} {r.objective}": r.coverage for r in results}), out)
    print(f"picture: {out}")


def _select_objectives(rlm: RLM, table: Table, objectives: Sequence[str]) -> list[str]:
    """The given objectives that a table has, or its accuracies and some latencies."""
    shared = [o for o in table.objectives if o in rlm.objectives and len(table.where_measured(o)) > 1]
    if objectives:
        return [o for o in objectives if o in shared]
    latencies = [o for o in shared if o.startswith("latency/")][:DEFAULT_LATENCIES]
    return [o for o in shared if o.startswith("accuracy")] + latencies
