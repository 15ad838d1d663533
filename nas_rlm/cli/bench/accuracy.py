"""bench accuracy: accuracies of networks of families without labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import Integer, check_minimum
from nas_rlm.cli.bench.app import bench


@bench.command(name="accuracy")
def bench_accuracy(
    file: Path, *, objective: str, seeds: Integer = 3, rows: Integer = 100_000, out: Path | None = None
) -> None:
    """Predict an accuracy of real networks whose families have no labels.

    The method is the surrogate that `finetune --learn none` fits; it is compared with costs. The families are
    in five folds, each of which is left out once.

    Args:
        file: parquet table of networks with families, such as timm.parquet.
        objective: an accuracy of the table.
        seeds: number of divisions of the families into folds.
        rows: maximum number of networks with the accuracy, drawn at random.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.network_accuracy import COSTS, KEY_NAMES, SURROGATE, AccuracyResult, run_accuracy
    from nas_rlm.data import read

    check_minimum("--seeds", seeds, 1)
    check_minimum("--rows", rows, 20)
    table = read(file).where_measured(objective)
    if not len(table):
        raise ValueError(f"no row of {file} has {objective}")
    settings = {"table": file.stem, "objective": objective, "rows": min(rows, len(table))}
    results = Results(out, AccuracyResult, settings, KEY_NAMES)
    results.add_all(run_accuracy(table.sample(rows).rows, objective, seeds, [*results.records]))
    print(f"{'method':<14}{'Spearman':>16}{'Kendall':>16}{'error':>16}{'interval':>16}")
    for method in (*COSTS, SURROGATE):
        found = [r for (name, seed), r in results.records.items() if name == method and seed < seeds]
        cells = ""
        for field in ("spearman", "kendall", "error", "coverage"):
            values = [getattr(result, field) for result in found]
            cells += f"{np.mean(values):.3f} ±{np.std(values):.3f}".rjust(16)
        print(f"{method:<14}{cells}")
